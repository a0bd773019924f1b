// SPDX-License-Identifier: GPL-2.0-only OR MIT
/*
 * Where a command's data are in the guest's memory: a list of pages (PRP), or
 * of pieces of any size (SGL). Everything is looked at before anything is moved.
 */
#include "internal.h"

/* More descriptors than this, such as those of a list that leads back to itself, are refused. */
#define MAX_DESCRIPTORS 4096

void *nvme_dma(struct nvme *nvme, u64 address, u64 bytes, bool write)
{
	u64 found = bytes;
	void *memory = nvme->host.dma(nvme->host.ctx, address, &found, write);

	return memory && found == bytes ? memory : NULL;
}

/* Add @bytes at @address, which may be in several mappings. */
static u16 add(struct nvme *nvme, u64 address, u64 bytes, bool write)
{
	struct iovec *last;
	u64 found;
	u8 *memory;

	for (; bytes; bytes -= found, address += found) {
		found = bytes;
		memory = nvme->host.dma(nvme->host.ctx, address, &found, write);
		if (!memory || !found)
			return NVME_DATA_TRANSFER_ERROR;
		last = nvme->nr_segments ? &nvme->segments[nvme->nr_segments - 1] : NULL;
		if (last && (u8 *)last->iov_base + last->iov_len == memory) {
			last->iov_len += found;
			continue;
		}
		if (nvme->nr_segments == NVME_SEGMENTS)
			return NVME_SGL_INVALID_COUNT;
		nvme->segments[nvme->nr_segments++] = (struct iovec){ memory, found };
	}
	return NVME_SUCCESS;
}

/* ---- PRP ------------------------------------------------------------------ */

/*
 * The second entry of a command and those after it, when they are a list: pages
 * of entries, the last of which is where the next page of entries is if more
 * than one is left.
 */
static u16 map_prp_list(struct nvme *nvme, u64 list, u64 bytes, bool write)
{
	u64 page = 1ull << nvme->page_shift, entry, part;
	const u64 *at;
	u16 status;

	if (list & 7)
		return NVME_PRP_INVALID_OFFSET;
	while (bytes) {
		at = nvme_dma(nvme, list, sizeof(*at), false);
		if (!at)
			return NVME_DATA_TRANSFER_ERROR;
		entry = READ_ONCE(*at);
		if (entry & (page - 1))
			return NVME_PRP_INVALID_OFFSET;
		if ((list & (page - 1)) == page - sizeof(*at) && bytes > page) {
			list = entry;
			continue;
		}
		part = min_t(u64, bytes, page);
		status = add(nvme, entry, part, write);
		if (status)
			return status;
		bytes -= part;
		list += sizeof(*at);
	}
	return NVME_SUCCESS;
}

static u16 map_prp(struct nvme *nvme, const struct nvme_sqe *sqe, u64 bytes, bool write)
{
	u64 page = 1ull << nvme->page_shift, first;
	u16 status;

	if (sqe->prp[0] & 3)
		return NVME_PRP_INVALID_OFFSET;
	first = min_t(u64, bytes, page - (sqe->prp[0] & (page - 1)));
	status = add(nvme, sqe->prp[0], first, write);
	if (status || first == bytes)
		return status;
	bytes -= first;
	if (bytes > page)
		return map_prp_list(nvme, sqe->prp[1], bytes, write);
	if (sqe->prp[1] & (page - 1))
		return NVME_PRP_INVALID_OFFSET;
	return add(nvme, sqe->prp[1], bytes, write);
}

/* ---- SGL ------------------------------------------------------------------ */

struct sgl {
	struct nvme *nvme;
	u64 bytes; /* not yet found */
	bool write;
	u32 descriptors; /* looked at */
};

static u16 data_block(struct sgl *sgl, const struct nvme_sgl_descriptor *d)
{
	if (d->length > sgl->bytes)
		return NVME_SGL_INVALID_LENGTH;
	sgl->bytes -= d->length;
	return add(sgl->nvme, d->address, d->length, sgl->write);
}

/* The descriptors of the segment to which *@d leads; what leads to the next is left in *@d. */
static u16 segment(struct sgl *sgl, struct nvme_sgl_descriptor *d, bool *more)
{
	bool last = d->type >> 4 == NVME_SGL_LAST_SEGMENT;
	u64 address = d->address;
	u32 n = d->length / sizeof(*d), i;
	const void *at;
	u16 status;

	*more = false;
	if (!n || d->length % sizeof(*d))
		return NVME_SGL_INVALID_SEGMENT;
	for (i = 0; i < n; i++, address += sizeof(*d)) {
		if (++sgl->descriptors > MAX_DESCRIPTORS)
			return NVME_SGL_INVALID_COUNT;
		at = nvme_dma(sgl->nvme, address, sizeof(*d), false);
		if (!at)
			return NVME_DATA_TRANSFER_ERROR;
		memcpy(d, at, sizeof(*d));
		switch (d->type) {
		case NVME_SGL_DATA << 4:
			status = data_block(sgl, d);
			if (status)
				return status;
			break;
		case NVME_SGL_SEGMENT << 4:
		case NVME_SGL_LAST_SEGMENT << 4:
			if (last || i + 1 < n)
				return NVME_SGL_INVALID_SEGMENT;
			*more = true;
			return NVME_SUCCESS;
		default:
			return NVME_SGL_INVALID_TYPE;
		}
	}
	/* The last descriptor of a segment that is not the last one leads to another. */
	return last ? NVME_SUCCESS : NVME_SGL_INVALID_SEGMENT;
}

static u16 map_sgl(struct nvme *nvme, const struct nvme_sqe *sqe, u64 bytes, bool write)
{
	struct sgl sgl = { .nvme = nvme, .bytes = bytes, .write = write };
	struct nvme_sgl_descriptor d;
	bool more = true;
	u16 status;

	memcpy(&d, sqe->sgl, sizeof(d));
	switch (d.type) {
	case NVME_SGL_DATA << 4:
		status = data_block(&sgl, &d);
		break;
	case NVME_SGL_SEGMENT << 4:
	case NVME_SGL_LAST_SEGMENT << 4:
		do
			status = segment(&sgl, &d, &more);
		while (!status && more);
		break;
	default:
		return NVME_SGL_INVALID_TYPE;
	}
	if (status)
		return status;
	return sgl.bytes ? NVME_SGL_INVALID_LENGTH : NVME_SUCCESS;
}

/* ---- Both ----------------------------------------------------------------- */

u16 nvme_map_data(struct nvme *nvme, const struct command *cmd, u64 bytes, bool write)
{
	nvme->nr_segments = 0;
	if (NVME_PSDT(cmd->sqe.flags))
		return map_sgl(nvme, &cmd->sqe, bytes, write);
	return map_prp(nvme, &cmd->sqe, bytes, write);
}

void nvme_copy_out(struct nvme *nvme, const void *data, u64 bytes)
{
	const u8 *from = data;
	u64 part;
	u32 i;

	for (i = 0; i < nvme->nr_segments && bytes; i++, bytes -= part, from += part) {
		part = min_t(u64, bytes, nvme->segments[i].iov_len);
		memcpy(nvme->segments[i].iov_base, from, part);
	}
}

void nvme_copy_in(struct nvme *nvme, void *data, u64 bytes)
{
	u8 *to = data;
	u64 part;
	u32 i;

	for (i = 0; i < nvme->nr_segments && bytes; i++, bytes -= part, to += part) {
		part = min_t(u64, bytes, nvme->segments[i].iov_len);
		memcpy(to, nvme->segments[i].iov_base, part);
	}
}
