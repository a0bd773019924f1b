// SPDX-License-Identifier: GPL-2.0-only OR MIT
/*
 * The throughput of the schedulers' code on real threads: 1..N of them, each with
 * a hardware queue and a tenant of its own, as if pinned to a core, submitting to
 * a drive that takes no time. What is left is how much cores keep each other
 * waiting: by the one lock of FlashFQ, by the sampled virtual times of mqFlashFQ,
 * and not at all with none. (Fig. 5 of the mqFlashFQ paper measures the same on a
 * drive.)
 *
 * Prints a line for each scheduler and number of threads: requests per second
 * of all threads together, the median of three runs, and that of one thread.
 */
#include <pthread.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#include "../libfairlane/user.h"
#include "../sim/none.h"

#define RUN_MS 200
#define RUNS 3
#define DEPTH 32 /* requests of a thread */
#define MAX_THREADS 64

struct thread {
	pthread_t thread;
	unsigned int index;
	struct fl_flow *flow;
	struct fl_req rq[DEPTH];
	u64 done;
} ____cacheline_aligned_in_smp;

static struct fl_dev *dev;
static struct thread threads[MAX_THREADS];
static int stop;

static void run(void *ctx, unsigned int index)
{
	(void)ctx;
	(void)index; /* each thread looks at its hardware queue all the time */
}

static void kick(void *ctx)
{
	(void)ctx; /* the ticker ticks all the time */
}

/* Keep all requests submitted; dispatch what may go, and complete it. */
static void *work(void *arg)
{
	struct thread *t = arg;
	struct fl_req *out[DEPTH];
	unsigned int i, n;

	for (i = 0; i < DEPTH; i++) {
		t->rq[i].bytes = 4096;
		t->rq[i].arrival_ns = fl_now_ns();
		fl_submit(dev, t->index, t->flow, &t->rq[i]);
	}
	while (!__atomic_load_n(&stop, __ATOMIC_RELAXED)) {
		for (n = 0; n < DEPTH && (out[n] = fl_next(dev, t->index)); n++)
			;
		for (i = 0; i < n; i++) {
			fl_done(out[i]);
			fl_submit(dev, t->index, t->flow, out[i]);
		}
		t->done += n;
		if (!n)
			sched_yield(); /* it has to wait for others */
	}
	return NULL;
}

static void *ticker(void *arg)
{
	(void)arg;
	while (!__atomic_load_n(&stop, __ATOMIC_RELAXED)) {
		fl_tick(dev);
		usleep(200);
	}
	return NULL;
}

static double once(const struct fl_sched *sched, unsigned int nr)
{
	struct fl_host host = { .run = run, .kick = kick };
	pthread_t tick;
	u64 from, ns, done = 0;
	unsigned int i;

	dev = fl_dev_create(sched, nr, &host);
	stop = 0;
	for (i = 0; i < nr; i++) {
		threads[i] = (struct thread){ .index = i, .flow = fl_flow_create(dev, NULL, 100) };
		if (!threads[i].flow)
			exit(2);
	}
	pthread_create(&tick, NULL, ticker, NULL);
	from = fl_now_ns();
	for (i = 0; i < nr; i++)
		pthread_create(&threads[i].thread, NULL, work, &threads[i]);
	usleep(RUN_MS * 1000);
	__atomic_store_n(&stop, 1, __ATOMIC_RELAXED);
	for (i = 0; i < nr; i++) {
		pthread_join(threads[i].thread, NULL);
		done += threads[i].done;
	}
	ns = fl_now_ns() - from;
	pthread_join(tick, NULL);
	return (double)done * 1e3 / (double)ns; /* what is staged stays so: nothing is freed */
}

static int compare(const void *a, const void *b)
{
	double x = *(const double *)a, y = *(const double *)b;

	return (x > y) - (x < y);
}

int main(int argc, char **argv)
{
	const struct fl_sched *const scheds[] = { &sim_none, &fl_mqflashfq, &fl_flashfq };
	unsigned int most = argc > 1 ? atoi(argv[1]) : 2 * sysconf(_SC_NPROCESSORS_ONLN), nr, i, r;

	if (!most || most > MAX_THREADS)
		return 2;
	printf("%-12s %7s %12s %11s\n", "scheduler", "threads", "1e6 ops/s", "of 1 thread");
	for (i = 0; i < ARRAY_SIZE(scheds); i++) {
		double one = 0;

		for (nr = 1; nr <= most; nr++) {
			double ops[RUNS];

			for (r = 0; r < RUNS; r++)
				ops[r] = once(scheds[i], nr);
			qsort(ops, RUNS, sizeof(ops[0]), compare);
			one = nr == 1 ? ops[RUNS / 2] : one;
			printf("%-12s %7u %12.2f %11.2f\n", scheds[i]->name, nr, ops[RUNS / 2],
			       ops[RUNS / 2] / one);
		}
	}
	return 0;
}
