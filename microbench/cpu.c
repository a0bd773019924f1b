// SPDX-License-Identifier: GPL-2.0-only OR MIT
/*
 * The CPU time that the schedulers' code takes on this machine: the real files,
 * called as a drive's host would, by one thread (loop.h). Time that the scheduler
 * sees is virtual, so that its refills come as often as on a fast drive.
 *
 * Usage: cpu [NAME...]: those schedulers, by default none and all of the list.
 * Prints a line for each scheduler, number of flows and of hardware queues:
 *
 *	NAME FLOWS QUEUES INSERT DISPATCH DONE TAKEN READS HELD
 *
 * INSERT, DISPATCH and DONE are ns for each request, medians over batches,
 * without what was done under the lock that all cores share. TAKEN is how often
 * that lock was taken, READS how often shared memory was read under it, HELD for
 * how many ns it was held, all in all. The last line, "wake - - NS", is what it
 * takes to have another thread on the same core do something, and be back.
 */
#include <pthread.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#include "locks.h"
#include "loop.h"

#define BATCHES 4000
#define WAKES 100000

struct bench_shared bench_shared;

enum phase { INSERT, DISPATCH, DONE, PHASES };

static int compare(const void *a, const void *b)
{
	u64 x = *(const u64 *)a, y = *(const u64 *)b;

	return (x > y) - (x < y);
}

static u64 median(u64 *values, size_t nr)
{
	qsort(values, nr, sizeof(*values), compare);
	return values[nr / 2];
}

static u64 timer_cost(void)
{
	u64 took[1001];
	unsigned int i;

	for (i = 0; i < ARRAY_SIZE(took); i++) {
		took[i] = bench_now_ns();
		took[i] = bench_now_ns() - took[i];
	}
	return median(took, ARRAY_SIZE(took));
}

static u64 timer_ns; /* to read the clock */

/* ns since @from, less the time to read the clock and the time that the lock was held since @held. */
static u64 took(u64 from, u64 held, u64 taken)
{
	u64 ns = bench_now_ns() - from;
	u64 not = timer_ns * (1 + bench_shared.taken - taken) + bench_shared.held_ns - held;

	return ns > not ? ns - not : 0;
}

/* One batch; false when nothing went to the drive. */
static bool batch(struct bench *b, unsigned int number, u64 ns[PHASES])
{
	struct fl_req *out[BATCH];
	u64 from, held, taken;
	unsigned int in, n, i;

	held = bench_shared.held_ns, taken = bench_shared.taken, from = bench_now_ns();
	in = insert(b);
	ns[INSERT] = took(from, held, taken);
	held = bench_shared.held_ns, taken = bench_shared.taken, from = bench_now_ns();
	n = dispatch(b, out, number);
	ns[DISPATCH] = took(from, held, taken);
	pass_time(n);
	held = bench_shared.held_ns, taken = bench_shared.taken, from = bench_now_ns();
	done(b, out, n);
	ns[DONE] = took(from, held, taken);
	for (i = 0; i < n; i++)
		add_free(b, container_of(out[i], struct slot, rq));
	tick(b);
	if (!in || !n)
		return false;
	ns[INSERT] = ns[INSERT] * 100 / in;
	ns[DISPATCH] = ns[DISPATCH] * 100 / n;
	ns[DONE] = ns[DONE] * 100 / n;
	return true;
}

static void measure(const struct fl_sched *sched, unsigned int nr_flows, unsigned int nr_queues)
{
	static u64 all[PHASES][BATCHES];
	struct bench b = { .nr_flows = nr_flows, .nr_queues = nr_queues };
	unsigned int i, nr = 0, p;
	u64 ns[PHASES];

	set_up(&b, sched);
	bench_shared = (struct bench_shared){ .lock = &b.dev->lock };
	timer_ns = timer_cost();
	for (i = 0; i < WARM_UP; i++)
		batch(&b, i, ns);
	bench_shared.held_ns = 0;
	bench_shared.taken = 0;
	bench_shared.reads = 0;
	for (i = 0; nr < BATCHES && i < 10 * BATCHES; i++) {
		if (!batch(&b, i, ns))
			continue;
		for (p = 0; p < PHASES; p++)
			all[p][nr] = ns[p];
		nr++;
	}
	printf("%s %u %u %.2f %.2f %.2f %llu %llu %llu\n", sched->name, nr_flows, nr_queues,
	       median(all[INSERT], nr) / 100.0, median(all[DISPATCH], nr) / 100.0,
	       median(all[DONE], nr) / 100.0, (unsigned long long)bench_shared.taken,
	       (unsigned long long)bench_shared.reads,
	       (unsigned long long)(bench_shared.held_ns - bench_shared.taken * timer_ns));
	/* What is staged stays so: the process ends. */
}

static int pipes[2][2];

static void *echo(void *arg)
{
	char c;

	(void)arg;
	while (read(pipes[0][0], &c, 1) == 1 && write(pipes[1][1], &c, 1) == 1)
		;
	return NULL;
}

static void measure_wake(void)
{
	static u64 all[WAKES / 100];
	cpu_set_t cpus;
	pthread_t thread;
	unsigned int i, n;
	char c = 0;

	CPU_ZERO(&cpus);
	CPU_SET(sched_getcpu(), &cpus);
	if (sched_setaffinity(0, sizeof(cpus), &cpus) || pipe(pipes[0]) || pipe(pipes[1]) ||
	    pthread_create(&thread, NULL, echo, NULL)) {
		perror("bench: wake");
		exit(2);
	}
	for (i = 0; i < ARRAY_SIZE(all); i++) {
		u64 from = bench_now_ns();

		for (n = 0; n < 100; n++)
			if (write(pipes[0][1], &c, 1) != 1 || read(pipes[1][0], &c, 1) != 1)
				exit(2);
		all[i] = (bench_now_ns() - from) / 100;
	}
	close(pipes[0][1]);
	pthread_join(thread, NULL);
	printf("wake - - %llu\n", (unsigned long long)median(all, ARRAY_SIZE(all)));
}

static bool wanted(const struct fl_sched *sched, int argc, char **argv)
{
	int i;

	for (i = 1; i < argc; i++)
		if (!strcmp(argv[i], sched->name))
			return true;
	return argc == 1;
}

int main(int argc, char **argv)
{
	const struct fl_sched *const *sched;
	static const unsigned int flows[] = { 4, 16, 32, 64, 256 }, queues[] = { 1, 4, 16, 32, 64 };
	unsigned int f, q;

	fl_set_clock(virtual_ns);
	for (f = 0; f < ARRAY_SIZE(flows); f++)
		for (q = 0; q < ARRAY_SIZE(queues); q++) {
			if (wanted(&sim_none, argc, argv))
				measure(&sim_none, flows[f], queues[q]);
			for (sched = fl_schedulers; *sched; sched++)
				if (wanted(*sched, argc, argv))
					measure(*sched, flows[f], queues[q]);
		}
	measure_wake();
	return 0;
}
