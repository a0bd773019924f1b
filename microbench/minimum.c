// SPDX-License-Identifier: GPL-2.0-only OR MIT
/*
 * The CPU time of knowing how far a flow is ahead of the others, with real
 * threads. Each is a flow, on a core of its own if there are enough. As for one
 * request after the other, it moves its virtual time on, makes that known, and
 * looks at where the others are.
 *
 *	none        only moves its virtual time
 *	d2fq        D2FQ's word and its two loops of compare-and-swap
 *	mindicator  MQFQ's tree of minima
 *	serial      reads the virtual time of every flow
 *	sample      mqFlashFQ: reads that of one other flow, chosen at random
 *
 * Usage: minimum [THREADS [MS]]: 1, 2, 4, ... up to THREADS (default: as many
 * as there are cores), for MS milliseconds each (200). Prints what it ran on,
 * and for each the CPU time of an operation, the median of three runs.
 */
#include <pthread.h>
#include <sched.h>
#include <stdio.h>
#include <time.h>
#include <unistd.h>

#include "../libfairlane/schedulers/d2fq.c"
#include "../libfairlane/mechanisms/minimum-tree.h"

#define MAX_THREADS 256
#define RUNS 3
#define BATCH 256 /* operations between two looks at whether it is time to stop */

struct flow {
	atomic64_t vt;
	struct fl_mind_node nodes[FL_MIND_NODES];
	pthread_t thread;
	unsigned int index;
	u64 ops, cpu_ns, random;
	s64 found; /* for the compiler to keep what is looked for */
} ____cacheline_aligned_in_smp;

static struct flow flows[MAX_THREADS];
static void *owners[MAX_THREADS];
static unsigned int nr;
static struct d2_dev d2;
static struct fl_mind mind;
static atomic_t stop, waiting;

static s64 none(struct flow *f, u64 vt)
{
	(void)f;
	return (s64)vt;
}

static s64 d2fq(struct flow *f, u64 vt)
{
	d2_update_gvt(&d2, vt, f->index + 1);
	return d2_ahead(vt, atomic64_read(&d2.gvt));
}

static s64 mindicator(struct flow *f, u64 vt)
{
	fl_mind_set(&mind, f->index, fl_mind_word(vt));
	return fl_mind_ahead(fl_mind_word(vt), fl_mind_least(&mind));
}

static s64 serial(struct flow *f, u64 vt)
{
	u64 least = vt;
	unsigned int i;

	(void)f;
	for (i = 0; i < nr; i++)
		least = min_t(u64, least, atomic64_read(&flows[i].vt));
	return (s64)(vt - least);
}

static s64 sample(struct flow *f, u64 vt)
{
	f->random ^= f->random << 13;
	f->random ^= f->random >> 7;
	f->random ^= f->random << 17;
	return (s64)vt - atomic64_read(&flows[((f->random >> 32) * nr) >> 32].vt);
}

enum method { NONE, D2FQ, MINDICATOR, SERIAL, SAMPLE, METHODS };

static const char *const methods[] = { "none", "d2fq", "mindicator", "serial", "sample" };

static u64 thread_ns(void)
{
	struct timespec ts;

	clock_gettime(CLOCK_THREAD_CPUTIME_ID, &ts);
	return (u64)ts.tv_sec * NSEC_PER_SEC + ts.tv_nsec;
}

/* Flows keep pace, as they would when they are scheduled: each moves by as much, give or take. */
#define OP(look)                                                                                   \
	for (i = 0; i < BATCH; i++) {                                                              \
		u64 vt = atomic64_add_return(4096 * 100 + (i & 7) * 256, &f->vt);                  \
                                                                                                   \
		f->found += look(f, vt);                                                           \
	}

static void batch(struct flow *f, enum method method)
{
	unsigned int i;

	switch (method) { /* so that each is inlined */
	case NONE:
		OP(none);
		break;
	case D2FQ:
		OP(d2fq);
		break;
	case MINDICATOR:
		OP(mindicator);
		break;
	case SERIAL:
		OP(serial);
		break;
	default:
		OP(sample);
	}
}

static enum method method_now;

static void *flow_thread(void *arg)
{
	struct flow *f = arg;
	cpu_set_t cpus;
	u64 from;

	CPU_ZERO(&cpus);
	CPU_SET(f->index % sysconf(_SC_NPROCESSORS_ONLN), &cpus);
	sched_setaffinity(0, sizeof(cpus), &cpus); /* if it may */
	atomic_add(-1, &waiting);
	while (atomic_read(&waiting))
		sched_yield();
	from = thread_ns();
	for (f->ops = 0; !atomic_read(&stop); f->ops += BATCH)
		batch(f, method_now);
	f->cpu_ns = thread_ns() - from;
	return NULL;
}

/* CPU ns of an operation. */
static double run(enum method method, unsigned int ms)
{
	u64 ops = 0, ns = 0;
	unsigned int i;

	method_now = method;
	atomic_set(&stop, 0);
	atomic_set(&waiting, (int)nr);
	atomic64_set(&d2.gvt, 0);
	fl_mind_init(&mind, owners, nr, offsetof(struct flow, nodes));
	for (i = 0; i < nr; i++) {
		atomic64_set(&flows[i].vt, 0);
		flows[i].random = 88172645463325252ull + i;
		if (pthread_create(&flows[i].thread, NULL, flow_thread, &flows[i])) {
			fprintf(stderr, "minimum: no thread can be started\n");
			exit(2);
		}
	}
	usleep(ms * 1000);
	atomic_set(&stop, 1);
	for (i = 0; i < nr; i++) {
		pthread_join(flows[i].thread, NULL);
		ops += flows[i].ops;
		ns += flows[i].cpu_ns;
	}
	return (double)ns / (double)ops;
}

static double median_run(enum method method, unsigned int ms)
{
	double found[RUNS], swap;
	unsigned int i, j;

	for (i = 0; i < RUNS; i++) {
		found[i] = run(method, ms);
		for (j = i; j && found[j] < found[j - 1]; j--) {
			swap = found[j];
			found[j] = found[j - 1];
			found[j - 1] = swap;
		}
	}
	return found[RUNS / 2];
}

static void print_machine(void)
{
	char line[256];
	FILE *file = fopen("/proc/cpuinfo", "r");

	while (file && fgets(line, sizeof(line), file))
		if (!strncmp(line, "model name", 10)) {
			printf("%s", strchr(line, ':') + 2);
			break;
		}
	if (file)
		fclose(file);
	printf("%ld cores; threads beyond that take turns, and time is CPU time\n\n",
	       sysconf(_SC_NPROCESSORS_ONLN));
}

int main(int argc, char **argv)
{
	long cores = sysconf(_SC_NPROCESSORS_ONLN);
	unsigned int most = argc > 1 ? atoi(argv[1]) : cores, ms = argc > 2 ? atoi(argv[2]) : 200;
	enum method m;
	unsigned int i;

	if (!most || most > MAX_THREADS || !ms) {
		fprintf(stderr, "minimum: usage: minimum [THREADS, 1 to %u [MS]]\n", MAX_THREADS);
		return 2;
	}
	print_machine();
	printf("ns for each operation\n%8s", "threads");
	for (m = 0; m < METHODS; m++)
		printf(" %11s", methods[m]);
	printf("\n");
	for (i = 0; i < MAX_THREADS; i++) {
		flows[i].index = i;
		owners[i] = &flows[i];
	}
	for (nr = 1;; nr = min_t(unsigned int, 2 * nr, most)) {
		printf("%8u", nr);
		for (m = 0; m < METHODS; m++) {
			printf(" %11.1f", median_run(m, ms));
			fflush(stdout);
		}
		printf("\n");
		if (nr == most)
			break;
	}
	return 0;
}
