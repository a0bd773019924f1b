// SPDX-License-Identifier: GPL-2.0-only OR MIT
/*
 * A tenant that sends each of its requests from another cgroup, a new one or the next of many that it has, on a drive
 * in virtual time. That gains nothing where what a cgroup had counts for those above it.
 */
#include "drive.h"
#include "test.h"

#define SENDERS 8
#define POOLED 64 /* cgroups of each of them */
#define LEAST 0.08 /* of the drive, where a tenth is due */
#define MOST 0.11

enum { MADE, MADE_DEEPER, FROM_A_POOL, NR_WAYS };

static const char *const ways[] = { "new cgroups", "new cgroups, one level down", "a pool of cgroups" };
static struct fl_flow *pools[SENDERS][POOLED];
static const struct fl_sched *const scheds[] = { &fl_mqflashfq, &fl_flashfq, &fl_mqfq }; /* that have accounts */
static struct drive d;

/* The part of the bytes that a tenant of weight 100 gets so, beside one of 900 that wants all. */
static double part_of_senders(const struct fl_sched *sched, u32 bytes, int way)
{
	struct tenant *steady, *t[SENDERS];
	double theirs = 0, all;
	struct fl_flow *many;
	unsigned int i, n;

	drive_init(&d, sched, 2, 1024, 10 * NSEC_PER_USEC);
	d.serial = true;
	d.per_page = true;
	if (sched == &fl_flashfq) { /* its costs are those of a request alone; here, in proportion to bytes */
		fl_set(d.dev, "read_4k_nsec", 100000);
		fl_set(d.dev, "read_128k_nsec", 3200000);
	}
	steady = drive_tenant(&d, NULL, 900, 64);
	steady->bytes = 16384;
	many = fl_flow_create(d.dev, NULL, 100);
	if (way == MADE_DEEPER)
		many = fl_flow_create(d.dev, many, 100);
	for (i = 0; i < SENDERS; i++) {
		t[i] = drive_tenant(&d, many, 100, 0);
		t[i]->depth[i % 2] = 1;
		t[i]->bytes = bytes;
		if (way != FROM_A_POOL) {
			t[i]->below = many;
			continue;
		}
		for (n = 0; n < POOLED; n++)
			pools[i][n] = fl_flow_create(d.dev, many, 100);
		t[i]->pool = pools[i];
		t[i]->pooled = POOLED;
	}
	drive_start(&d);
	drive_run(&d, NSEC_PER_SEC);
	drive_mark(&d);
	drive_run(&d, 4 * NSEC_PER_SEC);
	for (i = 0; i < SENDERS; i++)
		theirs += t[i]->done_bytes - t[i]->mark_bytes;
	all = theirs + steady->done_bytes - steady->mark_bytes;
	drive_exit(&d);
	return theirs / all;
}

static void check(const struct fl_sched *sched)
{
	double part;
	u32 bytes;
	int way;

	for (bytes = 16384; bytes <= 1 << 20; bytes *= 4)
		for (way = 0; way < NR_WAYS; way++) {
			part = part_of_senders(sched, bytes, way);
			CHECK(part >= LEAST && part <= MOST, "%s: %g of the drive by %s, %u bytes", sched->name, part,
			      ways[way], bytes);
		}
}

static void test_each_request_from_another_cgroup_is_no_gain(void)
{
	unsigned int s;

	check(&fl_kyber_fairness);
	check(&fl_fairlane);
	for (s = 0; s < ARRAY_SIZE(scheds); s++)
		check(scheds[s]);
}

/* Beside one that goes on for 20 s, and one that comes and goes: of this, nothing is left for a third to pay. */
static void test_who_begins_beside_others_of_its_tenant_gets_its_part_at_once(void)
{
	struct tenant *t[4];
	struct fl_flow *ours;
	unsigned int i, s;
	double part, all;

	for (s = 0; s < ARRAY_SIZE(scheds); s++) {
		drive_init(&d, scheds[s], 2, 64, 100 * NSEC_PER_USEC);
		drive_tenant(&d, NULL, 300, 128);
		ours = fl_flow_create(d.dev, NULL, 300);
		for (i = 0; i < 4; i++)
			t[i] = drive_tenant(&d, ours, 100, 128);
		t[0]->requeues = 1;
		t[1]->think_ns = 150 * MSEC;
		t[2]->start_ns = 20 * NSEC_PER_SEC;
		t[3]->start_ns = t[2]->start_ns;
		drive_start(&d);
		drive_run(&d, 20 * NSEC_PER_SEC);
		drive_mark(&d);
		drive_run(&d, 300 * MSEC);
		part = drive_share(&d, t[2]);
		all = part + drive_share(&d, t[0]) + drive_share(&d, t[1]) + drive_share(&d, t[3]);
		CHECK(part > 0.12, "%s: %g of the drive, of 0.17 or less", scheds[s]->name, part);
		CHECK(all > 0.45 && all < 0.55, "%s: %g of the drive is its tenant's, of 0.5", scheds[s]->name, all);
		drive_exit(&d);
	}
}

/*
 * One of next to no weight has the drive alone, and brings virtual time on by 2^58: where words hold 56 bits (mqfq)
 * it wraps several times. Then it is charged metadata, each time as if for as much as any request. Neither is
 * anybody's loss: others get their parts afterwards, new cgroups as well.
 */
static void test_times_that_wrap_are_nobodys_loss(void)
{
	struct tenant *x, *new[2];
	struct fl_flow *a, *deep, *b;
	double part, beside;
	unsigned int s, i;

	for (s = 0; s < ARRAY_SIZE(scheds); s++) {
		drive_init(&d, scheds[s], 2, 64, 20 * NSEC_PER_USEC);
		a = fl_flow_create(d.dev, NULL, 100);
		for (i = 0, deep = a; i < 3; i++) { /* beside one that makes its part a 10000th at each level */
			drive_tenant(&d, deep, 10000, 1)->think_ns = MSEC / 2;
			deep = fl_flow_create(d.dev, deep, 1);
		}
		x = drive_tenant(&d, deep, 1, 32);
		x->bytes = 1 << 20;
		x->stop_ns = drive_now() + 120 * MSEC;
		b = fl_flow_create(d.dev, NULL, 100);
		drive_tenant(&d, b, 100, 128)->start_ns = 100 * MSEC;
		for (i = 0; i < 2; i++) {
			new[i] = drive_tenant(&d, i ? b : a, i ? 100 : 10000, 128);
			new[i]->start_ns = 150 * MSEC;
		}
		drive_start(&d);
		drive_run(&d, 90 * MSEC);
		for (i = 0; i < 2000; i++)
			scheds[s]->charge(fl_flow_queue(x->flow, 0), FL_READ, 4096);
		drive_run(&d, 160 * MSEC);
		drive_mark(&d);
		drive_run(&d, 100 * MSEC);
		part = drive_share(&d, new[0]);
		beside = drive_share(&d, new[1]);
		CHECK(part > 0.3, "%s: %g of the drive for one that begins below the first", scheds[s]->name, part);
		CHECK(beside > 0.2, "%s: %g of the drive for one that begins beside it", scheds[s]->name, beside);
		drive_exit(&d);
	}
}

static const struct test tests[] = {
	{ "each request from another cgroup is no gain", test_each_request_from_another_cgroup_is_no_gain },
	{ "who begins beside others of its tenant gets its part at once",
	  test_who_begins_beside_others_of_its_tenant_gets_its_part_at_once },
	{ "times that wrap are nobody's loss", test_times_that_wrap_are_nobodys_loss },
	{}
};

int main(int argc, char **argv)
{
	return run_tests(tests, argc, argv);
}
