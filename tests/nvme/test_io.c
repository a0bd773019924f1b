// SPDX-License-Identifier: GPL-2.0-only OR MIT
/* I/O commands: data arrive, by PRPs and SGLs, and each mistake gets its status. */
#include <fcntl.h>

#include "guest.h"

#define LAST_BLOCK (DRIVE_BYTES / 512 - 1)

/* What block @lba of the file holds: all the same byte, or -1. */
static int block(struct guest *g, u64 lba)
{
	u8 data[512];
	u32 i;

	if (pread(g->config.data, data, sizeof(data), (off_t)(lba * 512)) != sizeof(data))
		return -1;
	for (i = 1; i < sizeof(data); i++)
		if (data[i] != data[0])
			return -1;
	return data[0];
}

static void pattern(struct guest *g, u8 *data, u64 bytes)
{
	u64 i;

	for (i = 0; i < bytes; i++)
		data[i] = (u8)guest_random(g);
}

static void test_prps(void)
{
	static const u32 blocks[] = { 1, 7, 8, 9, 16, 17, 24, 100, 2048 };
	static const u32 offsets[] = { 0, 4, 512, 4092 };
	struct nvme_sqe sqe;
	struct guest g;
	u32 b, o, i, pages;
	u64 buffer, list, *entries;
	u8 *data = malloc(1 << 20), *back = malloc(1 << 20);

	guest_init(&g);
	guest_start(&g, 16);
	/* Twice over the border between the two pieces of memory. */
	g.free = MEMORY_BASE + PIECE - (1 << 20);
	list = guest_alloc(&g, 2 * PAGE);
	for (b = 0; b < ARRAY_SIZE(blocks); b++) {
		for (o = 0; o < ARRAY_SIZE(offsets); o++) {
			u64 bytes = blocks[b] * 512ull, at_byte, done, part;

			buffer = MEMORY_BASE + PIECE - (bytes / 2 & ~(PAGE - 1));
			if (bytes == 1 << 20 || buffer <= list + 2 * PAGE)
				buffer = MEMORY_BASE + PIECE + (1 << 20);
			pages = (u32)((offsets[o] + bytes + PAGE - 1) / PAGE);
			entries = at(&g, list);
			/* Pages in descending order: a list is what puts them together. */
			for (i = 1; i < pages; i++)
				entries[i - 1] = buffer + (pages - i) * PAGE;
			pattern(&g, data, bytes);
			sqe = io(NVME_WRITE, 100, blocks[b], buffer + offsets[o],
				 pages == 2 ? buffer + PAGE : list);
			for (done = 0, i = 0; done < bytes; done += part, i++) {
				at_byte = i ? buffer + (pages - i) * PAGE : buffer + offsets[o];
				part = min_t(u64, bytes - done, PAGE - (at_byte & (PAGE - 1)));
				memcpy(at(&g, at_byte), data + done, part);
			}
			CHECK(!io_status(&g, sqe), "%u blocks at %u", blocks[b], offsets[o]);
			CHECK(pread(g.config.data, back, bytes, 51200) == (ssize_t)bytes &&
				      !memcmp(back, data, bytes),
			      "%u blocks at %u: other data", blocks[b], offsets[o]);
			for (i = 0; i < pages; i++)
				memset(at(&g, buffer + i * PAGE), 0, PAGE);
			sqe.opcode = NVME_READ;
			CHECK(!io_status(&g, sqe), "%u blocks at %u", blocks[b], offsets[o]);
			for (done = 0, i = 0; done < bytes; done += part, i++) {
				at_byte = i ? buffer + (pages - i) * PAGE : buffer + offsets[o];
				part = min_t(u64, bytes - done, PAGE - (at_byte & (PAGE - 1)));
				CHECK(!memcmp(at(&g, at_byte), data + done, part),
				      "%u blocks at %u: read other data", blocks[b], offsets[o]);
			}
		}
	}
	/* A list that goes on in another page. */
	entries = at(&g, list);
	buffer = MEMORY_BASE + PIECE + (1 << 20);
	entries[510] = buffer + PAGE;
	entries[511] = list + PAGE;
	for (i = 0; i < 8; i++)
		entries[512 + i] = buffer + (2 + i) * PAGE;
	pattern(&g, data, 10 * PAGE);
	memcpy(at(&g, buffer), data, 10 * PAGE);
	CHECK(!io_status(&g, io(NVME_WRITE, 0, 80, buffer, list + 510 * 8)), "a chain of lists");
	CHECK(pread(g.config.data, back, 10 * PAGE, 0) == 10 * (ssize_t)PAGE &&
		      !memcmp(back, data, 10 * PAGE),
	      "a chain of lists: other data");
	guest_exit(&g);
	free(data);
	free(back);
}

static void test_bad_prps(void)
{
	struct guest g;
	u64 buffer, list, *entries;

	guest_init(&g);
	guest_start(&g, 16);
	buffer = guest_alloc(&g, 16 * PAGE);
	list = guest_alloc(&g, PAGE);
	entries = at(&g, list);
	entries[0] = buffer + PAGE;
	entries[1] = buffer + 2 * PAGE + 8;
	entries[2] = 0xdead000;
	CHECK(io_status(&g, io(NVME_READ, 0, 8, buffer + 2, 0)) == NVME_PRP_INVALID_OFFSET, "PRP1");
	CHECK(io_status(&g, io(NVME_READ, 0, 16, buffer, buffer + PAGE + 8)) ==
		      NVME_PRP_INVALID_OFFSET,
	      "PRP2");
	CHECK(io_status(&g, io(NVME_READ, 0, 24, buffer, list + 4)) == NVME_PRP_INVALID_OFFSET,
	      "the list");
	CHECK(io_status(&g, io(NVME_READ, 0, 24, buffer, list)) == NVME_PRP_INVALID_OFFSET,
	      "an entry");
	entries[1] = buffer + 2 * PAGE;
	CHECK(io_status(&g, io(NVME_READ, 0, 32, buffer, list)) == NVME_DATA_TRANSFER_ERROR,
	      "memory that is not there");
	CHECK(io_status(&g, io(NVME_WRITE, 0, 24, buffer, 0xdead000)) == NVME_DATA_TRANSFER_ERROR,
	      "a list that is not there");
	CHECK(io_status(&g, io(NVME_WRITE, 0, 8, ~0ull << 12, 0)) == NVME_DATA_TRANSFER_ERROR,
	      "the end of all memory");
	/* What was wrong with the list has moved nothing. */
	memset(at(&g, buffer), 0x77, PAGE);
	CHECK(io_status(&g, io(NVME_WRITE, 0, 32, buffer, list)) == NVME_DATA_TRANSFER_ERROR,
	      "write");
	CHECK(!block(&g, 0), "half of it was written");
	guest_exit(&g);
}

static struct nvme_sqe by_sgl(u8 opcode, u32 blocks, u64 address, u32 length, u8 type)
{
	struct nvme_sgl_descriptor d = { .address = address, .length = length, .type = type };
	struct nvme_sqe sqe = io(opcode, 8, blocks, 0, 0);

	sqe.flags = 1 << 6;
	memcpy(sqe.sgl, &d, sizeof(d));
	return sqe;
}

#define DATA (NVME_SGL_DATA << 4)
#define SEGMENT (NVME_SGL_SEGMENT << 4)
#define LAST (NVME_SGL_LAST_SEGMENT << 4)

static void test_sgls(void)
{
	struct nvme_sgl_descriptor *d;
	struct guest g;
	u64 buffer, list;
	u8 data[8192];
	u32 i;

	guest_init(&g);
	guest_start(&g, 16);
	buffer = guest_alloc(&g, 16 * PAGE);
	list = guest_alloc(&g, PAGE);
	pattern(&g, data, sizeof(data));
	/* One block of data, at an odd address. */
	memcpy(at(&g, buffer + 3), data, 4096);
	CHECK(!io_status(&g, by_sgl(NVME_WRITE, 8, buffer + 3, 4096, DATA)), "one block");
	memset(at(&g, buffer), 0, 2 * PAGE);
	CHECK(!io_status(&g, by_sgl(NVME_READ, 8, buffer + 1, 4096, DATA)), "one block");
	CHECK(!memcmp(at(&g, buffer + 1), data, 4096), "other data");
	/* Two segments; pieces of all sizes, none among them. */
	d = at(&g, list);
	d[0] = (struct nvme_sgl_descriptor){ .address = buffer + 5 * PAGE, .length = 1000 };
	d[1] = (struct nvme_sgl_descriptor){ .address = 1, .length = 0 };
	d[2] = (struct nvme_sgl_descriptor){ .address = list + 512,
					     .length = 3 * 16,
					     .type = LAST };
	d[32] = (struct nvme_sgl_descriptor){ .address = buffer + PAGE + 7, .length = 3001 };
	d[33] = (struct nvme_sgl_descriptor){ .address = buffer + 9 * PAGE, .length = 1 };
	d[34] = (struct nvme_sgl_descriptor){ .address = buffer + 6 * PAGE, .length = 4190 };
	memcpy(at(&g, buffer + 5 * PAGE), data, 1000);
	memcpy(at(&g, buffer + PAGE + 7), data + 1000, 3001);
	memcpy(at(&g, buffer + 9 * PAGE), data + 4001, 1);
	memcpy(at(&g, buffer + 6 * PAGE), data + 4002, 4190);
	CHECK(!io_status(&g, by_sgl(NVME_WRITE, 16, list, 3 * 16, SEGMENT)), "two segments");
	for (i = 0; i < 16; i++) {
		u8 back[512];

		CHECK(pread(g.config.data, back, 512, (8 + i) * 512) == 512 &&
			      !memcmp(back, data + i * 512, 512),
		      "two segments: block %u", i);
	}
	memset(at(&g, buffer), 0, 16 * PAGE);
	CHECK(!io_status(&g, by_sgl(NVME_READ, 16, list, 3 * 16, SEGMENT)), "two segments");
	CHECK(!memcmp(at(&g, buffer + 6 * PAGE), data + 4002, 4190), "two segments: other data");
	guest_exit(&g);
}

static void test_bad_sgls(void)
{
	struct nvme_sgl_descriptor *d;
	struct guest g;
	u64 buffer, list;
	u32 i;

	guest_init(&g);
	guest_start(&g, 16);
	buffer = guest_alloc(&g, 16 * PAGE);
	list = guest_alloc(&g, PAGE);
	d = at(&g, list);
#define STATUS(blocks, address, length, type)                                                      \
	io_status(&g, by_sgl(NVME_READ, blocks, address, length, type))
	CHECK(STATUS(8, buffer, 4095, DATA) == NVME_SGL_INVALID_LENGTH, "too short");
	CHECK(STATUS(8, buffer, 4097, DATA) == NVME_SGL_INVALID_LENGTH, "too long");
	CHECK(STATUS(8, buffer, 4096, DATA | 1) == NVME_SGL_INVALID_TYPE, "an offset");
	CHECK(STATUS(8, buffer, 4096, 1 << 4) == NVME_SGL_INVALID_TYPE, "a bit bucket");
	CHECK(STATUS(8, buffer, 4096, 4 << 4) == NVME_SGL_INVALID_TYPE, "a keyed block");
	CHECK(STATUS(8, buffer, 4096, 0xff) == NVME_SGL_INVALID_TYPE, "the vendor's");
	CHECK(STATUS(8, 0xdead0000, 4096, DATA) == NVME_DATA_TRANSFER_ERROR, "not there");
	CHECK(STATUS(8, list, 0, LAST) == NVME_SGL_INVALID_SEGMENT, "no descriptor");
	CHECK(STATUS(8, list, 24, LAST) == NVME_SGL_INVALID_SEGMENT, "one and a half");
	CHECK(STATUS(8, 0xdead0000, 16, LAST) == NVME_DATA_TRANSFER_ERROR, "a list not there");
	d[0] = (struct nvme_sgl_descriptor){ .address = buffer, .length = 4096 };
	CHECK(STATUS(8, list, 16, SEGMENT) == NVME_SGL_INVALID_SEGMENT, "leads nowhere");
	CHECK(!STATUS(8, list, 16, LAST), "which is fine in the last");
	d[1] = (struct nvme_sgl_descriptor){ .address = list, .length = 16, .type = LAST };
	CHECK(STATUS(8, list, 32, LAST) == NVME_SGL_INVALID_SEGMENT, "the last one leads on");
	d[2] = d[0];
	CHECK(STATUS(16, list, 48, SEGMENT) == NVME_SGL_INVALID_SEGMENT, "not at the end");
	CHECK(STATUS(8, list, 32, SEGMENT) == NVME_SGL_INVALID_LENGTH, "more than the data");
	/* It leads back to itself, and has nothing else. */
	d[0] = (struct nvme_sgl_descriptor){ .address = list, .length = 16, .type = SEGMENT };
	CHECK(STATUS(8, list, 16, SEGMENT) == NVME_SGL_INVALID_COUNT, "for ever");
	/* More pieces than one transfer takes. */
	list = guest_alloc(&g, 5 * PAGE);
	d = at(&g, list);
	for (i = 0; i < 1025; i++)
		d[i] = (struct nvme_sgl_descriptor){ .address = buffer + 8 * (i % 7), .length = 4 };
	d[1024].length = 12;
	CHECK(STATUS(8, list, 1024 * 16, LAST) == NVME_SUCCESS, "1024 pieces");
	d[1023].length = 1;
	d[1024].length = 3;
	CHECK(STATUS(8, list, 1025 * 16, LAST) == NVME_SGL_INVALID_COUNT, "1025 pieces");
	guest_exit(&g);
}

static void test_mistakes(void)
{
	static const u8 unknown[] = { 0x04, 0x05, 0x0c, 0x0d, 0x0e, 0x11, 0x15, 0x80, 0xff };
	struct nvme_sqe sqe;
	struct guest g;
	u64 buffer;
	u32 i;

	guest_init(&g);
	guest_start(&g, 16);
	buffer = guest_alloc(&g, PAGE);
	for (i = 0; i < ARRAY_SIZE(unknown); i++)
		CHECK(io_status(&g, io(unknown[i], 0, 1, buffer, 0)) == NVME_INVALID_OPCODE,
		      "opcode %x", unknown[i]);
	CHECK(io_status(&g, io(NVME_READ, LAST_BLOCK + 1, 1, buffer, 0)) == NVME_LBA_OUT_OF_RANGE,
	      "after the end");
	CHECK(io_status(&g, io(NVME_WRITE, LAST_BLOCK, 2, buffer, 0)) == NVME_LBA_OUT_OF_RANGE,
	      "over the end");
	CHECK(io_status(&g, io(NVME_WRITE, ~0ull, 2, buffer, 0)) == NVME_LBA_OUT_OF_RANGE,
	      "the last of 2^64");
	CHECK(io_status(&g, io(NVME_WRITE_ZEROES, LAST_BLOCK, 2, 0, 0)) == NVME_LBA_OUT_OF_RANGE,
	      "zeroes over the end");
	CHECK(!io_status(&g, io(NVME_WRITE, LAST_BLOCK, 1, buffer, 0)), "the last block");
	CHECK(io_status(&g, io(NVME_READ, 0, 2049, buffer, buffer)) == NVME_INVALID_FIELD, "MDTS");
	for (i = 0; i < 4; i++) {
		static const u32 nsids[] = { 0, 2, 0xfffffffe, 0xffffffff };

		sqe = io(NVME_READ, 0, 1, buffer, 0);
		sqe.nsid = nsids[i];
		CHECK(io_status(&g, sqe) == NVME_INVALID_NAMESPACE, "namespace %x", nsids[i]);
		sqe.opcode = NVME_FLUSH;
		CHECK(io_status(&g, sqe) == (i == 3 ? NVME_SUCCESS : NVME_INVALID_NAMESPACE),
		      "flush of %x", nsids[i]);
	}
	sqe = io(NVME_READ, 0, 1, buffer, 0);
	sqe.flags = 1;
	CHECK(io_status(&g, sqe) == NVME_INVALID_FIELD, "fused");
	sqe.flags = 3 << 6;
	CHECK(io_status(&g, sqe) == NVME_INVALID_FIELD, "PSDT 3");
	guest_exit(&g);
}

static void test_conflict(void)
{
	struct nvme_cqe cqe;
	struct guest g;
	u64 buffer;
	u16 cid;

	guest_init(&g);
	guest_start(&g, 16);
	buffer = guest_alloc(&g, PAGE);
	cid = guest_submit(&g, 1, io(NVME_WRITE, 0, 8, buffer, 0));
	g.next_cid = cid;
	guest_submit(&g, 1, io(NVME_WRITE, 8, 8, buffer, 0));
	CHECK(guest_reap(&g, 1, &cqe, true) && status_of(&cqe) == NVME_CID_CONFLICT &&
		      cqe.cid == cid,
	      "the second is accepted");
	guest_run(&g, SSD_NEVER);
	CHECK(guest_reap(&g, 1, &cqe, true) && !status_of(&cqe), "the first suffers");
	g.next_cid = cid;
	CHECK(!io_status(&g, io(NVME_WRITE, 8, 8, buffer, 0)), "it is not free again");
	guest_exit(&g);
}

static void test_zeroes(void)
{
	struct nvme_range *ranges;
	struct nvme_sqe sqe = { .opcode = NVME_DATASET_MANAGEMENT, .nsid = 1, .cdw11 = 4 };
	struct guest g;
	u64 buffer, i;

	guest_init(&g);
	guest_small_drive(&g);
	guest_start(&g, 16);
	buffer = guest_alloc(&g, PAGE);
	memset(at(&g, buffer), 0x33, PAGE);
	for (i = 0; i < 64; i += 8)
		CHECK(!io_status(&g, io(NVME_WRITE, i, 8, buffer, 0)), "write");
	CHECK(!io_status(&g, io(NVME_WRITE_ZEROES, 3, 7, 0, 0)), "zeroes");
	for (i = 0; i < 64; i++)
		CHECK(block(&g, i) == (i >= 3 && i < 10 ? 0 : 0x33), "block %u", (u32)i);
	ranges = at(&g, buffer);
	ranges[0] = (struct nvme_range){ .lba = 20, .blocks = 5 };
	ranges[1] = (struct nvme_range){ .lba = 0, .blocks = 0 };
	ranges[2] = (struct nvme_range){ .lba = 40, .blocks = (u32)LAST_BLOCK - 39 };
	sqe.prp[0] = buffer;
	sqe.cdw10 = 2;
	sqe.cdw11 = 3;
	CHECK(!io_status(&g, sqe), "hints");
	CHECK(block(&g, 20) == 0x33, "a hint deallocates");
	sqe.cdw11 = 4;
	CHECK(!io_status(&g, sqe), "deallocate");
	for (i = 10; i < 64; i++)
		CHECK(block(&g, i) == ((i >= 20 && i < 25) || i >= 40 ? 0 : 0x33), "block %u",
		      (u32)i);
	/* One bad range, and nothing is done. */
	ranges[0] = (struct nvme_range){ .lba = 30, .blocks = 1 };
	ranges[1] = (struct nvme_range){ .lba = LAST_BLOCK, .blocks = 2 };
	CHECK(io_status(&g, sqe) == NVME_LBA_OUT_OF_RANGE, "over the end");
	CHECK(block(&g, 30) == 0x33, "the first range was deallocated");
	sqe.prp[0] = buffer + 1;
	CHECK(io_status(&g, sqe) == NVME_PRP_INVALID_OFFSET, "an odd address");
	guest_exit(&g);
}

/* The default profile's buffer is volatile: what a flush and FUA wait for is NAND. */
static u64 latency(struct guest *g, struct nvme_sqe sqe)
{
	u64 from = g->now;

	CHECK(!io_status(g, sqe), "opcode %x", sqe.opcode);
	return g->now - from;
}

static void test_durability(void)
{
	struct nvme_sqe fua, flush = { .opcode = NVME_FLUSH, .nsid = 1 };
	struct guest g;
	u64 buffer, nand;

	guest_init(&g);
	guest_start(&g, 16);
	nand = g.config.profile.program_ns;
	buffer = guest_alloc(&g, PAGE);
	fua = io(NVME_WRITE, 0, 8, buffer, 0);
	fua.cdw12 |= 1u << 30;
	CHECK(latency(&g, io(NVME_WRITE, 0, 8, buffer, 0)) < nand / 2, "a write waits for NAND");
	CHECK(latency(&g, flush) >= nand, "a flush does not");
	CHECK(latency(&g, flush) < nand / 2, "a flush of nothing does");
	CHECK(latency(&g, fua) >= nand, "FUA does not");
	CHECK(!admin_status(&g, (struct nvme_sqe){ .opcode = NVME_ADMIN_SET_FEATURES,
						   .cdw10 = NVME_FEATURE_WRITE_CACHE }),
	      "cannot turn the cache off");
	CHECK(latency(&g, io(NVME_WRITE, 0, 8, buffer, 0)) >= nand,
	      "with the cache off, a write does not");
	guest_exit(&g);
}

/* Commands are acknowledged in another order than they came in, and none is lost or doubled. */
static void test_out_of_order(void)
{
	bool seen[1000] = { false };
	struct nvme_cqe cqe;
	struct guest g;
	u64 buffer;
	u32 i, n = 0, last = 0, swapped = 0;

	guest_init(&g);
	guest_start(&g, 1024);
	buffer = guest_alloc(&g, PAGE);
	g.next_cid = 0;
	for (i = 0; i < 1000; i++)
		guest_put(&g, 1, io(i % 2 ? NVME_READ : NVME_WRITE, i * 8, 8, buffer, 0));
	guest_ring(&g, 1);
	guest_run(&g, SSD_NEVER);
	for (; guest_reap(&g, 1, &cqe, true); n++) {
		CHECK(!status_of(&cqe) && cqe.cid < 1000 && !seen[cqe.cid], "cid %u", cqe.cid);
		seen[cqe.cid % 1000] = true;
		swapped += cqe.cid < last;
		last = cqe.cid;
	}
	CHECK(n == 1000, "%u of 1000", n);
	CHECK(swapped > 10, "%u before others", swapped);
	CHECK(g.interrupts[1] && g.interrupts[1] <= 1000 && !g.interrupts[2], "interrupts");
	guest_exit(&g);
}

/* A completion queue that is full takes more as the guest takes from it. */
static void test_full_completion_queue(void)
{
	struct nvme_cqe cqe;
	struct guest g;
	u64 buffer;
	u32 i, n = 0;

	guest_init(&g);
	guest_power_on(&g);
	guest_enable(&g, CC_ENABLE);
	guest_create_cq(&g, 1, 4, 1);
	guest_create_sq(&g, 1, 256, 1, 0);
	guest_create_sq(&g, 2, 256, 1, 0);
	buffer = guest_alloc(&g, PAGE);
	for (i = 0; i < 400; i++)
		guest_put(&g, 1 + i % 2, io(NVME_READ, i, 1, buffer, 0));
	guest_ring(&g, 1);
	guest_ring(&g, 2);
	guest_run(&g, g.now + NSEC_PER_SEC);
	for (i = 0; guest_reap(&g, 1, &cqe, false); i++)
		;
	CHECK(i == 3, "%u in a queue of 4", i);
	set32(&g, NVME_DOORBELLS + 12, g.cqs[1].head);
	for (n = i; guest_reap(&g, 1, &cqe, true); n++)
		CHECK(!status_of(&cqe), "status %x", status_of(&cqe));
	CHECK(n == 400, "%u of 400", n);
	guest_exit(&g);
}

/* A queue that is deleted under load: each of its commands is answered once, before that is done. */
static void test_delete_under_load(void)
{
	u32 i, n, aborted, done, turn;
	struct nvme_cqe cqe;
	struct guest g;
	u64 buffer;

	guest_init(&g);
	guest_start(&g, 1024);
	buffer = guest_alloc(&g, PAGE);
	guest_queue(&g, &g.sqs[2], 1024, sizeof(struct nvme_sqe));
	for (turn = 0; turn < 20; turn++) {
		g.sqs[2].tail = 0;
		CHECK(!admin_status(&g, (struct nvme_sqe){ .opcode = NVME_ADMIN_CREATE_SQ,
							   .prp = { g.sqs[2].address },
							   .cdw10 = 1023 << 16 | 2,
							   .cdw11 = 1 << 16 | 1 }),
		      "create");
		for (i = 0; i < 500; i++)
			guest_put(&g, 2, io(NVME_WRITE, i * 8, 8, buffer, 0));
		guest_ring(&g, 2);
		guest_run(&g, g.now + guest_random(&g) % (400 * NSEC_PER_USEC));
		guest_submit(&g, 0,
			     (struct nvme_sqe){ .opcode = NVME_ADMIN_DELETE_SQ, .cdw10 = 2 });
		CHECK(guest_reap(&g, 0, &cqe, true) && !status_of(&cqe), "delete");
		for (n = aborted = done = 0; guest_reap(&g, 1, &cqe, true); n++) {
			aborted += status_of(&cqe) == NVME_ABORTED_SQ_DELETED;
			done += !status_of(&cqe);
		}
		CHECK(n == 500 && aborted + done == 500, "%u done, %u aborted of 500", done,
		      aborted);
	}
	guest_run(&g, SSD_NEVER);
	CHECK(!guest_reap(&g, 1, &cqe, true), "a completion of a queue that is not there");
	guest_exit(&g);
}

/* More than the controller has places for: the rest waits in the queues, and all are done. */
static void test_more_than_places(void)
{
	u32 queue, i, n = 0, in_flight = 0, sent = 0;
	struct nvme_cqe cqe;
	struct guest g;
	u64 buffer;

	guest_init(&g);
	guest_power_on(&g);
	guest_enable(&g, CC_ENABLE);
	buffer = guest_alloc(&g, PAGE);
	CHECK(!guest_create_cq(&g, 1, 1024, 1), "CQ");
	for (queue = 1; queue <= 64; queue++)
		CHECK(!guest_create_sq(&g, queue, 1024, 1, 0), "SQ %u", queue);
	for (queue = 1; queue <= 64; queue++) {
		for (i = 0; i < 1000; i++, sent++)
			guest_put(&g, queue, io(NVME_FLUSH, 0, 1, buffer, 0));
		guest_ring(&g, queue);
	}
	while (n < sent && in_flight < 1000) {
		guest_run(&g, g.now + 100 * NSEC_PER_USEC);
		for (in_flight++; guest_reap(&g, 1, &cqe, true); n++)
			in_flight = 0;
	}
	CHECK(n == sent, "%u of %u", n, sent);
	guest_exit(&g);
}

/* No place is left for I/O, and none becomes free: admin commands are done all the same. */
static void test_admin_has_places(void)
{
	const struct nvme_sqe async = { .opcode = NVME_ADMIN_ASYNC_EVENT },
			      get = { .opcode = NVME_ADMIN_GET_FEATURES,
				      .cdw10 = NVME_FEATURE_ARBITRATION };
	u32 queue, i, n = 0, in_flight = 0, sent = 0;
	struct nvme_cqe cqe = { 0 };
	struct guest g;
	u64 buffer;
	u16 cid;

	guest_init(&g);
	guest_power_on(&g);
	guest_enable(&g, CC_ENABLE);
	buffer = guest_alloc(&g, PAGE);
	CHECK(!guest_create_cq(&g, 1, 1024, 1), "CQ");
	for (queue = 1; queue <= 64; queue++)
		CHECK(!guest_create_sq(&g, queue, 1024, 1, 0), "SQ %u", queue);
	for (queue = 1; queue <= 64; queue++) {
		for (i = 0; i < 1000; i++, sent++)
			guest_put(&g, queue, io(NVME_READ, i, 1, buffer, 0));
		guest_ring(&g, queue);
	}
	CHECK(nvme_next_ns(g.nvme) > g.now, "it looks for places over and over");
	for (i = 0; i < 4; i++)
		guest_submit(&g, 0, async);
	for (i = 0; i < 100; i++) {
		cid = guest_submit(&g, 0, get);
		CHECK(guest_reap(&g, 0, &cqe, true) && cqe.cid == cid && !status_of(&cqe),
		      "%u: it waits for a place", i);
	}
	/* All are done, and their completions have no room: no place becomes free any more. */
	guest_run(&g, SSD_NEVER);
	/* More than their own places and their completion queue hold: until there is room. */
	for (i = 0; i < 60; i++) {
		guest_put(&g, 0, get);
		if (i % 30 == 29)
			guest_ring(&g, 0);
	}
	guest_run(&g, SSD_NEVER);
	for (i = 0; guest_reap(&g, 0, &cqe, true); i++) {
		CHECK(!status_of(&cqe), "status %x", status_of(&cqe));
		guest_run(&g, SSD_NEVER);
	}
	CHECK(i == 60, "%u of 60", i);
	while (n < sent && in_flight < 1000) {
		guest_run(&g, g.now + 100 * NSEC_PER_USEC);
		for (in_flight++; guest_reap(&g, 1, &cqe, true); n++)
			in_flight = 0;
	}
	CHECK(n == sent, "%u of %u", n, sent);
	guest_exit(&g);
}

#define SHADOW(g, id, cq) ((u32 *)at(g, doorbells) + 2 * (id) + (cq))

/* Doorbells in memory, and a real one that comes late, as it does from another process. */
static void test_shadow_doorbells(void)
{
	struct nvme_sqe sqe = { .opcode = NVME_ADMIN_DOORBELL_BUFFER };
	u64 doorbells, events, buffer;
	u32 turn, i, n = 0, old, *event;
	struct nvme_cqe cqe;
	struct guest g;

	guest_init(&g);
	guest_start(&g, 64);
	doorbells = guest_alloc(&g, PAGE);
	events = guest_alloc(&g, PAGE);
	buffer = guest_alloc(&g, PAGE);
	sqe.prp[0] = doorbells + 8;
	sqe.prp[1] = events;
	CHECK(admin_status(&g, sqe) == NVME_INVALID_FIELD, "a buffer that is no page");
	sqe.prp[0] = doorbells;
	CHECK(!admin_status(&g, sqe), "Doorbell Buffer Config");
	event = (u32 *)at(&g, events) + 2;
	for (turn = 0; turn < 100; turn++) {
		old = g.sqs[1].tail;
		for (i = 0; i < 40; i++)
			guest_put(&g, 1, io(NVME_READ, i, 1, buffer, 0));
		/* The first is told of by the doorbell, which is heard of when all are in memory. */
		*SHADOW(&g, 1, 0) = g.sqs[1].tail;
		set32(&g, NVME_DOORBELLS + 8, (old + 1) % 64);
		guest_run(&g, SSD_NEVER);
		CHECK(*event == g.sqs[1].tail, "the guest would ring from %u on, is at %u", *event,
		      g.sqs[1].tail);
		set32(&g, NVME_DOORBELLS + 8, (old + 2) % 64);
		guest_run(&g, SSD_NEVER);
		for (i = 0; guest_reap(&g, 1, &cqe, false); i++, n++)
			CHECK(!status_of(&cqe), "status %x", status_of(&cqe));
		CHECK(i == 40, "%u of 40", i);
		*SHADOW(&g, 1, 1) = g.cqs[1].head;
	}
	CHECK(get32(&g, NVME_CSTS) == NVME_CSTS_RDY, "CSTS %x", get32(&g, NVME_CSTS));
	/* Without a doorbell, what is in memory is found when something else happens. */
	guest_put(&g, 1, io(NVME_READ, 0, 1, buffer, 0));
	*SHADOW(&g, 1, 0) = g.sqs[1].tail;
	nvme_run(g.nvme, g.now);
	guest_run(&g, SSD_NEVER);
	CHECK(guest_reap(&g, 1, &cqe, false), "not found");
	*SHADOW(&g, 1, 0) = 64;
	nvme_run(g.nvme, g.now);
	CHECK(get32(&g, NVME_CSTS) == NVME_CSTS_RDY, "CSTS %x", get32(&g, NVME_CSTS));
	guest_exit(&g);
}

int main(int argc, char **argv)
{
	static const struct test tests[] = {
		{ "data arrive by PRPs of every shape", test_prps },
		{ "bad PRPs are refused, and move nothing", test_bad_prps },
		{ "data arrive by SGLs", test_sgls },
		{ "bad SGLs are refused, each with its status", test_bad_sgls },
		{ "what is beyond the drive, or no command, is refused", test_mistakes },
		{ "two commands of one identifier conflict", test_conflict },
		{ "zeroes and deallocated blocks read as zeroes", test_zeroes },
		{ "flush and FUA wait until data are durable", test_durability },
		{ "commands complete out of order, each once", test_out_of_order },
		{ "completions wait for room in their queue", test_full_completion_queue },
		{ "a queue is deleted under load", test_delete_under_load },
		{ "more commands than places wait in their queues", test_more_than_places },
		{ "admin commands do not wait for places that I/O has taken",
		  test_admin_has_places },
		{ "doorbells in memory count, however late the real one", test_shadow_doorbells },
		{ NULL, NULL },
	};

	return run_tests(tests, argc, argv);
}
