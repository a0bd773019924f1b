// SPDX-License-Identifier: GPL-2.0-only OR MIT
/*
 * What a tenant gets from Kyber-fairness, on a drive in virtual time: shares,
 * work conservation, idling, hierarchy, the price of writes, the prediction.
 */
#include "drive.h"
#include "test.h"

static const u32 weights[] = { 1000, 500, 250, 100 };
#define WEIGHT_SUM 1850.0

static struct drive d;
static struct tenant *t[MAX_TENANTS];

/* Four tenants of the paper's weights on 2 hardware queues of 32 slots, 4 ms a request. */
static void four_tenants(unsigned int depth)
{
	unsigned int i;

	drive_init(&d, &fl_kyber_fairness, 2, 32, 4 * MSEC);
	for (i = 0; i < 4; i++)
		t[i] = drive_tenant(&d, NULL, weights[i], depth);
}

static void settle_and_measure(u64 ns)
{
	drive_start(&d);
	drive_run(&d, 2 * NSEC_PER_SEC);
	drive_mark(&d);
	drive_run(&d, ns);
}

static void check_shares_by_weight(double tolerance)
{
	unsigned int i;

	for (i = 0; i < 4; i++)
		CHECK_NEAR(drive_share(&d, t[i]), weights[i] / WEIGHT_SUM, tolerance);
}

static void check_drive_is_busy(void)
{
	CHECK_NEAR(drive_iops(&d), drive_capacity(&d), 0.03);
}

static void test_shares_follow_weights(void)
{
	four_tenants(64);
	settle_and_measure(10 * NSEC_PER_SEC);
	check_shares_by_weight(0.02);
	check_drive_is_busy();
	drive_exit(&d);
}

static void test_who_is_requeued_is_charged_once(void)
{
	four_tenants(64);
	t[0]->requeues = 3;
	settle_and_measure(4 * NSEC_PER_SEC);
	check_shares_by_weight(0.02);
	check_drive_is_busy();
	drive_exit(&d);
}

static void test_shares_at_queue_depth_256(void)
{
	four_tenants(1024);
	settle_and_measure(10 * NSEC_PER_SEC);
	check_shares_by_weight(0.02);
	check_drive_is_busy();
	drive_exit(&d);
}

/* Many jobs that each wait for their request: the drive is the bottleneck, nobody has a queue. */
static void test_shares_of_shallow_queues_on_a_shallow_drive(void)
{
	unsigned int i;

	drive_init(&d, &fl_kyber_fairness, 2, 2, 1 * MSEC);
	for (i = 0; i < 4; i++)
		t[i] = drive_tenant(&d, NULL, weights[i], 8);
	settle_and_measure(10 * NSEC_PER_SEC);
	check_shares_by_weight(0.03);
	check_drive_is_busy();
	drive_exit(&d);
}

static void test_shares_by_cost_for_mixed_sizes(void)
{
	static const u32 bytes[] = { 4096, 16384, 131072, 1048576 };
	double all = 0;
	unsigned int i;

	four_tenants(64);
	d.per_page = true;
	d.read_ns = MSEC / 10;
	for (i = 0; i < 4; i++)
		t[i]->bytes = bytes[i];
	drive_start(&d);
	drive_run(&d, 5 * NSEC_PER_SEC);
	drive_mark(&d);
	drive_run(&d, 60 * NSEC_PER_SEC);
	for (i = 0; i < 4; i++)
		all += t[i]->done_bytes - t[i]->mark_bytes;
	for (i = 0; i < 4; i++)
		CHECK_NEAR((t[i]->done_bytes - t[i]->mark_bytes) / all, weights[i] / WEIGHT_SUM, 0.03);
	drive_exit(&d);
}

/* A real drive takes all that it is given and queues it inside: nothing is staged for long. */
static void test_shares_when_the_queue_is_in_the_drive(void)
{
	four_tenants(16);
	d.slots = 1024;
	d.serial = true;
	d.read_ns = MSEC / 10;
	settle_and_measure(10 * NSEC_PER_SEC);
	check_shares_by_weight(0.03);
	check_drive_is_busy();
	drive_exit(&d);
}

static void test_64_tenants_share_equally(void)
{
	unsigned int i;

	drive_init(&d, &fl_kyber_fairness, 4, 32, 1 * MSEC);
	for (i = 0; i < 64; i++)
		t[i] = drive_tenant(&d, NULL, 100, 8);
	settle_and_measure(10 * NSEC_PER_SEC);
	for (i = 0; i < 64; i++)
		CHECK_NEAR(drive_share(&d, t[i]), 1 / 64.0, 0.03);
	check_drive_is_busy();
	drive_exit(&d);
}

static void test_extreme_weights(void)
{
	drive_init(&d, &fl_kyber_fairness, 2, 32, 1 * MSEC);
	t[0] = drive_tenant(&d, NULL, 10000, 64);
	t[1] = drive_tenant(&d, NULL, 10, 64);
	settle_and_measure(60 * NSEC_PER_SEC);
	CHECK_NEAR(drive_share(&d, t[1]), 10 / 10010.0, 0.05);
	check_drive_is_busy();
	drive_exit(&d);
}

/* ---- Work conservation ---- */

static void test_a_lone_tenant_has_all(void)
{
	drive_init(&d, &fl_kyber_fairness, 2, 32, 4 * MSEC);
	t[0] = drive_tenant(&d, NULL, 1, 64);
	settle_and_measure(5 * NSEC_PER_SEC);
	check_drive_is_busy();
	drive_exit(&d);
}

static void test_a_heavy_tenant_at_queue_depth_1_holds_nobody_back(void)
{
	unsigned int i;

	four_tenants(64);
	t[0]->depth[0] = 1;
	t[0]->depth[1] = 0;
	settle_and_measure(10 * NSEC_PER_SEC);
	check_drive_is_busy();
	/* Each of its requests waits at most for the next free slot: 4 + 4 ms. */
	CHECK(drive_share(&d, t[0]) * drive_iops(&d) >= 124, "%g a second",
	      drive_share(&d, t[0]) * drive_iops(&d));
	for (i = 1; i < 4; i++)
		CHECK_NEAR(drive_share(&d, t[i]), weights[i] / 850.0, 0.05);
	drive_exit(&d);
}

static void test_a_heavy_tenant_below_its_share_holds_nobody_back(void)
{
	/*
	 * 128 requests, each 4 ms in the drive, 16 ms away, and up to 4 ms in
	 * wait of a free slot: 33 to 40 % of the drive, where it may have 54 %.
	 */
	four_tenants(64);
	t[0]->think_ns = 16 * MSEC;
	settle_and_measure(10 * NSEC_PER_SEC);
	check_drive_is_busy();
	CHECK(drive_share(&d, t[0]) >= 1 / 3.0, "%g", drive_share(&d, t[0]));
	drive_exit(&d);
}

static void test_tenants_on_one_core_each_hold_nobody_back(void)
{
	unsigned int i;

	four_tenants(64);
	for (i = 0; i < 4; i++)
		t[i]->depth[(i + 1) % 2] = 0;
	settle_and_measure(10 * NSEC_PER_SEC);
	check_drive_is_busy();
	/* Where they meet they share by weight. */
	CHECK_NEAR(drive_share(&d, t[0]) / drive_share(&d, t[2]), 4, 0.1);
	CHECK_NEAR(drive_share(&d, t[1]) / drive_share(&d, t[3]), 5, 0.1);
	drive_exit(&d);
}

/* A trial of a higher floor may succeed whoever it is that is let go. */
static void test_a_small_share_fills_a_drive_that_others_do_not(void)
{
	drive_init(&d, &fl_kyber_fairness, 2, 128, 10 * MSEC);
	d.varies = 1;
	t[0] = drive_tenant(&d, NULL, 1000, 30);
	t[1] = drive_tenant(&d, NULL, 50, 256);
	drive_start(&d);
	drive_run(&d, 20 * NSEC_PER_SEC);
	drive_mark(&d);
	drive_run(&d, 5 * NSEC_PER_SEC);
	check_drive_is_busy();
	drive_exit(&d);
}

static void test_a_heavy_tenant_on_a_full_hardware_queue_holds_nobody_back(void)
{
	drive_init(&d, &fl_kyber_fairness, 2, 32, 16 * MSEC);
	t[0] = drive_tenant(&d, NULL, 1000, 128);
	t[1] = drive_tenant(&d, NULL, 100, 128);
	t[0]->depth[1] = t[1]->depth[0] = 0;
	settle_and_measure(10 * NSEC_PER_SEC);
	check_drive_is_busy();
	drive_exit(&d);
}

/* ---- Idling ---- */

static void test_an_idle_tenants_share_goes_to_the_others_in_two_periods(void)
{
	unsigned int i;

	four_tenants(64);
	t[0]->stop_ns = drive_now() + 3 * NSEC_PER_SEC;
	drive_start(&d);
	drive_run(&d, 3 * NSEC_PER_SEC + 200 * MSEC);
	drive_mark(&d);
	drive_run(&d, 5 * NSEC_PER_SEC);
	check_drive_is_busy();
	for (i = 1; i < 4; i++)
		CHECK_NEAR(drive_share(&d, t[i]), weights[i] / 850.0, 0.03);
	drive_exit(&d);
}

static void test_it_has_it_back_in_two_periods(void)
{
	four_tenants(64);
	t[0]->start_ns = 3 * NSEC_PER_SEC;
	drive_start(&d);
	drive_run(&d, 3 * NSEC_PER_SEC + 200 * MSEC);
	drive_mark(&d);
	drive_run(&d, 500 * MSEC);
	CHECK_NEAR(drive_share(&d, t[0]), 1000 / WEIGHT_SUM, 0.1);
	drive_mark(&d);
	drive_run(&d, 5 * NSEC_PER_SEC);
	check_shares_by_weight(0.03);
	drive_exit(&d);
}

/* ---- Hierarchy ---- */

static void test_shares_are_the_product_along_the_path(void)
{
	drive_init(&d, &fl_kyber_fairness, 2, 32, 4 * MSEC);
	drive_families(&d, t, 64);
	settle_and_measure(10 * NSEC_PER_SEC);
	CHECK_NEAR(drive_share(&d, t[0]), 0.25, 0.03);
	CHECK_NEAR(drive_share(&d, t[1]), 0.50, 0.03);
	CHECK_NEAR(drive_share(&d, t[2]), 0.25, 0.03);
	drive_exit(&d);
}

static void test_a_silent_siblings_share_stays_in_the_family(void)
{
	drive_init(&d, &fl_kyber_fairness, 2, 32, 4 * MSEC);
	drive_families(&d, t, 64);
	t[1]->stop_ns = drive_now() + 1 * NSEC_PER_SEC;
	settle_and_measure(10 * NSEC_PER_SEC);
	CHECK_NEAR(drive_share(&d, t[0]), 0.75, 0.03);
	CHECK_NEAR(drive_share(&d, t[2]), 0.25, 0.03);
	drive_exit(&d);
}

static void test_a_new_weight_acts_at_once(void)
{
	four_tenants(64);
	drive_start(&d);
	drive_run(&d, 2 * NSEC_PER_SEC);
	fl_flow_weight(t[0]->flow, 100);
	drive_run(&d, 200 * MSEC);
	drive_mark(&d);
	drive_run(&d, 5 * NSEC_PER_SEC);
	CHECK_NEAR(drive_share(&d, t[0]), 100 / 950.0, 0.03);
	CHECK_NEAR(drive_share(&d, t[1]), 500 / 950.0, 0.03);
	CHECK(!fl_flow_weight(t[0]->flow, 0) && !fl_flow_weight(t[0]->flow, 10001), "out of range");
	drive_exit(&d);
}

/* ---- Writes ---- */

static void test_a_write_pays_for_the_time_it_takes(void)
{
	drive_init(&d, &fl_kyber_fairness, 2, 32, 1 * MSEC);
	d.write_ns = 3 * MSEC;
	t[0] = drive_tenant(&d, NULL, 100, 64);
	t[1] = drive_tenant(&d, NULL, 100, 64);
	t[1]->writes_pct = 100;
	settle_and_measure(10 * NSEC_PER_SEC);
	CHECK_NEAR(drive_var(&d, "write_price_pct"), 300, 0.02);
	CHECK_NEAR(drive_share(&d, t[0]), 0.75, 0.03);
	drive_exit(&d);
}

static void test_a_write_is_never_cheaper_than_a_read(void)
{
	drive_init(&d, &fl_kyber_fairness, 2, 32, 3 * MSEC);
	d.write_ns = 1 * MSEC;
	t[0] = drive_tenant(&d, NULL, 100, 64);
	t[1] = drive_tenant(&d, NULL, 100, 64);
	t[1]->writes_pct = 100;
	settle_and_measure(5 * NSEC_PER_SEC);
	CHECK(drive_var(&d, "write_price_pct") == 100, "%lu", drive_var(&d, "write_price_pct"));
	CHECK_NEAR(drive_share(&d, t[0]), 0.5, 0.03);
	drive_exit(&d);
}

/* ---- The prediction: see `prediction` beside this for the curve ---- */

static double predicted_of_capacity(void)
{
	return drive_var(&d, "predicted_total") / 4096.0 / (drive_capacity(&d) / 10);
}

static void test_the_total_follows_the_drive(void)
{
	four_tenants(64);
	drive_start(&d);
	drive_run(&d, 2 * NSEC_PER_SEC);
	CHECK_NEAR(predicted_of_capacity(), 15 / 16.0, 0.05);
	d.read_ns = 8 * MSEC;
	drive_run(&d, 400 * MSEC);
	CHECK_NEAR(predicted_of_capacity(), 15 / 16.0, 0.1);
	drive_mark(&d);
	drive_run(&d, 3 * NSEC_PER_SEC);
	check_shares_by_weight(0.05);
	check_drive_is_busy();
	d.read_ns = 4 * MSEC;
	drive_run(&d, 400 * MSEC);
	CHECK_NEAR(predicted_of_capacity(), 15 / 16.0, 0.1);
	drive_mark(&d);
	drive_run(&d, 3 * NSEC_PER_SEC);
	check_shares_by_weight(0.05);
	check_drive_is_busy();
	drive_exit(&d);
}

static void test_the_authors_prediction_follows_the_drive_some_periods_later(void)
{
	four_tenants(64);
	drive_start(&d);
	CHECK(fl_set(d.dev, "prediction", 2), "a tunable");
	drive_run(&d, 2 * NSEC_PER_SEC);
	d.read_ns = 8 * MSEC;
	drive_run(&d, 150 * MSEC);
	CHECK(predicted_of_capacity() > 1.2, "%f", predicted_of_capacity());
	drive_run(&d, NSEC_PER_SEC);
	CHECK_NEAR(predicted_of_capacity(), 1.0, 0.1);
	drive_mark(&d);
	drive_run(&d, 3 * NSEC_PER_SEC);
	check_shares_by_weight(0.05);
	check_drive_is_busy();
	drive_exit(&d);
}

static void test_a_drive_that_gets_slower_makes_nobody_look_limited(void)
{
	unsigned int i, period;

	drive_init(&d, &fl_kyber_fairness, 2, 32, 4 * MSEC);
	t[0] = drive_tenant(&d, NULL, 1000, 256);
	t[1] = drive_tenant(&d, NULL, 1, 256);
	drive_start(&d);
	drive_run(&d, 2 * NSEC_PER_SEC);
	drive_mark(&d);
	for (i = 0; i < 4; i++) {
		for (period = 0; period < 5; period++) {
			drive_run(&d, 100 * MSEC);
			d.read_ns += d.read_ns / 3;
		}
		d.read_ns = 4 * MSEC;
		drive_run(&d, NSEC_PER_SEC);
	}
	CHECK(drive_share(&d, t[1]) < 0.005, "%f", drive_share(&d, t[1]));
	drive_exit(&d);
}

static void test_without_prediction_the_total_stays(void)
{
	u64 total;

	four_tenants(64);
	drive_start(&d);
	drive_run(&d, 2 * NSEC_PER_SEC);
	CHECK(fl_set(d.dev, "prediction", 0), "a tunable");
	total = drive_var(&d, "predicted_total");
	d.read_ns = 16 * MSEC;
	drive_run(&d, 2 * NSEC_PER_SEC);
	CHECK(drive_var(&d, "predicted_total") == total, "moved");
	drive_exit(&d);
}

static void test_tunables_refuse_what_is_out_of_range(void)
{
	u64 value;

	four_tenants(1);
	CHECK(!fl_set(d.dev, "period_nsec", 0), "accepted");
	CHECK(!fl_set(d.dev, "prediction", 3), "accepted");
	CHECK(!fl_set(d.dev, "tokens_used", 1), "a counter was set");
	CHECK(!fl_set(d.dev, "no_such", 1), "accepted");
	CHECK(!fl_get(d.dev, "no_such", &value), "found");
	drive_exit(&d);
}

/* ---- Latency control: Kyber's depths ---- */

static void test_no_more_in_flight_than_the_depth(void)
{
	drive_init(&d, &fl_kyber_fairness, 4, 1024, 1 * MSEC);
	t[0] = drive_tenant(&d, NULL, 100, 512);
	settle_and_measure(1 * NSEC_PER_SEC);
	CHECK(d.most_in_flight <= 256, "%u reads", d.most_in_flight);
	CHECK_NEAR(drive_iops(&d), 256 * 1000, 0.02);
	drive_exit(&d);
}

static void test_one_hardware_queue_may_use_the_whole_depth(void)
{
	unsigned int i;

	drive_init(&d, &fl_kyber_fairness, 8, 1024, 1 * MSEC);
	t[0] = drive_tenant(&d, NULL, 100, 512);
	for (i = 1; i < 8; i++) /* the others were busy, and hold credits */
		t[0]->depth[i] = 1;
	t[0]->think_ns = 0;
	settle_and_measure(1 * NSEC_PER_SEC);
	CHECK_NEAR(drive_iops(&d), 256 * 1000, 0.05);
	drive_exit(&d);
}

static void test_writes_are_held_back_when_reads_suffer(void)
{
	four_tenants(64);
	d.nr_hwqs = 2;
	d.slots = 512;
	t[0]->writes_pct = 100;
	t[0]->depth[0] = t[0]->depth[1] = 4;
	d.read_ns = 6 * MSEC; /* target: 2 */
	d.write_ns = 1 * MSEC; /* target: 10 */
	settle_and_measure(5 * NSEC_PER_SEC);
	CHECK(drive_var(&d, "read_depth") == 256, "%lu", drive_var(&d, "read_depth"));
	CHECK(drive_var(&d, "write_depth") < 128, "%lu", drive_var(&d, "write_depth"));
	drive_exit(&d);
}

static void test_a_drive_that_waits_for_its_tenants_holds_nobody_back(void)
{
	u64 throttled_ns;
	unsigned int i;

	drive_init(&d, &fl_kyber_fairness, 2, 32, 1 * NSEC_PER_USEC);
	for (i = 0; i < 4; i++) {
		t[i] = drive_tenant(&d, NULL, weights[i], 4);
		t[i]->think_ns = 100 * NSEC_PER_USEC; /* 0.3 in flight on average */
	}
	drive_start(&d);
	drive_run(&d, 2 * NSEC_PER_SEC);
	drive_mark(&d);
	throttled_ns = drive_var(&d, "throttled_nsec");
	drive_run(&d, 2 * NSEC_PER_SEC);
	/* All are throttled for a moment at the end of a round, until somebody asks. */
	throttled_ns = drive_var(&d, "throttled_nsec") - throttled_ns;
	CHECK(throttled_ns < 100 * NSEC_PER_USEC, "%lu ns in 2 s", throttled_ns);
	CHECK_NEAR(drive_iops(&d), 32 / 101e-6, 0.01);
	drive_exit(&d);
}

/* A drive of which each step is told: for interleavings that a drive in virtual time does not have. */
static u64 told_ns;
static bool run_wanted[3];

static u64 told_clock(void)
{
	return told_ns;
}

static void want_run(__attribute__((unused)) void *ctx, unsigned int hwq)
{
	run_wanted[hwq] = true;
}

static void kick_nothing(__attribute__((unused)) void *ctx)
{
}

/* @rq of @flow arrives at @hwq. */
static void arrives(struct fl_dev *dev, struct fl_flow *flow, unsigned int hwq, struct fl_req *rq,
		    enum fl_op op)
{
	*rq = (struct fl_req){ .op = op, .bytes = 4096, .arrival_ns = told_ns };
	fl_submit(dev, hwq, flow, rq);
}

/* Fast reads, beside writes that take 30 ms, until the reads' depth is 1. */
static void let_writes_suffer(struct fl_dev *dev, struct fl_flow *flow)
{
	static struct fl_req rqs[600];
	struct fl_req *sent[100], *rq;
	unsigned int i, n, left;
	u64 depth = 0;

	while (depth != 1) {
		for (i = 0; i < 600; i++) {
			arrives(dev, flow, 0, &rqs[i], FL_READ);
			rq = fl_next(dev, 0);
			told_ns += 10 * NSEC_PER_USEC;
			fl_done(rq);
		}
		for (i = 0; i < 600; i++)
			arrives(dev, flow, 0, &rqs[i], FL_WRITE);
		for (left = 600; left; left -= n) {
			for (n = 0; n < 100 && (rq = fl_next(dev, 0)); n++)
				sent[n] = rq;
			told_ns += 30 * MSEC;
			for (i = 0; i < n; i++)
				fl_done(sent[i]);
		}
		fl_tick(dev);
		fl_get(dev, "read_depth", &depth);
	}
}

static void test_a_freed_slot_finds_whoever_waits(void)
{
	const struct fl_host host = { .run = want_run, .kick = kick_nothing };
	struct fl_req first, a, b, c;
	struct fl_flow *flow;
	struct fl_dev *dev;

	told_ns = NSEC_PER_SEC;
	fl_set_clock(told_clock);
	dev = fl_dev_create(&fl_kyber_fairness, 3, &host);
	flow = fl_flow_create(dev, NULL, 100);
	let_writes_suffer(dev, flow);

	arrives(dev, flow, 2, &first, FL_READ);
	CHECK(fl_next(dev, 2) == &first, "the only slot");
	arrives(dev, flow, 0, &a, FL_READ);
	CHECK(!fl_next(dev, 0), "a waits");
	arrives(dev, flow, 1, &b, FL_READ);
	CHECK(!fl_next(dev, 1), "b waits");
	fl_done(&first);
	CHECK(!fl_next(dev, 1), "b cannot take what a is handed");
	CHECK(run_wanted[0] && fl_next(dev, 0) == &a, "a is told, and goes");
	arrives(dev, flow, 2, &c, FL_READ);
	memset(run_wanted, 0, sizeof(run_wanted));
	CHECK(!fl_next(dev, 2), "c waits");
	fl_done(&a);
	CHECK(run_wanted[1] && !run_wanted[2], "b is told: it waits for longer");
	CHECK(fl_next(dev, 1) == &b, "and goes");
	fl_done(&b);
	CHECK(run_wanted[2] && fl_next(dev, 2) == &c, "then c");
	fl_done(&c);
	fl_flow_destroy(flow);
	fl_dev_destroy(dev);
	fl_set_clock(NULL);
}

/* Every 20 ms a cgroup comes, sends a request on each hardware queue, and is soon removed. */
static void test_a_removed_cgroup_holds_no_round_up(void)
{
	u64 spent, period;
	unsigned int i;

	drive_init(&d, &fl_kyber_fairness, 2, 8, 100 * NSEC_PER_USEC);
	for (i = 0; i < 4; i++)
		t[i] = drive_tenant(&d, NULL, weights[i], 64);
	for (i = 0; i < 40; i++) {
		t[4 + i] = drive_tenant(&d, NULL, 100, 1);
		t[4 + i]->start_ns = 2 * NSEC_PER_SEC + 20 * MSEC * i + 1;
		t[4 + i]->stop_ns = drive_now() + t[4 + i]->start_ns + 1;
	}
	drive_start(&d);
	drive_run(&d, 2 * NSEC_PER_SEC);
	spent = drive_var(&d, "refills_spent");
	period = drive_var(&d, "refills_period");
	for (i = 0; i < 40; i++) {
		drive_run(&d, 4 * MSEC);
		CHECK(t[4 + i]->done == 2, "%u is not done", i);
		fl_flow_destroy(t[4 + i]->flow);
		drive_run(&d, 16 * MSEC);
	}
	spent = drive_var(&d, "refills_spent") - spent;
	period = drive_var(&d, "refills_period") - period;
	CHECK(spent > 3 * period, "%lu rounds ended as all had spent their tokens, %lu by time", spent, period);
	drive_exit(&d);
}

/* It owes a thousand rounds' tokens, and the drive has nothing else to do: it is not handed these one round at a time. */
static void test_a_large_request_of_a_small_share_takes_few_refills(void)
{
	static const char *const causes[] = { "refills_period", "refills_spent", "refills_floor" };
	struct drive d;
	struct tenant *heavy, *light;
	u64 refills = 0;

	drive_init(&d, &fl_kyber_fairness, 2, 64, MSEC / 10);
	heavy = drive_tenant(&d, NULL, FL_WEIGHT_MAX, 1);
	heavy->think_ns = 20 * MSEC; /* active all the time */
	light = drive_tenant(&d, NULL, 1, 2);
	light->bytes = 1 << 20;
	drive_start(&d);
	drive_run(&d, NSEC_PER_SEC);
	for (size_t i = 0; i < ARRAY_SIZE(causes); i++)
		refills += drive_var(&d, causes[i]);
	CHECK(light->done > 1000, "the light one waits for nobody, and yet it got only %lu requests done", light->done);
	CHECK(refills < 64 * light->done, "%lu refills for %lu requests", refills, light->done);
	drive_exit(&d);
}

static const struct test tests[] = {
	{ "shares follow weights", test_shares_follow_weights },
	{ "who is requeued is charged once", test_who_is_requeued_is_charged_once },
	{ "shares follow weights at queue depth 256 per job", test_shares_at_queue_depth_256 },
	{ "shares follow weights at queue depth 1 per job",
	  test_shares_of_shallow_queues_on_a_shallow_drive },
	{ "shares are by cost when sizes differ", test_shares_by_cost_for_mixed_sizes },
	{ "shares follow weights when the queue is inside the drive",
	  test_shares_when_the_queue_is_in_the_drive },
	{ "64 tenants share equally", test_64_tenants_share_equally },
	{ "weights 10000 and 10", test_extreme_weights },
	{ "a lone tenant has all of the drive", test_a_lone_tenant_has_all },
	{ "a heavy tenant at queue depth 1 holds nobody back",
	  test_a_heavy_tenant_at_queue_depth_1_holds_nobody_back },
	{ "a heavy tenant that wants less than its share holds nobody back",
	  test_a_heavy_tenant_below_its_share_holds_nobody_back },
	{ "tenants on a core each hold nobody back", test_tenants_on_one_core_each_hold_nobody_back },
	{ "a small share fills a drive that others leave half empty", test_a_small_share_fills_a_drive_that_others_do_not },
	{ "a heavy tenant on a full hardware queue holds nobody back",
	  test_a_heavy_tenant_on_a_full_hardware_queue_holds_nobody_back },
	{ "an idle tenant's share goes to the others within two periods",
	  test_an_idle_tenants_share_goes_to_the_others_in_two_periods },
	{ "a tenant that returns has its share within two periods", test_it_has_it_back_in_two_periods },
	{ "shares are the product along the path", test_shares_are_the_product_along_the_path },
	{ "a silent sibling's share stays in the family",
	  test_a_silent_siblings_share_stays_in_the_family },
	{ "a removed cgroup holds no round up", test_a_removed_cgroup_holds_no_round_up },
	{ "a new weight acts at once", test_a_new_weight_acts_at_once },
	{ "a write pays for the time it takes", test_a_write_pays_for_the_time_it_takes },
	{ "a write is never cheaper than a read", test_a_write_is_never_cheaper_than_a_read },
	{ "the predicted total follows a drive that halves and doubles",
	  test_the_total_follows_the_drive },
	{ "a drive that gets slower makes nobody look limited",
	  test_a_drive_that_gets_slower_makes_nobody_look_limited },
	{ "the authors' prediction follows the drive some periods later",
	  test_the_authors_prediction_follows_the_drive_some_periods_later },
	{ "without prediction the total stays", test_without_prediction_the_total_stays },
	{ "tunables refuse what is out of range", test_tunables_refuse_what_is_out_of_range },
	{ "no more requests in flight than the domain's depth", test_no_more_in_flight_than_the_depth },
	{ "a freed slot finds whoever waits for it", test_a_freed_slot_finds_whoever_waits },
	{ "one hardware queue may use the whole depth", test_one_hardware_queue_may_use_the_whole_depth },
	{ "a drive that waits for its tenants holds nobody back",
	  test_a_drive_that_waits_for_its_tenants_holds_nobody_back },
	{ "writes are held back when reads suffer", test_writes_are_held_back_when_reads_suffer },
	{ "a large request of a small share takes few refills",
	  test_a_large_request_of_a_small_share_takes_few_refills },
	{}
};

int main(int argc, char **argv)
{
	return run_tests(tests, argc, argv);
}
