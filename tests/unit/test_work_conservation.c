// SPDX-License-Identifier: GPL-2.0-only OR MIT
/*
 * Work conservation (work-conservation.h): free runs detect a drive that runs dry
 * because flows wait for each other, and leave a busy one alone, however unsteady.
 */
#include "test.h"
#include "mechanisms/work-conservation.h"

/* A drive that does so many requests a second: while somebody waits, and while nobody does. */
struct rates {
	u64 waiting, free;
	unsigned int noise_pct; /* each window is so much faster or slower */
};

static struct {
	unsigned int free_runs, gains;
	u64 first_gain_ns;
} found;

static u64 rng = 88172645463325252ull;

static u64 noisy(u64 rate, unsigned int pct)
{
	rng ^= rng << 13;
	rng ^= rng >> 7;
	rng ^= rng << 17;
	return rate * (100 - pct + rng % (2 * pct + 1)) / 100;
}

/* Somebody is held whenever there is no free run. */
static void try_for(u64 ns, struct rates rates)
{
	struct fl_free_run t = { 0 };
	struct fl_work done = { 0 };
	u64 now, rate = 0, look = 200 * NSEC_PER_USEC;

	memset(&found, 0, sizeof(found));
	fl_free_run_init(&t, 0);
	for (now = look; now <= ns; now += look) {
		enum fl_free_run_result result;

		if (now % FL_WINDOW_NS == look)
			rate = noisy(t.on ? rates.free : rates.waiting, rates.noise_pct);
		done.requests += rate * look / NSEC_PER_SEC;
		done.cost = done.requests * FL_COST_ONE;
		result = fl_free_run_look(&t, now, &done, !t.on);
		found.free_runs += result == FL_FREE_RUN_BEGINS;
		if (result == FL_FREE_RUN_GAIN && !found.gains++)
			found.first_gain_ns = now;
	}
}

static void test_a_drive_that_runs_dry_is_detected(void)
{
	try_for(NSEC_PER_SEC, (struct rates){ 10000, 300000, 0 });
	CHECK(found.gains > 10, "%u gains in %u free runs", found.gains, found.free_runs);
	CHECK(found.first_gain_ns < 100 * NSEC_PER_MSEC, "after %lu ns", found.first_gain_ns);
}

static void test_a_quarter_more_is_found_in_an_unsteady_drive(void)
{
	try_for(60 * NSEC_PER_SEC, (struct rates){ 100000, 125000, 10 });
	CHECK(2 * found.gains > found.free_runs, "%u gains in %u free runs", found.gains,
	      found.free_runs);
}

static void test_a_busy_drive_is_left_alone(void)
{
	static const unsigned int noise[] = { 0, 5, 10, 20, 40 };
	unsigned int i;

	for (i = 0; i < ARRAY_SIZE(noise); i++) {
		try_for(600 * NSEC_PER_SEC, (struct rates){ 100000, 100000, noise[i] });
		/* Without a gain free runs become rare: the 12th would be after 34 minutes. */
		CHECK(found.free_runs >= 8 && found.free_runs <= 40, "%u free runs", found.free_runs);
		CHECK(found.gains <= 2, "noise of %u %%: %u gains in %u free runs", noise[i],
		      found.gains, found.free_runs);
	}
}

/* Three times as much in the free run, and then @after a second, without anybody held. */
static bool gain_lasts(u64 after)
{
	u64 now, gain_ns = 0, look = 200 * NSEC_PER_USEC;
	struct fl_free_run t = { 0 };
	struct fl_work done = { 0 }, rate;

	fl_free_run_init(&t, 0);
	for (now = look; now < (gain_ns ? gain_ns + 128 * NSEC_PER_MSEC : NSEC_PER_SEC);
	     now += look) {
		done.requests += (gain_ns ? after : t.on ? 300000 : 100000) * look / NSEC_PER_SEC;
		done.cost = done.requests * FL_COST_ONE;
		if (fl_free_run_look(&t, now, &done, !gain_ns && !t.on) == FL_FREE_RUN_GAIN)
			gain_ns = now;
	}
	CHECK(gain_ns, "no gain");
	return fl_free_run_gain_lasts(&t, now, &done, &rate);
}

static void test_what_only_filled_a_buffer_is_no_gain(void)
{
	CHECK(gain_lasts(300000), "it goes on doing more");
	CHECK(!gain_lasts(100000), "it did more for the time of the free run only");
}

static const struct test tests[] = {
	{ "a drive that runs dry is detected", test_a_drive_that_runs_dry_is_detected },
	{ "a quarter more is found in an unsteady drive",
	  test_a_quarter_more_is_found_in_an_unsteady_drive },
	{ "a busy drive is left alone", test_a_busy_drive_is_left_alone },
	{ "what only filled a buffer is no gain", test_what_only_filled_a_buffer_is_no_gain },
	{}
};

int main(int argc, char **argv)
{
	return run_tests(tests, argc, argv);
}
