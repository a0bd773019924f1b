/* SPDX-License-Identifier: GPL-2.0-only OR MIT */
/*
 * A limit on what is in the drive, without a counter that all hardware queues share.
 *
 * What is sent to the drive takes room, and gives it back when it is done. The room is
 * the limit less what is in the drive, in any unit: requests, or their cost. Each hardware
 * queue has a part of it. Sending takes from that part and completing gives back to it,
 * both on the same CPU as a rule. A part may be negative. Once it is more than a batch, or
 * less than minus a batch, it is moved to a pool, and the part becomes 0:
 *
 *	limit 64, batch 4    pool 7    queue 0: part 3, 20 in the drive    queue 1: -2, 36
 *
 * So the pool is off by at most a batch per hardware queue: in all 1/8 of the limit, or one
 * request per queue if that is more. While the pool is negative, what is given back goes to
 * it at once.
 *
 * While nobody asks for room, the limit may be loose: parts grow and shrink as they may,
 * and the pool is not touched. The first who asks makes it tight, and collects them.
 *
 * A hardware queue that has no room, nor finds any in the pool, waits in a list. While
 * any does, all that is given back goes to the pool at once, and from there to the first
 * in the list. What is handed to a hardware queue nobody else can take. Whoever waits says
 * where in the list, by a number, and how much it has a use for.
 *
 * Nobody waits for room that is there. Whoever begins to wait is counted, and then looks
 * at the parts and the pool again. Whoever completes gives back, and then looks at the
 * count. Both are full barriers, so that one of them sees the other.
 */
#ifndef FAIRLANE_ROOM_H
#define FAIRLANE_ROOM_H

#include "sorted-list.h"

/* The parts that hardware queues have are at most 1 / this of the limit, in all. */
#define FL_ROOM_PARTS 8
#define FL_ROOM_ANY (1ll << 62) /* more than there is */

/* The room that one hardware queue has: in the scheduler's struct for it. */
struct fl_room {
	atomic64_t part; /* added to by completions, and taken from under hwq->lock */
	/*
	 * What the last request took, and what there is a use for: written under hwq->lock, read by whoever
	 * hands over. A stale read hands over too little, or too much.
	 */
	s64 last, want;
	/* In fl_limit.waiting, by turn: under its lock. The key is written under hwq->lock, too, and read under either. */
	struct fl_sorted turn;
	/* Under its lock; a stale read by the hardware queue's own dispatch() takes the lock. */
	bool waiting;
	/*
	 * It was handed some: set under that lock, cleared under hwq->lock when that is used up
	 * or passed on. If the limit has fallen meanwhile, it waits again, with what it was handed.
	 */
	bool woken;
};

struct fl_limit {
	/* Do not change. */
	struct fl_dev *dev;
	size_t offset; /* of the fl_room in each hardware queue */
	/*
	 * Written under lock; a stale read moves a batch of the old size. While the limit is loose,
	 * no part is as much as the batch: who sends and completes need not ask whether it is.
	 */
	s64 level, batch;
	/* Written under lock; a stale read leaves a part where it is, once. */
	bool loose;

	/* The room that no hardware queue has. */
	atomic64_t pool ____cacheline_aligned_in_smp;
	atomic_t nr_waiting; /* written under lock */
	unsigned int waits; /* how often one began to wait; under lock, read by anyone */
	spinlock_t lock; /* irq-safe; innermost */
	struct list_head waiting; /* fl_room.turn; of those with the same one, the longest comes first */
};

/* Under lock. */
static inline void __fl_limit_set_loose(struct fl_limit *limit, bool loose)
{
	s64 batch = max_t(s64, 1, div64_s64(limit->level, FL_ROOM_PARTS * (s64)limit->dev->nr_hwqs));

	WRITE_ONCE(limit->batch, loose ? FL_ROOM_ANY : batch);
	WRITE_ONCE(limit->loose, loose);
}

static inline struct fl_room *__fl_room(struct fl_limit *limit, unsigned int i)
{
	return (struct fl_room *)((char *)limit->dev->hwqs[i] + limit->offset);
}

/* What a hardware queue has goes to the pool, but for what it was handed. */
static inline void __fl_room_give(struct fl_limit *limit, struct fl_room *room)
{
	if (atomic64_read(&room->part) && !READ_ONCE(room->woken))
		atomic64_add(atomic64_xchg(&room->part, 0), &limit->pool);
}

/* Under lock. */
static inline void __fl_limit_collect(struct fl_limit *limit)
{
	unsigned int i;

	for (i = 0; i < limit->dev->nr_hwqs; i++)
		__fl_room_give(limit, __fl_room(limit, i));
}

/* Take a batch from the pool; if others wait, what there is a use for: a request, or more. */
static inline bool __fl_limit_pull(struct fl_limit *limit, struct fl_room *room)
{
	s64 left = atomic64_read(&limit->pool), n;

	do {
		if (left <= 0)
			return false;
		n = READ_ONCE(limit->batch);
		if (n == FL_ROOM_ANY || atomic_read(&limit->nr_waiting)) /* it was loose just now */
			n = max_t(s64, READ_ONCE(room->last), READ_ONCE(room->want));
		n = max_t(s64, n, 1) - min_t(s64, atomic64_read(&room->part), 0);
		n = min_t(s64, n, left);
	} while (!atomic64_try_cmpxchg(&limit->pool, &left, left - n));
	return atomic64_add_return(n, &room->part) > 0;
}

/* Under lock. */
static inline void __fl_room_wait(struct fl_limit *limit, struct fl_room *room, u64 turn)
{
	WRITE_ONCE(room->waiting, true);
	room->turn.key = turn;
	fl_sorted_add(&limit->waiting, &room->turn);
	atomic_inc(&limit->nr_waiting);
}

/* Under lock. */
static inline void __fl_room_wait_no_more(struct fl_limit *limit, struct fl_room *room)
{
	WRITE_ONCE(room->waiting, false);
	list_del_init(&room->turn.node);
	atomic_dec(&limit->nr_waiting);
}

/* Those that wait are handed what is in the pool, in turn. @self runs already. Under lock. */
static inline void __fl_limit_hand_over(struct fl_limit *limit, const struct fl_room *self)
{
	while (!list_empty(&limit->waiting)) {
		struct fl_room *room = list_first_entry(&limit->waiting, struct fl_room, turn.node);

		if (!__fl_limit_pull(limit, room))
			return;
		__fl_room_wait_no_more(limit, room);
		if (room == self)
			continue;
		WRITE_ONCE(room->woken, true);
		fl_hwq_run((struct fl_hwq *)((char *)room - limit->offset));
	}
}

static inline bool __fl_limit_ask(struct fl_limit *limit, struct fl_room *room, u64 turn)
{
	unsigned long flags;
	bool found = false;

	if (!READ_ONCE(limit->loose))
		found = (atomic64_read(&room->part) > 0 && atomic64_read(&limit->pool) >= 0) ||
			(!atomic_read(&limit->nr_waiting) && __fl_limit_pull(limit, room));
	/* It goes on and did not wait; or it waits already, with this turn or one before it, which it keeps. */
	if (likely(found != READ_ONCE(room->waiting)) && (found || !fl_vt_before(turn, room->turn.key)))
		return found;
	spin_lock_irqsave(&limit->lock, flags);
	if (found && room->waiting) {
		__fl_room_wait_no_more(limit, room);
	} else if (!found && room->waiting) {
		list_del_init(&room->turn.node);
		room->turn.key = turn;
		fl_sorted_add(&limit->waiting, &room->turn);
	} else if (!found) {
		__fl_room_wait(limit, room, turn);
		__fl_limit_set_loose(limit, false);
		smp_mb(); /* see the top of this file */
		__fl_room_give(limit, room);
		/* As long as others wait, parts are not left with more than none. */
		if (atomic_read(&limit->nr_waiting) == 1)
			__fl_limit_collect(limit);
		__fl_limit_hand_over(limit, room);
		found = !room->waiting;
		WRITE_ONCE(limit->waits, limit->waits + !found);
	}
	spin_unlock_irqrestore(&limit->lock, flags);
	return found;
}

/*
 * Is there room for another request? If not, the hardware queue is run as soon as there
 * is: before those that wait with a later @turn. room->want may say for how much there is a
 * use. Under hwq->lock.
 */
static __always_inline bool fl_limit_ask(struct fl_limit *limit, struct fl_room *room, u64 turn)
{
	/* As a rule the part has some, and did not wait for it. */
	if (likely(atomic64_read(&room->part) > 0 && !READ_ONCE(limit->loose) &&
		   !READ_ONCE(room->waiting) && atomic64_read(&limit->pool) >= 0))
		return true;
	return __fl_limit_ask(limit, room, turn);
}

static inline bool fl_limit_has_room(struct fl_limit *limit, struct fl_room *room)
{
	return fl_limit_ask(limit, room, 0);
}

/* Is a request of @cost more than a part may be off by? An empty part then is passed over. */
static inline bool __fl_room_passes_over(const struct fl_limit *limit, const struct fl_room *room,
					 u64 cost)
{
	return cost > 1 && (s64)cost > READ_ONCE(limit->batch) && !atomic64_read(&room->part);
}

/* A request of @cost is sent to the drive. Under hwq->lock. */
static __always_inline void fl_limit_sent(struct fl_limit *limit, struct fl_room *room, u64 cost)
{
	WRITE_ONCE(room->last, cost);
	/* What is left of what it was handed is passed on if the hardware queue has no use for it. */
	if (unlikely(READ_ONCE(room->woken)) && atomic64_read(&room->part) <= (s64)cost)
		WRITE_ONCE(room->woken, false);
	if (__fl_room_passes_over(limit, room, cost))
		atomic64_add(-(s64)cost, &limit->pool);
	else if (atomic64_add_return(-(s64)cost, &room->part) < -READ_ONCE(limit->batch))
		__fl_room_give(limit, room);
}

/* The pool has more than it had. If somebody waits for that, it is handed over. */
static inline void __fl_limit_offer(struct fl_limit *limit)
{
	unsigned long flags;

	smp_mb__after_atomic(); /* again: see the top of this file */
	if (likely(!atomic_read(&limit->nr_waiting)) || atomic64_read(&limit->pool) <= 0)
		return;
	spin_lock_irqsave(&limit->lock, flags);
	__fl_limit_hand_over(limit, NULL);
	spin_unlock_irqrestore(&limit->lock, flags);
}

/*
 * What was given back goes to the pool. If @room was handed some, that is its own: its
 * dispatch() is about to come. If it came, and waits again, there may be nobody else to
 * give back what the pool lacks.
 */
static inline void __fl_limit_return(struct fl_limit *limit, struct fl_room *room)
{
	if (READ_ONCE(room->waiting))
		atomic64_add(atomic64_xchg(&room->part, 0), &limit->pool);
	else
		__fl_room_give(limit, room);
	__fl_limit_offer(limit);
}

/* It is no longer there. Any context, no lock. */
static __always_inline void fl_limit_done(struct fl_limit *limit, struct fl_room *room, u64 cost)
{
	s64 part;

	if (__fl_room_passes_over(limit, room, cost) && !READ_ONCE(room->woken)) {
		atomic64_add(cost, &limit->pool);
		__fl_limit_offer(limit);
		return;
	}
	part = atomic64_add_return(cost, &room->part);
	/* That was a full barrier: see the top of this file. */
	if (part > 0 && (atomic_read(&limit->nr_waiting) || part > READ_ONCE(limit->batch) ||
			 (atomic64_read(&limit->pool) < 0 && !READ_ONCE(limit->loose))))
		__fl_limit_return(limit, room);
}

/*
 * dispatch() ends without a request: what this hardware queue was handed goes to the
 * next one. Under hwq->lock.
 */
static inline void fl_limit_pass_on(struct fl_limit *limit, struct fl_room *room)
{
	if (likely(!READ_ONCE(room->woken)))
		return;
	WRITE_ONCE(room->woken, false);
	smp_mb(); /* a completion sees that, or we see what it gave back */
	fl_limit_done(limit, room, 0);
}

/* How much is in the drive: about, as others send and complete meanwhile. */
static inline s64 fl_limit_used(struct fl_limit *limit)
{
	s64 used = READ_ONCE(limit->level) - atomic64_read(&limit->pool);
	unsigned int i;

	for (i = 0; i < limit->dev->nr_hwqs; i++)
		used -= atomic64_read(&__fl_room(limit, i)->part);
	return used;
}

/* Let the limit be @level. One caller at a time. */
static inline void fl_limit_set(struct fl_limit *limit, s64 level)
{
	unsigned long flags;

	spin_lock_irqsave(&limit->lock, flags);
	atomic64_add(level - limit->level, &limit->pool);
	WRITE_ONCE(limit->level, level);
	__fl_limit_set_loose(limit, limit->loose);
	if (!limit->loose)
		__fl_limit_collect(limit);
	__fl_limit_hand_over(limit, NULL);
	spin_unlock_irqrestore(&limit->lock, flags);
}

/* Nobody has asked for room for a while. */
static inline void fl_limit_loosen(struct fl_limit *limit)
{
	unsigned long flags;

	spin_lock_irqsave(&limit->lock, flags);
	__fl_limit_set_loose(limit, !atomic_read(&limit->nr_waiting));
	spin_unlock_irqrestore(&limit->lock, flags);
}

/* @offset: of the fl_room in the scheduler's struct for a hardware queue. */
static inline void fl_limit_init(struct fl_limit *limit, struct fl_dev *dev, size_t offset, s64 level)
{
	unsigned int i;

	limit->dev = dev;
	limit->offset = offset;
	spin_lock_init(&limit->lock);
	INIT_LIST_HEAD(&limit->waiting);
	for (i = 0; i < dev->nr_hwqs; i++)
		INIT_LIST_HEAD(&__fl_room(limit, i)->turn.node);
	fl_limit_set(limit, level);
}

#endif
