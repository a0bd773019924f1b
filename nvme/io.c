// SPDX-License-Identifier: GPL-2.0-only OR MIT
/*
 * I/O commands, and the drive's data: a file, of which nothing but the range of
 * a command that has been checked is ever touched.
 *
 * What is deallocated, or written with zeroes, becomes a hole in the file and
 * reads as zeroes.
 */
#include <errno.h>
#include <fcntl.h>
#include <sys/uio.h>
#include <unistd.h>

#include "internal.h"

/* Of Dataset Management, at a time: the model looks at every unit in it. */
#define TRIM_BLOCKS ((1u << 30) / NVME_BLOCK)
#define MAX_RANGES 256
#define EVERYWHERE 0xffffffff /* the namespace identifier that means all */

static u64 size_in_blocks(const struct nvme *nvme)
{
	return nvme->config.bytes / NVME_BLOCK;
}

static bool in_range(const struct nvme *nvme, u64 lba, u64 blocks)
{
	return lba <= size_in_blocks(nvme) && blocks <= size_in_blocks(nvme) - lba;
}

static u64 lba_of(const struct nvme_sqe *sqe)
{
	return sqe->cdw10 | (u64)sqe->cdw11 << 32;
}

static u32 blocks_of(const struct nvme_sqe *sqe)
{
	return (sqe->cdw12 & 0xffff) + 1;
}

static u16 punch(struct nvme *nvme, u64 lba, u64 blocks)
{
	if (fallocate(nvme->config.data, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE,
		      (off_t)(lba * NVME_BLOCK), (off_t)(blocks * NVME_BLOCK)))
		return NVME_WRITE_FAULT;
	return NVME_SUCCESS;
}

/* ---- Dataset Management --------------------------------------------------- */

static u32 nr_ranges(const struct nvme_sqe *sqe)
{
	return (sqe->cdw10 & 0xff) + 1;
}

/* The ranges are read again for each piece, since the guest may change them: each is checked. */
static u16 read_ranges(struct nvme *nvme, const struct command *cmd, struct nvme_range *ranges)
{
	u32 n = nr_ranges(&cmd->sqe), i;
	u16 status = nvme_map_data(nvme, cmd, n * sizeof(*ranges), false);

	if (status)
		return status;
	nvme_copy_in(nvme, ranges, n * sizeof(*ranges));
	for (i = 0; i < n; i++)
		if (!in_range(nvme, ranges[i].lba, ranges[i].blocks))
			return NVME_LBA_OUT_OF_RANGE;
	return NVME_SUCCESS;
}

/* Give the model the next piece, or complete @cmd when there is none. */
static void trim_next(struct nvme *nvme, struct command *cmd)
{
	struct nvme_range ranges[MAX_RANGES];
	u16 status = read_ranges(nvme, cmd, ranges);
	const struct nvme_range *r;

	if (status) {
		nvme_complete(nvme, cmd, status, 0);
		return;
	}
	for (; cmd->range < nr_ranges(&cmd->sqe); cmd->range++, cmd->done = 0) {
		r = &ranges[cmd->range];
		if (cmd->done >= r->blocks)
			continue;
		if (nvme->shuts_down && (cmd->range || cmd->done)) {
			nvme_complete(nvme, cmd, NVME_ABORTED, 0);
			return;
		}
		cmd->lba = r->lba + cmd->done;
		cmd->blocks = min_t(u32, r->blocks - cmd->done, TRIM_BLOCKS);
		cmd->ssd.op = SSD_TRIM;
		cmd->ssd.offset = cmd->lba * NVME_BLOCK;
		cmd->ssd.bytes = cmd->blocks * NVME_BLOCK;
		if (cmd->done >= nvme->config.profile.map / NVME_BLOCK) {
			/* The map, which wraps around, is all trimmed by now: only a command's time. */
			cmd->blocks = r->blocks - cmd->done;
			cmd->ssd.bytes = NVME_BLOCK;
		}
		nvme_to_model(nvme, cmd);
		return;
	}
	nvme_complete(nvme, cmd, NVME_SUCCESS, 0);
}

static void trim_done(struct nvme *nvme, struct command *cmd)
{
	u16 status = punch(nvme, cmd->lba, cmd->blocks);

	if (status) {
		nvme_complete(nvme, cmd, status, 0);
		return;
	}
	cmd->done += cmd->blocks;
	trim_next(nvme, cmd);
}

/* ---- Reads and writes ----------------------------------------------------- */

static u16 move(struct nvme *nvme, const struct command *cmd)
{
	bool read = cmd->sqe.opcode == NVME_READ;
	off_t offset = (off_t)(lba_of(&cmd->sqe) * NVME_BLOCK);
	u64 bytes = (u64)blocks_of(&cmd->sqe) * NVME_BLOCK;
	u16 status = nvme_map_data(nvme, cmd, bytes, read);
	ssize_t moved;

	if (status)
		return status;
	moved = read ? preadv(nvme->config.data, nvme->segments, (int)nvme->nr_segments, offset) :
		       pwritev(nvme->config.data, nvme->segments, (int)nvme->nr_segments, offset);
	if (moved == (ssize_t)bytes)
		return NVME_SUCCESS;
	/* Short: the rest would have failed, and the guest does it all again. */
	if (moved < 0 && errno == EFAULT)
		return NVME_DATA_TRANSFER_ERROR;
	nvme->media_errors++;
	return read ? NVME_READ_ERROR : NVME_WRITE_FAULT;
}

static void count(struct nvme *nvme, const struct nvme_sqe *sqe)
{
	if (sqe->opcode == NVME_READ) {
		nvme->reads++;
		nvme->read_blocks += blocks_of(sqe);
	} else {
		nvme->writes++;
		nvme->written_blocks += blocks_of(sqe);
	}
}

/* ---- All ------------------------------------------------------------------ */

/* Checks that do not look at data, and what the model is to be given. Returns a status. */
static u16 prepare(struct nvme *nvme, struct command *cmd)
{
	const struct nvme_sqe *sqe = &cmd->sqe;
	u64 blocks = blocks_of(sqe);
	bool all = sqe->opcode == NVME_FLUSH && sqe->nsid == EVERYWHERE;

	switch (sqe->opcode) {
	case NVME_FLUSH:
		cmd->ssd.op = SSD_FLUSH;
		break;
	case NVME_READ:
		cmd->ssd.op = SSD_READ;
		break;
	case NVME_WRITE:
		cmd->ssd.op = SSD_WRITE;
		break;
	case NVME_WRITE_ZEROES:
	case NVME_DATASET_MANAGEMENT:
		cmd->ssd.op = SSD_TRIM;
		break;
	default:
		return NVME_INVALID_OPCODE;
	}
	if (NVME_FUSE(sqe->flags) || NVME_PSDT(sqe->flags) == 3)
		return NVME_INVALID_FIELD;
	if (sqe->nsid != 1 && !all)
		return NVME_INVALID_NAMESPACE;
	if (sqe->opcode == NVME_FLUSH || sqe->opcode == NVME_DATASET_MANAGEMENT)
		return NVME_SUCCESS;
	if (sqe->opcode != NVME_WRITE_ZEROES && blocks * NVME_BLOCK > NVME_MAX_TRANSFER)
		return NVME_INVALID_FIELD;
	if (!in_range(nvme, lba_of(sqe), blocks))
		return NVME_LBA_OUT_OF_RANGE;
	cmd->ssd.offset = lba_of(sqe) * NVME_BLOCK;
	cmd->ssd.bytes = (u32)(blocks * NVME_BLOCK);
	/* With its cache off, the drive has nothing that a loss of power would take. */
	cmd->ssd.fua = cmd->ssd.op == SSD_WRITE &&
		       (sqe->cdw12 >> 30 & 1 || !nvme->features.write_cache);
	return NVME_SUCCESS;
}

void nvme_io(struct nvme *nvme, struct command *cmd)
{
	u16 status = prepare(nvme, cmd);

	if (status)
		nvme_complete(nvme, cmd, status, 0);
	else if (cmd->sqe.opcode != NVME_DATASET_MANAGEMENT)
		nvme_to_model(nvme, cmd);
	else if (cmd->sqe.cdw11 & 4)
		trim_next(nvme, cmd);
	else /* only hints: of no use here */
		nvme_complete(nvme, cmd, NVME_SUCCESS, 0);
}

void nvme_io_done(struct nvme *nvme, struct command *cmd)
{
	u16 status = NVME_SUCCESS;

	switch (cmd->sqe.opcode) {
	case NVME_DATASET_MANAGEMENT:
		trim_done(nvme, cmd);
		return;
	case NVME_READ:
	case NVME_WRITE:
		status = move(nvme, cmd);
		if (!status)
			count(nvme, &cmd->sqe);
		break;
	case NVME_WRITE_ZEROES:
		status = punch(nvme, lba_of(&cmd->sqe), blocks_of(&cmd->sqe));
		break;
	}
	nvme_complete(nvme, cmd, status, 0);
}
