// SPDX-License-Identifier: GPL-2.0-only OR MIT
/* What a tenant can do to others while the drive is full, under fairlane; on a drive in virtual time. */
#include "drive.h"
#include "test.h"

static struct drive d;

/* What fills the drive is not done for half a minute. Every 60 ms another one comes, and finds it full. */
static void test_newcomers_go_after_two_seconds_in_which_a_full_drive_did_nothing(void)
{
	struct tenant *writer, *reader[60];
	unsigned int i;
	u64 done = 0;

	drive_init(&d, &fl_fairlane, 2, 1024, 100 * NSEC_PER_USEC);
	d.write_ns = 30 * NSEC_PER_SEC;
	writer = drive_tenant(&d, NULL, 100, 64);
	writer->writes_pct = 100;
	writer->bytes = 1 << 20;
	for (i = 0; i < ARRAY_SIZE(reader); i++) {
		reader[i] = drive_tenant(&d, NULL, 100, 0);
		reader[i]->depth[0] = 1;
		reader[i]->start_ns = (i + 1) * 60 * MSEC;
	}
	drive_start(&d);
	drive_run(&d, NSEC_PER_SEC);
	for (i = 0; i < ARRAY_SIZE(reader); i++)
		done += reader[i]->done;
	CHECK(done < 5, "the drive is not full: %lu", done);
	drive_run(&d, 2500 * MSEC);
	for (i = 0; i < 30; i++)
		CHECK(reader[i]->done, "%u", i);
	drive_exit(&d);
}

/* A drive that takes 10 us for each 4 KiB, with a tenant that always wants more. */
static struct tenant *steady(void)
{
	struct tenant *t;

	drive_init(&d, &fl_fairlane, 2, 1024, 10 * NSEC_PER_USEC);
	d.serial = true;
	d.per_page = true;
	t = drive_tenant(&d, NULL, 100, 64);
	t->bytes = 16384;
	return t;
}

/*
 * Its threads are let go, and have no CPU for 100 ms: so it is with a small limit on CPU time. What they would fill is
 * not in the drive. One cgroup, and eight of them that have no CPU at other times each. Half of the drive is due.
 */
static void test_who_has_no_cpu_keeps_no_places_in_the_drive(void)
{
	unsigned int cgroups, i;

	for (cgroups = 1; cgroups <= 8; cgroups *= 8) {
		struct tenant *t = steady();
		struct fl_flow *above = fl_flow_create(d.dev, NULL, 100);

		for (i = 0; i < cgroups; i++) {
			struct tenant *throttled = drive_tenant(&d, above, 100, 16);

			throttled->bytes = 1 << 17;
			throttled->wakes_ns = (100 - 3 * i) * MSEC;
			throttled->start_ns = 500 * MSEC;
		}
		drive_start(&d);
		drive_run(&d, NSEC_PER_SEC);
		drive_mark(&d);
		drive_run(&d, 4 * NSEC_PER_SEC);
		CHECK((t->done - t->mark) / 4.0 > 0.55 * 25000, "%u: %g of 25,000 requests/s", cgroups,
		      (t->done - t->mark) / 4.0);
		drive_exit(&d);
	}
}

/*
 * Eight chips, of which each takes 200 us for a request. Sixteen threads, which are due nine tenths, wake up 3 ms after
 * they were let go. With few places in the drive, all are theirs, and over when they wake up.
 */
static void test_who_wakes_up_late_leaves_no_drive_empty(void)
{
	unsigned int i;

	for (i = 1; i <= 4; i++) {
		struct tenant *late;

		drive_init(&d, &fl_fairlane, 1, 4096, 200 * NSEC_PER_USEC);
		d.serial = true;
		d.chips = 8;
		d.varies = 12345 + 7919 * i;
		late = drive_tenant(&d, NULL, 900, 16);
		late->wakes_ns = 3 * MSEC;
		drive_tenant(&d, NULL, 100, 256);
		drive_start(&d);
		drive_mark(&d);
		drive_run(&d, 3 * NSEC_PER_SEC);
		CHECK(drive_iops(&d) > 0.7 * drive_capacity(&d), "%u: %g of %g requests/s", i, drive_iops(&d), drive_capacity(&d));
		drive_exit(&d);
	}
}

/* Two of one cgroup, beside another of the same weight: best effort and idle, as ionice says. */
static void test_a_rank_counts_among_those_of_a_cgroup_that_wait_and_not_beside_others(void)
{
	struct tenant *other, *first, *last;

	other = steady();
	first = drive_tenant(&d, NULL, 100, 16);
	last = drive_tenant(&d, NULL, 100, 16);
	last->flow = first->flow;
	first->bytes = last->bytes = other->bytes;
	first->rank = 2;
	last->rank = 3;
	drive_start(&d);
	drive_run(&d, NSEC_PER_SEC);
	drive_mark(&d);
	drive_run(&d, 3 * NSEC_PER_SEC);
	CHECK(drive_share(&d, other) > 0.49 && drive_share(&d, other) < 0.51, "%g", drive_share(&d, other));
	CHECK(drive_share(&d, last) < drive_share(&d, first) / 4, "%g and %g", drive_share(&d, first), drive_share(&d, last));
	CHECK(last->done - last->mark >= 32, "%lu: each that waits for a second longer goes", last->done - last->mark);
	drive_exit(&d);
}

/* Of 2 GiB each, which a drive may do in a moment: they cost as much as a second of reads, and take the place of four. */
static void test_a_discard_in_the_drive_takes_no_more_room_than_a_read(void)
{
	struct tenant *t = steady(), *one;
	struct fl_admission discards[4];
	struct fl_flow *discarder;
	unsigned int i;
	u64 done;

	one = drive_tenant(&d, NULL, 100, 0);
	one->depth[0] = 16;
	drive_start(&d);
	drive_run(&d, NSEC_PER_SEC);
	discarder = fl_flow_create(d.dev, NULL, 100);
	for (i = 0; i < ARRAY_SIZE(discards); i++) {
		discards[i] = (struct fl_admission){ .op = FL_DISCARD, .bytes = 2047u << 20, .must = true };
		CHECK(fl_admit(discarder, 0, &discards[i]), "it cannot wait");
	}
	done = t->done + one->done;
	drive_run(&d, 100 * MSEC);
	done = t->done + one->done - done;
	CHECK(done > 2000, "%lu requests in 100 ms", done);
	for (i = 0; i < ARRAY_SIZE(discards); i++)
		fl_leave(&discards[i], 0);
	drive_mark(&d); /* nor is there more room when it is done */
	drive_run(&d, 100 * MSEC);
	CHECK(one->done - one->mark > 2000, "%lu of the one with few requests, of 5,000", one->done - one->mark);
	drive_exit(&d);
}

/*
 * As with O_DSYNC on a drive without a capacitor: 16 writes, of which each takes 20 ms. In the drive they are in nobody's
 * way. Who writes so is behind its share, but would be no less so with less in the drive.
 */
static void test_slow_writes_keep_nobody_from_a_drive_that_has_room(void)
{
	struct tenant *reader[2];

	drive_init(&d, &fl_fairlane, 2, 1024, 100 * NSEC_PER_USEC);
	d.write_ns = 20 * MSEC;
	drive_tenant(&d, NULL, 100, 8)->writes_pct = 100;
	reader[0] = drive_tenant(&d, NULL, 100, 1);
	reader[1] = drive_tenant(&d, NULL, 100, 1);
	drive_start(&d);
	drive_run(&d, NSEC_PER_SEC);
	drive_mark(&d);
	drive_run(&d, 10 * NSEC_PER_SEC);
	printf("    %lu requests in the first second, %g a second from then on\n", (unsigned long)reader[0]->mark,
	       (reader[0]->done - reader[0]->mark) / 10.0);
	for (unsigned int i = 0; i < ARRAY_SIZE(reader); i++)
		CHECK((reader[i]->done - reader[i]->mark) / 10.0 > 0.9 * 20000, "%g of 20,000 requests/s",
		      (reader[i]->done - reader[i]->mark) / 10.0);
	drive_exit(&d);
}

/*
 * Two of next to no weight are served for days, and a third wants nothing meanwhile. What they get in days, they are
 * charged here in a minute. It seems to be further ahead by then than half of all that a virtual time can say.
 */
static void test_who_wanted_nothing_until_the_times_have_wrapped_gets_its_part(void)
{
	struct tenant *t[3];
	unsigned int step, i;

	drive_init(&d, &fl_fairlane, 2, 1024, 10 * NSEC_PER_USEC);
	d.serial = true;
	d.per_page = true;
	for (i = 0; i < 3; i++) {
		t[i] = drive_tenant(&d, NULL, 1, 64);
		t[i]->bytes = 16384;
	}
	t[2]->start_ns = 62 * NSEC_PER_SEC;
	fl_set(d.dev, "budget", 32); /* somebody waits all the time */
	drive_start(&d);
	for (step = 0; step < 60000; step++) {
		drive_run(&d, MSEC);
		for (i = 0; i < 16; i++)
			fl_fairlane.charge(fl_flow_queue(t[i % 2]->flow, 0), FL_READ, UINT32_MAX);
	}
	drive_run(&d, 3 * NSEC_PER_SEC);
	drive_mark(&d);
	drive_run(&d, NSEC_PER_SEC);
	for (i = 0; i < 3; i++)
		CHECK(drive_share(&d, t[i]) > 0.32, "%u: %g", i, drive_share(&d, t[i]));
	drive_exit(&d);
}

static const struct test tests[] = {
	{ "newcomers go after two seconds in which a full drive did nothing",
	  test_newcomers_go_after_two_seconds_in_which_a_full_drive_did_nothing },
	{ "who has no CPU keeps no places in the drive", test_who_has_no_cpu_keeps_no_places_in_the_drive },
	{ "who wakes up late leaves no drive empty", test_who_wakes_up_late_leaves_no_drive_empty },
	{ "a rank counts among those of a cgroup that wait, and not beside others",
	  test_a_rank_counts_among_those_of_a_cgroup_that_wait_and_not_beside_others },
	{ "a discard in the drive takes no more room than a read",
	  test_a_discard_in_the_drive_takes_no_more_room_than_a_read },
	{ "slow writes keep nobody from a drive that has room", test_slow_writes_keep_nobody_from_a_drive_that_has_room },
	{ "who wanted nothing until the times have wrapped gets its part",
	  test_who_wanted_nothing_until_the_times_have_wrapped_gets_its_part },
	{}
};

int main(int argc, char **argv)
{
	return run_tests(tests, argc, argv);
}
