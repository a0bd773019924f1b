// SPDX-License-Identifier: GPL-2.0-only OR MIT
/*
 * Metadata and swapping, which go ahead as the root's since others may wait for them: never
 * held back, and paid for by whoever caused them.
 */
#include "drive.h"
#include "test.h"

static struct drive d;

/* Two equal tenants; @ahead_pct of what the first one sends is metadata. Its share of the drive. */
static double share_with_metadata(const struct fl_sched *sched, unsigned int ahead_pct, bool reads)
{
	struct tenant *meta, *other;
	double share;

	drive_init(&d, sched, 2, 32, MSEC);
	meta = drive_tenant(&d, NULL, 100, 64);
	other = drive_tenant(&d, NULL, 100, 64);
	meta->ahead_pct = ahead_pct;
	if (!reads)
		meta->writes_pct = other->writes_pct = 100;
	drive_start(&d);
	drive_run(&d, 3 * NSEC_PER_SEC);
	drive_mark(&d);
	drive_run(&d, 5 * NSEC_PER_SEC);
	share = drive_share(&d, meta);
	drive_exit(&d);
	return share;
}

static void test_metadata_is_part_of_a_tenants_share(void)
{
	const struct fl_sched *const *sched;

	for (sched = fl_schedulers; *sched; sched++) {
		if (*sched == &fl_round_robin) /* which knows no shares */
			continue;
		CHECK(share_with_metadata(*sched, 40, true) < 0.52, "%s: reads: %g", (*sched)->name,
		      share_with_metadata(*sched, 40, true));
		CHECK(share_with_metadata(*sched, 40, false) < 0.52, "%s: writes: %g", (*sched)->name,
		      share_with_metadata(*sched, 40, false));
	}
}

/* One at a time: were it held back behind its tenant's deep queue, it would take far longer. */
static void test_metadata_is_never_held_back(void)
{
	const struct fl_sched *const *sched;

	for (sched = fl_schedulers; *sched; sched++) {
		struct tenant *meta, *deep, *heavy;

		if (!(*sched)->dispatch) /* it stages nothing */
			continue;
		drive_init(&d, *sched, 1, 32, MSEC);
		heavy = drive_tenant(&d, NULL, 1000, 64);
		deep = drive_tenant(&d, NULL, 1, 256);
		meta = drive_tenant(&d, deep->flow, 1, 1);
		meta->ahead_pct = 100;
		drive_start(&d);
		drive_run(&d, 3 * NSEC_PER_SEC);
		CHECK(meta->done > 800, "%s: %lu in 3 s, 1 ms each", (*sched)->name, meta->done);
		CHECK(*sched == &fl_round_robin || heavy->done > deep->done, "%s", (*sched)->name);
		drive_exit(&d);
	}
}

/*
 * More of it than the drive takes at once: it is never held back, but is not all that
 * goes. @budget: fairlane's; 0: as much as is of use.
 */
static void nothing_but_metadata(const struct fl_sched *sched, u64 budget)
{
	struct tenant *meta, *other;

	drive_init(&d, sched, 2, 32, MSEC);
	if (budget)
		CHECK(fl_set(d.dev, "budget", budget), "%s", sched->name);
	meta = drive_tenant(&d, NULL, 100, 64);
	other = drive_tenant(&d, NULL, 100, 64);
	meta->ahead_pct = 100;
	drive_start(&d);
	drive_run(&d, NSEC_PER_SEC);
	drive_mark(&d);
	drive_run(&d, NSEC_PER_SEC);
	CHECK(drive_share(&d, other) > 0.1, "%s: %g", sched->name, drive_share(&d, other));
	CHECK(drive_share(&d, meta) > 0.4, "%s: metadata: %g", sched->name, drive_share(&d, meta));
	drive_exit(&d);
}

static void test_nothing_but_metadata_leaves_others_something(void)
{
	const struct fl_sched *const *sched;

	for (sched = fl_schedulers; *sched; sched++)
		if (!(*sched)->route)
			nothing_but_metadata(*sched, 0);
	nothing_but_metadata(&fl_fairlane, 16); /* there is room for less than all metadata */
}

/*
 * Of two equal tenants one has half as much metadata again as the drive can do, in the second before it reads.
 * What share has it then?
 */
static double share_after_metadata(const struct fl_sched *sched)
{
	struct tenant *meta, *other, *slow;
	double share, later;
	int i, j;

	drive_init(&d, sched, 1, 32, MSEC);
	other = drive_tenant(&d, NULL, 100, 64);
	meta = drive_tenant(&d, NULL, 100, 64);
	slow = drive_tenant(&d, NULL, 100, 1); /* virtual times that are not all alike */
	slow->think_ns = 3 * MSEC;
	meta->start_ns = NSEC_PER_SEC;
	other->depth[0] = 128;
	drive_start(&d);
	for (i = 0; i < 1000; i++) {
		for (j = 0; j < 48; j++)
			fl_charge(meta->flow, 0, FL_READ, 4096);
		drive_run(&d, MSEC);
	}
	drive_mark(&d);
	drive_run(&d, NSEC_PER_SEC / 4);
	share = drive_share(&d, meta);
	drive_run(&d, 4 * NSEC_PER_SEC);
	drive_mark(&d);
	drive_run(&d, NSEC_PER_SEC);
	later = drive_share(&d, meta) / drive_share(&d, other);
	CHECK(sched == &fl_d2fq || (later > 0.8 && later < 1.25), "%s: %g of the other's, seconds later", sched->name,
	      later);
	drive_exit(&d);
	return share;
}

static void test_metadata_of_who_is_idle_is_owed(void)
{
	const struct fl_sched *const *sched;

	for (sched = fl_schedulers; *sched; sched++) {
		double share;

		/* Which knows no shares; and what counts nothing while nobody is behind. */
		if (*sched == &fl_round_robin || *sched == &fl_fairlane)
			continue;
		share = share_after_metadata(*sched);
		/* d2fq holds nothing back: it is a class of the drive's in which requests wait. */
		CHECK(share < (*sched == &fl_d2fq ? 0.4 : 0.1), "%s: %g of the drive, just after its metadata",
		      (*sched)->name, share);
	}
}

/*
 * A second's worth of metadata, and then the other tenant has little to do for a moment, so that the one that owes
 * is let go. That pays for what it sends then, and for no more.
 */
static void test_a_pause_of_another_forgives_no_metadata(void)
{
	struct tenant *meta, *other[3];
	unsigned int i;

	drive_init(&d, &fl_mqflashfq, 1, 32, MSEC);
	meta = drive_tenant(&d, NULL, 100, 64);
	for (i = 0; i < ARRAY_SIZE(other); i++) {
		other[i] = drive_tenant(&d, NULL, 100, i ? 56 : 4);
		if (!i)
			continue;
		fl_flow_destroy(other[i]->flow);
		other[i]->flow = other[0]->flow;
	}
	other[1]->stop_ns = 2000 * MSEC;
	other[2]->start_ns = 2020 * MSEC;
	drive_start(&d);
	drive_run(&d, 1990 * MSEC);
	for (i = 0; i < 32000; i++)
		fl_charge(meta->flow, 0, FL_READ, 4096);
	drive_run(&d, 60 * MSEC);
	drive_mark(&d);
	drive_run(&d, 200 * MSEC);
	CHECK(drive_share(&d, meta) < 0.1, "%g of the drive", drive_share(&d, meta));
	drive_exit(&d);
}

int main(int argc, char **argv)
{
	static const struct test tests[] = {
		{ "metadata is part of a tenant's share", test_metadata_is_part_of_a_tenants_share },
		{ "metadata is never held back", test_metadata_is_never_held_back },
		{ "nothing but metadata leaves others something", test_nothing_but_metadata_leaves_others_something },
		{ "metadata of who is idle is owed", test_metadata_of_who_is_idle_is_owed },
		{ "a pause of another forgives no metadata", test_a_pause_of_another_forgives_no_metadata },
		{}
	};

	return run_tests(tests, argc, argv);
}
