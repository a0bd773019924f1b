// SPDX-License-Identifier: GPL-2.0-only OR MIT
/* What the guest sets is what the model does: classes, weights, bursts. In model time. */
#include "guest.h"

#define DEPTH 64
#define CORES 4
#define CLASSES 4

/* As Linux's driver is to have it: each core's queues, one of each class, complete to the core's. */
struct fixture {
	struct guest g;
	u64 buffer;
	u64 done[CORES * CLASSES + 1]; /* by submission queue */
	u32 sent; /* classes that are not sent again: bits */
	u8 order[100000]; /* classes as they complete */
	u32 n;
};

static u32 sq_of(u32 core, u32 class)
{
	return 1 + core * CLASSES + class;
}

/* Fetching is what takes time: all the rest is fast, and one command after another. */
static void front_only(struct ssd_profile *p)
{
	p->commands = 1;
	p->read_command_ns = 1000;
	p->overhead_ns = 0;
	p->read_ns = 1;
	p->channel_mbps = p->link_read_mbps = 1000000;
}

static enum nvme_lie lie; /* of the next drive */

static void start(struct fixture *f, u32 cc, u32 arbitration)
{
	u32 core, class;

	memset(f, 0, sizeof(*f));
	guest_init(&f->g);
	front_only(&f->g.config.profile);
	f->g.config.lie = lie;
	guest_power_on(&f->g);
	guest_enable(&f->g, CC_ENABLE | cc);
	f->buffer = guest_alloc(&f->g, PAGE);
	CHECK(!admin_status(&f->g, (struct nvme_sqe){ .opcode = NVME_ADMIN_SET_FEATURES,
						      .cdw10 = NVME_FEATURE_ARBITRATION,
						      .cdw11 = arbitration }),
	      "arbitration %x", arbitration);
	for (core = 0; core < CORES; core++) {
		CHECK(!guest_create_cq(&f->g, core + 1, 512, core + 1), "CQ of core %u", core);
		for (class = 0; class < CLASSES; class ++)
			CHECK(!guest_create_sq(&f->g, sq_of(core, class), DEPTH + 1, core + 1,
					       class),
			      "SQ of core %u, class %u", core, class);
	}
}

/* Fill the queues of @classes (bits), and keep them full until @until. */
static void keep_full(struct fixture *f, u32 classes, u64 until)
{
	struct nvme_sqe read = io(NVME_READ, 0, 8, f->buffer, 0);
	struct nvme_cqe cqe;
	u32 core, class, i;

	for (core = 0; core < CORES; core++) {
		for (class = 0; class < CLASSES; class ++) {
			if (!(classes & ~f->sent & 1u << class))
				continue;
			for (i = 0; i < DEPTH; i++)
				guest_put(&f->g, sq_of(core, class), read);
			guest_ring(&f->g, sq_of(core, class));
		}
	}
	f->sent |= classes;
	while (f->g.now < until && nvme_next_ns(f->g.nvme) != SSD_NEVER) {
		f->g.now = nvme_next_ns(f->g.nvme);
		nvme_run(f->g.nvme, f->g.now);
		for (core = 0; core < CORES; core++) {
			while (guest_reap(&f->g, core + 1, &cqe, true)) {
				class = (cqe.sq_id - 1u) % CLASSES;
				f->done[cqe.sq_id]++;
				if (f->n < ARRAY_SIZE(f->order))
					f->order[f->n++] = (u8) class;
				if (classes & 1u << class)
					guest_submit(&f->g, cqe.sq_id, read);
			}
		}
	}
}

static u64 of_class(const struct fixture *f, u32 class)
{
	u64 sum = 0;
	u32 core;

	for (core = 0; core < CORES; core++)
		sum += f->done[sq_of(core, class)];
	return sum;
}

static u32 feature(u32 high, u32 medium, u32 low, u32 burst)
{
	return (high - 1) << 24 | (medium - 1) << 16 | (low - 1) << 8 | burst;
}

static struct fixture f; /* large */

static void test_weights(void)
{
	static const u32 weights[][3] = { { 1, 1, 1 }, { 8, 6, 4 },   { 6, 4, 2 },
					  { 8, 4, 2 }, { 1, 16, 64 }, { 256, 16, 1 } };
	u32 w, burst, k;

	for (w = 0; w < ARRAY_SIZE(weights); w++) {
		for (burst = 0; burst <= 7; burst += 7) {
			const u32 *weight = weights[w];
			double sum = weight[0] + weight[1] + weight[2], total = 0;

			start(&f, CC_WRR, feature(weight[0], weight[1], weight[2], burst));
			keep_full(&f, 0xe, 60 * NSEC_PER_MSEC);
			for (k = 0; k < 3; k++)
				total += (double)of_class(&f, SSD_HIGH + k);
			CHECK(total > 40000, "only %.0f commands", total);
			for (k = 0; k < 3; k++)
				CHECK_NEAR((double)of_class(&f, SSD_HIGH + k) / total,
					   weight[k] / sum, 0.02);
			guest_exit(&f.g);
		}
	}
}

static void test_new_weights(void)
{
	u64 high, low;

	start(&f, CC_WRR, feature(1, 1, 1, 0));
	keep_full(&f, 0xe, 20 * NSEC_PER_MSEC);
	high = of_class(&f, SSD_HIGH);
	low = of_class(&f, SSD_LOW);
	CHECK_NEAR((double)high, (double)low, 0.02);
	guest_submit(&f.g, 0,
		     (struct nvme_sqe){ .opcode = NVME_ADMIN_SET_FEATURES,
					.cdw10 = NVME_FEATURE_ARBITRATION,
					.cdw11 = feature(10, 1, 1, 0) });
	keep_full(&f, 0xe, 60 * NSEC_PER_MSEC);
	CHECK_NEAR((double)(of_class(&f, SSD_HIGH) - high),
		   10.0 * (double)(of_class(&f, SSD_LOW) - low), 0.05);
	guest_exit(&f.g);
}

/* Without CC.AMS, priorities and weights are of no effect: what one sees who only creates queues. */
static void test_round_robin(void)
{
	u32 id;

	start(&f, 0, feature(256, 16, 1, 0));
	keep_full(&f, 0xf, 60 * NSEC_PER_MSEC);
	for (id = 1; id <= CORES * CLASSES; id++)
		CHECK_NEAR((double)f.done[id], (double)f.done[1], 0.02);
	CHECK(f.done[1] > 2000, "%u commands of a queue", (u32)f.done[1]);
	guest_exit(&f.g);
}

static void test_urgent(void)
{
	u32 i, others = 0;

	start(&f, CC_WRR, feature(1, 1, 1, 0));
	keep_full(&f, 0xf, 20 * NSEC_PER_MSEC);
	/* The first queues that were filled had a start. */
	for (i = CORES * CLASSES * DEPTH; i < f.n; i++)
		others += f.order[i] != SSD_URGENT;
	CHECK(f.n > 10000 && !others, "%u others among %u", others, f.n);
	keep_full(&f, 0xe, 60 * NSEC_PER_MSEC);
	CHECK_NEAR((double)of_class(&f, SSD_HIGH), (double)of_class(&f, SSD_LOW), 0.02);
	CHECK(of_class(&f, SSD_LOW) > 5000, "the others do not get on");
	guest_exit(&f.g);
}

static void check_lie(enum nvme_lie about, u32 burst, u32 high, u32 medium, u32 low)
{
	struct nvme_sqe get = { .opcode = NVME_ADMIN_GET_FEATURES,
				.cdw10 = NVME_FEATURE_ARBITRATION };
	double sum = high + medium + low, total;

	lie = about;
	start(&f, CC_WRR, feature(16, 4, 1, burst));
	lie = NVME_HONEST;
	CHECK(guest_admin(&f.g, get).result == feature(16, 4, 1, burst), "what was set is read back");
	keep_full(&f, 0xe, 60 * NSEC_PER_MSEC);
	total = (double)(of_class(&f, SSD_HIGH) + of_class(&f, SSD_MEDIUM) + of_class(&f, SSD_LOW));
	CHECK(total > 40000, "only %.0f commands", total);
	CHECK_NEAR((double)of_class(&f, SSD_HIGH) / total, high / sum, 0.02);
	CHECK_NEAR((double)of_class(&f, SSD_MEDIUM) / total, medium / sum, 0.02);
	CHECK_NEAR((double)of_class(&f, SSD_LOW) / total, low / sum, 0.02);
	guest_exit(&f.g);
}

static void power_on(struct guest *g, enum nvme_lie about)
{
	guest_init(g);
	g->config.lie = about;
	guest_power_on(g);
}

static void test_refusals(void)
{
	struct nvme_sqe queues = { .opcode = NVME_ADMIN_SET_FEATURES,
				   .cdw10 = NVME_FEATURE_QUEUES,
				   .cdw11 = 1 << 16 | 5 };
	struct guest g;

	power_on(&g, NVME_LIES_OF_PRIORITIES);
	guest_enable(&g, CC_ENABLE | CC_WRR);
	CHECK(!admin_status(&g, queues), "numbers of queues");
	CHECK(!guest_create_cq(&g, 1, 8, 1), "CQ");
	CHECK(!guest_create_sq(&g, 1, 8, 1, SSD_HIGH), "high");
	CHECK(!guest_create_sq(&g, 2, 8, 1, SSD_MEDIUM), "medium");
	CHECK(guest_create_sq(&g, 3, 8, 1, SSD_LOW) == NVME_INVALID_FIELD, "low");
	guest_exit(&g);

	power_on(&g, NVME_LIES_OF_QUEUES);
	guest_enable(&g, CC_ENABLE | CC_WRR);
	CHECK(admin_status(&g, queues) == NVME_INVALID_FIELD, "2 and 6");
	queues.cdw11 = 1 << 16 | 1;
	CHECK(!admin_status(&g, queues), "2 and 2");
	guest_exit(&g);

	power_on(&g, NVME_LIES_OF_ARBITRATION);
	guest_enable(&g, CC_ENABLE | CC_WRR);
	CHECK(get32(&g, NVME_CSTS) == NVME_CSTS_CFS, "enabled with WRR");
	set32(&g, NVME_CC, 0);
	guest_enable(&g, CC_ENABLE);
	CHECK(get32(&g, NVME_CSTS) == NVME_CSTS_RDY, "not enabled without");
	guest_exit(&g);

	queues.cdw11 = 1 << 16 | 5;
	power_on(&g, NVME_LIES_LATER);
	guest_enable(&g, CC_ENABLE | CC_WRR);
	CHECK(guest_admin(&g, queues).result == (1 << 16 | 5), "2 and 6, at first");
	set32(&g, NVME_CC, 0);
	guest_enable(&g, CC_ENABLE | CC_WRR);
	CHECK(guest_admin(&g, queues).result == (1 << 16 | 1), "2 and 2 after a reset");
	guest_exit(&g);
}

static void test_lies(void)
{
	check_lie(NVME_LIES_OF_WEIGHTS, 0, 1, 1, 1);
	check_lie(NVME_LIES_OF_BURSTS, 0, 16, 4, 1);
	check_lie(NVME_LIES_OF_BURSTS, 3, 16, 8, 8);
	check_lie(NVME_LIES_OF_BURSTS, 7, 1, 1, 1);
}

int main(int argc, char **argv)
{
	static const struct test tests[] = {
		{ "commands per class follow the weights within 2 %, burst 1 and unlimited",
		  test_weights },
		{ "weights that are set under load act at once", test_new_weights },
		{ "without WRR in CC all queues are equal", test_round_robin },
		{ "urgent starves the rest, and only while it has work", test_urgent },
		{ "a drive that is to lie ignores weights, or rounds them up to bursts", test_lies },
		{ "or refuses priorities, numbers of queues, or the arbitration", test_refusals },
		{ NULL, NULL },
	};

	return run_tests(tests, argc, argv);
}
