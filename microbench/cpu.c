// SPDX-License-Identifier: GPL-2.0-only OR MIT
/*
 * The CPU time that the schedulers' code takes on this machine: the real files,
 * called as a drive's host would, by one thread. Time that the scheduler sees is
 * virtual, as if the drive did 500,000 requests a second, so that its refills
 * come as often as on a fast drive.
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
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#include "../libfairlane/user.h"
#include "../sim/none.h"
#include "locks.h"

#define BATCH 64
#define BATCHES 4000
#define WARM_UP 4000 /* half a second of the drive's: by then totals and floors are what it can do */
#define SLOTS 8 /* requests of a flow on a hardware queue */
#define REQUEST_NS 2000
#define WAKES 100000

struct bench_shared bench_shared;

struct slot {
	struct fl_req rq;
	struct fl_admission admission;
	struct fl_flow *flow;
	unsigned int queue;
	struct slot *next;
};

struct bench {
	struct fl_dev *dev;
	unsigned int nr_flows, nr_queues;
	struct slot *slots, *first, **last; /* free ones */
	u64 timer_ns; /* to read the clock */
	struct fl_req **in_drive; /* what was sent at once, or has been let go since */
	unsigned int nr_in_drive;
	bool kicked;
	u64 tick_ns;
};

enum phase { INSERT, DISPATCH, DONE, PHASES };

static u64 now_ns = NSEC_PER_SEC;

static u64 virtual_ns(void)
{
	return now_ns;
}

static void run(void *ctx, unsigned int index)
{
	(void)ctx;
	(void)index; /* all are run each time */
}

static void sent(struct bench *b, struct slot *slot)
{
	b->in_drive[b->nr_in_drive++] = &slot->rq;
}

static void admitted(void *ctx, struct fl_admission *admission)
{
	sent(ctx, container_of(admission, struct slot, admission));
}

static void weights(void *ctx, unsigned int high, unsigned int medium, unsigned int low)
{
	(void)ctx;
	(void)high;
	(void)medium;
	(void)low;
}

static void kick(void *ctx)
{
	((struct bench *)ctx)->kicked = true;
}

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

static void *must(void *p)
{
	if (!p) {
		fprintf(stderr, "bench: out of memory\n");
		exit(2);
	}
	return p;
}

static void add_free(struct bench *b, struct slot *slot)
{
	slot->next = NULL;
	*b->last = slot;
	b->last = &slot->next;
}

static void set_up(struct bench *b, const struct fl_sched *sched)
{
	struct fl_host host = { .run = run, .kick = kick, .weights = weights, .admitted = admitted, .ctx = b };
	struct slot *slot;
	unsigned int n, f, q;

	b->dev = must(fl_dev_create(sched, b->nr_queues, &host));
	b->slots = must(calloc((size_t)SLOTS * b->nr_flows * b->nr_queues, sizeof(*b->slots)));
	b->in_drive = must(calloc((size_t)SLOTS * b->nr_flows * b->nr_queues, sizeof(struct fl_req *)));
	b->last = &b->first;
	slot = b->slots;
	for (f = 0; f < b->nr_flows; f++) {
		struct fl_flow *flow = must(fl_flow_create(b->dev, NULL, 100 + f % 4 * 100));

		for (n = 0; n < SLOTS; n++)
			for (q = 0; q < b->nr_queues; q++, slot++) {
				slot->flow = flow;
				slot->queue = q;
			}
	}
	/* In turn of all flows and queues. */
	for (n = 0; n < SLOTS * b->nr_queues; n++)
		for (f = 0; f < b->nr_flows; f++)
			add_free(b, &b->slots[(size_t)f * SLOTS * b->nr_queues + n]);
	bench_shared = (struct bench_shared){ .lock = &b->dev->lock };
}

/* ns since @from, less the time to read the clock and the time that the lock was held since @held. */
static u64 took(const struct bench *b, u64 from, u64 held, u64 taken)
{
	u64 ns = bench_now_ns() - from;
	u64 not =
		b->timer_ns * (1 + bench_shared.taken - taken) + bench_shared.held_ns - held;

	return ns > not ? ns - not : 0;
}

static unsigned int insert(struct bench *b)
{
	const struct fl_sched *sched = b->dev->sched;
	unsigned int n;

	for (n = 0; n < BATCH && b->first && b->nr_in_drive < BATCH; n++) {
		struct slot *slot = b->first;

		b->first = slot->next;
		if (!b->first)
			b->last = &b->first;
		slot->rq.bytes = 4096;
		slot->rq.arrival_ns = now_ns;
		if (sched->dispatch) {
			fl_submit(b->dev, slot->queue, slot->flow, &slot->rq);
		} else if (sched->route) {
			fl_route(b->dev, slot->queue, slot->flow, &slot->rq);
			sent(b, slot);
		} else {
			slot->admission = (struct fl_admission){ .op = FL_READ, .bytes = 4096 };
			if (fl_admit(slot->flow, slot->queue, &slot->admission))
				sent(b, slot);
		}
	}
	return n;
}

static unsigned int dispatch(struct bench *b, struct fl_req **out, unsigned int first_queue)
{
	unsigned int n = 0, i;

	for (i = 0; b->dev->sched->dispatch && i < b->nr_queues; i++) {
		unsigned int queue = (first_queue + i) % b->nr_queues;
		struct fl_req *rq;

		while (n < BATCH && (rq = fl_next(b->dev, queue)))
			out[n++] = rq;
	}
	return n;
}

static void done(const struct bench *b, struct fl_req **out, unsigned int n)
{
	unsigned int i;

	for (i = 0; i < n; i++) {
		if (b->dev->sched->admit)
			fl_leave(&container_of(out[i], struct slot, rq)->admission, REQUEST_NS);
		else
			fl_done(out[i]);
	}
}

static void tick(struct bench *b)
{
	u64 next;

	if (!b->kicked && now_ns < b->tick_ns)
		return;
	b->kicked = false;
	next = fl_tick(b->dev);
	b->tick_ns = next ? now_ns + next : ~0ull;
}

/* One batch; false when nothing went to the drive. */
static bool batch(struct bench *b, unsigned int number, u64 ns[PHASES])
{
	struct fl_req *out[BATCH];
	u64 from, held, taken;
	unsigned int in, n, i;

	held = bench_shared.held_ns, taken = bench_shared.taken, from = bench_now_ns();
	in = insert(b);
	ns[INSERT] = took(b, from, held, taken);
	held = bench_shared.held_ns, taken = bench_shared.taken, from = bench_now_ns();
	n = dispatch(b, out, number);
	if (!b->dev->sched->dispatch) { /* all are with the drive */
		n = min_t(unsigned int, b->nr_in_drive, BATCH); /* a tick may have let more go */
		b->nr_in_drive -= n;
		memcpy(out, b->in_drive, n * sizeof(out[0]));
		memmove(b->in_drive, b->in_drive + n, b->nr_in_drive * sizeof(out[0]));
	}
	ns[DISPATCH] = took(b, from, held, taken);
	now_ns += (u64)(n ? n : BATCH) * REQUEST_NS;
	held = bench_shared.held_ns, taken = bench_shared.taken, from = bench_now_ns();
	done(b, out, n);
	ns[DONE] = took(b, from, held, taken);
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
	struct bench b = { .nr_flows = nr_flows, .nr_queues = nr_queues, .timer_ns = timer_cost() };
	unsigned int i, nr = 0, p;
	u64 ns[PHASES];

	set_up(&b, sched);
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
	       (unsigned long long)(bench_shared.held_ns - bench_shared.taken * b.timer_ns));
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
