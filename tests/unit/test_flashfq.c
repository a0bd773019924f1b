// SPDX-License-Identifier: GPL-2.0-only OR MIT
/* What a tenant gets from FlashFQ, on a drive in virtual time. */
#include "drive.h"
#include "test.h"

static struct drive d;
static struct tenant *t[MAX_TENANTS];

/* 64 requests at a time, 320 us each: 200,000 a second, if nobody is held back. */
#define IOPS 200000.0

static void rig(unsigned int nr_hwqs)
{
	drive_init(&d, &fl_flashfq, nr_hwqs, 64, 320 * NSEC_PER_USEC);
}

/* A works alone, all are idle, then B comes, and A a millisecond later. */
static void test_who_was_alone_then_idle_is_not_behind(void)
{
	rig(2);
	t[0] = drive_tenant(&d, NULL, 100, 64);
	t[0]->stop_ns = drive_now() + NSEC_PER_SEC;
	t[1] = drive_tenant(&d, NULL, 100, 64);
	t[1]->start_ns = 2 * NSEC_PER_SEC;
	t[2] = drive_tenant(&d, NULL, 100, 64); /* A again */
	fl_flow_destroy(t[2]->flow);
	t[2]->flow = t[0]->flow;
	t[2]->start_ns = 2 * NSEC_PER_SEC + MSEC;
	drive_start(&d);
	drive_run(&d, 2 * NSEC_PER_SEC + 10 * MSEC);
	drive_mark(&d);
	drive_run(&d, 100 * MSEC);
	CHECK_NEAR(drive_share(&d, t[1]), 0.5, 0.02);
	CHECK_NEAR(drive_share(&d, t[2]), 0.5, 0.02);
	drive_exit(&d);
}

/* What is queued while the drive is empty counts, too: nobody begins after it. */
static void test_who_comes_begins_with_the_first_that_waits(void)
{
	struct fl_req rqs[3] = { [0 ... 2] = { .op = FL_READ, .bytes = 4096 } };
	struct fl_flow *flow[2];
	unsigned int i;

	rig(1);
	for (i = 0; i < 2; i++)
		flow[i] = fl_flow_create(d.dev, NULL, 100);
	fl_submit(d.dev, 0, flow[0], &rqs[0]);
	CHECK(fl_next(d.dev, 0) == &rqs[0], "alone");
	fl_requeue(&rqs[0]); /* it is queued, and nothing is in service */
	fl_submit(d.dev, 0, flow[1], &rqs[1]);
	fl_submit(d.dev, 0, flow[0], &rqs[2]);
	CHECK(fl_next(d.dev, 0) == &rqs[0], "it was there before");
	CHECK(fl_next(d.dev, 0) == &rqs[1], "its turn");
	CHECK(fl_next(d.dev, 0) == &rqs[2], "the last");
	for (i = 0; i < 3; i++)
		fl_done(&rqs[i]);
	drive_exit(&d);
}

static void test_who_is_requeued_is_charged_once(void)
{
	struct fl_req rqs[4] = { [0 ... 3] = { .op = FL_READ, .bytes = 4096 } };
	struct fl_flow *flow[2];
	unsigned int i;

	rig(1);
	for (i = 0; i < 2; i++)
		flow[i] = fl_flow_create(d.dev, NULL, 100);
	for (i = 0; i < 4; i++)
		fl_submit(d.dev, 0, flow[i % 2], &rqs[i]);
	for (i = 0; i < 2; i++)
		CHECK(fl_next(d.dev, 0) == &rqs[i], "one of each");
	for (i = 0; i < 5; i++) {
		fl_requeue(&rqs[0]);
		CHECK(fl_next(d.dev, 0) == &rqs[0], "its turn is not over, try %u", i);
	}
	for (i = 2; i < 4; i++)
		CHECK(fl_next(d.dev, 0) == &rqs[5 - i], "in turns");
	for (i = 0; i < 4; i++)
		fl_done(&rqs[i]);
	drive_exit(&d);
}

/* One waits for each request, 320 us of which 90 us count, the other has always 128 more. */
static void one_deep_beside_one_shallow(u64 throttle_ns)
{
	rig(2);
	fl_set(d.dev, "throttle_nsec", throttle_ns);
	t[0] = drive_tenant(&d, NULL, 100, 0);
	t[0]->depth[0] = 1;
	t[1] = drive_tenant(&d, NULL, 100, 64);
	drive_start(&d);
	drive_run(&d, NSEC_PER_SEC);
	drive_mark(&d);
}

static void test_nobody_runs_away_from_who_waits_for_each_request(void)
{
	one_deep_beside_one_shallow(20 * MSEC);
	drive_run(&d, NSEC_PER_SEC);
	CHECK_NEAR(drive_share(&d, t[0]), 0.5, 0.02);
	/* And it is not held up itself. */
	CHECK_NEAR(t[0]->done - t[0]->mark, 1e9 / 320e3, 0.02);
	drive_exit(&d);
}

static void test_without_a_throttle_the_drive_is_full(void)
{
	one_deep_beside_one_shallow(0);
	drive_run(&d, NSEC_PER_SEC);
	CHECK_NEAR(drive_iops(&d), IOPS, 0.02);
	CHECK(drive_share(&d, t[0]) < 0.05, "%g", drive_share(&d, t[0]));
	drive_exit(&d);
}

/* All wait for who went away only as long as it is anticipated to come back. */
static void test_who_went_away_holds_nobody_up(void)
{
	one_deep_beside_one_shallow(20 * MSEC);
	t[0]->stop_ns = drive_now();
	drive_run(&d, 5 * MSEC);
	drive_mark(&d);
	drive_run(&d, 100 * MSEC);
	CHECK_NEAR(drive_iops(&d), IOPS, 0.02);
	drive_exit(&d);
}

static void test_a_pause_longer_than_anticipated_holds_nobody_up(void)
{
	one_deep_beside_one_shallow(20 * MSEC);
	t[0]->think_ns = 3 * MSEC;
	drive_run(&d, 100 * MSEC);
	drive_mark(&d);
	drive_run(&d, NSEC_PER_SEC);
	CHECK(drive_iops(&d) > 0.3 * IOPS, "%g", drive_iops(&d));
	drive_exit(&d);
}

/*
 * A is due 20 times as much as B, and pauses for less than it is anticipated. B, with 188 a
 * second if it never waits, may wait for a pause or two.
 */
static void test_who_is_within_its_share_waits_no_longer_than_another_pauses(void)
{
	rig(2);
	t[0] = drive_tenant(&d, NULL, 1000, 0);
	t[0]->depth[0] = 1;
	t[0]->think_ns = MSEC;
	t[1] = drive_tenant(&d, NULL, 50, 0);
	t[1]->depth[1] = 1;
	t[1]->think_ns = 5 * MSEC;
	drive_start(&d);
	drive_run(&d, NSEC_PER_SEC);
	drive_mark(&d);
	drive_run(&d, NSEC_PER_SEC);
	CHECK_NEAR(t[0]->done - t[0]->mark, 1e9 / 1320e3, 0.02);
	CHECK(t[1]->done - t[1]->mark >= 1e9 / (5320e3 + 2 * 1320e3), "%g",
	      (double)(t[1]->done - t[1]->mark));
	drive_exit(&d);
}

static const struct test tests[] = {
	{ "flashfq: who was alone, then idle, is not behind who comes",
	  test_who_was_alone_then_idle_is_not_behind },
	{ "flashfq: who comes begins with the first that waits",
	  test_who_comes_begins_with_the_first_that_waits },
	{ "flashfq: who is requeued is charged once", test_who_is_requeued_is_charged_once },
	{ "flashfq: nobody runs away from who waits for each request",
	  test_nobody_runs_away_from_who_waits_for_each_request },
	{ "flashfq: without a throttle the drive is full", test_without_a_throttle_the_drive_is_full },
	{ "flashfq: who went away holds nobody up", test_who_went_away_holds_nobody_up },
	{ "flashfq: a pause longer than anticipated holds nobody up",
	  test_a_pause_longer_than_anticipated_holds_nobody_up },
	{ "flashfq: who is within its share waits no longer than another pauses",
	  test_who_is_within_its_share_waits_no_longer_than_another_pauses },
	{}
};

int main(int argc, char **argv)
{
	return run_tests(tests, argc, argv);
}
