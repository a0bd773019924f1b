/* SPDX-License-Identifier: GPL-2.0-only OR MIT */
/*
 * Who is behind: gets less than its due, although it always has a request.
 *
 * For a scheduler that lets requests go uncounted while nobody needs it. A flow's due is its
 * share (weights.h) of all that was sent since it was last counted anew, which is done when it
 * comes, now and then, and whenever it is found without a request: who wants less is not behind. What
 * it got may vary by chance, as the square root of the number of requests that it is due.
 * It is behind if it lacks more than a tenth, and more than six times that root. So with
 * nothing at all it is behind after 36 requests, with half after 144. Where it can be helped by a
 * little, it is behind with a sixteenth, and three times that root.
 *
 * A drive serves whoever has most in it. So who has all of its requests in the drive, and gets a half of
 * its due, would get all of it with half as much in the drive: that much fits. Without hope is who
 * gets less than a quarter and has a few requests at a time: nothing that is taken from the drive would give
 * it its due. Whom the scheduler keeps waiting, or who has yet to wake up, is not behind for want of requests in the
 * drive; nor, for some 20 looks, who waited whenever it sent something, and now sends nothing. But who comes behind
 * its siblings, and still has to wait, does so for what others have in the drive: it may be behind.
 *
 * Under dev->lock, in tick(). The work is bounded: it goes on at the next tick where it stopped.
 */
#ifndef FAIRLANE_BEHIND_H
#define FAIRLANE_BEHIND_H

#include "weights.h"

#define FL_BEHIND_QUEUES 256 /* of flows are looked at in one tick; those that a flow does not use count as an eighth */
#define FL_BEHIND_STALE_NS (NSEC_PER_SEC / 2) /* who was not looked at for so long, and two rounds, is counted anew */
#define FL_BEHIND_TICK_NS (4ull * NSEC_PER_MSEC) /* of a round, at most */
/* Who lacks more than one in so many, and so many times the root, is behind; and the same, finely. */
#define FL_BEHIND_PART 10
#define FL_BEHIND_ROOTS 6
#define FL_BEHIND_PART_FINE 16
#define FL_BEHIND_ROOTS_FINE 3
#define FL_BEHIND_ONE 1024
#define FL_BEHIND_DEEP 8 /* with so many requests nobody is without hope */
#define FL_BEHIND_ANEW 4096 /* after so many requests that are due it is counted anew */

/* Sums since ever; only differences matter. */
struct fl_progress {
	u64 cost, requests;
};

struct fl_behind { /* of a flow, when it was last counted anew */
	u64 own; /* its cost */
	struct fl_progress all;
	u64 looked_ns; /* when it was last looked at */
	u64 did; /* its cost then */
	/* The scheduler's. */
	u32 waiting; /* requests that wait, or were let go and are not sent yet */
	bool came_behind; /* the last one that came and had to wait, did so while its flow was behind */

	s64 waits; /* how often it was found to have some, of FL_BEHIND_ONE; looks at which it did nothing hardly count */
};

/* Of all that were looked at. */
struct fl_behind_all {
	u64 fits; /* with so much in the drive nobody would be behind; 0: nobody is */
	bool wait; /* all that have requests wait, or have yet to wake up, or did of late; none came behind; all were seen */
};

/* Of one flow. */
struct fl_behind_look {
	u64 did; /* cost */
	unsigned int has; /* requests: in the drive, or waiting */
	unsigned int queues; /* that it uses */
};

static inline struct fl_behind_look __fl_behind_look(struct fl_flow *flow)
{
	struct fl_behind_look look = {};
	unsigned int i;

	for (i = 0; i < flow->dev->nr_hwqs; i++) {
		struct fl_queue *q = fl_flow_queue(flow, i);

		if (!q)
			continue;
		look.queues++;
		look.did += READ_ONCE(q->cost);
		look.has += atomic_read(&q->held);
		look.has += atomic_read(&q->unsent);
		look.has += !list_empty(&q->waiting);
	}
	return look;
}

/*
 * Is @flow, of which @b is, behind? If so, how much in the drive, of @in_drive, would fit? Else 0; also if it was
 * last looked at before @since_ns, and so is counted anew. @all: what all sent. *@look: what was seen of it.
 */
static inline u64 fl_is_behind(struct fl_flow *flow, struct fl_behind *b, struct fl_progress all, u64 in_drive,
			       u64 since_ns, u64 now_ns, bool fine, struct fl_behind_look *look)
{
	bool stale = b->looked_ns < since_ns;
	u64 share = fl_flow_share(flow), got, sent, due, requests, lacks;
	u64 roots = FL_BEHIND_ROOTS, part = FL_BEHIND_PART;

	*look = __fl_behind_look(flow);
	got = look->did - b->own;
	sent = all.cost - b->all.cost;
	due = mul_u64_u64_div_u64(sent, share, FL_SHARE_ONE);
	requests = mul_u64_u64_div_u64(all.requests - b->all.requests, share, FL_SHARE_ONE);
	b->looked_ns = now_ns;
	if (stale)
		b->waits = 0;
	if (b->waiting || look->did != b->did)
		b->waits += ((b->waiting && !b->came_behind ? FL_BEHIND_ONE : 0) - b->waits) / 8;
	else
		b->waits -= b->waits / 32; /* it may have no CPU; or its requests are in the drive */
	b->did = look->did;
	stale = stale || !look->has || 2 * b->waits > FL_BEHIND_ONE;
	if (stale || requests > FL_BEHIND_ANEW) {
		b->own = look->did;
		b->all = all;
	}
	if (stale || got >= due)
		return 0;
	lacks = mul_u64_u64_div_u64(due - got, requests, due);
	if (fine)
		roots = FL_BEHIND_ROOTS_FINE, part = FL_BEHIND_PART_FINE;
	if (lacks * lacks <= roots * roots * requests || part * lacks <= requests)
		return 0;
	if (sent < in_drive)
		return in_drive; /* some of what is in the drive was sent before */
	return max_t(u64, mul_u64_u64_div_u64(in_drive, got, due), 1);
}

/*
 * Is some active flow behind, counted from @since_ns or later? If so, how much in the drive, of @in_drive, would
 * fit for all of them? Each has a struct fl_behind @offset into it. With @hope those that are
 * without do not count, and it is looked at finely; else for them it is @in_drive.
 */
static inline struct fl_behind_all fl_somebody_is_behind(struct fl_dev *dev, size_t offset,
							 struct fl_progress all, u64 in_drive, u64 since_ns,
							 u64 now_ns, bool hope)
{
	struct list_head *active = &dev->active, *first = active->next;
	struct fl_behind_all found = {};
	unsigned int queues = 0, wanting = 0, waiting = 0;
	u64 round_ns = (u64)dev->nr_active * dev->nr_hwqs / FL_BEHIND_QUEUES * FL_BEHIND_TICK_NS;

	since_ns = max_t(s64, since_ns, (s64)now_ns - (s64)(FL_BEHIND_STALE_NS + 2 * round_ns));
	while (!list_empty(active) && queues < FL_BEHIND_QUEUES) {
		struct fl_flow *flow = list_first_entry(active, struct fl_flow, active_node);
		struct fl_behind *b = (struct fl_behind *)((char *)flow + offset);
		struct fl_behind_look look;
		u64 fits = fl_is_behind(flow, b, all, in_drive, since_ns, now_ns, hope, &look);

		wanting += look.has > 0;
		waiting += look.has && 2 * b->waits > FL_BEHIND_ONE;
		if (fits && 4 * fits < in_drive && look.has < FL_BEHIND_DEEP)
			fits = hope ? 0 : in_drive;
		if (fits && (!found.fits || fits < found.fits))
			found.fits = fits;
		list_move_tail(&flow->active_node, active);
		if (active->next == first) {
			found.wait = wanting && waiting == wanting;
			break;
		}
		queues += max_t(unsigned int, look.queues, 1) + dev->nr_hwqs / 8;
	}
	return found;
}

#endif
