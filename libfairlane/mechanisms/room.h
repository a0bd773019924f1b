/* SPDX-License-Identifier: GPL-2.0-only OR MIT */
/*
 * A limit on what is in the drive, without a counter that all hardware queues share.
 *
 * What is sent to the drive takes room, and gives it back when it is done. The room is
 * the limit less what is in the drive, in any unit: requests, or their cost. Each hardware
 * queue has a part of it. Sending takes from that part and completing gives back to it,
 * both on the same CPU as a rule. A part may be less than none. Once it is more than a
 * batch, or less than minus a batch, it goes to a pool:
 *
 *	limit 64, batch 4    pool 7    queue 0: part 3, 20 in the drive    queue 1: -2, 36
 *
 * So the pool is right to within a batch for each hardware queue, which is 1/8 of the
 * limit in all, or a request each.
 *
 * A hardware queue that has no room, nor finds any in the pool, waits. From then on what
 * is given back is handed to those that wait, in turn. What is handed to a hardware queue
 * nobody else can take.
 */
#ifndef FAIRLANE_ROOM_H
#define FAIRLANE_ROOM_H

#include "../fairlane.h"

/* The parts that hardware queues have are at most 1 / this of the limit, in all. */
#define FL_ROOM_PARTS 8

/* The room that one hardware queue has: in the scheduler's struct for it. */
struct fl_room {
	atomic64_t part; /* added to by completions, and taken from under hwq->lock */
	int waiting; /* to be handed some; by xchg() */
	int woken; /* it was; set by whoever did that, cleared by its next dispatch */
};

struct fl_limit {
	/* Do not change. */
	struct fl_dev *dev;
	size_t offset; /* of the fl_room in each hardware queue */
	/* Written by fl_limit_set(); a stale read moves a batch of the old size. */
	s64 level, batch;

	/* The room that no hardware queue has. */
	atomic64_t pool ____cacheline_aligned_in_smp;
	atomic_t nr_waiting;
	unsigned int last; /* hardware queue that was handed some; a stale read hands it some again */
};

static inline struct fl_room *__fl_room(struct fl_limit *limit, unsigned int i)
{
	return (struct fl_room *)((char *)limit->dev->hwqs[i] + limit->offset);
}

/* What hardware queues have goes to the pool, but for those that were handed it just now. */
static inline void __fl_limit_reclaim(struct fl_limit *limit)
{
	unsigned int i;

	for (i = 0; i < limit->dev->nr_hwqs; i++) {
		struct fl_room *room = __fl_room(limit, i);

		if (atomic64_read(&room->part) && !READ_ONCE(room->woken))
			atomic64_add(atomic64_xchg(&room->part, 0), &limit->pool);
	}
}

/* Take a batch from the pool; if others wait, no more than makes it go on. */
static inline bool __fl_limit_pull(struct fl_limit *limit, struct fl_room *room)
{
	s64 left = atomic64_read(&limit->pool), n;

	do {
		if (left <= 0)
			return false;
		n = 1 - min_t(s64, atomic64_read(&room->part), 0);
		if (!atomic_read(&limit->nr_waiting))
			n = max_t(s64, n, READ_ONCE(limit->batch));
		n = min_t(s64, n, left);
	} while (!atomic64_try_cmpxchg(&limit->pool, &left, left - n));
	return atomic64_add_return(n, &room->part) > 0;
}

/* Returns whether it waited. */
static inline bool __fl_room_stop_waiting(struct fl_limit *limit, struct fl_room *room)
{
	if (!xchg(&room->waiting, 0))
		return false;
	atomic_add(-1, &limit->nr_waiting);
	return true;
}

static inline void __fl_limit_hand_over(struct fl_limit *limit)
{
	unsigned int i, nr = limit->dev->nr_hwqs, at = READ_ONCE(limit->last);

	for (i = 0; i < nr && atomic_read(&limit->nr_waiting); i++) {
		struct fl_room *room;

		at = at + 1 < nr ? at + 1 : 0;
		room = __fl_room(limit, at);
		if (!READ_ONCE(room->waiting))
			continue;
		if (!__fl_limit_pull(limit, room))
			return;
		WRITE_ONCE(limit->last, at);
		if (__fl_room_stop_waiting(limit, room)) {
			WRITE_ONCE(room->woken, 1);
			fl_hwq_run(limit->dev->hwqs[at]);
		}
	}
}

/*
 * Is there room for another request? If not, the hardware queue is run as soon as there
 * is. Under hwq->lock.
 */
static inline bool fl_limit_has_room(struct fl_limit *limit, struct fl_room *room)
{
	bool found = atomic64_read(&room->part) > 0 || __fl_limit_pull(limit, room);

	if (!found && !xchg(&room->waiting, 1)) {
		atomic_add(1, &limit->nr_waiting);
		/* From here on completions see that it waits; for what came before, look again. */
		smp_mb();
		__fl_limit_reclaim(limit);
		found = __fl_limit_pull(limit, room);
	}
	/* Nobody is to wake it for what it has. */
	if (found && READ_ONCE(room->waiting))
		__fl_room_stop_waiting(limit, room);
	return found;
}

/* A request of @cost is sent to the drive. Under hwq->lock. */
static inline void fl_limit_sent(struct fl_limit *limit, struct fl_room *room, u64 cost)
{
	s64 part = atomic64_add_return(-(s64)cost, &room->part);

	while (part < -READ_ONCE(limit->batch) && !atomic64_try_cmpxchg(&room->part, &part, 0))
		;
	if (part < -READ_ONCE(limit->batch))
		atomic64_add(part, &limit->pool);
}

/* It is no longer there. Any context, no lock. */
static inline void fl_limit_done(struct fl_limit *limit, struct fl_room *room, u64 cost)
{
	s64 part = atomic64_add_return(cost, &room->part);

	/* That was a full barrier: either we see who waits, or they see this. */
	if (likely(part <= 0 || (part <= READ_ONCE(limit->batch) && !atomic_read(&limit->nr_waiting))))
		return;
	if (READ_ONCE(room->woken))
		return; /* what it was handed is its own: its dispatch() is about to come */
	while (part > 0 && !atomic64_try_cmpxchg(&room->part, &part, 0))
		;
	if (part > 0)
		atomic64_add(part, &limit->pool);
	if (atomic_read(&limit->nr_waiting))
		__fl_limit_hand_over(limit);
}

/*
 * dispatch() ends without a request: what this hardware queue was handed goes to the
 * next one. Under hwq->lock.
 */
static inline void fl_limit_pass_on(struct fl_limit *limit, struct fl_room *room)
{
	if (unlikely(READ_ONCE(room->woken)) && xchg(&room->woken, 0))
		fl_limit_done(limit, room, 0);
}

/* Let the limit be @level. One caller at a time. */
static inline void fl_limit_set(struct fl_limit *limit, s64 level)
{
	s64 more = level - limit->level;

	WRITE_ONCE(limit->level, level);
	WRITE_ONCE(limit->batch,
		   max_t(s64, 1, div64_s64(level, FL_ROOM_PARTS * (s64)limit->dev->nr_hwqs)));
	atomic64_add(more, &limit->pool);
	__fl_limit_reclaim(limit);
	if (atomic_read(&limit->nr_waiting))
		__fl_limit_hand_over(limit);
}

/* @offset: of the fl_room in the scheduler's struct for a hardware queue. */
static inline void fl_limit_init(struct fl_limit *limit, struct fl_dev *dev, size_t offset, s64 level)
{
	limit->dev = dev;
	limit->offset = offset;
	fl_limit_set(limit, level);
}

#endif
