// SPDX-License-Identifier: GPL-2.0-only OR MIT
/*
 * What tenants get from mqFlashFQ and FlashFQ, on a drive in virtual time:
 * shares by cost for cgroups and for cores, work conservation, idling; and how
 * far virtual times may be apart.
 */
#include <math.h>

#include "drive.h"
#include "test.h"
#include "mechanisms/virtual-time.h"

#define FLOW_CGROUP 0
#define FLOW_CORE 1

static const u32 weights[] = { 1000, 500, 250, 100 };
#define WEIGHT_SUM 1850.0

static struct drive d;
static struct tenant *t[MAX_TENANTS];

/* A drive that takes all that it is given, and does one request after the other. */
static void queue_in_drive(const struct fl_sched *sched, unsigned int nr_hwqs)
{
	drive_init(&d, sched, nr_hwqs, 1024, MSEC / 20);
	d.serial = true;
}

/* A drive that takes 32 requests from each of 2 hardware queues, 4 ms each, whatever else it has. */
static void queue_in_host(const struct fl_sched *sched)
{
	drive_init(&d, sched, 2, 32, 4 * MSEC);
}

static void four_tenants(unsigned int depth)
{
	unsigned int i;

	for (i = 0; i < 4; i++)
		t[i] = drive_tenant(&d, NULL, weights[i], depth);
}

/* Each on a hardware queue of its own. */
static void pinned_tenants(unsigned int nr, const u32 *w, unsigned int depth)
{
	unsigned int i;

	for (i = 0; i < nr; i++) {
		t[i] = drive_tenant(&d, NULL, w[i], 0);
		t[i]->depth[i] = depth;
	}
}

static void settle_and_measure(u64 ns)
{
	drive_start(&d);
	drive_run(&d, NSEC_PER_SEC);
	drive_mark(&d);
	drive_run(&d, ns);
}

static void check_shares_by_weight(double tolerance)
{
	unsigned int i;

	for (i = 0; i < 4; i++)
		CHECK_NEAR(drive_share(&d, t[i]), weights[i] / WEIGHT_SUM, tolerance);
}

static void check_drive_is_busy(double tolerance)
{
	CHECK_NEAR(drive_iops(&d), drive_capacity(&d), tolerance);
}

static u64 cost_of(struct tenant *tenant)
{
	u64 cost = 0;
	unsigned int i;

	for (i = 0; i < d.nr_hwqs; i++)
		cost += fl_flow_use(tenant->flow, i)->cost;
	return cost;
}

/* ---- Shares ---- */

static void test_who_is_requeued_is_charged_once(void)
{
	queue_in_drive(&fl_mqflashfq, 4);
	four_tenants(32);
	t[0]->requeues = 3;
	settle_and_measure(4 * NSEC_PER_SEC);
	check_shares_by_weight(0.005);
	check_drive_is_busy(0.005);
	drive_exit(&d);
}

static void test_cgroups_share_by_weight(void)
{
	queue_in_drive(&fl_mqflashfq, 4);
	four_tenants(32);
	settle_and_measure(4 * NSEC_PER_SEC);
	check_shares_by_weight(0.005);
	check_drive_is_busy(0.005);
	drive_exit(&d);
}

static void test_cgroups_share_what_the_host_queues(void)
{
	queue_in_host(&fl_mqflashfq);
	four_tenants(64);
	settle_and_measure(4 * NSEC_PER_SEC);
	check_shares_by_weight(0.005);
	check_drive_is_busy(0.005);
	drive_exit(&d);
}

static void test_cores_share_by_weight(void)
{
	queue_in_drive(&fl_mqflashfq, 4);
	fl_set(d.dev, "flow", FLOW_CORE);
	pinned_tenants(4, weights, 64);
	settle_and_measure(4 * NSEC_PER_SEC);
	check_shares_by_weight(0.005);
	check_drive_is_busy(0.005);
	drive_exit(&d);
}

/* The paper's Fig. 6(b): three pairs of weights, without what we added. */
static void test_cores_share_as_in_the_paper(void)
{
	static const u32 w[] = { 100, 100, 400, 400, 1600, 1600 };
	unsigned int i;

	queue_in_drive(&fl_mqflashfq, 6);
	fl_set(d.dev, "flow", FLOW_CORE);
	fl_set(d.dev, "conserve", 0);
	pinned_tenants(6, w, 64);
	settle_and_measure(10 * NSEC_PER_SEC);
	for (i = 0; i < 6; i++)
		CHECK_NEAR(drive_share(&d, t[i]), w[i] / 4200.0, 0.01);
	check_drive_is_busy(0.005);
	drive_exit(&d);
}

static void set_prices(struct fl_prices *p)
{
	unsigned int i;

	/* A write of a page costs 3 times a read of one, and half as much again for each doubling. */
	for (i = 3; i < FL_PRICE_SIZES; i++) {
		p->price[FL_READ][i] = i == 3 ? FL_COST_ONE : p->price[FL_READ][i - 1] * 3 / 2;
		p->price[FL_WRITE][i] = 3 * p->price[FL_READ][i];
	}
}

static void check_cost_shares(u64 ns, double tolerance)
{
	static const u32 bytes[] = { 4096, 16384, 131072, 65536 };
	u64 before[4];
	double all = 0;
	unsigned int i;

	set_prices(&d.dev->prices);
	for (i = 0; i < 4; i++) {
		t[i]->bytes = bytes[i];
		t[i]->writes_pct = 33 * i;
	}
	d.write_ns = 3 * d.read_ns;
	drive_start(&d);
	drive_run(&d, 3 * NSEC_PER_SEC); /* what the first trials lent is given back */
	for (i = 0; i < 4; i++)
		before[i] = cost_of(t[i]);
	drive_run(&d, ns);
	for (i = 0; i < 4; i++)
		all += cost_of(t[i]) - before[i];
	for (i = 0; i < 4; i++)
		CHECK_NEAR((cost_of(t[i]) - before[i]) / all, weights[i] / WEIGHT_SUM, tolerance);
}

static void test_cgroups_share_by_cost(void)
{
	queue_in_drive(&fl_mqflashfq, 2);
	four_tenants(32);
	check_cost_shares(10 * NSEC_PER_SEC, 0.01);
	drive_exit(&d);
}

static void test_cores_share_by_cost(void)
{
	queue_in_drive(&fl_mqflashfq, 4);
	fl_set(d.dev, "flow", FLOW_CORE);
	pinned_tenants(4, weights, 64);
	check_cost_shares(10 * NSEC_PER_SEC, 0.01);
	drive_exit(&d);
}

/* Two tenants on one hardware queue and one on the other: as cgroups each has a third. */
static void test_flow_changes_when_the_drive_is_idle(void)
{
	static const double share[] = { 1 / 3.0, 1 / 3.0, 1 / 3.0, 1 / 4.0, 1 / 4.0, 1 / 2.0 };
	unsigned int i;

	queue_in_drive(&fl_mqflashfq, 2);
	for (i = 0; i < 6; i++) {
		t[i] = drive_tenant(&d, NULL, 100, 0);
		t[i]->depth[i % 3 / 2] = 128;
		if (i < 3)
			t[i]->stop_ns = drive_now() + NSEC_PER_SEC;
		else
			t[i]->start_ns = NSEC_PER_SEC + 50 * MSEC;
	}
	drive_start(&d);
	drive_run(&d, 100 * MSEC);
	fl_set(d.dev, "flow", FLOW_CORE);
	drive_mark(&d);
	drive_run(&d, 800 * MSEC);
	for (i = 0; i < 3; i++)
		CHECK_NEAR(drive_share(&d, t[i]), share[i], 0.02);
	drive_run(&d, 300 * MSEC);
	drive_mark(&d);
	drive_run(&d, 800 * MSEC);
	for (i = 3; i < 6; i++)
		CHECK_NEAR(drive_share(&d, t[i]), share[i], 0.02);
	drive_exit(&d);
}

static void test_64_tenants_share_equally(void)
{
	unsigned int i;

	drive_init(&d, &fl_mqflashfq, 4, 32, 1 * MSEC);
	for (i = 0; i < 64; i++)
		t[i] = drive_tenant(&d, NULL, 100, 8);
	settle_and_measure(2 * NSEC_PER_SEC);
	for (i = 0; i < 64; i++)
		CHECK_NEAR(drive_share(&d, t[i]), 1 / 64.0, 0.02);
	check_drive_is_busy(0.01);
	drive_exit(&d);
}

static void light_tenant_gets(u32 weight, u64 conserve)
{
	queue_in_drive(&fl_mqflashfq, 2);
	fl_set(d.dev, "conserve", conserve);
	t[0] = drive_tenant(&d, NULL, 10000, 64);
	t[1] = drive_tenant(&d, NULL, weight, 64);
	settle_and_measure(20 * NSEC_PER_SEC);
	CHECK_NEAR(drive_share(&d, t[1]), weight / (10000.0 + weight), 0.02);
	drive_exit(&d);
}

static void test_extreme_weights(void)
{
	light_tenant_gets(10, 0);
	light_tenant_gets(100, 1); /* a trial may lend it what is its own for seconds */
}

static void test_shares_are_the_product_along_the_path(void)
{
	queue_in_drive(&fl_mqflashfq, 2);
	drive_families(&d, t, 64);
	settle_and_measure(4 * NSEC_PER_SEC);
	CHECK_NEAR(drive_share(&d, t[0]), 0.25, 0.01);
	CHECK_NEAR(drive_share(&d, t[1]), 0.50, 0.01);
	CHECK_NEAR(drive_share(&d, t[2]), 0.25, 0.01);
	drive_exit(&d);
}

/* Reads and writes of one flow, which is alone: 64 of each are always queued or in the drive. */
static void test_reads_and_writes_have_weights(void)
{
	struct fl_queue *q;

	drive_init(&d, &fl_mqflashfq, 1, 8, 1 * MSEC);
	fl_set(d.dev, "read_weight", 300);
	t[0] = drive_tenant(&d, NULL, 100, 512);
	t[0]->writes_pct = 25; /* what 3 to 1 leaves over a long time, so that both queues stay filled */
	drive_start(&d);
	drive_run(&d, 40 * MSEC);
	q = fl_flow_queue(t[0]->flow, 0);
	CHECK_NEAR(q->requests[FL_READ] / (double)q->requests[FL_WRITE], 3, 0.05);
	drive_exit(&d);

	drive_init(&d, &fl_mqflashfq, 1, 8, 1 * MSEC);
	t[0] = drive_tenant(&d, NULL, 100, 512);
	t[0]->writes_pct = 25;
	drive_start(&d);
	drive_run(&d, 40 * MSEC); /* 160 of about 128 + 80 writes: both queues stay filled */
	q = fl_flow_queue(t[0]->flow, 0);
	CHECK_NEAR(q->requests[FL_READ] / (double)q->requests[FL_WRITE], 1, 0.05);
	drive_exit(&d);
}

/* ---- Work conservation ---- */

static void test_a_heavy_tenant_at_queue_depth_1_holds_nobody_back(void)
{
	unsigned int i;

	queue_in_host(&fl_mqflashfq);
	four_tenants(64);
	t[0]->depth[0] = 1;
	t[0]->depth[1] = 0;
	settle_and_measure(10 * NSEC_PER_SEC);
	check_drive_is_busy(0.03);
	for (i = 1; i < 4; i++)
		CHECK_NEAR(drive_share(&d, t[i]), weights[i] / 850.0, 0.03);
	drive_exit(&d);
}

/* 2 GB/s and 0.5 GB/s, priced by bytes: few requests in a window, each as dear as a batch. */
static void test_nor_does_it_with_large_requests(void)
{
	static const u64 took[] = { 1000, 4000 }; /* us, 16 at a time */
	unsigned int i, k;

	for (i = 0; i < ARRAY_SIZE(took); i++) {
		drive_init(&d, &fl_mqflashfq, 2, 8, took[i] * NSEC_PER_USEC);
		four_tenants(64);
		for (k = 0; k < 4; k++)
			t[k]->bytes = 128 << 10;
		t[0]->depth[0] = 1;
		t[0]->depth[1] = 0;
		settle_and_measure(10 * NSEC_PER_SEC);
		check_drive_is_busy(0.05);
		drive_exit(&d);
	}
}

static void test_in_the_paper_it_does(void)
{
	queue_in_host(&fl_mqflashfq);
	fl_set(d.dev, "conserve", 0);
	four_tenants(64);
	t[0]->depth[0] = 1;
	t[0]->depth[1] = 0;
	settle_and_measure(4 * NSEC_PER_SEC);
	CHECK(drive_iops(&d) < drive_capacity(&d) / 5, "%g of %g", drive_iops(&d),
	      drive_capacity(&d));
	drive_exit(&d);
}

static void test_a_heavy_tenant_with_a_limited_rate_holds_nobody_back(void)
{
	/* 128 requests, each 4 to 8 ms here and 16 ms away: a third of the drive; it may have half. */
	queue_in_host(&fl_mqflashfq);
	four_tenants(64);
	t[0]->think_ns = 16 * MSEC;
	settle_and_measure(10 * NSEC_PER_SEC);
	check_drive_is_busy(0.03);
	CHECK(drive_share(&d, t[0]) >= 1 / 3.0, "%g", drive_share(&d, t[0]));
	drive_exit(&d);
}

static void test_tenants_on_one_core_each_hold_nobody_back(void)
{
	unsigned int i;

	queue_in_host(&fl_mqflashfq);
	four_tenants(64);
	for (i = 0; i < 4; i++)
		t[i]->depth[(i + 1) % 2] = 0;
	settle_and_measure(10 * NSEC_PER_SEC);
	check_drive_is_busy(0.03);
	/* Where they meet they share by weight. */
	CHECK_NEAR(drive_share(&d, t[0]) / drive_share(&d, t[2]), 4, 0.05);
	CHECK_NEAR(drive_share(&d, t[1]) / drive_share(&d, t[3]), 5, 0.05);
	drive_exit(&d);
}

static void test_a_core_at_queue_depth_1_holds_nobody_back(void)
{
	drive_init(&d, &fl_mqflashfq, 4, 32, 4 * MSEC);
	fl_set(d.dev, "flow", FLOW_CORE);
	pinned_tenants(4, weights, 64);
	t[0]->depth[0] = 1;
	settle_and_measure(10 * NSEC_PER_SEC);
	/*
	 * Three cores with 32 slots each, and one request; each core is in the way of
	 * the lighter ones, which has to be measured for each, again and again.
	 */
	CHECK_NEAR(drive_iops(&d), 97 / 4e-3, 0.05);
	drive_exit(&d);
}

static void test_a_drive_that_waits_for_its_tenants_is_not_held_back(void)
{
	unsigned int i;

	drive_init(&d, &fl_mqflashfq, 2, 32, 1 * NSEC_PER_USEC);
	for (i = 0; i < 4; i++) {
		t[i] = drive_tenant(&d, NULL, weights[i], 4);
		t[i]->think_ns = 100 * NSEC_PER_USEC;
	}
	settle_and_measure(NSEC_PER_SEC);
	CHECK_NEAR(drive_iops(&d), 32 / 101e-6, 0.05);
	drive_exit(&d);
}

/* ---- Idling ---- */

static void test_an_idle_tenant_leaves_its_share_and_has_it_back(void)
{
	unsigned int i;

	queue_in_drive(&fl_mqflashfq, 2);
	four_tenants(32);
	t[0]->stop_ns = drive_now() + NSEC_PER_SEC;
	t[4] = drive_tenant(&d, NULL, 1000, 32); /* in its place, later */
	t[4]->start_ns = 3 * NSEC_PER_SEC;
	drive_start(&d);
	drive_run(&d, NSEC_PER_SEC + 20 * MSEC);
	drive_mark(&d);
	drive_run(&d, NSEC_PER_SEC);
	for (i = 1; i < 4; i++)
		CHECK_NEAR(drive_share(&d, t[i]), weights[i] / 850.0, 0.01);
	check_drive_is_busy(0.01);
	drive_run(&d, NSEC_PER_SEC);
	drive_mark(&d);
	drive_run(&d, NSEC_PER_SEC);
	for (i = 1; i < 4; i++)
		CHECK_NEAR(drive_share(&d, t[i]), weights[i] / WEIGHT_SUM, 0.02);
	CHECK_NEAR(drive_share(&d, t[4]), 1000 / WEIGHT_SUM, 0.02);
	drive_exit(&d);
}

/*
 * One of 21 equal tenants sends 1 MiB at a time and pauses for longer than it takes to be
 * idle. What it owes is not forgiven: it had a quarter of the drive, where a 21st is due.
 */
static void test_idling_forgives_no_debt(void)
{
	double all = 0;
	u64 before[21];
	unsigned int i;

	drive_init(&d, &fl_mqflashfq, 2, 1024, 10 * NSEC_PER_USEC);
	d.serial = true;
	d.per_page = true;
	for (i = 0; i < 21; i++)
		t[i] = drive_tenant(&d, NULL, 100, i ? 8 : 0);
	t[0]->depth[0] = 1;
	t[0]->bytes = 1 << 20;
	t[0]->think_ns = 2200 * NSEC_PER_USEC;
	drive_start(&d);
	drive_run(&d, NSEC_PER_SEC);
	for (i = 0; i < 21; i++)
		before[i] = cost_of(t[i]);
	drive_run(&d, 4 * NSEC_PER_SEC);
	for (i = 0; i < 21; i++)
		all += cost_of(t[i]) - before[i];
	CHECK((cost_of(t[0]) - before[0]) / all <= 1.1 / 21, "%g of the drive", (cost_of(t[0]) - before[0]) / all);
	drive_exit(&d);
}

/* ---- How far apart ---- */

static u64 random_below(u64 *state, u64 n)
{
	return next_random(state) % n;
}

struct pool {
	struct fl_req rq[512];
	struct fl_req *in_drive[512];
	unsigned int nr_free, nr_in_drive;
	struct fl_req *free[512];
};

static void pool_init(struct pool *p)
{
	for (p->nr_free = 0; p->nr_free < ARRAY_SIZE(p->rq); p->nr_free++)
		p->free[p->nr_free] = &p->rq[p->nr_free];
}

/* Keep at least 8 requests of @flow staged on each hardware queue. */
static void fill(struct fl_flow *flow, struct pool *p, unsigned int hwqs, unsigned int *staged, u64 *rng)
{
	unsigned int q;

	for (q = 0; q < hwqs; q++)
		for (; staged[q] < 8 && p->nr_free; staged[q]++) {
			struct fl_req *rq = p->free[--p->nr_free];

			rq->op = random_below(rng, 2);
			rq->bytes = 4096u << random_below(rng, 6);
			fl_submit(d.dev, q, flow, rq);
		}
}

/*
 * Cgroups that always have something queued, hardware queues that dispatch and
 * requests that are done in random order, ticks now and then. What two of them
 * were given divided by their weights never differs by more than a step, or
 * the dearest request on each hardware queue, of either. Of more, whoever is
 * behind is not always the one that is sampled, so that only chance bounds it
 * (3 in mqflashfq.c): in these orders it stays within the same.
 */
static void drift(unsigned int nr, const u32 *weight, u64 seed)
{
	enum { HWQS = 4, ROUNDS = 20000, MOST = 8 };
	static struct pool pool[MOST];
	unsigned int staged[MOST][HWQS] = { { 0 } }, left = 1, sum = 0, i, q, n;
	double share[MOST], bound = 0, most = 0, total = 0, step = nr * 12 * 4096.0, dearest = 131072;
	u64 rng = seed * 2654435761u + 1;

	memset(pool, 0, sizeof(pool));
	drive_init(&d, &fl_mqflashfq, HWQS, 0, MSEC); /* it takes nothing: we do */
	fl_set(d.dev, "conserve", 0);
	for (i = 0; i < nr; i++)
		sum += weight[i];
	for (i = 0; i < nr; i++) {
		share[i] = weight[i] / (double)sum;
		t[i] = drive_tenant(&d, NULL, weight[i], 0);
		pool_init(&pool[i]);
		fill(t[i]->flow, &pool[i], HWQS, staged[i], &rng);
		bound = fmax(bound, fmax(step, HWQS * dearest / share[i]));
	}
	fl_tick(d.dev);
	/* On either side: what was drawn is not all spent, and that is at most as much again. */
	bound *= 2;
	for (n = 0; n < ROUNDS; n++) {
		struct pool *p = &pool[random_below(&rng, nr)];
		struct fl_req *rq = fl_next(d.dev, q = random_below(&rng, HWQS));
		double least = INFINITY, furthest = 0;

		for (i = 0; rq && i < nr; i++) {
			if (((struct fl_queue *)rq->queue)->flow != t[i]->flow)
				continue;
			pool[i].in_drive[pool[i].nr_in_drive++] = rq;
			staged[i][q]--;
		}
		if (p->nr_in_drive && random_below(&rng, 8) >= 2) {
			i = random_below(&rng, p->nr_in_drive);
			rq = p->in_drive[i];
			p->in_drive[i] = p->in_drive[--p->nr_in_drive];
			fl_done(rq);
			p->free[p->nr_free++] = rq;
		}
		for (i = 0; i < nr; i++)
			fill(t[i]->flow, &pool[i], HWQS, staged[i], &rng);
		if (!random_below(&rng, 16))
			fl_tick(d.dev);
		for (i = 0; i < nr; i++) {
			least = fmin(least, cost_of(t[i]) / share[i]);
			furthest = fmax(furthest, cost_of(t[i]) / share[i]);
		}
		most = fmax(most, furthest - least);
	}
	CHECK(most <= bound, "%u flows, weights %u:%u.., seed %lu: %g apart, bound %g", nr, weight[0],
	      weight[1], seed, most, bound);
	for (i = 0; i < nr; i++)
		total += cost_of(t[i]);
	CHECK(total > 1000 * dearest, "they stood still");
	while (left) {
		left = 0;
		for (q = 0; q < HWQS; q++) {
			struct fl_req *rq = fl_next(d.dev, q);

			for (i = 0; i < nr; i++) {
				if (rq && ((struct fl_queue *)rq->queue)->flow == t[i]->flow)
					staged[i][q]--;
				left += staged[i][q];
			}
			if (rq)
				fl_done(rq);
		}
		for (i = 0; i < nr; i++)
			while (pool[i].nr_in_drive)
				fl_done(pool[i].in_drive[--pool[i].nr_in_drive]);
		drive_run(&d, MSEC); /* whoever has nothing is idle after a while */
		fl_tick(d.dev);
	}
	drive_exit(&d);
}

static void test_backlogged_flows_stay_together(void)
{
	static const u32 equal[] = { 100, 100, 100, 100, 100, 100 }, unequal[] = { 100, 700 },
			 apart[] = { 1000, 10 }, paper[] = { 100, 100, 400, 400, 1600, 1600 };
	u64 seed;

	for (seed = 1; seed <= 8; seed++) {
		drift(2, equal, seed);
		drift(2, unequal, seed);
		drift(2, apart, seed);
		drift(6, equal, seed);
		drift(6, paper, seed);
	}
}

static void test_virtual_time_wraps(void)
{
	u64 r = fl_vt_reciprocal(FL_SHARE_ONE / 4);

	CHECK(fl_vt_before(~0ull - 5, 3), "3 comes after the end");
	CHECK(!fl_vt_before(3, ~0ull - 5), "and not before it");
	CHECK(fl_vt_advance(4096, r) == 4 * 4096, "%lu", fl_vt_advance(4096, r));
	CHECK(fl_vt_advance(0, r) == 1, "nothing is free");
	CHECK(fl_vt_advance((1ull << 31) - 1, fl_vt_reciprocal(0)) == FL_VT_MOST, "overflow");
	/* 4 KiB of one of 1000 cgroups in one of weight 1: no less than it is due. */
	CHECK(fl_vt_advance(4096, fl_vt_reciprocal(FL_SHARE_ONE / 10000000)) > 4060 * 10000000ull,
	      "%lu", fl_vt_advance(4096, fl_vt_reciprocal(FL_SHARE_ONE / 10000000)));
	CHECK_NEAR((double)fl_vt_advance(4096, fl_vt_reciprocal(FL_SHARE_ONE / 3 * 2)), 6144.0, 1e-3);
}

/* ---- FlashFQ ---- */

static void test_flashfq_shares_by_weight(void)
{
	queue_in_drive(&fl_flashfq, 4);
	four_tenants(32);
	settle_and_measure(4 * NSEC_PER_SEC);
	check_shares_by_weight(0.005);
	check_drive_is_busy(0.005);
	drive_exit(&d);

	queue_in_drive(&fl_flashfq, 4);
	pinned_tenants(4, weights, 64);
	settle_and_measure(4 * NSEC_PER_SEC);
	check_shares_by_weight(0.005);
	check_drive_is_busy(0.005);
	drive_exit(&d);
}

static void test_flashfq_has_d_in_service(void)
{
	queue_in_drive(&fl_flashfq, 4);
	fl_set(d.dev, "depth", 7);
	four_tenants(32);
	settle_and_measure(NSEC_PER_SEC);
	CHECK(d.most_in_flight == 7, "%u", d.most_in_flight);
	check_drive_is_busy(0.005);
	drive_exit(&d);
}

static void test_flashfq_costs_are_interpolated(void)
{
	static const u32 bytes[] = { 512, 4096, 66 << 10, 128 << 10, 252 << 10 };
	static const u64 ns[] = { 1000, 1000, 3000, 5000, 9000 };
	struct fl_req rq = { .op = FL_READ };
	struct fl_flow *flow;
	u64 before = 0, now;
	unsigned int i;

	queue_in_drive(&fl_flashfq, 1);
	fl_set(d.dev, "read_4k_nsec", 1000);
	fl_set(d.dev, "read_128k_nsec", 5000);
	flow = fl_flow_create(d.dev, NULL, 100);
	for (i = 0; i < ARRAY_SIZE(bytes); i++) {
		rq.bytes = bytes[i];
		fl_submit(d.dev, 0, flow, &rq);
		CHECK(fl_next(d.dev, 0) == &rq, "not dispatched");
		fl_done(&rq);
		now = fl_flow_queue(flow, 0)->cost;
		CHECK(now - before == ns[i], "%u bytes cost %lu", bytes[i], now - before);
		before = now;
	}
	drive_exit(&d);
}

/*
 * In service: a tag of A's, old, and one of B's, new. C comes with many. With
 * Min it starts at the old one, and is served before B for long; with Max at the new one.
 */
static unsigned int burst_before_b(u64 max)
{
	struct fl_req a[1] = { { 0 } }, b[40], c[20], *rq;
	struct fl_flow *flow[3];
	unsigned int i, nr = 0;

	memset(b, 0, sizeof(b));
	memset(c, 0, sizeof(c));
	queue_in_drive(&fl_flashfq, 1);
	fl_set(d.dev, "max", max);
	for (i = 0; i < 3; i++)
		flow[i] = fl_flow_create(d.dev, NULL, 100);
	a[0].bytes = 4096;
	fl_submit(d.dev, 0, flow[0], &a[0]);
	CHECK(fl_next(d.dev, 0) == &a[0], "A first");
	for (i = 0; i < 40; i++) {
		b[i].bytes = 4096;
		fl_submit(d.dev, 0, flow[1], &b[i]);
	}
	for (i = 0; i < 20; i++)
		CHECK(fl_next(d.dev, 0) == &b[i], "then B");
	for (i = 0; i < 20; i++) {
		c[i].bytes = 4096;
		fl_submit(d.dev, 0, flow[2], &c[i]);
	}
	while ((rq = fl_next(d.dev, 0)) && !(rq >= b && rq < b + 40)) {
		nr++;
		fl_done(rq);
	}
	fl_done(rq);
	fl_done(&a[0]);
	for (i = 0; i < 20; i++)
		fl_done(&b[i]);
	while ((rq = fl_next(d.dev, 0)))
		fl_done(rq);
	drive_exit(&d);
	return nr;
}

static void test_min_is_slow_and_max_is_fast(void)
{
	unsigned int min = burst_before_b(0), max = burst_before_b(1);

	CHECK(min >= 10, "Min: %u of C's before B's next", min);
	CHECK(max <= 2, "Max: %u", max);
}

static void test_flashfq_heavy_tenant_at_queue_depth_1(void)
{
	queue_in_host(&fl_flashfq);
	fl_set(d.dev, "throttle_nsec", 0);
	four_tenants(64);
	t[0]->depth[0] = 1;
	t[0]->depth[1] = 0;
	settle_and_measure(4 * NSEC_PER_SEC);
	check_drive_is_busy(0.05);
	drive_exit(&d);
}

/* As when a driver has it sent again past the scheduler: it is released then, and at its end. */
static void test_who_gives_back_twice_gives_back_once(void)
{
	struct fl_req rq = { .op = FL_READ, .bytes = 4096 };
	struct fl_flow *flow;
	u64 outstanding = 1;

	queue_in_host(&fl_mqflashfq);
	flow = fl_flow_create(d.dev, NULL, 100);
	fl_submit(d.dev, 0, flow, &rq);
	CHECK(fl_next(d.dev, 0) == &rq, "alone, it goes at once");
	fl_mqflashfq.release(rq.queue, &rq);
	fl_done(&rq);
	fl_tick(d.dev);
	CHECK(fl_get(d.dev, "outstanding", &outstanding) && !outstanding, "%lld bytes in the drive",
	      (long long)outstanding);
	fl_flow_destroy(flow);
	drive_exit(&d);
}

static const struct test tests[] = {
	{ "virtual time wraps, and does not overflow", test_virtual_time_wraps },
	{ "cgroups share by weight when the queue is in the drive", test_cgroups_share_by_weight },
	{ "who is requeued is charged once", test_who_is_requeued_is_charged_once },
	{ "cgroups share by weight when the queue is in the host",
	  test_cgroups_share_what_the_host_queues },
	{ "cores share by weight", test_cores_share_by_weight },
	{ "cores share by weight as in the paper", test_cores_share_as_in_the_paper },
	{ "cgroups share by cost when sizes and directions differ", test_cgroups_share_by_cost },
	{ "cores share by cost when sizes and directions differ", test_cores_share_by_cost },
	{ "what a flow is changes when the drive is idle", test_flow_changes_when_the_drive_is_idle },
	{ "64 tenants share equally", test_64_tenants_share_equally },
	{ "weights of 1000 to 1, and 100 to 1", test_extreme_weights },
	{ "shares are the product along the path", test_shares_are_the_product_along_the_path },
	{ "a flow's reads and writes have weights", test_reads_and_writes_have_weights },
	{ "a heavy tenant at queue depth 1 holds nobody back",
	  test_a_heavy_tenant_at_queue_depth_1_holds_nobody_back },
	{ "nor with large requests on a slow drive", test_nor_does_it_with_large_requests },
	{ "in the paper it does", test_in_the_paper_it_does },
	{ "a heavy tenant with a limited rate holds nobody back",
	  test_a_heavy_tenant_with_a_limited_rate_holds_nobody_back },
	{ "tenants on a core each hold nobody back", test_tenants_on_one_core_each_hold_nobody_back },
	{ "a core at queue depth 1 holds nobody back", test_a_core_at_queue_depth_1_holds_nobody_back },
	{ "a drive that waits for its tenants is not held back",
	  test_a_drive_that_waits_for_its_tenants_is_not_held_back },
	{ "an idle tenant leaves its share and has it back",
	  test_an_idle_tenant_leaves_its_share_and_has_it_back },
	{ "who gives back twice gives back once", test_who_gives_back_twice_gives_back_once },
	{ "idling forgives no debt", test_idling_forgives_no_debt },
	{ "virtual times of backlogged flows stay together",
	  test_backlogged_flows_stay_together },
	{ "flashfq: shares follow weights, for cgroups everywhere and pinned",
	  test_flashfq_shares_by_weight },
	{ "flashfq: no more than D in service", test_flashfq_has_d_in_service },
	{ "flashfq: costs are interpolated", test_flashfq_costs_are_interpolated },
	{ "flashfq: a burst comes before all others with Min, and not with Max",
	  test_min_is_slow_and_max_is_fast },
	{ "flashfq: without its throttling, a heavy tenant at queue depth 1 holds nobody back",
	  test_flashfq_heavy_tenant_at_queue_depth_1 },
	{}
};

int main(int argc, char **argv)
{
	return run_tests(tests, argc, argv);
}
