/* SPDX-License-Identifier: GPL-2.0-only OR MIT */
/*
 * Work conservation: nobody is held back while the drive has too little to do.
 *
 * A scheduler holds back flows that are ahead, for the sake of one that is behind.
 * It cannot see why that one is behind. The others may be in its way, in the drive.
 * Or it cannot do more: it sends one request at a time, its rate is limited, its
 * hardware queue is full. Then the others wait in vain, and the drive runs dry.
 *
 * It does not have to be seen. A drive needs only so much at once to do all that it
 * can: the floor. As long as there is more in it than that, holding back costs
 * nothing. As soon as there is less, those that are held are let go, in their
 * order, until the floor is reached again:
 *
 *	a floor of 40, B is ahead of A and held
 *	A has 64 in the drive        the drive is full: B waits, and A gets its share
 *	A has one at a time          B fills the drive up to 40: all that it can do
 *
 * 1. Room
 *
 * The room up to the floor is the floor less the cost of what is in the drive. No
 * counter of it is shared. Each hardware queue has a part of the room: sending a
 * request takes from it, a completed one gives back, and both happen on the same CPU
 * as a rule. The part may be less than none. Once it is more than a batch, or less
 * than minus a batch, it goes to a pool. So the pool is right to within a quarter of
 * the floor.
 *
 * A hardware queue whose flows are held asks for room. If it has none, nor the
 * pool, it waits, and completions hand it some, in turn with others that wait:
 * what is handed to it nobody else can take.
 *
 * 2. How high the floor is
 *
 * That differs from drive to drive, and with what it is asked to do. So it is
 * measured, while flows are let go by it: for a moment it is an eighth above its
 * middle, then for a moment an eighth below. What the drive does changes by some part
 * of that. Where it is all of it, the drive has too little to do; where it is none,
 * more in it is of no use. The middle moves to where it is a twelfth. (This is the
 * elasticity of throughput with respect to the floor; TCP BBR finds the capacity
 * of a path in the same way.)
 *
 *	middle 64: 58 MiB/s at 56, 63 MiB/s at 72    a third: raise it by an eighth
 *	middle 130: 79.6 at 114, 80.0 at 146         a fiftieth: lower it, a little
 *
 * Shares hold all the time: only the floor varies, and who is held does not. While
 * nobody is let go by it the floor stays as it is, since nothing is to be learned. It
 * begins at 32 reference requests, and takes about a third of a second to reach 128.
 *
 * What it costs: a flow that could just fill the drive to the floor by itself, but
 * has a little less in it, is behind for good. It gets what it asks for, as without a
 * scheduler, and nobody waits for it. Two of 48 requests each, of weights 900 and
 * 100, on a drive that needs 64: they get 67:33, where 90:10 would leave a quarter
 * of the drive unused.
 */
#ifndef FAIRLANE_WORK_CONSERVATION_H
#define FAIRLANE_WORK_CONSERVATION_H

#include "../fairlane.h"

#define FL_FLOOR_FIRST (32 * (s64)FL_COST_ONE)
#define FL_FLOOR_MIN (8 * (s64)FL_COST_ONE)
#define FL_FLOOR_MAX (1ll << 32)

/* The parts of the room that hardware queues have are at most 1 / this of the floor, in all. */
#define FL_FLOOR_PARTS 8

/* The floor is 1 / this above or below its middle. */
#define FL_FLOOR_SPREAD 8

/* For so long, after it has changed and the drive has followed; longer, if little is done. */
#define FL_FLOOR_SETTLE_NS (4ull * NSEC_PER_MSEC)
#define FL_FLOOR_WINDOW_NS (20ull * NSEC_PER_MSEC)
#define FL_FLOOR_LONGEST_NS (200ull * NSEC_PER_MSEC)
#define FL_FLOOR_REQUESTS 256

/* Fixed point, 10 bit: where the elasticity is this, the middle stays; the most that it moves. */
#define FL_FLOOR_ELASTICITY 80
#define FL_FLOOR_UP 256
#define FL_FLOOR_DOWN 64

/* The room that one hardware queue has: in the scheduler's struct for it. */
struct fl_room {
	atomic64_t part; /* added to by completions, and taken from under hwq->lock */
	int waiting; /* to be handed some; by xchg() */
	int woken; /* it was; set by whoever did that, cleared by its next dispatch */
};

struct fl_floor {
	/* Do not change. */
	struct fl_dev *dev;
	size_t offset; /* of the fl_room in each hardware queue */
	/* Written by fl_floor_set(); a stale read moves a batch of the old size. */
	s64 level, batch;
	/* Of flows that were let go; a lost update only makes it less sure that there were some. */
	u64 released;

	/* The room that no hardware queue has. */
	atomic64_t pool ____cacheline_aligned_in_smp;
	atomic_t nr_waiting;
	unsigned int last; /* hardware queue that was handed some; a stale read hands it some again */

	/* The rest is the caller's of fl_floor_look(), one at a time. */
	s64 middle;
	s64 elasticity; /* moving average */
	bool up, settled;
	u64 since_ns, done, requests, seen_released; /* when the window began, and until then */
	u64 rate[2]; /* cost per second in the last window below the middle, and above */
};

static inline struct fl_room *__fl_room(struct fl_floor *floor, unsigned int i)
{
	return (struct fl_room *)((char *)floor->dev->hwqs[i] + floor->offset);
}

/* ---- Room --------------------------------------------------------------- */

/* What hardware queues have goes to the pool, but for those that were handed it just now. */
static inline void __fl_floor_reclaim(struct fl_floor *floor)
{
	unsigned int i;

	for (i = 0; i < floor->dev->nr_hwqs; i++) {
		struct fl_room *room = __fl_room(floor, i);

		if (atomic64_read(&room->part) && !READ_ONCE(room->woken))
			atomic64_add(atomic64_xchg(&room->part, 0), &floor->pool);
	}
}

/* Take a batch from the pool; if others wait, no more than makes it go on. */
static inline bool __fl_floor_pull(struct fl_floor *floor, struct fl_room *room)
{
	s64 left = atomic64_read(&floor->pool), n;

	do {
		if (left <= 0)
			return false;
		n = 1 - min_t(s64, atomic64_read(&room->part), 0);
		if (!atomic_read(&floor->nr_waiting))
			n = max_t(s64, n, READ_ONCE(floor->batch));
		n = min_t(s64, n, left);
	} while (!atomic64_try_cmpxchg(&floor->pool, &left, left - n));
	return atomic64_add_return(n, &room->part) > 0;
}

/* Returns whether it waited. */
static inline bool __fl_room_stop_waiting(struct fl_floor *floor, struct fl_room *room)
{
	if (!xchg(&room->waiting, 0))
		return false;
	atomic_add(-1, &floor->nr_waiting);
	return true;
}

static inline void __fl_floor_hand_over(struct fl_floor *floor)
{
	unsigned int i, nr = floor->dev->nr_hwqs, at = READ_ONCE(floor->last);

	for (i = 0; i < nr && atomic_read(&floor->nr_waiting); i++) {
		struct fl_room *room;

		at = at + 1 < nr ? at + 1 : 0;
		room = __fl_room(floor, at);
		if (!READ_ONCE(room->waiting))
			continue;
		if (!__fl_floor_pull(floor, room))
			return;
		WRITE_ONCE(floor->last, at);
		if (__fl_room_stop_waiting(floor, room)) {
			WRITE_ONCE(room->woken, 1);
			fl_hwq_run(floor->dev->hwqs[at]);
		}
	}
}

/*
 * Is there room, so that whoever is held on this hardware queue may go on? If not, the
 * hardware queue is run as soon as there is. Under hwq->lock.
 */
static inline bool fl_floor_has_room(struct fl_floor *floor, struct fl_room *room)
{
	bool found = atomic64_read(&room->part) > 0 || __fl_floor_pull(floor, room);

	if (!found && !xchg(&room->waiting, 1)) {
		atomic_add(1, &floor->nr_waiting);
		/* From here on completions see that it waits; for what came before, look again. */
		smp_mb();
		__fl_floor_reclaim(floor);
		found = __fl_floor_pull(floor, room);
	}
	/* Nobody is to wake it for what it has. */
	if (found && READ_ONCE(room->waiting))
		__fl_room_stop_waiting(floor, room);
	return found;
}

/* A flow that is held is let go, since there is room. Under hwq->lock. */
static inline void fl_floor_release(struct fl_floor *floor)
{
	WRITE_ONCE(floor->released, READ_ONCE(floor->released) + 1);
}

/* A request of @cost is sent to the drive. Under hwq->lock. */
static inline void fl_floor_sent(struct fl_floor *floor, struct fl_room *room, u64 cost)
{
	s64 part = atomic64_add_return(-(s64)cost, &room->part);

	while (part < -READ_ONCE(floor->batch) && !atomic64_try_cmpxchg(&room->part, &part, 0))
		;
	if (part < -READ_ONCE(floor->batch))
		atomic64_add(part, &floor->pool);
}

/* It is no longer there. Any context, no lock. */
static inline void fl_floor_done(struct fl_floor *floor, struct fl_room *room, u64 cost)
{
	s64 part = atomic64_add_return(cost, &room->part);

	/* That was a full barrier: either we see who waits, or they see this. */
	if (likely(part <= 0 || (part <= READ_ONCE(floor->batch) && !atomic_read(&floor->nr_waiting))))
		return;
	while (part > 0 && !atomic64_try_cmpxchg(&room->part, &part, 0))
		;
	if (part > 0)
		atomic64_add(part, &floor->pool);
	if (atomic_read(&floor->nr_waiting))
		__fl_floor_hand_over(floor);
}

/*
 * dispatch() ends without a request: what this hardware queue was handed goes to the
 * next one. Under hwq->lock.
 */
static inline void fl_floor_pass_on(struct fl_floor *floor, struct fl_room *room)
{
	if (unlikely(READ_ONCE(room->woken)) && xchg(&room->woken, 0))
		fl_floor_done(floor, room, 0);
}

/* ---- How high the floor is ------------------------------------------------ */

static inline void fl_floor_set(struct fl_floor *floor, s64 level)
{
	s64 more = level - floor->level;

	WRITE_ONCE(floor->level, level);
	WRITE_ONCE(floor->batch,
		   max_t(s64, 1, div64_s64(level, FL_FLOOR_PARTS * (s64)floor->dev->nr_hwqs)));
	atomic64_add(more, &floor->pool);
	__fl_floor_reclaim(floor);
	if (atomic_read(&floor->nr_waiting))
		__fl_floor_hand_over(floor);
}

/* @offset: of the fl_room in the scheduler's struct for a hardware queue. */
static inline void fl_floor_init(struct fl_floor *floor, struct fl_dev *dev, size_t offset,
				 u64 now_ns)
{
	floor->dev = dev;
	floor->offset = offset;
	floor->middle = FL_FLOOR_FIRST;
	floor->since_ns = now_ns;
	fl_floor_set(floor, floor->middle);
}

static inline void __fl_floor_step(struct fl_floor *floor)
{
	s64 sum = floor->rate[0] + floor->rate[1], difference = floor->rate[1] - floor->rate[0], step;

	if (!sum)
		return;
	/* The difference of the rates by their mean, by that of the levels by theirs. */
	step = clamp_t(s64, div64_s64(difference * FL_FLOOR_SPREAD * 1024, sum), -512, 1024);
	floor->elasticity += (step - floor->elasticity) / 2;
	step = (floor->elasticity - FL_FLOOR_ELASTICITY) / 2;
	step = clamp_t(s64, step, -FL_FLOOR_DOWN, FL_FLOOR_UP);
	floor->middle += floor->middle * step / 1024;
	floor->middle = clamp_t(s64, floor->middle, FL_FLOOR_MIN, FL_FLOOR_MAX);
}

static inline void __fl_floor_begin_window(struct fl_floor *floor, u64 now_ns, u64 done,
					   u64 requests)
{
	floor->since_ns = now_ns;
	floor->done = done;
	floor->requests = requests;
	floor->seen_released = READ_ONCE(floor->released);
}

/*
 * Look at the drive, which has done @requests of the cost @done so far. Every few ms while
 * there are requests, one caller at a time.
 */
static inline void fl_floor_look(struct fl_floor *floor, u64 now_ns, u64 done, u64 requests)
{
	u64 ns = now_ns - floor->since_ns, did = requests - floor->requests;
	u64 released = READ_ONCE(floor->released) - floor->seen_released;

	if (!floor->settled) {
		if (ns < FL_FLOOR_SETTLE_NS)
			return;
		floor->settled = true;
		__fl_floor_begin_window(floor, now_ns, done, requests);
		return;
	}
	if (ns < FL_FLOOR_WINDOW_NS || (did < FL_FLOOR_REQUESTS && ns < FL_FLOOR_LONGEST_NS))
		return;
	floor->rate[floor->up] = mul_u64_u64_div_u64(done - floor->done, NSEC_PER_SEC, ns);
	/* If few were let go by it, it was not the floor that decided what was in the drive. */
	if (floor->up && 16 * released > did)
		__fl_floor_step(floor);
	floor->up = !floor->up;
	floor->settled = false;
	__fl_floor_begin_window(floor, now_ns, done, requests);
	fl_floor_set(floor, floor->middle + (floor->up ? 1 : -1) * floor->middle / FL_FLOOR_SPREAD);
}

#endif
