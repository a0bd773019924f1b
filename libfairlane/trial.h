/* SPDX-License-Identifier: GPL-2.0-only OR MIT */
/*
 * Trials: is it of any use that flows wait for each other?
 *
 * A scheduler that has flows wait for one that is behind cannot see whether
 * that one is kept back by the others, in the drive, or could not do more
 * anyway: it has one request at a time, a limited rate, a hardware queue that
 * is full. But it can try. In a trial nobody waits for four windows of time.
 * In the first two, the drive does what it had before, and fills its write
 * buffer: those of today take tens of MiB, or some 10 ms. If in the other two
 * it does clearly more than before the trial, it had been running dry.
 *
 *	64 in flight, 2560 done in 8 ms. A heavy tenant with one request at
 *	a time falls behind, the others wait: 1 in flight, 80 done. 8 ms later a
 *	trial begins, and 32 ms after that it is known that waiting is waste.
 *
 * One window says little: programs take milliseconds, collections tens of them,
 * and whoever is waited for may come in bursts. So what it did before is an
 * average of up to 16 windows, and clearly more is a seventh more, and twice as
 * much more as such an average is off, and as a drive that nobody waits for is.
 *
 * There is a trial when somebody is held and the drive on average does clearly
 * less than is usual: than in the last trial, or than where nobody is held.
 * And there is one in 64 windows anyway. As long as trials show no gain, there
 * is one in 128, 256, ... 4096, and after 4, 8, ... 128 at the soonest.
 *
 * All of this is the slow path, under dev->lock, except that `on` is read
 * without: a stale one misjudges one batch.
 */
#ifndef FAIRLANE_TRIAL_H
#define FAIRLANE_TRIAL_H

#include "fairlane.h"

/* A window ends when the drive has done 64 requests, or should have done 128; in 8 to 24 ms. */
#define FL_WINDOW_NS (8ull * NSEC_PER_MSEC)
#define FL_MAX_WINDOW_NS (24ull * NSEC_PER_MSEC)
#define FL_WINDOW_REQUESTS 64

/* In windows: a trial; from one to the next. */
#define FL_TRIAL 4
#define FL_TRIAL_COUNTS 2 /* the last ones of it */
#define FL_TRY_EVERY 64
#define FL_TRY_SELDOM 4096
/* Not before so many less, even if the drive does less than is usual. */
#define FL_TRY_SOONER 32
/* Windows that count in the average. */
#define FL_AVERAGE 16

/* What a drive did so far, or does in a second. */
struct fl_work {
	u64 requests, cost;
};

struct fl_trial {
	unsigned int on; /* for so many more windows nobody waits; 0: no trial */
	u64 window_ns; /* when the window began */
	struct fl_work window; /* done until then */
	unsigned int looks, held; /* in it; those at which somebody was */
	struct fl_work last; /* in the last window */
	struct fl_work usual, usual_off; /* where nobody waits; how far windows are off that, on average */
	unsigned int windows, every; /* since the last trial with somebody held; so many are enough */
	struct fl_work average, off; /* of the last of these; how far they are off that, on average */
	unsigned int averaged;
	struct fl_work tried; /* in the windows of the trial that count */
	/* Of the last trial with a gain: the average before it; when it ended, and what was done then. */
	struct fl_work before, gained;
	u64 gain_ns;
};

enum fl_verdict { FL_TRIAL_GO_ON, FL_TRIAL_BEGINS, FL_TRIAL_NO_GAIN, FL_TRIAL_GAIN };

static inline void fl_trial_init(struct fl_trial *t, u64 now_ns)
{
	t->window_ns = now_ns;
	t->every = FL_TRY_EVERY;
	t->windows = FL_TRY_EVERY - 1; /* the first comes soon */
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

/* By both measures: the price list may be wrong. */
static inline bool __fl_work_is_more(const struct fl_work *work, const struct fl_work *other)
{
	return 7 * work->requests > 8 * other->requests && 7 * work->cost > 8 * other->cost;
}

static inline bool __fl_trial_dry(const struct fl_trial *t, const struct fl_work *could)
{
	/* The average of n is off by a part of what one is: the square root of n. */
	unsigned int shift = t->averaged >= 16 ? 2 : t->averaged >= 4 ? 1 : 0;

	return __fl_work_is_more(could, &t->average) &&
	       could->requests > t->average.requests + (2 * t->off.requests >> shift) +
					 2 * t->usual_off.requests &&
	       could->cost > t->average.cost + (2 * t->off.cost >> shift) + 2 * t->usual_off.cost;
}

/* Waiting is no longer what it was: what the drive did before does not count. */
static inline void fl_trial_forget(struct fl_trial *t)
{
	t->windows = 0;
	t->averaged = 0;
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

/* Let it count in @off, how far @work is off @average. */
static inline void __fl_work_off(struct fl_work *off, const struct fl_work *work,
				 const struct fl_work *average, s64 n)
{
	struct fl_work apart = { .requests = __fl_apart(work->requests, average->requests),
				 .cost = __fl_apart(work->cost, average->cost) };

	__fl_work_average(off, &apart, n);
}

static inline void __fl_trial_average(struct fl_trial *t, const struct fl_work *work)
{
	t->averaged = min_t(unsigned int, t->averaged + 1, FL_AVERAGE);
	__fl_work_average(&t->average, work, t->averaged);
	__fl_work_off(&t->off, work, &t->average, t->averaged);
}

static inline enum fl_verdict __fl_trial_goes_on(struct fl_trial *t, const struct fl_work *work)
{
	if (t->on == 1) /* from the window before, the first that counts */
		__fl_work_off(&t->usual_off, work, &t->tried, 4);
	if (t->on <= FL_TRIAL_COUNTS)
		__fl_work_average(&t->tried, work, FL_TRIAL_COUNTS + 1 - t->on);
	WRITE_ONCE(t->on, t->on - 1);
	if (t->on)
		return FL_TRIAL_GO_ON;
	t->usual = t->tried;
	t->windows = 0;
	if (!__fl_trial_dry(t, &t->tried)) {
		t->every = min_t(unsigned int, t->every * 2, FL_TRY_SELDOM);
		return FL_TRIAL_NO_GAIN;
	}
	t->every = max_t(unsigned int, t->every / 2, FL_TRY_EVERY);
	t->before = t->average;
	t->gained = t->window;
	t->gain_ns = t->window_ns;
	fl_trial_forget(t);
	return FL_TRIAL_GAIN;
}

/* A window is over, in which the drive did @work a second. @held: somebody was, for 1/8 of it. */
static inline enum fl_verdict __fl_trial_window(struct fl_trial *t, const struct fl_work *work,
						bool held)
{
	if (t->on)
		return __fl_trial_goes_on(t, work);
	if (!held) {
		__fl_work_average(&t->usual, work, 4);
		__fl_work_off(&t->usual_off, work, &t->usual, 4);
		return FL_TRIAL_GO_ON;
	}
	t->windows++;
	__fl_trial_average(t, work);
	if (t->windows < t->every &&
	    (t->windows < t->every / FL_TRY_SOONER || !__fl_trial_dry(t, &t->usual)))
		return FL_TRIAL_GO_ON;
	WRITE_ONCE(t->on, FL_TRIAL);
	return FL_TRIAL_BEGINS;
}

static inline void __fl_trial_begin_window(struct fl_trial *t, u64 now_ns,
					   const struct fl_work *done)
{
	t->window_ns = now_ns;
	t->window = *done;
	t->looks = 0;
	t->held = 0;
}

/*
 * Look at the drive, which has done @done so far, while somebody is @held; at
 * least each ms, while there are requests. What the caller does about it when
 * a trial ends with a gain is its own affair.
 */
static inline enum fl_verdict fl_trial_look(struct fl_trial *t, u64 now_ns,
					    const struct fl_work *done, bool held)
{
	u64 ns = now_ns - t->window_ns, requests = done->requests - t->window.requests;
	u64 usual = mul_u64_u64_div_u64(t->usual.requests, ns, NSEC_PER_SEC);

	t->looks++;
	t->held += held;
	if (ns < FL_WINDOW_NS ||
	    (max_t(u64, requests, usual / 2) < FL_WINDOW_REQUESTS && ns < FL_MAX_WINDOW_NS))
		return FL_TRIAL_GO_ON;
	t->last = __fl_work_rate(done, now_ns, &t->window, t->window_ns);
	held = 8 * t->held > t->looks;
	__fl_trial_begin_window(t, now_ns, done);
	return __fl_trial_window(t, &t->last, held);
}

/*
 * Has the drive, which has done @done so far, done clearly more ever since the last trial
 * with a gain than before it? If not, what it did in the trial was something else, as
 * filling a large write buffer. What it did in a second since then is stored in @rate.
 */
static inline bool fl_trial_gain_lasts(const struct fl_trial *t, u64 now_ns,
				       const struct fl_work *done, struct fl_work *rate)
{
	*rate = __fl_work_rate(done, now_ns, &t->gained, t->gain_ns);
	return __fl_work_is_more(rate, &t->before);
}

/*
 * A probe is over, which began at @since_ns with @since done and in which flows waited
 * again: was that waste, where the drive can do @could a second? Then that is a gain as that
 * of a trial. There is to be no fl_trial_look() during a probe.
 */
static inline bool fl_trial_probe_fails(struct fl_trial *t, u64 now_ns, const struct fl_work *done,
					u64 since_ns, const struct fl_work *since,
					const struct fl_work *could)
{
	struct fl_work rate = __fl_work_rate(done, now_ns, since, since_ns);

	__fl_trial_begin_window(t, now_ns, done);
	if (!__fl_work_is_more(could, &rate) ||
	    could->requests <= rate.requests + 2 * t->usual_off.requests ||
	    could->cost <= rate.cost + 2 * t->usual_off.cost)
		return false;
	t->before = rate;
	t->gained = *done;
	t->gain_ns = now_ns;
	return true;
}

#endif
