// SPDX-License-Identifier: GPL-2.0-only OR MIT
/* What round robin does: each flow sends a request in its turn, whatever its weight or their size. */
#include "drive.h"
#include "test.h"

static struct drive d;

static void test_flows_send_as_many_requests_as_each_other(void)
{
	struct tenant *heavy, *light;

	drive_init(&d, &fl_round_robin, 2, 32, MSEC);
	heavy = drive_tenant(&d, NULL, 1000, 256);
	light = drive_tenant(&d, NULL, 100, 64);
	heavy->bytes = 64 << 10;
	drive_start(&d);
	drive_run(&d, NSEC_PER_SEC);
	drive_mark(&d);
	drive_run(&d, NSEC_PER_SEC);
	CHECK_NEAR(drive_share(&d, heavy), 0.5, 0.01);
	CHECK_NEAR(drive_share(&d, light), 0.5, 0.01);
	CHECK_NEAR(drive_iops(&d), drive_capacity(&d), 0.01);
	drive_exit(&d);
}

static void test_a_flow_that_has_nothing_is_passed_over(void)
{
	struct tenant *greedy, *single;

	drive_init(&d, &fl_round_robin, 1, 4, MSEC);
	greedy = drive_tenant(&d, NULL, 100, 64);
	single = drive_tenant(&d, NULL, 100, 1);
	drive_start(&d);
	drive_run(&d, NSEC_PER_SEC);
	drive_mark(&d);
	drive_run(&d, NSEC_PER_SEC);
	CHECK_NEAR(drive_iops(&d), drive_capacity(&d), 0.01);
	CHECK(single->done - single->mark > 450, "its turn is next: %lu requests in 1 s, 2 ms each",
	      single->done - single->mark);
	CHECK(greedy->done > single->done, "%lu", greedy->done);
	drive_exit(&d);
}

static void nothing(void *ctx, unsigned int index)
{
	(void)ctx;
	(void)index;
}

static void nothing_to_tick(void *ctx)
{
	(void)ctx;
}

static void test_a_request_that_the_drive_did_not_take_is_next_again(void)
{
	const struct fl_host host = { .run = nothing, .kick = nothing_to_tick };
	struct fl_dev *dev = fl_dev_create(&fl_round_robin, 1, &host);
	struct fl_flow *flows[2];
	struct fl_req rqs[2][2] = {};
	unsigned int i, j;

	for (i = 0; i < 2; i++) {
		flows[i] = fl_flow_create(dev, NULL, 100);
		for (j = 0; j < 2; j++) {
			rqs[i][j].bytes = 4096;
			fl_submit(dev, 0, flows[i], &rqs[i][j]);
		}
	}
	CHECK(fl_next(dev, 0) == &rqs[0][0], "the first flow's turn");
	fl_requeue(&rqs[0][0]);
	CHECK(fl_next(dev, 0) == &rqs[0][0], "its turn is not over");
	CHECK(fl_next(dev, 0) == &rqs[1][0], "and now it is");
	CHECK(fl_next(dev, 0) == &rqs[0][1], "in turn");
	CHECK(fl_next(dev, 0) == &rqs[1][1], "in turn");
	for (i = 0; i < 2; i++)
		for (j = 0; j < 2; j++)
			fl_done(&rqs[i][j]);
	fl_dev_destroy(dev);
}

static void test_a_rank_counts_within_a_flow_and_not_beside_others(void)
{
	static const u8 ranks[] = { 2, 3, 1, 2, 3, 1 }, order[] = { 2, 5, 0, 3, 1, 4 };
	const struct fl_host host = { .run = nothing, .kick = nothing_to_tick };
	struct fl_dev *dev = fl_dev_create(&fl_round_robin, 1, &host);
	struct fl_flow *flow = fl_flow_create(dev, NULL, 100);
	struct fl_flow *other = fl_flow_create(dev, NULL, 100);
	struct fl_req rqs[ARRAY_SIZE(ranks)] = {}, others[ARRAY_SIZE(ranks)] = {};
	unsigned int i;

	for (i = 0; i < ARRAY_SIZE(ranks); i++) {
		rqs[i] = (struct fl_req){ .bytes = 4096, .rank = ranks[i] };
		others[i] = (struct fl_req){ .bytes = 4096, .rank = 3 };
		fl_submit(dev, 0, flow, &rqs[i]);
		fl_submit(dev, 0, other, &others[i]);
	}
	for (i = 0; i < ARRAY_SIZE(ranks); i++) {
		CHECK(fl_next(dev, 0) == &rqs[order[i]], "%u: the least rank, in order of arrival", i);
		CHECK(fl_next(dev, 0) == &others[i], "%u: the other flow has its turns", i);
		if (!i) { /* the drive did not take the other one's after all */
			fl_requeue(&others[0]);
			CHECK(fl_next(dev, 0) == &others[0], "next again");
		}
	}
	for (i = 0; i < ARRAY_SIZE(ranks); i++) {
		fl_done(&rqs[i]);
		fl_done(&others[i]);
	}
	fl_dev_destroy(dev);
}

static const struct test tests[] = {
	{ "a rank counts within a flow and not beside others",
	  test_a_rank_counts_within_a_flow_and_not_beside_others },
	{ "a request that the drive did not take is next again",
	  test_a_request_that_the_drive_did_not_take_is_next_again },
	{ "flows send as many requests as each other", test_flows_send_as_many_requests_as_each_other },
	{ "a flow that has nothing is passed over", test_a_flow_that_has_nothing_is_passed_over },
	{}
};

int main(int argc, char **argv)
{
	return run_tests(tests, argc, argv);
}
