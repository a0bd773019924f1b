/* SPDX-License-Identifier: GPL-2.0-only OR MIT */
/*
 * The loop that is measured: one thread calls a scheduler as a drive's host would. It inserts a
 * batch of requests, dispatches as many, completes them, and ticks. Time is virtual, as if the
 * drive did 500,000 requests a second.
 */
#ifndef BENCH_LOOP_H
#define BENCH_LOOP_H

#include <stdio.h>
#include <stdlib.h>

#include "../libfairlane/user.h"
#include "../sim/none.h"

#define BATCH 64
#define WARM_UP 4000 /* half a second of the drive's: by then totals and floors are what it can do */
#define SLOTS 8 /* requests of a flow on a hardware queue */
#define REQUEST_NS 2000

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
	struct fl_req **in_drive; /* what was sent at once, or has been let go since */
	unsigned int nr_in_drive;
	bool kicked;
	u64 tick_ns;
};

static u64 now_ns = NSEC_PER_SEC; /* virtual */

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
}

/* As many as the drive has not yet been sent of a batch. Returns how many. */
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

/* What the drive takes at once, of a scheduler that does not stage: all is with it. */
static unsigned int take_sent(struct bench *b, struct fl_req **out)
{
	unsigned int n = min_t(unsigned int, b->nr_in_drive, BATCH), i, nr = 0; /* a tick may have let more go */

	b->nr_in_drive -= n;
	memcpy(out, b->in_drive, n * sizeof(out[0]));
	memmove(b->in_drive, b->in_drive + n, b->nr_in_drive * sizeof(out[0]));
	if (!b->dev->sched->admit)
		return n;
	for (i = 0; i < n; i++) /* who is too late comes again */
		if (fl_sent(&container_of(out[i], struct slot, rq)->admission))
			out[nr++] = out[i];
	return nr;
}

/* A batch at most, from all hardware queues, beginning with @first_queue. Returns how many. */
static unsigned int dispatch(struct bench *b, struct fl_req **out, unsigned int first_queue)
{
	unsigned int n = 0, i;

	if (!b->dev->sched->dispatch)
		return take_sent(b, out);
	for (i = 0; i < b->nr_queues; i++) {
		unsigned int queue = (first_queue + i) % b->nr_queues;
		struct fl_req *rq;

		while (n < BATCH && (rq = fl_next(b->dev, queue)))
			out[n++] = rq;
	}
	return n;
}

/* The drive is done with them, so much later. */
static void pass_time(unsigned int n)
{
	now_ns += (u64)(n ? n : BATCH) * REQUEST_NS;
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

#endif
