// SPDX-License-Identifier: GPL-2.0-only OR MIT
/*
 * A tenant that makes a cgroup for each of its requests, and removes it after that, gains nothing: on a drive in
 * virtual time, under every scheduler that holds back.
 */
#include "drive.h"
#include "test.h"

#define MAKERS 8
#define LEAST 0.09
#define MOST 0.13 /* mqfq: 0.12 with 64 KiB, where all of them are in the drive at once */

static struct drive d;

/* The part of the bytes that a tenant of weight 100 gets so, beside one of 900 that wants all. */
static double part_of_makers(const struct fl_sched *sched, u32 bytes, bool nested)
{
	double makers = 0, all;
	struct tenant *steady, *t[MAKERS];
	struct fl_flow *many;
	unsigned int i;

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
	if (nested)
		many = fl_flow_create(d.dev, many, 100);
	for (i = 0; i < MAKERS; i++) {
		t[i] = drive_tenant(&d, many, 100, 0);
		t[i]->depth[i % 2] = 1;
		t[i]->bytes = bytes;
		t[i]->below = many;
	}
	drive_start(&d);
	drive_run(&d, NSEC_PER_SEC);
	drive_mark(&d);
	drive_run(&d, 4 * NSEC_PER_SEC);
	for (i = 0; i < MAKERS; i++)
		makers += t[i]->done_bytes - t[i]->mark_bytes;
	all = makers + steady->done_bytes - steady->mark_bytes;
	drive_exit(&d);
	return makers / all;
}

static void test_who_makes_a_cgroup_for_each_request_gets_its_due(void)
{
	const struct fl_sched *const *sched;
	unsigned int nested;
	double part;
	u32 bytes;

	for (sched = fl_schedulers; *sched; sched++) {
		if (*sched == &fl_round_robin || (*sched)->route)
			continue; /* no weights, or nobody waits */
		for (bytes = 65536; bytes <= 1 << 20; bytes *= 4)
			for (nested = 0; nested < 2; nested++) {
				part = part_of_makers(*sched, bytes, nested);
				CHECK(part >= LEAST && part <= MOST, "%s: %g of 0.1, %u bytes%s", (*sched)->name, part, bytes,
				      nested ? ", nested" : "");
			}
	}
}

static const struct test tests[] = {
	{ "who makes a cgroup for each request gets its due", test_who_makes_a_cgroup_for_each_request_gets_its_due },
	{}
};

int main(int argc, char **argv)
{
	return run_tests(tests, argc, argv);
}
