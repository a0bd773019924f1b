// SPDX-License-Identifier: GPL-2.0-only OR MIT
/*
 * Trials (trial.h): a drive that runs dry because flows wait for each other is
 * found out, and one that is busy is not, however unsteady it is.
 */
#include "test.h"
#include "trial.h"

/* A drive that does so many requests a second: while somebody waits, and while nobody does. */
struct rates {
	u64 waiting, free;
	unsigned int noise_pct; /* each window is so much faster or slower */
};

static struct {
	unsigned int trials, gains;
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

/* Somebody is held whenever there is no trial. */
static void try_for(u64 ns, struct rates rates)
{
	struct fl_trial t = { 0 };
	struct fl_work done = { 0 };
	u64 now, rate = 0, look = 200 * NSEC_PER_USEC;

	memset(&found, 0, sizeof(found));
	fl_trial_init(&t, 0);
	for (now = look; now <= ns; now += look) {
		enum fl_verdict verdict;

		if (now % FL_WINDOW_NS == look)
			rate = noisy(t.on ? rates.free : rates.waiting, rates.noise_pct);
		done.requests += rate * look / NSEC_PER_SEC;
		done.cost = done.requests * FL_COST_ONE;
		verdict = fl_trial_look(&t, now, &done, !t.on);
		found.trials += verdict == FL_TRIAL_BEGINS;
		if (verdict == FL_TRIAL_GAIN && !found.gains++)
			found.first_gain_ns = now;
	}
}

static void test_a_drive_that_runs_dry_is_found_out(void)
{
	try_for(NSEC_PER_SEC, (struct rates){ 10000, 300000, 0 });
	CHECK(found.gains > 10, "%u gains in %u trials", found.gains, found.trials);
	CHECK(found.first_gain_ns < 100 * NSEC_PER_MSEC, "after %lu ns", found.first_gain_ns);
}

static void test_a_quarter_more_is_found_in_an_unsteady_drive(void)
{
	try_for(60 * NSEC_PER_SEC, (struct rates){ 100000, 125000, 10 });
	CHECK(2 * found.gains > found.trials, "%u gains in %u trials", found.gains, found.trials);
}

static void test_a_busy_drive_is_left_alone(void)
{
	static const unsigned int noise[] = { 0, 5, 10, 20, 40 };
	unsigned int i;

	for (i = 0; i < ARRAY_SIZE(noise); i++) {
		try_for(600 * NSEC_PER_SEC, (struct rates){ 100000, 100000, noise[i] });
		/* As long as nothing is gained trials become rare: the 12th would be after 34 minutes. */
		CHECK(found.trials >= 8 && found.trials <= 40, "%u trials", found.trials);
		CHECK(found.gains <= 2, "noise of %u %%: %u gains in %u trials", noise[i],
		      found.gains, found.trials);
	}
}

/* Three times as much in the trial, and then @after a second, without anybody held. */
static bool gain_lasts(u64 after)
{
	u64 now, gain_ns = 0, look = 200 * NSEC_PER_USEC;
	struct fl_trial t = { 0 };
	struct fl_work done = { 0 }, rate;

	fl_trial_init(&t, 0);
	for (now = look; now < (gain_ns ? gain_ns + 128 * NSEC_PER_MSEC : NSEC_PER_SEC);
	     now += look) {
		done.requests += (gain_ns ? after : t.on ? 300000 : 100000) * look / NSEC_PER_SEC;
		done.cost = done.requests * FL_COST_ONE;
		if (fl_trial_look(&t, now, &done, !gain_ns && !t.on) == FL_TRIAL_GAIN)
			gain_ns = now;
	}
	CHECK(gain_ns, "no gain");
	return fl_trial_gain_lasts(&t, now, &done, &rate);
}

static void test_what_only_filled_a_buffer_is_no_gain(void)
{
	CHECK(gain_lasts(300000), "it goes on doing more");
	CHECK(!gain_lasts(100000), "it did more for the time of the trial only");
}

static const struct test tests[] = {
	{ "a drive that runs dry is found out", test_a_drive_that_runs_dry_is_found_out },
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
