// SPDX-License-Identifier: GPL-2.0-only OR MIT
/*
 * What a tenant gets from D2FQ, where the drive arbitrates among classes of
 * queues, and from MQFQ, its baseline; on a drive in virtual time.
 */
#include "drive.h"
#include "test.h"

static const u32 weights[] = { 100, 75, 50, 25 };
#define WEIGHT_SUM 250.0

static const struct fl_sched *const scheds[] = { &fl_d2fq, &fl_mqfq };

static struct drive d;
static struct tenant *t[MAX_TENANTS];

/*
 * 64 requests at a time, 320 us each: 200,000 a second. For D2FQ it is the drive
 * that does no more, whichever hardware queues they are from; MQFQ sees to it
 * itself.
 */
#define IN_DRIVE 64
#define IOPS 200000.0

static void rig(const struct fl_sched *sched, unsigned int nr_hwqs)
{
	drive_init(&d, sched, nr_hwqs, sched->route ? IN_DRIVE / nr_hwqs : IN_DRIVE,
		   320 * NSEC_PER_USEC);
}

/* Four tenants of weight 8:6:4:2. */
static void four_tenants(const struct fl_sched *sched)
{
	unsigned int i;

	rig(sched, 4);
	for (i = 0; i < 4; i++)
		t[i] = drive_tenant(&d, NULL, weights[i], 64);
}

static void settle(u64 ns)
{
	drive_start(&d);
	drive_run(&d, ns);
	drive_mark(&d);
}

static double byte_share(struct tenant *which)
{
	double all = 0;
	unsigned int i;

	for (i = 0; i < d.nr_tenants; i++)
		all += d.tenants[i].done_bytes - d.tenants[i].mark_bytes;
	return (which->done_bytes - which->mark_bytes) / all;
}

static void check_by_weight(double tolerance)
{
	unsigned int i;

	for (i = 0; i < 4; i++)
		CHECK_NEAR(byte_share(t[i]), weights[i] / WEIGHT_SUM, tolerance);
	CHECK_NEAR(drive_iops(&d), IOPS, 0.01);
}

static void test_shares_follow_weights(void)
{
	unsigned int s;

	for (s = 0; s < ARRAY_SIZE(scheds); s++) {
		four_tenants(scheds[s]);
		settle(6 * NSEC_PER_SEC);
		drive_run(&d, 4 * NSEC_PER_SEC);
		check_by_weight(0.02);
		drive_exit(&d);
	}
}

static void test_shares_are_of_bytes(void)
{
	static const u32 bytes[] = { 4096, 8192, 16384 };
	unsigned int s, i;

	for (s = 0; s < ARRAY_SIZE(scheds); s++) {
		rig(scheds[s], 2);
		for (i = 0; i < 3; i++) {
			t[i] = drive_tenant(&d, NULL, 100, 128);
			t[i]->bytes = bytes[i];
		}
		settle(10 * NSEC_PER_SEC);
		drive_run(&d, 4 * NSEC_PER_SEC);
		for (i = 0; i < 3; i++)
			CHECK_NEAR(byte_share(t[i]), 1 / 3.0, 0.02);
		drive_exit(&d);
	}
}

static void test_more_threads_are_no_more_share(void)
{
	unsigned int s;

	for (s = 0; s < ARRAY_SIZE(scheds); s++) {
		rig(scheds[s], 4);
		t[0] = drive_tenant(&d, NULL, 100, 128);
		t[1] = drive_tenant(&d, NULL, 100, 0);
		t[1]->depth[2] = 128;
		settle(4 * NSEC_PER_SEC);
		drive_run(&d, 4 * NSEC_PER_SEC);
		CHECK_NEAR(byte_share(t[0]), 0.5, 0.02);
		CHECK_NEAR(drive_iops(&d), IOPS, 0.01);
		drive_exit(&d);
	}
}

static void test_a_lone_tenant_has_all(void)
{
	unsigned int s;

	for (s = 0; s < ARRAY_SIZE(scheds); s++) {
		rig(scheds[s], 2);
		t[0] = drive_tenant(&d, NULL, 1, 64);
		settle(2 * NSEC_PER_SEC);
		drive_run(&d, 2 * NSEC_PER_SEC);
		CHECK_NEAR(drive_iops(&d), IOPS, 0.01);
		if (!s)
			CHECK(drive_var(&d, "hl_ratio") == 3, "%lu", drive_var(&d, "hl_ratio"));
		drive_exit(&d);
	}
}

static void test_shares_are_the_product_along_the_path(void)
{
	unsigned int s, i;

	for (s = 0; s < ARRAY_SIZE(scheds); s++) {
		static const double ideal[] = { 0.25, 0.5, 0.25 };

		rig(scheds[s], 2);
		drive_families(&d, t, 128);
		settle(4 * NSEC_PER_SEC);
		drive_run(&d, 4 * NSEC_PER_SEC);
		for (i = 0; i < 3; i++)
			CHECK_NEAR(drive_share(&d, t[i]), ideal[i], 0.02);
		drive_exit(&d);
	}
}

/* All below a cgroup of weight 1, alone beside the root: thresholds are not a hundredth of it. */
static void test_weights_count_only_against_each_other(void)
{
	unsigned int s, i;

	for (s = 0; s < ARRAY_SIZE(scheds); s++) {
		struct fl_flow *group;

		rig(scheds[s], 4);
		group = fl_flow_create(d.dev, NULL, 1);
		for (i = 0; i < 4; i++)
			t[i] = drive_tenant(&d, group, weights[i], 64);
		settle(6 * NSEC_PER_SEC);
		drive_run(&d, 2 * NSEC_PER_SEC);
		check_by_weight(0.02);
		drive_exit(&d);
	}
}

/* While the first was away, the others had all; what it has then is its share, and no more. */
static void test_who_was_idle_has_no_credit(void)
{
	unsigned int s, i;

	for (s = 0; s < ARRAY_SIZE(scheds); s++) {
		four_tenants(scheds[s]);
		t[0]->start_ns = 8 * NSEC_PER_SEC;
		drive_start(&d);
		drive_run(&d, 8 * NSEC_PER_SEC);
		drive_mark(&d);
		drive_run(&d, NSEC_PER_SEC / 5);
		CHECK(drive_share(&d, t[0]) < 0.45, "%g", drive_share(&d, t[0]));
		drive_run(&d, 4 * NSEC_PER_SEC);
		drive_mark(&d);
		drive_run(&d, 4 * NSEC_PER_SEC);
		for (i = 0; i < 4; i++)
			CHECK_NEAR(drive_share(&d, t[i]), weights[i] / WEIGHT_SUM, 0.02);
		drive_exit(&d);
	}
}

static void test_a_new_weight_acts(void)
{
	unsigned int s;

	for (s = 0; s < ARRAY_SIZE(scheds); s++) {
		rig(scheds[s], 2);
		t[0] = drive_tenant(&d, NULL, 100, 128);
		t[1] = drive_tenant(&d, NULL, 100, 128);
		settle(3 * NSEC_PER_SEC);
		fl_flow_weight(t[0]->flow, 400);
		drive_run(&d, 4 * NSEC_PER_SEC);
		drive_mark(&d);
		drive_run(&d, 4 * NSEC_PER_SEC);
		CHECK_NEAR(drive_share(&d, t[0]), 0.8, 0.02);
		drive_exit(&d);
	}
}

/* The heavy one waits for each request; the others share what it leaves by weight. */
static void test_nobody_waits_for_who_does_not_want_its_share(void)
{
	unsigned int s;

	for (s = 0; s < ARRAY_SIZE(scheds); s++) {
		double most;

		rig(scheds[s], 2);
		t[0] = drive_tenant(&d, NULL, 1000, 0);
		t[0]->depth[0] = 1;
		t[1] = drive_tenant(&d, NULL, 300, 128);
		t[2] = drive_tenant(&d, NULL, 100, 128);
		settle(10 * NSEC_PER_SEC);
		drive_run(&d, 5 * NSEC_PER_SEC);
		CHECK_NEAR(drive_iops(&d), IOPS, 0.05);
		most = 1 - drive_share(&d, t[0]);
		CHECK_NEAR(drive_share(&d, t[1]) / most, 0.75, 0.03);
		drive_exit(&d);
	}
}

/* And it counts again when it does. */
static void test_who_comes_to_want_its_share_gets_it(void)
{
	rig(&fl_d2fq, 2);
	t[0] = drive_tenant(&d, NULL, 100, 0);
	t[0]->depth[0] = 1;
	t[1] = drive_tenant(&d, NULL, 100, 128);
	t[2] = drive_tenant(&d, NULL, 100, 128); /* the same tenant, from 8 s on */
	fl_flow_destroy(t[2]->flow);
	t[2]->flow = t[0]->flow;
	t[2]->start_ns = 8 * NSEC_PER_SEC;
	drive_start(&d);
	drive_run(&d, 7 * NSEC_PER_SEC);
	CHECK(drive_var(&d, "limited_flows") == 1, "%lu", drive_var(&d, "limited_flows"));
	drive_run(&d, 5 * NSEC_PER_SEC);
	drive_mark(&d);
	drive_run(&d, 4 * NSEC_PER_SEC);
	CHECK_NEAR(drive_share(&d, t[1]), 0.5, 0.02);
	drive_exit(&d);
}

static void test_the_ratio_follows_what_is_needed(void)
{
	four_tenants(&fl_d2fq);
	fl_set(d.dev, "feed_forward", 0);
	CHECK(drive_var(&d, "hl_ratio") == 256, "%lu", drive_var(&d, "hl_ratio"));
	settle(NSEC_PER_SEC / 2);
	CHECK(drive_var(&d, "hl_ratio") == 256, "%lu", drive_var(&d, "hl_ratio"));
	drive_run(&d, 6 * NSEC_PER_SEC);
	CHECK(drive_var(&d, "hl_ratio") >= 5 && drive_var(&d, "hl_ratio") <= 9, "%lu",
	      drive_var(&d, "hl_ratio"));
	CHECK(drive_var(&d, "medium_weight") * drive_var(&d, "medium_weight") < 14 &&
		      drive_var(&d, "medium_weight") >= 2,
	      "%lu", drive_var(&d, "medium_weight"));
	drive_exit(&d);
}

/* 8:6:4 need 18 / 4, rounded; when 2 comes, 20 / 2. Not a period later: at once. */
static void test_the_ratio_is_enough_from_the_first_request_on(void)
{
	four_tenants(&fl_d2fq);
	t[3]->start_ns = 300 * MSEC;
	drive_start(&d);
	drive_run(&d, 10 * MSEC);
	CHECK(drive_var(&d, "hl_ratio") == 5, "%lu", drive_var(&d, "hl_ratio"));
	drive_run(&d, 300 * MSEC);
	CHECK(drive_var(&d, "hl_ratio") == 10, "%lu", drive_var(&d, "hl_ratio"));
	CHECK(d.weight[FL_HIGH] == 10 && d.weight[FL_LOW] == 1, "the drive knows");
	drive_exit(&d);
}

/* One of weight 1, beside which three of weight 3 come: the next adjustment is of a time in which it was alone. */
static void test_the_next_adjustment_does_not_take_that_back(void)
{
	unsigned int i;

	rig(&fl_d2fq, 4);
	for (i = 0; i < 4; i++) {
		t[i] = drive_tenant(&d, NULL, i ? 300 : 100, 32);
		t[i]->start_ns = i ? 900 * MSEC : 0;
	}
	drive_start(&d);
	drive_run(&d, 950 * MSEC);
	CHECK(drive_var(&d, "hl_ratio") == 10, "%lu", drive_var(&d, "hl_ratio"));
	drive_run(&d, 150 * MSEC);
	CHECK(drive_var(&d, "hl_ratio") == 10, "%lu", drive_var(&d, "hl_ratio"));
	drive_mark(&d);
	drive_run(&d, 800 * MSEC);
	CHECK_NEAR(drive_share(&d, t[0]), 0.1, 0.1);
	drive_exit(&d);
}

/* A reset, or another command, changes the weights in the drive. */
static void test_the_drive_is_told_its_weights_again(void)
{
	unsigned int c;

	four_tenants(&fl_d2fq);
	settle(3 * NSEC_PER_SEC);
	for (c = 0; c < FL_NR_CLASSES; c++)
		d.weight[c] = 1;
	drive_run(&d, 2 * NSEC_PER_SEC);
	CHECK(d.weight[FL_HIGH] == drive_var(&d, "hl_ratio") && d.weight[FL_HIGH] >= 3, "%u",
	      d.weight[FL_HIGH]);
	drive_exit(&d);
}

/* Two flows of equal weight, and a threshold of 64 KiB: the second may send 16 requests before low. */
static struct fl_flow *two_flows(struct fl_req *first)
{
	struct fl_flow *flow[2];
	unsigned int i;

	drive_init(&d, &fl_d2fq, 1, IN_DRIVE, 320 * NSEC_PER_USEC);
	fl_set(d.dev, "low_threshold", 64 << 10);
	for (i = 0; i < 2; i++)
		flow[i] = fl_flow_create(d.dev, NULL, 100);
	*first = (struct fl_req){ .op = FL_READ, .bytes = 4096 };
	CHECK(fl_route(d.dev, 0, flow[0], first) == FL_HIGH, "nobody is ahead");
	return flow[1];
}

static void test_a_burst_counts_before_any_of_it_is_done(void)
{
	struct fl_flow *flow;
	struct fl_req first, rqs[32];
	unsigned int i, in[FL_NR_CLASSES] = {};

	flow = two_flows(&first);
	for (i = 0; i < ARRAY_SIZE(rqs); i++) {
		rqs[i] = (struct fl_req){ .op = FL_READ, .bytes = 4096 };
		in[fl_route(d.dev, 0, flow, &rqs[i])]++;
	}
	CHECK_NEAR(in[FL_HIGH], 8, 0.2);
	CHECK_NEAR(in[FL_MEDIUM], 8, 0.2);
	CHECK_NEAR(in[FL_LOW], 16, 0.2);
	for (i = 0; i < ARRAY_SIZE(rqs); i++)
		fl_done(&rqs[i]);
	fl_done(&first);
	drive_exit(&d);
}

static void test_what_the_drive_did_not_take_is_not_charged(void)
{
	struct fl_flow *flow;
	struct fl_req first, rq = { .op = FL_READ, .bytes = 4096 };
	unsigned int i;

	flow = two_flows(&first);
	for (i = 0; i < 100; i++) {
		CHECK(fl_route(d.dev, 0, flow, &rq) == FL_HIGH, "try %u", i);
		fl_requeue(&rq);
	}
	fl_done(&first);
	drive_exit(&d);
}

static void sends(struct fl_flow *flow, unsigned int requests)
{
	struct fl_req rq;

	while (requests--) {
		rq = (struct fl_req){ .op = FL_READ, .bytes = 4096 };
		fl_route(d.dev, 0, flow, &rq);
		fl_done(&rq);
	}
}

/* The last request of one that is far ahead is not taken, a while after it was sent. */
static void test_what_the_drive_did_not_take_is_no_pace(void)
{
	struct fl_req first, kept = { .op = FL_READ, .bytes = 4096 }, late = kept;
	struct fl_flow *ahead, *behind;
	u64 ratio;

	ahead = two_flows(&first);
	behind = fl_req_queue(&first)->flow;
	fl_route(d.dev, 0, ahead, &kept);
	drive_run(&d, 2 * NSEC_PER_SEC);
	sends(ahead, 200);
	fl_route(d.dev, 0, ahead, &late);
	sends(behind, 20);
	drive_run(&d, NSEC_PER_SEC);
	ratio = drive_var(&d, "hl_ratio");
	fl_requeue(&late);
	sends(behind, 20);
	drive_run(&d, NSEC_PER_SEC);
	CHECK(drive_var(&d, "hl_ratio") <= ratio, "%lu, from %lu", drive_var(&d, "hl_ratio"), ratio);
	fl_done(&kept);
	fl_done(&first);
	drive_exit(&d);
}

static void test_a_fixed_ratio_stays_and_may_be_unfair(void)
{
	four_tenants(&fl_d2fq);
	fl_set(d.dev, "fixed_ratio", 2);
	settle(3 * NSEC_PER_SEC);
	drive_run(&d, 3 * NSEC_PER_SEC);
	CHECK(drive_var(&d, "hl_ratio") == 2, "%lu", drive_var(&d, "hl_ratio"));
	CHECK(drive_share(&d, t[3]) > 1.2 * weights[3] / WEIGHT_SUM, "%g", drive_share(&d, t[3]));
	fl_set(d.dev, "fixed_ratio", 0);
	drive_run(&d, 15 * NSEC_PER_SEC);
	drive_mark(&d);
	drive_run(&d, 15 * NSEC_PER_SEC);
	CHECK(drive_share(&d, t[3]) < 1.02 * weights[3] / WEIGHT_SUM, "%g", drive_share(&d, t[3]));
	drive_exit(&d);
}

static void test_every_request_is_in_a_class(void)
{
	u64 in_class = 0, in_all = 0, cost = 0, charged = 0;
	unsigned int i, q, c;

	four_tenants(&fl_d2fq);
	settle(2 * NSEC_PER_SEC);
	for (i = 0; i < 4; i++)
		for (q = 0; q < d.nr_hwqs; q++) {
			struct fl_queue *queue = fl_flow_use(t[i]->flow, q);

			in_all += queue->requests[FL_READ];
			charged += queue->cost;
			for (c = 0; c < FL_NR_CLASSES; c++) {
				in_class += queue->routed[c];
				cost += queue->routed_cost[c];
			}
		}
	CHECK(in_class == in_all && cost == charged && in_all > 10000, "%lu of %lu", in_class,
	      in_all);
	drive_exit(&d);
}

/* There are 65535 names for who holds the least virtual time. */
static void test_more_tenants_than_the_word_can_name(void)
{
	static struct fl_flow *many[65600];
	unsigned int i;

	rig(&fl_d2fq, 1);
	for (i = 0; i < ARRAY_SIZE(many); i++)
		many[i] = fl_flow_create(d.dev, NULL, 100);
	t[0] = drive_tenant(&d, many[65599], 300, 128);
	t[1] = drive_tenant(&d, many[65598], 100, 128);
	settle(NSEC_PER_SEC / 2);
	drive_run(&d, NSEC_PER_SEC / 2);
	CHECK_NEAR(drive_iops(&d), IOPS, 0.01);
	drive_exit(&d);
}

static void test_no_more_in_the_drive_than_its_depth(void)
{
	four_tenants(&fl_mqfq);
	settle(NSEC_PER_SEC);
	CHECK(d.most_in_flight == 64, "%u", d.most_in_flight);
	d.most_in_flight = 0;
	fl_set(d.dev, "depth", 24);
	drive_run(&d, NSEC_PER_SEC / 2);
	d.most_in_flight = 0;
	drive_run(&d, NSEC_PER_SEC);
	CHECK(d.most_in_flight == 24, "%u", d.most_in_flight);
	fl_set(d.dev, "depth", 48);
	drive_run(&d, NSEC_PER_SEC);
	CHECK(d.most_in_flight == 48, "%u", d.most_in_flight);
	drive_exit(&d);
}

static unsigned int taken(struct fl_dev *dev, unsigned int index)
{
	unsigned int nr = 0;

	while (fl_next(dev, index))
		nr++;
	return nr;
}

/* One flow with @nr requests on each of two cores, whose queues take @depth of them. */
static struct fl_flow *two_full_cores(struct fl_req (*rqs)[40], unsigned int nr, unsigned int depth)
{
	struct fl_flow *flow;
	unsigned int i, j;

	drive_init(&d, &fl_mqfq, 2, IN_DRIVE, 320 * NSEC_PER_USEC);
	fl_set(d.dev, "throttle_bytes", 1 << 30); /* that no core waits for the other */
	flow = fl_flow_create(d.dev, NULL, 100);
	for (i = 0; i < 2; i++) {
		d.dev->hwqs[i]->depth = depth;
		for (j = 0; j < nr; j++) {
			rqs[i][j] = (struct fl_req){ .op = FL_READ, .bytes = 4096 };
			fl_submit(d.dev, i, flow, &rqs[i][j]);
		}
		CHECK(taken(d.dev, i) == depth, "on %u", i);
	}
	return flow;
}

/* Requests that the drive would not take would wait outside of it with slots that others could use. */
static void test_a_core_gets_no_more_slots_than_its_queue_takes_requests(void)
{
	static struct fl_req rqs[2][40];
	struct fl_flow *flow = two_full_cores(rqs, 40, 32);
	unsigned int j;

	for (j = 0; j < 8; j++) {
		fl_done(&rqs[0][j]);
		CHECK(taken(d.dev, 1) == 0, "it is full");
		CHECK(taken(d.dev, 0) == 1, "whose request was done has the place");
	}
	for (j = 8; j < 40; j++)
		fl_done(&rqs[0][j]);
	for (j = 0; j < 32; j++)
		fl_done(&rqs[1][j]);
	CHECK(taken(d.dev, 1) == 8, "the rest");
	for (j = 32; j < 40; j++)
		fl_done(&rqs[1][j]);
	fl_flow_destroy(flow);
	drive_exit(&d);
}

/* nr_requests is lowered under load: there are slots, cores want them, and nobody can use one. */
static void test_slots_that_nobody_can_use_wait_in_the_pool(void)
{
	static struct fl_req rqs[2][40];
	struct fl_flow *flow = two_full_cores(rqs, 8, 4);
	unsigned int i, j;

	for (i = 0; i < 2; i++)
		d.dev->hwqs[i]->depth = 2;
	for (j = 0; j < 8; j++)
		for (i = 0; i < 2; i++) {
			fl_done(&rqs[i][j]);
			CHECK(taken(d.dev, i) == (j >= 2 && j < 6), "after %u of core %u", j, i);
		}
	fl_flow_destroy(flow);
	drive_exit(&d);
}

/* What the light flow paid for one request is ten of the heavy one's, not one in ten tries. */
static void test_who_is_requeued_is_charged_once(void)
{
	static const u32 weight[] = { 1000, 100 };
	struct fl_req rqs[4] = { [0 ... 3] = { .op = FL_READ, .bytes = 4096 } };
	struct fl_flow *flow[2];
	unsigned int i;

	drive_init(&d, &fl_mqfq, 1, IN_DRIVE, 320 * NSEC_PER_USEC);
	fl_set(d.dev, "throttle_bytes", 1 << 30);
	for (i = 0; i < 2; i++)
		flow[i] = fl_flow_create(d.dev, NULL, weight[i]);
	for (i = 0; i < 4; i++)
		fl_submit(d.dev, 0, flow[i % 2], &rqs[i]);
	for (i = 0; i < 2; i++)
		CHECK(fl_next(d.dev, 0) == &rqs[i], "one of each");
	for (i = 0; i < 50; i++) {
		fl_requeue(&rqs[0]);
		CHECK(fl_next(d.dev, 0) == &rqs[0], "it is its turn, try %u", i);
	}
	for (i = 2; i < 4; i++)
		CHECK(fl_next(d.dev, 0) == &rqs[i], "in their order");
	for (i = 0; i < 4; i++)
		fl_done(&rqs[i]);
	drive_exit(&d);
}

/* By weight, two that always have requests are never further apart than T and a few requests. */
static void test_no_flow_is_further_ahead_than_the_threshold(void)
{
	double most = 0;
	unsigned int i;

	rig(&fl_mqfq, 4);
	fl_set(d.dev, "throttle_bytes", 64 << 10);
	t[0] = drive_tenant(&d, NULL, 100, 64);
	t[1] = drive_tenant(&d, NULL, 25, 64);
	settle(NSEC_PER_SEC);
	for (i = 0; i < 2000; i++) {
		double apart;

		drive_run(&d, NSEC_PER_MSEC);
		apart = 4.0 * (t[1]->done_bytes - t[1]->mark_bytes) -
			1.0 * (t[0]->done_bytes - t[0]->mark_bytes);
		apart = apart < 0 ? -apart : apart;
		most = apart > most ? apart : most;
	}
	/* What is in the drive is not done yet: 64 requests, of weight 25 four times as much. */
	CHECK(most < 2 * ((64 << 10) + 4 * 64 * 4096), "%g bytes", most);
	drive_exit(&d);
}

static void test_tunables_refuse_what_is_out_of_range(void)
{
	drive_init(&d, &fl_d2fq, 1, 1, MSEC);
	CHECK(!fl_set(d.dev, "fixed_ratio", 257), "more than NVMe has");
	CHECK(fl_set(d.dev, "fixed_ratio", 256), "as much as NVMe has");
	CHECK(!fl_set(d.dev, "hl_ratio", 3), "a counter");
	drive_exit(&d);
}

static const struct test tests[] = {
	{ "d2fq, mqfq: shares follow weights", test_shares_follow_weights },
	{ "d2fq, mqfq: shares are of bytes, whatever the size of requests", test_shares_are_of_bytes },
	{ "d2fq, mqfq: more threads are no more share", test_more_threads_are_no_more_share },
	{ "d2fq, mqfq: a lone tenant has all of the drive", test_a_lone_tenant_has_all },
	{ "d2fq, mqfq: shares are the product along the path",
	  test_shares_are_the_product_along_the_path },
	{ "d2fq, mqfq: weights count only against each other",
	  test_weights_count_only_against_each_other },
	{ "d2fq, mqfq: who was idle has no credit", test_who_was_idle_has_no_credit },
	{ "d2fq, mqfq: a new weight acts", test_a_new_weight_acts },
	{ "d2fq, mqfq: nobody waits for who does not want its share",
	  test_nobody_waits_for_who_does_not_want_its_share },
	{ "d2fq: who comes to want its share gets it", test_who_comes_to_want_its_share_gets_it },
	{ "d2fq: the H/L ratio follows what is needed", test_the_ratio_follows_what_is_needed },
	{ "d2fq: the H/L ratio is enough from the first request on",
	  test_the_ratio_is_enough_from_the_first_request_on },
	{ "d2fq: the next adjustment does not take that back",
	  test_the_next_adjustment_does_not_take_that_back },
	{ "d2fq: the drive is told its weights again", test_the_drive_is_told_its_weights_again },
	{ "d2fq: a burst counts before any of it is done",
	  test_a_burst_counts_before_any_of_it_is_done },
	{ "d2fq: what the drive did not take is not charged",
	  test_what_the_drive_did_not_take_is_not_charged },
	{ "d2fq: what the drive did not take is no pace", test_what_the_drive_did_not_take_is_no_pace },
	{ "d2fq: a fixed H/L ratio stays, and may be unfair",
	  test_a_fixed_ratio_stays_and_may_be_unfair },
	{ "d2fq: every request is counted in its class", test_every_request_is_in_a_class },
	{ "d2fq: more tenants than the word can name", test_more_tenants_than_the_word_can_name },
	{ "d2fq: tunables refuse what is out of range", test_tunables_refuse_what_is_out_of_range },
	{ "mqfq: no more requests in the drive than its depth",
	  test_no_more_in_the_drive_than_its_depth },
	{ "mqfq: a core gets no more slots than its queue takes requests",
	  test_a_core_gets_no_more_slots_than_its_queue_takes_requests },
	{ "mqfq: slots that nobody can use wait in the pool",
	  test_slots_that_nobody_can_use_wait_in_the_pool },
	{ "mqfq: who is requeued is charged once", test_who_is_requeued_is_charged_once },
	{ "mqfq: no flow is further ahead than the threshold",
	  test_no_flow_is_further_ahead_than_the_threshold },
	{}
};

int main(int argc, char **argv)
{
	return run_tests(tests, argc, argv);
}
