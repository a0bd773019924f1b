/* SPDX-License-Identifier: GPL-2.0-only OR MIT */
/* The smallest test runner: functions that CHECK, a table, and a closing line. */
#ifndef TEST_H
#define TEST_H

#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <time.h>

struct test {
	const char *name; /* a statement about the system */
	void (*fn)(void);
};

static int test_failures;

#define CHECK(cond, ...)                                                       \
	do {                                                                   \
		if (!(cond)) {                                                 \
			test_failures++;                                       \
			printf("    %s:%d: %s: ", __FILE__, __LINE__, #cond); \
			printf(__VA_ARGS__);                                   \
			printf("\n");                                          \
		}                                                              \
	} while (0)

/* |value / ideal - 1| <= tolerance */
#define CHECK_NEAR(value, ideal, tolerance)                                                       \
	CHECK((value) >= (ideal) * (1 - (tolerance)) && (value) <= (ideal) * (1 + (tolerance)),   \
	      "%g, wanted %g within %g %%", (double)(value), (double)(ideal), 100 * (tolerance))

/* The same numbers in each run (xorshift64); *@state is not 0. */
static inline uint64_t next_random(uint64_t *state)
{
	*state ^= *state << 13;
	*state ^= *state >> 7;
	*state ^= *state << 17;
	return *state;
}

/* The state of next_random() for each @seed. */
static inline uint64_t seeded(unsigned int seed)
{
	return 88172645463325252ull + seed * 0x9E3779B97F4A7C15ull;
}

/* Evenly, from -@most to @most. */
static inline double next_noise(uint64_t *state, double most)
{
	return most * ((double)(next_random(state) % 2001) / 1000 - 1);
}

/* For a thread that waits: sched_yield() may not return for long on a busy machine, a sleeper is woken. */
static inline void let_others_run(void)
{
	static const struct timespec moment = { .tv_nsec = 1000 };

	nanosleep(&moment, NULL);
}

/* Run the tests whose names contain argv[1] (all without), and report as CI reads it. */
static inline int run_tests(const struct test *tests, int argc, char **argv)
{
	int passed = 0, failed = 0;

	for (; tests->name; tests++) {
		if (argc > 1 && !strstr(tests->name, argv[1]))
			continue;
		test_failures = 0;
		tests->fn();
		printf("%s %s\n", test_failures ? "FAIL" : "ok  ", tests->name);
		fflush(stdout);
		if (test_failures)
			failed++;
		else
			passed++;
	}
	printf("%d passed, %d failed\n", passed, failed);
	return failed || !passed;
}

#endif
