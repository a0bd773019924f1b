// SPDX-License-Identifier: GPL-2.0-only OR MIT
/* How much in a drive is of use, found while its speed varies by itself. The drive is a model. */
#include <math.h>

#include "env.h"
#include "mechanisms/knee.h"
#include "test.h"

#define ONE FL_COST_ONE
#define LOOK_NS NSEC_PER_MSEC
#define KNEE 64
#define CAPACITY 100000.0
#define SEEDS 6

static struct fl_knee k;
static u64 rng;
static double part_done, speed; /* of what the drive does now: noise */
static double capacity; /* requests per second */
static double bends; /* 0: the curve does, at once; else slowly, and half of it is done with so many in the drive */
static double power; /* 0: it is as above; else that of its part of KNEE: as where submitters sleep, and wake up late */
static struct fl_pressing pressing;
static double reads; /* that part of all requests are, by chance, with KNEE / 8 in the drive */
static double fewer; /* with twice as much there, by so many powers of 2 */
static double did; /* of the capacity, over the last time */

static void begin(s64 requests, u64 seed)
{
	memset(&k, 0, sizeof(k));
	rng = seeded(seed);
	part_done = 0;
	speed = 1;
	capacity = CAPACITY;
	bends = 0;
	power = 0;
	reads = 1;
	fewer = 0;
	k.loss = FL_KNEE_LOSS;
	pressing = (struct fl_pressing){};
	fl_knee_anew(&k, requests * ONE);
}

/* There is always more to do than the level. Every 5 ms the drive is slower or faster, @noise: sigma. */
static double mean_level_over(u64 ns, double noise)
{
	double sum = 0, part;
	u64 at;

	did = 0;
	for (at = 0; at < ns; at += LOOK_NS) {
		double level = (double)fl_knee_level(&k) / ONE;
		double part_reads = reads * pow(KNEE / 8 / level, fewer);
		struct fl_knee_look look = { .ns = LOOK_NS, .busy_ns = LOOK_NS };

		if (at % (5 * NSEC_PER_MSEC) == 0)
			speed = 1 + next_noise(&rng, noise * sqrt(3));
		part = power ? fmin(pow(level / KNEE, power), 1) : bends ? level / (level + bends) : fmin(level / KNEE, 1);
		did += part * LOOK_NS / (double)ns;
		part_done += capacity * speed * part * LOOK_NS / NSEC_PER_SEC;
		look.sent = look.limited = look.done[FL_KNEE_REQUESTS_DONE] = (u64)part_done;
		for (; part_done >= 1; part_done--)
			look.done[reads < 1 && next_noise(&rng, 1) > 2 * part_reads - 1 ? FL_KNEE_OTHERS : FL_KNEE_READS] += ONE;
		fl_knee_look(&k, &look, &pressing, 4 * ONE);
		sum += level;
	}
	return sum / ((double)ns / LOOK_NS);
}

static void test_noise_does_not_raise_the_budget(void)
{
	static const double noises[] = { 0, 0.05, 0.1, 0.2 }, most[] = { 1.5, 2, 2.5, 6 };
	unsigned int i, seed;

	for (i = 0; i < ARRAY_SIZE(noises); i++)
		for (seed = 1; seed <= SEEDS; seed++) {
			double level;

			begin(256, seed);
			level = mean_level_over(60 * NSEC_PER_SEC, noises[i]);
			CHECK(level > 0.7 * KNEE && level < most[i] * KNEE, "noise %g, seed %u: %g", noises[i], seed,
			      level);
		}
}

/* What it was low for is over: by steps of a quarter, each after seconds on a slow drive, that would take long. */
static void test_a_budget_that_is_far_too_low_rises_soon(void)
{
	unsigned int seed;

	for (seed = 1; seed <= SEEDS; seed++) {
		begin(4, seed);
		fl_knee_search_over(&k);
		mean_level_over(2 * NSEC_PER_SEC, 0.05);
		CHECK(fl_knee_level(&k) > KNEE / 2 * ONE, "seed %u: %ld", seed, (long)(fl_knee_level(&k) / ONE));
	}
}

/* On a drive that does 1,000 requests a second, and at that level too few for a window that counts requests. */
static void test_a_budget_that_is_far_too_low_rises_on_a_slow_drive(void)
{
	unsigned int seed;

	for (seed = 1; seed <= SEEDS; seed++) {
		begin(8, seed);
		capacity = 1000;
		fl_knee_search_over(&k);
		mean_level_over(40 * NSEC_PER_SEC, 0.05);
		CHECK(fl_knee_level(&k) > KNEE / 2 * ONE, "seed %u: %ld", seed, (long)(fl_knee_level(&k) / ONE));
	}
}

/*
 * A tenant had no CPU, and seemed to be behind, so an eighth of the knee was taken for a ceiling. A window at that
 * level is short, and may by chance have so many more reads that more in the drive seems to be of little use to writes.
 */
static void test_chance_in_a_short_window_ends_no_search(void)
{
	unsigned int seed;

	for (seed = 1; seed <= 2 * SEEDS; seed++) {
		begin(2 * KNEE, seed);
		capacity = 3000;
		power = 0.55;
		reads = 0.5;
		k.ceiling = KNEE / 8 * ONE;
		fl_knee_search(&k, 2 * KNEE * ONE, 0, 0);
		mean_level_over(5 * NSEC_PER_SEC, 0.05);
		CHECK(fl_knee_level(&k) > KNEE / 2 * ONE, "seed %u: %ld", seed, (long)(fl_knee_level(&k) / ONE));
	}
}

/* With twice as much in it a drive does a fifth more requests, but a quarter fewer reads: so much is not by chance. */
static void test_more_is_of_no_use_at_the_expense_of_reads_however_short_a_window_is(void)
{
	unsigned int seed;

	for (seed = 1; seed <= 2 * SEEDS; seed++) {
		begin(KNEE / 8, seed);
		capacity = 3000;
		power = 0.27;
		reads = 0.5;
		fewer = 0.7;
		mean_level_over(5 * NSEC_PER_SEC, 0.05);
		CHECK(fl_knee_level(&k) < KNEE / 2 * ONE, "seed %u: %ld", seed, (long)(fl_knee_level(&k) / ONE));
	}
}

/* What it did without a level: all that it can, with so many in it; @writes of it are. */
static void without(s64 requests, u64 done, u64 writes)
{
	struct fl_knee_look look = { .ns = LOOK_NS, .busy_ns = LOOK_NS };
	u64 at;

	look.done[FL_KNEE_REQUESTS_DONE] = done;
	look.done[FL_KNEE_READS] = (done - writes) * ONE;
	look.done[FL_KNEE_OTHERS] = writes * ONE;
	for (at = 0; at < 100 * NSEC_PER_MSEC; at += LOOK_NS)
		fl_knee_without(&k, &look, requests * ONE);
}

/* When it is found in vain, if all wait, and it does so many reads and writes a look; a second: never. */
static u64 found_in_vain_ns(u64 reads_done, u64 writes)
{
	struct fl_knee_look look = { .ns = LOOK_NS, .busy_ns = LOOK_NS };
	u64 at;

	look.sent = look.limited = look.done[FL_KNEE_REQUESTS_DONE] = reads_done + writes;
	look.done[FL_KNEE_READS] = reads_done * ONE;
	look.done[FL_KNEE_OTHERS] = writes * ONE;
	for (at = 0; !k.in_vain && at < NSEC_PER_SEC; at += LOOK_NS)
		fl_knee_look(&k, &look, &pressing, 4 * ONE);
	return at;
}

/* The CPU is what is short: whatever the level, to hold requests back costs more than half of what could be done. */
static void test_where_it_is_holding_back_that_costs_nobody_is_held_back(void)
{
	const u64 whole = (u64)(CAPACITY * LOOK_NS / NSEC_PER_SEC);
	u64 at;

	begin(KNEE, 1);
	CHECK(!fl_knee_can_judge(&k), "nobody knows what it does without");
	without(KNEE, whole, 0);
	CHECK(fl_knee_can_judge(&k), "it is known");
	at = found_in_vain_ns(whole * 2 / 5, 0);
	CHECK(at < 30 * NSEC_PER_MSEC, "%lu ms", (unsigned long)(at / NSEC_PER_MSEC));
	CHECK(fl_knee_was_in_vain(&k, 256 * ONE), "it is told");
	CHECK(!fl_knee_was_in_vain(&k, 256 * ONE) && !fl_knee_can_judge(&k), "once, and it is learned anew");
	CHECK(k.searching && fl_knee_level(&k) > 255 * ONE, "should the drive be full, not from what was found");
}

/* The same, where without a budget it did 98 reads and two writes in a millisecond. */
static u64 beside_slow_writes_ns(u64 reads_done, u64 writes)
{
	begin(KNEE, 1);
	without(KNEE, 100, 2);
	return found_in_vain_ns(reads_done, writes);
}

static void test_a_budget_is_in_vain_by_which_reads_wait_for_slow_writes_that_are_no_faster_for_it(void)
{
	CHECK(beside_slow_writes_ns(1, 2) < 90 * NSEC_PER_MSEC, "no window is over so soon");
	CHECK(beside_slow_writes_ns(1, 3) == NSEC_PER_SEC, "somebody has more writes");
	CHECK(beside_slow_writes_ns(80, 2) == NSEC_PER_SEC, "it does nearly all that it did");
}

/* As many as are of use were in it before, or many more; and it is noisy. */
static void test_no_budget_of_a_drive_that_is_full_is_in_vain(void)
{
	unsigned int seed;
	s64 before;

	for (before = KNEE; before <= 8 * KNEE; before *= 8)
		for (seed = 1; seed <= SEEDS; seed++) {
			begin(8 * KNEE, seed);
			without(before, (u64)(CAPACITY * LOOK_NS / NSEC_PER_SEC), 0);
			mean_level_over(60 * NSEC_PER_SEC, 0.1);
			CHECK(!k.in_vain, "%ld before, seed %u", (long)before, seed);
		}
}

/* However the curve bends; and when the drive has become slower by itself, or fast again. */
static void late_ones_take(u32 percent)
{
	static const double curves[] = { 0, 4, KNEE / 4, KNEE }, speeds[] = { 1, 0.4, 1 };
	unsigned int i, j, seed;

	for (i = 0; i < ARRAY_SIZE(curves); i++) {
		double kept[ARRAY_SIZE(speeds)] = {};

		for (seed = 1; seed <= SEEDS; seed++) {
			double usual, most;

			begin(4 * KNEE, seed);
			k.loss = percent;
			bends = curves[i];
			mean_level_over(10 * NSEC_PER_SEC, 0.05);
			usual = mean_level_over(10 * NSEC_PER_SEC, 0.05);
			most = did;
			pressing.late = FL_PRESS_MAX;
			for (j = 0; j < ARRAY_SIZE(speeds); j++) {
				double level;

				capacity = CAPACITY * speeds[j];
				mean_level_over(5 * NSEC_PER_SEC, 0.05);
				level = mean_level_over(15 * NSEC_PER_SEC, 0.05);
				kept[j] += did / most / SEEDS;
				CHECK(speeds[j] < 1 || level < (bends ? 0.9 : 1.1) * usual, "curve %g, seed %u: %g in it, not %g",
				      curves[i], seed, level, usual);
			}
		}
		for (j = 0; j < ARRAY_SIZE(speeds); j++)
			CHECK(kept[j] > (92.0 - percent) / 100, "%u %%, curve %g, at %g: %g", percent, curves[i], speeds[j],
			      kept[j]);
		if (bends) /* else a little less does much less */
			CHECK(kept[0] < (100 - percent / 2.0) / 100, "%u %%, curve %g: %g", percent, curves[i], kept[0]);
	}
}

/* Who is behind was found so while less was in it: that much would not have helped. */
static void test_a_level_that_grew_meanwhile_is_not_lowered_to_what_it_was(void)
{
	struct fl_knee_look look = { .ns = LOOK_NS, .busy_ns = LOOK_NS };
	s64 level;

	begin(256, 1);
	k.grown = 64 * ONE;
	level = fl_knee_level(&k);
	look.done[FL_KNEE_READS] = 16 * ONE;
	fl_knee_look(&k, &look, &pressing, 4 * ONE);
	CHECK(fl_knee_level(&k) > level, "it grew");
	CHECK(!fl_knee_lower(&k, level, ONE, level, false) && k.ceiling == FL_KNEE_MOST, "all of it fits");
	CHECK(fl_knee_lower(&k, level / 2, ONE, level, false) && k.ceiling < level / 2, "a half of it fits");
}

static void test_who_is_late_takes_about_an_eighth_of_the_total(void)
{
	late_ones_take(FL_KNEE_LOSS);
}

static void test_who_is_late_may_be_let_take_more(void)
{
	late_ones_take(40);
	late_ones_take(80);
}

/* Of three looks one finds somebody behind, while @sent requests are sent between two. */
static void one_look_in_three_presses(u64 sent)
{
	struct fl_pressing p = {};
	u64 i, most = 4 * FL_PRESS_REQUESTS / min_t(u64, sent, FL_PRESS_REQUESTS);

	for (i = 0; i < 3 * most; i++) {
		CHECK(!fl_presses_most(&p), "%lu: not after %lu", sent, i);
		fl_press(&p, i % 3 == 0, 0, 0, sent);
	}
	CHECK(fl_presses_behind(&p) && !fl_presses_most(&p), "%lu: soon", sent);
	for (i = 0; i < 3 * most; i++)
		fl_press(&p, i % 3 == 0, 0, 0, sent);
	CHECK(p.behind > FL_PRESS_MAX / 8 * 7, "%lu: %ld", sent, (long)p.behind);
}

static void test_who_is_behind_presses_on_a_slow_drive_too(void)
{
	one_look_in_three_presses(1000);
	one_look_in_three_presses(16);
	one_look_in_three_presses(1);
}

/* Four looks in a row are enough where much is sent; a search that goes on is lowered after 16 requests, not sooner. */
static void test_a_few_requests_lack_is_no_reason_to_search(void)
{
	struct fl_pressing p = {};
	int i;

	for (i = 0; i < 4; i++)
		fl_press(&p, true, 0, 0, 1000);
	CHECK(fl_presses_most(&p), "four looks");
	p = (struct fl_pressing){};
	for (i = 0; i < 15; i++)
		fl_press(&p, true, 0, 0, 1);
	CHECK(!fl_presses_behind(&p), "15 requests");
	fl_press(&p, true, 0, 0, 1);
	CHECK(fl_presses_behind(&p) && !fl_presses_most(&p), "16 requests");
}

static const struct test tests[] = {
	{ "who is late takes about an eighth of the total", test_who_is_late_takes_about_an_eighth_of_the_total },
	{ "who is late may be let take more", test_who_is_late_may_be_let_take_more },
	{ "a level that grew meanwhile is not lowered to what it was",
	  test_a_level_that_grew_meanwhile_is_not_lowered_to_what_it_was },
	{ "who is behind presses on a slow drive, too", test_who_is_behind_presses_on_a_slow_drive_too },
	{ "a few requests' lack is no reason to search", test_a_few_requests_lack_is_no_reason_to_search },
	{ "a drive whose speed varies by itself does not raise the budget", test_noise_does_not_raise_the_budget },
	{ "a budget that is far too low rises soon", test_a_budget_that_is_far_too_low_rises_soon },
	{ "a budget that is far too low rises on a slow drive", test_a_budget_that_is_far_too_low_rises_on_a_slow_drive },
	{ "chance in a short window ends no search", test_chance_in_a_short_window_ends_no_search },
	{ "more is of no use at the expense of reads, however short a window is",
	  test_more_is_of_no_use_at_the_expense_of_reads_however_short_a_window_is },
	{ "where it is holding back that costs, nobody is held back",
	  test_where_it_is_holding_back_that_costs_nobody_is_held_back },
	{ "a budget is in vain by which reads wait for slow writes that are no faster for it",
	  test_a_budget_is_in_vain_by_which_reads_wait_for_slow_writes_that_are_no_faster_for_it },
	{ "no budget of a drive that is full is in vain", test_no_budget_of_a_drive_that_is_full_is_in_vain },
	{}
};

int main(int argc, char **argv)
{
	return run_tests(tests, argc, argv);
}
