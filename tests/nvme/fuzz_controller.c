// SPDX-License-Identifier: GPL-2.0-only OR MIT
/*
 * Any guest: what it writes to registers, doorbells, its memory and its queues
 * is the input. Nothing may come of it but what the sanitizers allow, and the
 * controller must come back after a reset.
 */
#include "guest.h"

struct input {
	const u8 *data;
	size_t left;
};

static void take(struct input *in, void *to, size_t bytes)
{
	size_t n = bytes < in->left ? bytes : in->left;

	memset(to, 0, bytes);
	memcpy(to, in->data, n);
	in->data += n;
	in->left -= n;
}

static u32 number(struct input *in, size_t bytes)
{
	u32 value = 0;

	take(in, &value, bytes);
	return value;
}

/* Of the guest's memory, mostly, and small enough to meet itself again: in both pieces, or nowhere. */
static u64 somewhere(u32 raw)
{
	if (raw & 1 << 23)
		return raw & 1 << 22 ? ~0ull - raw % 8192 : MEMORY_BASE + MEMORY_BYTES - raw % 8192;
	return MEMORY_BASE + raw % (1 << 17) + (raw & 1 << 20 ? PIECE - (1 << 16) : 0);
}

static struct nvme_sqe entry(struct input *in)
{
	struct nvme_sqe sqe = { 0 };

	sqe.opcode = (u8)number(in, 1);
	sqe.flags = (u8)number(in, 1);
	sqe.nsid = number(in, 1) % 3;
	sqe.prp[0] = somewhere(number(in, 3));
	sqe.prp[1] = somewhere(number(in, 3));
	if (sqe.flags >> 6 == 1) {
		sqe.prp[1] = number(in, 3);
		sqe.sgl[15] = (u8)number(in, 1);
	}
	sqe.cdw10 = number(in, 4);
	sqe.cdw11 = number(in, 4);
	sqe.cdw12 = number(in, 4);
	return sqe;
}

static void submit(struct guest *g, u32 id, struct input *in)
{
	struct nvme_sqe sqe = entry(in);

	if (sqe.cdw12 & 1 << 20)
		g->next_cid = 7;
	if (g->sqs[id].entries)
		guest_submit(g, id, sqe);
}

static void poke(struct guest *g, struct input *in)
{
	u64 address = MEMORY_BASE + number(in, 3) % (1 << 17);
	u32 bytes = number(in, 1);

	take(in, at(g, address), bytes);
}

static void point(struct guest *g, struct input *in)
{
	u64 address = MEMORY_BASE + (number(in, 3) % (1 << 17) & ~7u),
	    value = somewhere(number(in, 3));

	memcpy(at(g, address), &value, sizeof(value));
}

static void step(struct guest *g, struct input *in)
{
	struct nvme_cqe cqe;
	u8 data[64];
	u64 next;
	u32 id;

	switch (number(in, 1) % 12) {
	case 0:
		id = number(in, 1);
		set32(g, id * 4, number(in, 4));
		break;
	case 1:
		submit(g, 0, in);
		break;
	case 2:
	case 3:
		submit(g, 1 + number(in, 1) % 2, in);
		break;
	case 4:
		poke(g, in);
		break;
	case 5:
		point(g, in);
		break;
	case 6:
		next = nvme_next_ns(g->nvme);
		if (next != SSD_NEVER && next > g->now)
			g->now = next;
		nvme_run(g->nvme, g->now);
		break;
	case 7:
		g->now += number(in, 3);
		nvme_run(g->nvme, g->now);
		break;
	case 8:
		id = number(in, 2);
		set32(g, NVME_DOORBELLS + id % 2100 * 4, number(in, 2));
		break;
	case 9:
		guest_reap(g, number(in, 1) % 2, &cqe, true);
		break;
	case 10:
		id = number(in, 2);
		nvme_read(g->nvme, id % (NVME_BAR_BYTES - sizeof(data)), data, id % sizeof(data));
		nvme_write(g->nvme, id % NVME_BAR_BYTES, "\1\2\3\4\5\6\7\10", number(in, 1) % 9,
			   g->now);
		break;
	case 11:
		set32(g, NVME_CC, 0);
		guest_queue(g, &g->sqs[0], 32, sizeof(struct nvme_sqe));
		g->free = MEMORY_BASE;
		guest_enable(g, CC_ENABLE | number(in, 1) << 7);
		break;
	}
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);
int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	struct input in = { data, size };
	struct guest g;
	u32 i;

	test_failures = 0;
	guest_init(&g);
	if (number(&in, 1) & 1)
		guest_small_drive(&g);
	guest_start(&g, 16);
	guest_create_sq(&g, 2, 16, 1, 2);
	for (i = 0; in.left && i < 300; i++)
		step(&g, &in);
	/* Whatever has happened: after a reset it is a drive again. */
	nvme_reset(g.nvme);
	g.free = MEMORY_BASE;
	guest_enable(&g, CC_ENABLE);
	guest_create_cq(&g, 1, 16, 1);
	guest_create_sq(&g, 1, 16, 1, 0);
	CHECK(!io_status(&g, io(NVME_READ, 0, 8, guest_alloc(&g, PAGE), 0)), "no drive any more");
	guest_exit(&g);
	if (test_failures)
		abort();
	return 0;
}
