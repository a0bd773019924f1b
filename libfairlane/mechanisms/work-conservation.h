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
 * The floor is a limit on the cost of what is in the drive (room.h), but not one that
 * anybody has to keep. Only a flow that is held asks for room. If there is none, its
 * hardware queue waits until there is.
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

#include "room.h"

#define FL_FLOOR_FIRST (32 * (s64)FL_COST_ONE)
#define FL_FLOOR_MIN (8 * (s64)FL_COST_ONE)
#define FL_FLOOR_MAX (1ll << 32)

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

struct fl_floor {
	struct fl_limit limit; /* the room up to the floor */
	/* Of flows that were let go; a lost update only makes it less sure that there were some. */
	u64 released;

	/* The rest is the caller's of fl_floor_look(), one at a time. */
	s64 middle;
	s64 elasticity; /* moving average */
	bool up, settled;
	u64 since_ns, done, requests, seen_released; /* when the window began, and until then */
	u64 rate[2]; /* cost per second in the last window below the middle, and above */
};

/* A flow that is held is let go, since there is room. Under hwq->lock. */
static inline void fl_floor_release(struct fl_floor *floor)
{
	WRITE_ONCE(floor->released, READ_ONCE(floor->released) + 1);
}

/* ---- How high the floor is ------------------------------------------------ */

/* @offset: of the fl_room in the scheduler's struct for a hardware queue. */
static inline void fl_floor_init(struct fl_floor *floor, struct fl_dev *dev, size_t offset,
				 u64 now_ns)
{
	floor->middle = FL_FLOOR_FIRST;
	floor->since_ns = now_ns;
	fl_limit_init(&floor->limit, dev, offset, floor->middle);
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
	fl_limit_set(&floor->limit, floor->middle + (floor->up ? 1 : -1) * floor->middle / FL_FLOOR_SPREAD);
}

#endif
