// SPDX-License-Identifier: GPL-2.0-only OR MIT
/*
 * The schedulers' code under valgrind's callgrind, which counts instructions: the real files,
 * called as a drive's host would (loop.h). Only the batches after the warm-up are counted. The
 * count is the same each time, however busy the machine is.
 *
 * Usage: instructions NAME FLOWS QUEUES. Prints how many requests were done meanwhile.
 */
#include <valgrind/callgrind.h>

#include "loop.h"

#define COUNTED 1600 /* 205 ms of the drive's: what comes each 100 ms comes twice */

/* Returns how many went to the drive. */
static unsigned int batch(struct bench *b, unsigned int number)
{
	struct fl_req *out[BATCH];
	unsigned int n, i;

	insert(b);
	n = dispatch(b, out, number);
	pass_time(n);
	done(b, out, n);
	for (i = 0; i < n; i++)
		add_free(b, container_of(out[i], struct slot, rq));
	tick(b);
	return n;
}

static unsigned int count(const struct fl_sched *sched, unsigned int nr_flows, unsigned int nr_queues)
{
	struct bench b = { .nr_flows = nr_flows, .nr_queues = nr_queues };
	unsigned int i, n = 0;

	set_up(&b, sched);
	for (i = 0; i < WARM_UP; i++)
		batch(&b, i);
	CALLGRIND_START_INSTRUMENTATION;
	for (i = 0; i < COUNTED; i++)
		n += batch(&b, i);
	CALLGRIND_STOP_INSTRUMENTATION;
	return n; /* what is staged stays so: the process ends */
}

int main(int argc, char **argv)
{
	const struct fl_sched *const *sched = fl_schedulers;

	if (argc != 4)
		return 2;
	while (*sched && strcmp((*sched)->name, argv[1]))
		sched++;
	if (!*sched && strcmp(sim_none.name, argv[1]))
		return 2;
	fl_set_clock(virtual_ns);
	printf("%u\n", count(*sched ? *sched : &sim_none, atoi(argv[2]), atoi(argv[3])));
	return 0;
}
