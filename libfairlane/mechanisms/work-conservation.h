/* SPDX-License-Identifier: GPL-2.0-only OR MIT */
/*
 * Work conservation: nobody is held back while the drive has too little to do.
 *
 * A scheduler holds back flows that are ahead, for the sake of one that is behind.
 * It cannot see why that one is behind. The others may be in its way, in the drive.
 * Or it cannot do more: it sends one request at a time, its rate is limited, its
 * hardware queue is full. Then the others wait in vain, and the drive runs dry.
 *
 * The scheduler does not need to know which. A drive reaches full throughput with a
 * certain amount in it at once: the floor. As long as there is more in it than that, holding back costs
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
 * middle, then for a moment an eighth below. How much does the throughput change,
 * compared with the floor? If both change alike, the drive has too little to do. If the
 * throughput does not change, more in the drive is useless. The middle moves to where the
 * throughput changes a 40th as much as the floor. (This is the elasticity of throughput
 * with respect to the floor; TCP BBR finds the capacity of a path in the same way.)
 *
 *	middle 64: 58 MiB/s at 56, 63 MiB/s at 72    a third: raise it by an eighth
 *	middle 130: 79.8 at 114, 80.0 at 146         a hundredth: lower it, a little
 *
 * Throughput also varies by itself: the drive collects, a CPU is elsewhere, a window has few
 * requests. That is noise, and each measured elasticity differs from the last one. The more
 * they differ, the smaller the steps are, and the more has to be gained. For a floor that is
 * too low costs some throughput, but one that is too high loses shares.
 *
 * Shares hold all the time: only the floor varies, and who is held does not. The floor
 * begins at 32 reference requests, or at 64 of the first ones if these cost less, and takes
 * about a quarter of a second to reach 128; with much noise, or on a drive that takes tenths of a
 * second for a request, seconds.
 *
 * 3. When nobody is let go by it
 *
 * If those that are not held keep more than the floor in the drive, nobody is let go, and
 * nothing is learned, though the drive may need yet more. Then, for three windows, there
 * may be a quarter more than there is. The floor rises to that only if more was done, of
 * both reads and writes, by more than it varies anyway. A trial ends at the first window in
 * which no more was done: in a full drive those that are not held lose a fifth in it. A gain
 * may be chance, so two trials in a row have to say the same. Of a gain those that are not held
 * may lose a tenth: what is of use is decided by what all do, here as above. After
 * each trial that did not help, the next one comes later, up to 16 s.
 *
 * Where each flow has a virtual time, one that was let go in a trial pays for that later, and gets
 * no further ahead than its share of what the drive does in a 16th of a second. So over a second it has
 * no more than 1.1 times its due, nor do others when it pays. Where flows have tokens, a small share
 * may have a fifth of the drive, for a window.
 *
 * A floor that rose by much, and at which nobody waits, is above all that there is to do. It
 * falls by an eighth at a time until somebody waits.
 *
 * What it costs: a flow that could just fill the drive to the floor by itself, but
 * has a little less in it, is behind for good. It gets what it asks for, as without a
 * scheduler, and nobody waits for it. Two of 48 requests each, of weights 900 and
 * 100, on a drive that takes 64: they get 60:40 by Kyber-fairness and 64:36 by
 * mqFlashFQ, where 90:10 would leave a sixth of the drive unused.
 */
#ifndef FAIRLANE_WORK_CONSERVATION_H
#define FAIRLANE_WORK_CONSERVATION_H

#include "room.h"

#define FL_FLOOR_FIRST (32 * (s64)FL_COST_ONE)
#define FL_FLOOR_FIRST_REQUESTS 64 /* of the first ones: more than that it is not */
#define FL_FLOOR_MIN ((s64)FL_COST_ONE)
#define FL_FLOOR_NOTHING 1 /* there is room only while nothing is in the drive */
#define FL_FLOOR_MAX (1ll << 32)

/* The floor is 1 / this above or below its middle, or half a request, but by no more than half. */
#define FL_FLOOR_SPREAD 8

/* For so long, after it has changed and the drive has followed; longer, if little is done: see __fl_floor_lags(). */
#define FL_FLOOR_SETTLE_NS (4ull * NSEC_PER_MSEC)
#define FL_FLOOR_WINDOW_NS (20ull * NSEC_PER_MSEC)
#define FL_FLOOR_LONGEST_NS (100ull * NSEC_PER_MSEC)
#define FL_FLOOR_REQUESTS 256

/* What is less than 1 / this of all says nothing. */
#define FL_FLOOR_COUNTS 16

/* Fixed point, 10 bit: where the elasticity is this, the middle stays, if there is no noise. */
#define FL_FLOOR_ELASTICITY 25

/* A trial of a higher floor: so many windows, and how soon another one comes. */
#define FL_FLOOR_TRIAL 3
#define FL_FLOOR_TRIAL_NS (250ull * NSEC_PER_MSEC)
#define FL_FLOOR_TRIAL_MAX_NS (16ull * NSEC_PER_SEC)
/* In a trial nobody is let go who is further ahead than what the drive does in 1 / this of a second. */
#define FL_FLOOR_AHEAD 16

/* What is counted of what the drive has done. */
enum { FL_FLOOR_READS, FL_FLOOR_OTHERS, FL_FLOOR_DONE, FL_FLOOR_KINDS }; /* cost, cost, requests */

struct fl_floor {
	struct fl_limit limit; /* the room up to the floor */
	atomic64_t released; /* requests that were let go */
	/* Windows that are left of a trial. A stale read judges one request by the old floor. */
	unsigned int trials;

	/* The rest is the caller's of fl_floor_look(), one at a time. */
	s64 middle, spread;
	s64 elasticity, noise; /* the last one; how much it changes each time, moving average */
	bool up, settled;
	u64 since_ns, sent, sent_cost, seen_released; /* when the window began, and until then */
	s64 begun_with; /* this was in the drive then: the cost of requests */
	unsigned int seen_waits; /* limit.waits when the last step was made */
	u64 done[2]; /* the cost of reads, and of all others */
	u64 rate[2][FL_FLOOR_KINDS]; /* a second, in the last window below the middle, and above */
	u64 usual[FL_FLOOR_KINDS]; /* per second, moving averages */
	u64 last[2]; /* requests per second in the last window below the middle, and above */
	u64 varies; /* by so much they differ from one such window to the next, moving average */
	unsigned int looks, waited; /* at so many of these looks somebody waited for room, */
	s64 in_drive; /* and this was in the drive then */
	s64 before; /* the middle before it */
	u64 tried[FL_FLOOR_KINDS]; /* what was usual then */
	u64 ahead; /* nobody is let go who is further; a stale read judges one request by an old one */
	bool was_of_use; /* the last one; the next one decides */
	bool unproven; /* it rose by much, and nobody has waited since */
	u64 next_trial_ns, trial_ns; /* when another one begins, and how long after this one */
};

/* A request of a flow that is held is let go, since there is room. Under hwq->lock. */
static inline void fl_floor_release(struct fl_floor *floor)
{
	atomic64_inc(&floor->released);
}

/* @offset: of the fl_room in the scheduler's struct for a hardware queue. */
static inline void fl_floor_init(struct fl_floor *floor, struct fl_dev *dev, size_t offset,
				 u64 now_ns)
{
	floor->middle = FL_FLOOR_FIRST;
	floor->spread = floor->middle / FL_FLOOR_SPREAD;
	floor->elasticity = 1024; /* so far, more is of use */
	floor->since_ns = now_ns;
	floor->trial_ns = FL_FLOOR_TRIAL_NS;
	fl_limit_init(&floor->limit, dev, offset, floor->middle);
}

/* In place of a look: somebody is let go only while the drive has nothing. */
static inline void fl_floor_set_least(struct fl_floor *floor)
{
	WRITE_ONCE(floor->trials, 0);
	if (floor->limit.level != FL_FLOOR_NOTHING)
		fl_limit_set(&floor->limit, FL_FLOOR_NOTHING);
}

/* Is it enough to say something? @of: the cost of all. */
static inline bool __fl_floor_counts(int kind, u64 much, u64 of)
{
	return kind == FL_FLOOR_DONE || FL_FLOOR_COUNTS * much > of;
}

/*
 * The elasticity: the difference of the rates by their mean, by that of the levels by
 * theirs. Of reads, of all others, or of requests, whichever gained less: where one gains and
 * another loses, prices would decide, and they may be wrong. A drive that does so many requests,
 * whatever their sizes, does more by cost when large ones take the place of small ones.
 */
static inline s64 __fl_floor_elasticity(const struct fl_floor *floor)
{
	s64 sum[FL_FLOOR_KINDS], least = 1024;
	int i;

	for (i = 0; i < FL_FLOOR_KINDS; i++)
		sum[i] = floor->rate[0][i] + floor->rate[1][i];
	for (i = 0; i < FL_FLOOR_KINDS; i++) {
		s64 more = floor->rate[1][i] - floor->rate[0][i];

		if (sum[i] && __fl_floor_counts(i, sum[i], sum[FL_FLOOR_READS] + sum[FL_FLOOR_OTHERS]))
			least = min_t(s64, least, div64_s64(div64_s64(more * 1024, sum[i]) * floor->middle,
							    floor->spread));
	}
	return max_t(s64, least, -1024);
}

/*
 * Move the middle, by what the elasticity is too much or too little; with a noise of 1/16 by
 * half of that, with 3/16 by a quarter. @waited: somebody found no room since the last step.
 * It is no less than four requests, which cost @request on average.
 */
static inline void __fl_floor_step(struct fl_floor *floor, s64 request, bool waited)
{
	s64 elasticity = __fl_floor_elasticity(floor);
	s64 change = elasticity - floor->elasticity, step;

	floor->noise += (max_t(s64, change, -change) - floor->noise) / 8;
	floor->elasticity = elasticity;
	step = elasticity - FL_FLOOR_ELASTICITY - floor->noise * floor->noise / 12288;
	step = div64_s64(step * 64, 64 + floor->noise);
	floor->unproven = !waited && (floor->unproven || step > 256);
	if (floor->unproven)
		step = -128;
	floor->middle += floor->middle * step / 1024;
	floor->middle = clamp_t(s64, floor->middle, max_t(s64, FL_FLOOR_MIN, 4 * request),
				FL_FLOOR_MAX);
}

/*
 * Others wait, while those that are not held keep more than the floor in the drive. Would
 * yet more be of use? Let there be a quarter more for a while.
 */
static inline void __fl_floor_try(struct fl_floor *floor, u64 now_ns)
{
	floor->in_drive = div64_s64(floor->in_drive, floor->waited);
	if (now_ns < floor->next_trial_ns || floor->in_drive <= floor->middle)
		return;
	floor->before = floor->middle;
	floor->middle = floor->in_drive + floor->in_drive / FL_FLOOR_SPREAD;
	memcpy(floor->tried, floor->usual, sizeof(floor->tried));
	WRITE_ONCE(floor->ahead, div64_u64(floor->usual[FL_FLOOR_READS] +
					   floor->usual[FL_FLOOR_OTHERS], FL_FLOOR_AHEAD));
	WRITE_ONCE(floor->trials, FL_FLOOR_TRIAL);
}

/*
 * Was more done of reads, of all others, and of requests, than is usual: by a tenth, and by more than what
 * they vary by anyway? As in __fl_floor_elasticity().
 */
static inline bool __fl_floor_did_more(const struct fl_floor *floor)
{
	u64 all = floor->tried[FL_FLOOR_READS] + floor->tried[FL_FLOOR_OTHERS];
	u64 more = 1024 + 102 + div64_u64(2 * 1024 * floor->varies,
					  max_t(u64, floor->usual[FL_FLOOR_DONE], 1));
	int i;

	for (i = 0; i < FL_FLOOR_KINDS; i++)
		if (__fl_floor_counts(i, floor->tried[i], all) &&
		    1024 * floor->rate[1][i] < more * floor->tried[i])
			return false;
	return true;
}

/*
 * A window of a trial is over. The first ones may only fill buffers. In the last one, more was of use
 * if more was done; if no more is done before that, the trial ends.
 */
static inline void __fl_floor_tried(struct fl_floor *floor, u64 now_ns)
{
	bool use = __fl_floor_did_more(floor);

	WRITE_ONCE(floor->trials, use ? floor->trials - 1 : 0);
	if (floor->trials)
		return;
	if (use && floor->was_of_use)
		floor->unproven = true;
	else
		floor->middle = floor->before;
	floor->was_of_use = use && !floor->was_of_use;
	floor->trial_ns = use ? FL_FLOOR_TRIAL_NS :
				min_t(u64, 4 * floor->trial_ns, FL_FLOOR_TRIAL_MAX_NS);
	floor->next_trial_ns = now_ns + floor->trial_ns;
}

/* What is usual, a moving average, after @now. */
static inline u64 __fl_floor_usual(u64 usual, u64 now)
{
	return usual ? (3 * usual + now) / 4 : now;
}

static inline void __fl_floor_begin_window(struct fl_floor *floor, u64 now_ns, const u64 done[2],
					   u64 sent, u64 sent_cost)
{
	floor->since_ns = now_ns;
	memcpy(floor->done, done, sizeof(floor->done));
	floor->sent = sent;
	floor->sent_cost = sent_cost;
	floor->begun_with = fl_limit_used(&floor->limit);
	floor->seen_released = atomic64_read(&floor->released);
	floor->in_drive = 0;
	floor->looks = 0;
	floor->waited = 0;
}

/* A window is over, in which @did requests were done, and @cost of reads and of all others. */
static inline void __fl_floor_end_window(struct fl_floor *floor, u64 now_ns, u64 did,
					 const u64 cost[2])
{
	u64 released = atomic64_read(&floor->released) - floor->seen_released;
	u64 ns = now_ns - floor->since_ns, *rate = floor->rate[floor->up];
	s64 request = div64_u64(cost[0] + cost[1], max_t(u64, did, 1));
	/* If few were let go by it, it was not the floor that decided what was in the drive. */
	bool decided = FL_FLOOR_COUNTS * released > did;
	bool waited = atomic_read(&floor->limit.nr_waiting) ||
		      READ_ONCE(floor->limit.waits) != floor->seen_waits;
	int i;

	for (i = 0; i < 2; i++)
		rate[i] = mul_u64_u64_div_u64(cost[i], NSEC_PER_SEC, ns);
	rate[FL_FLOOR_DONE] = div64_u64(did * NSEC_PER_SEC, ns);
	if (!floor->usual[FL_FLOOR_DONE] && did)
		floor->middle = clamp_t(s64, FL_FLOOR_FIRST_REQUESTS * request, FL_FLOOR_MIN,
					FL_FLOOR_FIRST);
	if (floor->trials) {
		__fl_floor_tried(floor, now_ns);
	} else {
		for (i = 0; i < FL_FLOOR_KINDS; i++)
			floor->usual[i] = __fl_floor_usual(floor->usual[i], rate[i]);
		if (floor->last[floor->up])
			floor->varies = (3 * floor->varies +
					 max_t(u64, rate[FL_FLOOR_DONE], floor->last[floor->up]) -
					 min_t(u64, rate[FL_FLOOR_DONE], floor->last[floor->up])) / 4;
		floor->last[floor->up] = rate[FL_FLOOR_DONE];
		if (floor->up && decided)
			__fl_floor_step(floor, request, waited);
		else if (floor->up && 2 * floor->waited > floor->looks)
			__fl_floor_try(floor, now_ns);
	}
	if (!released && !floor->waited)
		fl_limit_loosen(&floor->limit);
	if (floor->up)
		floor->seen_waits = READ_ONCE(floor->limit.waits);
	floor->up = floor->trials || !floor->up;
	floor->settled = false;
	floor->spread = max_t(s64, floor->middle / FL_FLOOR_SPREAD, request / 2);
	floor->spread = min_t(s64, floor->spread, floor->middle / 2); /* there is room for one in an idle drive */
	fl_limit_set(&floor->limit, floor->middle + (floor->up ? floor->spread : -floor->spread));
}

/* How many requests of @cost were done: they cost as much each as those that were sent meanwhile. */
static inline u64 __fl_floor_requests(u64 cost, u64 sent, u64 sent_cost)
{
	return sent_cost ? mul_u64_u64_div_u64(cost, sent, sent_cost) : 0;
}

/*
 * Has the drive yet to do of what was in it when the window began, and takes longer than the longest window for
 * that? What it does until then tells of the floor before.
 */
static inline bool __fl_floor_lags(const struct fl_floor *floor, u64 cost)
{
	u64 usual = floor->usual[FL_FLOOR_READS] + floor->usual[FL_FLOOR_OTHERS];

	return (s64)cost < floor->begun_with &&
	       floor->begun_with > (s64)mul_u64_u64_div_u64(usual, FL_FLOOR_LONGEST_NS, NSEC_PER_SEC);
}

/*
 * Look at the drive, to which @sent requests of @sent_cost were sent so far, and which has done
 * those of the cost @done: reads, and all others. Every few ms, or more often, while there are
 * requests; one caller at a time.
 */
static inline void fl_floor_look(struct fl_floor *floor, u64 now_ns, const u64 done[2], u64 sent,
				 u64 sent_cost)
{
	u64 cost[2] = { done[0] - floor->done[0], done[1] - floor->done[1] };
	u64 did = __fl_floor_requests(cost[0] + cost[1], sent - floor->sent,
				      sent_cost - floor->sent_cost);
	u64 ns = now_ns - floor->since_ns;

	floor->looks++;
	if (atomic_read(&floor->limit.nr_waiting)) {
		floor->waited++;
		floor->in_drive += fl_limit_used(&floor->limit);
	}
	if (__fl_floor_lags(floor, cost[0] + cost[1]))
		return;
	if (!floor->settled) {
		if (ns < FL_FLOOR_SETTLE_NS)
			return;
		floor->settled = true;
	} else {
		if (ns < FL_FLOOR_WINDOW_NS || (did < FL_FLOOR_REQUESTS && ns < FL_FLOOR_LONGEST_NS))
			return;
		__fl_floor_end_window(floor, now_ns, did, cost);
	}
	__fl_floor_begin_window(floor, now_ns, done, sent, sent_cost);
}

#endif
