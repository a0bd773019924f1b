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

int main(int argc, char **argv)
{
	static const struct test tests[] = {
		{ "metadata is part of a tenant's share", test_metadata_is_part_of_a_tenants_share },
		{ "metadata is never held back", test_metadata_is_never_held_back },
		{}
	};

	return run_tests(tests, argc, argv);
}
