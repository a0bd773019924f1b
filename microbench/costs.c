// SPDX-License-Identifier: GPL-2.0-only OR MIT
/*
 * What a request pays for being counted when it is done (libfairlane/mechanisms/times.h):
 * reading the clock, and the additions to its flow's counts on its hardware queue. In
 * random order, so that with many flows and queues the counts are in no cache.
 *
 * Prints ns, the median of RUNS: of the clock, and of the additions for each number of
 * flows and hardware queues.
 */
#include <stdio.h>
#include <stdlib.h>

#include "../libfairlane/user.h"

#define RUNS 9
#define REQUESTS 1000000u
#define MAX_US 4096 /* what a request takes */

static u64 sink;

static int by_value(const void *a, const void *b)
{
	double x = *(const double *)a, y = *(const double *)b;

	return (x > y) - (x < y);
}

/* Of each of @nr counts, or of none: what stays is the loop. ns per request. */
static double loop_ns(struct fl_times *times, u32 nr)
{
	u64 start = fl_now_ns(), random = 1;
	u32 i;

	for (i = 0; i < REQUESTS; i++) {
		random = random * 6364136223846793005ull + 1442695040888963407ull;
		if (times)
			fl_times_add(&times[(random >> 32) % nr], NSEC_PER_USEC, (random >> 40) % MAX_US * NSEC_PER_USEC);
		else
			sink += (random >> 32) % nr + (random >> 40) % MAX_US;
	}
	return (double)(fl_now_ns() - start) / REQUESTS;
}

static double clock_ns(void)
{
	u64 start = fl_now_ns();
	u32 i;

	for (i = 0; i < REQUESTS; i++)
		sink += fl_now_ns();
	return (double)(fl_now_ns() - start) / REQUESTS;
}

static double median(double *values)
{
	qsort(values, RUNS, sizeof(*values), by_value);
	return values[RUNS / 2];
}

static double additions_ns(u32 nr)
{
	struct fl_times *times = calloc(nr, sizeof(*times));
	double ns[RUNS];
	u32 i;

	if (!times) {
		fprintf(stderr, "costs: out of memory\n");
		exit(2);
	}
	loop_ns(times, nr); /* the pages are there from then on */
	for (i = 0; i < RUNS; i++)
		ns[i] = loop_ns(times, nr) - loop_ns(NULL, nr);
	free(times);
	return median(ns);
}

int main(void)
{
	static const u32 flows[] = { 4, 16, 64, 256, 1024 }, queues[] = { 1, 4, 16, 64 };
	double ns[RUNS];
	size_t f, q, i;

	for (i = 0; i < RUNS; i++)
		ns[i] = clock_ns();
	printf("reading the clock: %.1f ns\nadditions, ns, by flows and hardware queues:\n%8s", median(ns), "");
	for (q = 0; q < sizeof(queues) / sizeof(*queues); q++)
		printf("%8u", queues[q]);
	for (f = 0; f < sizeof(flows) / sizeof(*flows); f++) {
		printf("\n%8u", flows[f]);
		for (q = 0; q < sizeof(queues) / sizeof(*queues); q++)
			printf("%8.1f", additions_ns(flows[f] * queues[q]));
	}
	printf("\n");
	return sink == 1; /* it is used, so that it is worked out */
}
