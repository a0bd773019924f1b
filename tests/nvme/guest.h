/* SPDX-License-Identifier: GPL-2.0-only OR MIT */
/* What the tests of the controller have in common: a guest without a virtual machine. */
#ifndef GUEST_H
#define GUEST_H

#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <unistd.h>

#include "controller.h"
#include "spec.h"
#include "test.h"
#include "../ssd/ssd.h"

/* The guest's memory: two pieces that are not beside each other here, though they are in the guest. */
#define MEMORY_BASE 0x100000ull
#define MEMORY_BYTES (8ull << 20)
#define PIECE (MEMORY_BYTES / 2)
#define PAGE 4096ull

#define MAX_QUEUES (NVME_MAX_SQS + 1)
#define DRIVE_BYTES (64ull << 20)

struct queue {
	u64 address;
	u32 entries, tail, head; /* head: of a completion queue, where the guest is */
	bool phase;
};

struct guest {
	struct nvme *nvme;
	struct nvme_config config;
	struct nvme_host host;
	u8 *pieces[2];
	u64 now, random;
	u64 free; /* the next address that nobody has */
	u32 interrupts[NVME_VECTORS];
	struct queue sqs[MAX_QUEUES], cqs[NVME_MAX_CQS + 1];
	u16 next_cid;
	u64 touched; /* bytes that the controller asked for */
};

static inline void *guest_dma(void *ctx, u64 address, u64 *bytes, bool write)
{
	struct guest *g = ctx;
	u64 at = address - MEMORY_BASE, left;

	(void)write;
	if (address < MEMORY_BASE || at >= MEMORY_BYTES)
		return NULL;
	left = PIECE - at % PIECE;
	if (*bytes > left)
		*bytes = left;
	g->touched += *bytes;
	return g->pieces[at / PIECE] + at % PIECE;
}

/* Of guest memory that the test itself uses: within one piece. */
static inline void *at(struct guest *g, u64 address)
{
	u64 one = 1;

	return guest_dma(g, address, &one, true);
}

static inline void guest_interrupt(void *ctx, unsigned int vector)
{
	struct guest *g = ctx;

	g->interrupts[vector]++;
}

static inline u64 guest_random(struct guest *g)
{
	return next_random(&g->random);
}

/* @bytes of memory that are zeroes, at the beginning of a page, and in one piece. */
static inline u64 guest_alloc(struct guest *g, u64 bytes)
{
	u64 address = g->free;

	bytes = (bytes + PAGE - 1) & ~(PAGE - 1);
	if ((address - MEMORY_BASE) / PIECE != (address + bytes - 1 - MEMORY_BASE) / PIECE)
		address = MEMORY_BASE + PIECE;
	g->free = address + bytes;
	if (g->free > MEMORY_BASE + MEMORY_BYTES) {
		printf("the guest is out of memory\n");
		exit(2);
	}
	memset(at(g, address), 0, bytes);
	return address;
}

/* A profile of a drive that is small enough for its data to be collected soon. */
static inline void guest_small_drive(struct guest *g)
{
	g->config.profile.map = 1 << 26;
	g->config.profile.page = 4096;
	g->config.profile.channels = g->config.profile.dies = 2;
	g->config.profile.block_pages = 16;
	g->config.profile.buffer = 1 << 18;
}

/* A guest whose drive has the default profile, no power yet, and no data. */
static inline void guest_init(struct guest *g)
{
	memset(g, 0, sizeof(*g));
	ssd_profile_init(&g->config.profile);
	g->config.bytes = DRIVE_BYTES;
	g->config.data = memfd_create("data", 0);
	strcpy(g->config.model, "test");
	strcpy(g->config.serial, "1");
	memcpy(g->config.uuid, "0123456789abcdef", 16);
	if (g->config.data < 0 || ftruncate(g->config.data, DRIVE_BYTES))
		exit(2);
	g->host = (struct nvme_host){ guest_dma, guest_interrupt, g };
	g->pieces[0] = calloc(1, PIECE);
	g->pieces[1] = calloc(1, PIECE);
	g->random = 88172645463325252ull;
}

static inline void guest_power_on(struct guest *g)
{
	const struct ssd_profile_field *field;
	const char *wrong = ssd_profile_check(&g->config.profile, &field);

	if (wrong) {
		printf("profile: %s %s\n", field->name, wrong);
		exit(2);
	}
	g->nvme = nvme_create(&g->config, &g->host);
	if (!g->nvme)
		exit(2);
	g->free = MEMORY_BASE;
	g->now = 0;
}

static inline void guest_power_off(struct guest *g)
{
	nvme_destroy(g->nvme);
	g->nvme = NULL;
}

static inline void guest_exit(struct guest *g)
{
	if (g->nvme)
		guest_power_off(g);
	close(g->config.data);
	free(g->pieces[0]);
	free(g->pieces[1]);
}

static inline u32 get32(struct guest *g, u64 offset)
{
	u32 value;

	nvme_read(g->nvme, offset, &value, sizeof(value));
	return value;
}

static inline u64 get64(struct guest *g, u64 offset)
{
	u64 value;

	nvme_read(g->nvme, offset, &value, sizeof(value));
	return value;
}

static inline void set32(struct guest *g, u64 offset, u32 value)
{
	nvme_write(g->nvme, offset, &value, sizeof(value), g->now);
}

static inline void set64(struct guest *g, u64 offset, u64 value)
{
	nvme_write(g->nvme, offset, &value, sizeof(value), g->now);
}

/* Let everything happen that does before @until. */
static inline void guest_run(struct guest *g, u64 until)
{
	u64 next;

	while ((next = nvme_next_ns(g->nvme)) < until) {
		if (next > g->now)
			g->now = next;
		nvme_run(g->nvme, g->now);
	}
	if (until != SSD_NEVER && until > g->now)
		g->now = until;
}

static inline void guest_queue(struct guest *g, struct queue *q, u32 entries, u32 entry)
{
	*q = (struct queue){
		.address = guest_alloc(g, (u64)entries * entry),
		.entries = entries,
		.phase = true,
	};
}

#define CC_ENABLE (NVME_CC_EN | NVME_SQ_SHIFT << 16 | NVME_CQ_SHIFT << 20)
#define CC_WRR (NVME_AMS_WRR << 11)

static inline void guest_enable(struct guest *g, u32 cc)
{
	guest_queue(g, &g->sqs[0], 32, sizeof(struct nvme_sqe));
	guest_queue(g, &g->cqs[0], 32, sizeof(struct nvme_cqe));
	set32(g, NVME_AQA, 31 << 16 | 31);
	set64(g, NVME_ASQ, g->sqs[0].address);
	set64(g, NVME_ACQ, g->cqs[0].address);
	set32(g, NVME_CC, cc);
}

/* Put @sqe into queue @id, without ringing the doorbell. Returns its identifier. */
static inline u16 guest_put(struct guest *g, u32 id, struct nvme_sqe sqe)
{
	struct queue *q = &g->sqs[id];

	sqe.cid = g->next_cid++;
	memcpy((struct nvme_sqe *)at(g, q->address) + q->tail, &sqe, sizeof(sqe));
	q->tail = (q->tail + 1) % q->entries;
	return sqe.cid;
}

static inline void guest_ring(struct guest *g, u32 id)
{
	set32(g, NVME_DOORBELLS + 8 * id, g->sqs[id].tail);
}

static inline u16 guest_submit(struct guest *g, u32 id, struct nvme_sqe sqe)
{
	u16 cid = guest_put(g, id, sqe);

	guest_ring(g, id);
	return cid;
}

/* The next completion of queue @id, false when there is none. The doorbell is rung if @ring. */
static inline bool guest_reap(struct guest *g, u32 id, struct nvme_cqe *cqe, bool ring)
{
	struct queue *q = &g->cqs[id];

	memcpy(cqe, (struct nvme_cqe *)at(g, q->address) + q->head, sizeof(*cqe));
	if ((cqe->status & 1) != q->phase)
		return false;
	if (++q->head == q->entries) {
		q->head = 0;
		q->phase = !q->phase;
	}
	if (ring)
		set32(g, NVME_DOORBELLS + 8 * id + 4, q->head);
	return true;
}

/* The type and code of a completion, without flags. */
static inline u16 status_of(const struct nvme_cqe *cqe)
{
	return cqe->status >> 1 & 0x7ff;
}

/* Submit to queue @id, which completes to queue @cq, and wait for it: nothing else is under way. */
static inline struct nvme_cqe guest_do(struct guest *g, u32 id, u32 cq, struct nvme_sqe sqe)
{
	struct nvme_cqe cqe = { 0 };
	u16 cid = guest_submit(g, id, sqe);

	guest_run(g, SSD_NEVER);
	if (!guest_reap(g, cq, &cqe, true))
		CHECK(false, "opcode %x: no completion", sqe.opcode);
	else
		CHECK(cqe.cid == cid && cqe.sq_id == id, "opcode %x: another's completion",
		      sqe.opcode);
	return cqe;
}

static inline struct nvme_cqe guest_admin(struct guest *g, struct nvme_sqe sqe)
{
	return guest_do(g, 0, 0, sqe);
}

static inline u16 admin_status(struct guest *g, struct nvme_sqe sqe)
{
	struct nvme_cqe cqe = guest_admin(g, sqe);

	return status_of(&cqe);
}

static inline u16 guest_create_cq(struct guest *g, u32 id, u32 entries, u32 vector)
{
	guest_queue(g, &g->cqs[id], entries, sizeof(struct nvme_cqe));
	return admin_status(g, (struct nvme_sqe){ .opcode = NVME_ADMIN_CREATE_CQ,
						  .prp = { g->cqs[id].address },
						  .cdw10 = (entries - 1) << 16 | id,
						  .cdw11 = vector << 16 | 3 });
}

static inline u16 guest_create_sq(struct guest *g, u32 id, u32 entries, u32 cq, u32 class)
{
	guest_queue(g, &g->sqs[id], entries, sizeof(struct nvme_sqe));
	return admin_status(g, (struct nvme_sqe){ .opcode = NVME_ADMIN_CREATE_SQ,
						  .prp = { g->sqs[id].address },
						  .cdw10 = (entries - 1) << 16 | id,
						  .cdw11 = cq << 16 | class << 1 | 1 });
}

/* Power on, enable, and one pair of queues, number 1, of @entries. */
static inline void guest_start(struct guest *g, u32 entries)
{
	guest_power_on(g);
	guest_enable(g, CC_ENABLE);
	CHECK(!guest_create_cq(g, 1, entries, 1), "no completion queue");
	CHECK(!guest_create_sq(g, 1, entries, 1, 0), "no submission queue");
}

/* A read or write of @blocks at @lba, to or from @prp1 and @prp2. */
static inline struct nvme_sqe io(u8 opcode, u64 lba, u32 blocks, u64 prp1, u64 prp2)
{
	return (struct nvme_sqe){
		.opcode = opcode,
		.nsid = 1,
		.prp = { prp1, prp2 },
		.cdw10 = (u32)lba,
		.cdw11 = (u32)(lba >> 32),
		.cdw12 = blocks - 1,
	};
}

static inline u16 io_status(struct guest *g, struct nvme_sqe sqe)
{
	struct nvme_cqe cqe = guest_do(g, 1, 1, sqe);

	return status_of(&cqe);
}

#endif
