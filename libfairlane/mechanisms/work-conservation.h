/* SPDX-License-Identifier: GPL-2.0-only OR MIT */
/*
 * Work conservation: does it pay that flows wait for each other?
 *
 * A scheduler that makes flows wait for one that is behind cannot see why that
 * one is behind. The others may keep it back, in the drive. Or it cannot do more
 * anyway: it sends one request at a time, its rate is limited, its hardware
 * queue is full. But the scheduler can measure. In a free run nobody waits, for
 * four windows of time. In the first two the drive works off what it had before,
 * and fills its write buffer: today's take tens of MiB, or some 10 ms. If in the
 * other two it does clearly more than before the free run, it had been running
 * dry, and waiting wastes it.
 *
 *	64 in flight, 2560 done in 8 ms. A heavy tenant with one request at
 *	a time falls behind, the others wait: 1 in flight, 80 done. A free run
 *	begins 8 ms later, and 32 ms after that it is known that waiting is waste.
 *
 * One window says little: a program operation takes milliseconds, garbage
 * collection tens of them, and the flow that is waited for may come in bursts.
 * So the rate before is an average of up to 16 windows. "Clearly more" is a
 * seventh more, and also more by twice the mean deviation of that average, and
 * of a drive that nobody waits for.
 *
 * There is a free run when some flow is held and the drive on average does
 * clearly less than usual: less than in the last free run, or than while nobody
 * is held. And there is one in 64 windows in any case. As long as free runs
 * show no gain there is one in 128, 256, ... 4096, and none sooner than after 4,
 * 8, ... 128.
 *
 * All of this is the slow path, under dev->lock. Only `on` is read without it: a
 * stale one misplaces one batch.
 */
#ifndef FAIRLANE_WORK_CONSERVATION_H
#define FAIRLANE_WORK_CONSERVATION_H

#include "../fairlane.h"

/* A window ends when the drive has done 64 requests, or should have done 128; in 8 to 24 ms. */
#define FL_WINDOW_NS (8ull * NSEC_PER_MSEC)
#define FL_MAX_WINDOW_NS (24ull * NSEC_PER_MSEC)
#define FL_WINDOW_REQUESTS 64

/* In windows: a free run; from one to the next. */
#define FL_FREE_RUN 4
#define FL_FREE_RUN_COUNTS 2 /* the last ones of it */
#define FL_FREE_RUN_EVERY 64
#define FL_FREE_RUN_SELDOM 4096
/* Not before so many less, even if the drive does less than is usual. */
#define FL_FREE_RUN_SOONER 32
/* Windows that count in the average. */
#define FL_AVERAGE 16

/* What a drive did so far, or does in a second. */
struct fl_work {
	u64 requests, cost;
};

struct fl_free_run {
	unsigned int on; /* for so many more windows nobody waits; 0: no free run */
	u64 window_ns; /* when the window began */
	struct fl_work window; /* done until then */
	unsigned int looks, held; /* in it; those that found a flow held */
	struct fl_work last; /* in the last window */
	struct fl_work usual,
		usual_off; /* where nobody waits; mean deviation of a window from it */
	unsigned int windows,
		every; /* with a flow held since the last free run; how many start one */
	struct fl_work average, off; /* of the last of these; mean deviation of one from it */
	unsigned int averaged;
	struct fl_work measured; /* in the windows of the free run that count */
	/* Of the last free run with a gain. */
	struct fl_work before; /* the average before it */
	struct fl_work gained; /* done until it ended, */
	u64 gain_ns; /* which was then */
};

enum fl_free_run_result {
	FL_FREE_RUN_NOTHING,
	FL_FREE_RUN_BEGINS,
	FL_FREE_RUN_NO_GAIN,
	FL_FREE_RUN_GAIN
};

static inline void fl_free_run_init(struct fl_free_run *run, u64 now_ns)
{
	run->window_ns = now_ns;
	run->every = FL_FREE_RUN_EVERY;
	run->windows = FL_FREE_RUN_EVERY - 1; /* the first comes soon */
}

/* What was done in a second since @since_ns, when it was @since. */
static inline struct fl_work __fl_work_rate(const struct fl_work *done, u64 now_ns,
					    const struct fl_work *since, u64 since_ns)
{
	u64 ns = max_t(u64, now_ns - since_ns, 1);
	struct fl_work rate;

	rate.requests = mul_u64_u64_div_u64(done->requests - since->requests, NSEC_PER_SEC, ns);
	rate.cost = mul_u64_u64_div_u64(done->cost - since->cost, NSEC_PER_SEC, ns);
	return rate;
}

/* In requests and in cost: the price list may be wrong. */
static inline bool __fl_work_is_more(const struct fl_work *work, const struct fl_work *other)
{
	return 7 * work->requests > 8 * other->requests && 7 * work->cost > 8 * other->cost;
}

static inline bool __fl_free_run_dry(const struct fl_free_run *run, const struct fl_work *could)
{
	/* The average of n deviates less than one window, by the square root of n. */
	unsigned int shift = run->averaged >= 16 ? 2 : run->averaged >= 4 ? 1 : 0;

	return __fl_work_is_more(could, &run->average) &&
	       could->requests > run->average.requests + (2 * run->off.requests >> shift) +
					 2 * run->usual_off.requests &&
	       could->cost >
		       run->average.cost + (2 * run->off.cost >> shift) + 2 * run->usual_off.cost;
}

/* Who waits for whom has changed: what the drive did before does not count. */
static inline void fl_free_run_forget(struct fl_free_run *run)
{
	run->windows = 0;
	run->averaged = 0;
}

/* Let @work count 1/@n in @average. */
static inline void __fl_work_average(struct fl_work *average, const struct fl_work *work, s64 n)
{
	average->requests += div64_s64((s64)(work->requests - average->requests), n);
	average->cost += div64_s64((s64)(work->cost - average->cost), n);
}

static inline u64 __fl_apart(u64 a, u64 b)
{
	return a > b ? a - b : b - a;
}

/* Let the distance of @work from @average count 1/@n in @off. */
static inline void __fl_work_off(struct fl_work *off, const struct fl_work *work,
				 const struct fl_work *average, s64 n)
{
	struct fl_work apart = { .requests = __fl_apart(work->requests, average->requests),
				 .cost = __fl_apart(work->cost, average->cost) };

	__fl_work_average(off, &apart, n);
}

static inline void __fl_free_run_average(struct fl_free_run *run, const struct fl_work *work)
{
	run->averaged = min_t(unsigned int, run->averaged + 1, FL_AVERAGE);
	__fl_work_average(&run->average, work, run->averaged);
	__fl_work_off(&run->off, work, &run->average, run->averaged);
}

static inline enum fl_free_run_result __fl_free_run_goes_on(struct fl_free_run *run,
							    const struct fl_work *work)
{
	if (run->on == 1) /* from the window before, the first that counts */
		__fl_work_off(&run->usual_off, work, &run->measured, 4);
	if (run->on <= FL_FREE_RUN_COUNTS)
		__fl_work_average(&run->measured, work, FL_FREE_RUN_COUNTS + 1 - run->on);
	WRITE_ONCE(run->on, run->on - 1);
	if (run->on)
		return FL_FREE_RUN_NOTHING;
	run->usual = run->measured;
	run->windows = 0;
	if (!__fl_free_run_dry(run, &run->measured)) {
		run->every = min_t(unsigned int, run->every * 2, FL_FREE_RUN_SELDOM);
		return FL_FREE_RUN_NO_GAIN;
	}
	run->every = max_t(unsigned int, run->every / 2, FL_FREE_RUN_EVERY);
	run->before = run->average;
	run->gained = run->window;
	run->gain_ns = run->window_ns;
	fl_free_run_forget(run);
	return FL_FREE_RUN_GAIN;
}

/* A window is over; the drive did @work a second. @held: a flow was held for at least 1/8 of it. */
static inline enum fl_free_run_result __fl_free_run_window(struct fl_free_run *run,
							   const struct fl_work *work, bool held)
{
	if (run->on)
		return __fl_free_run_goes_on(run, work);
	if (!held) {
		__fl_work_average(&run->usual, work, 4);
		__fl_work_off(&run->usual_off, work, &run->usual, 4);
		return FL_FREE_RUN_NOTHING;
	}
	run->windows++;
	__fl_free_run_average(run, work);
	if (run->windows < run->every && (run->windows < run->every / FL_FREE_RUN_SOONER ||
					  !__fl_free_run_dry(run, &run->usual)))
		return FL_FREE_RUN_NOTHING;
	WRITE_ONCE(run->on, FL_FREE_RUN);
	return FL_FREE_RUN_BEGINS;
}

static inline void __fl_free_run_begin_window(struct fl_free_run *run, u64 now_ns,
					      const struct fl_work *done)
{
	run->window_ns = now_ns;
	run->window = *done;
	run->looks = 0;
	run->held = 0;
}

/*
 * Look at the drive, which has done @done so far; @held: a flow is held now.
 * Called at least each ms while there are requests. It is up to the caller what
 * to do when a free run ends with a gain.
 */
static inline enum fl_free_run_result fl_free_run_look(struct fl_free_run *run, u64 now_ns,
						       const struct fl_work *done, bool held)
{
	u64 ns = now_ns - run->window_ns, requests = done->requests - run->window.requests;
	u64 usual = mul_u64_u64_div_u64(run->usual.requests, ns, NSEC_PER_SEC);

	run->looks++;
	run->held += held;
	if (ns < FL_WINDOW_NS ||
	    (max_t(u64, requests, usual / 2) < FL_WINDOW_REQUESTS && ns < FL_MAX_WINDOW_NS))
		return FL_FREE_RUN_NOTHING;
	run->last = __fl_work_rate(done, now_ns, &run->window, run->window_ns);
	held = 8 * run->held > run->looks;
	__fl_free_run_begin_window(run, now_ns, done);
	return __fl_free_run_window(run, &run->last, held);
}

/*
 * Does the gain of the last free run last: has the drive, which has done @done so
 * far, done clearly more ever since than before? If not, the gain was something
 * else, such as filling a large write buffer. Stores in @rate what the drive did
 * in a second since then.
 */
static inline bool fl_free_run_gain_lasts(const struct fl_free_run *run, u64 now_ns,
					  const struct fl_work *done, struct fl_work *rate)
{
	*rate = __fl_work_rate(done, now_ns, &run->gained, run->gain_ns);
	return __fl_work_is_more(rate, &run->before);
}

/*
 * A probe is over: since @since_ns, when @since was done, flows have waited again.
 * Was that waste, given that the drive can do @could a second? If so, that counts
 * as the gain of a free run. fl_free_run_look() is not called during a probe.
 */
static inline bool fl_free_run_probe_fails(struct fl_free_run *run, u64 now_ns,
					   const struct fl_work *done, u64 since_ns,
					   const struct fl_work *since, const struct fl_work *could)
{
	struct fl_work rate = __fl_work_rate(done, now_ns, since, since_ns);

	__fl_free_run_begin_window(run, now_ns, done);
	if (!__fl_work_is_more(could, &rate) ||
	    could->requests <= rate.requests + 2 * run->usual_off.requests ||
	    could->cost <= rate.cost + 2 * run->usual_off.cost)
		return false;
	run->before = rate;
	run->gained = *done;
	run->gain_ns = now_ns;
	return true;
}

#endif
