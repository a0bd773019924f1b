/* SPDX-License-Identifier: GPL-2.0-only OR MIT */
/*
 * Trials: is it of any use that flows wait for each other?
 *
 * A scheduler that has flows wait for one that is behind cannot see whether
 * that one is kept back by the others, in the drive, or could not do more
 * anyway: it has one request at a time, a limited rate, a hardware queue that
 * is full. But it can try. In a trial nobody waits for two windows of time. In
 * the first, the drive does what it had before. If in the second it does
 * clearly more than before the trial, it had been running dry.
 *
 *	64 in flight, 640 done in 2 ms. A heavy tenant with one request at
 *	a time falls behind, the others wait: 1 in flight, 20 done. 2 ms later a
 *	trial begins, and 4 ms after that it is known that waiting is waste.
 *
 * There is a trial when somebody is held and the drive does clearly less than
 * is usual in two windows running. Usual is what it did in the last trial, or
 * where nobody is held. And there is one in 64 windows anyway. As long as
 * trials show no gain, there is one in 128, 256, ... 4096, or after 4, 8, ...
 * 128 running.
 *
 * All of this is the slow path, under dev->lock, except that `on` is read
 * without: a stale one misjudges one batch.
 */
#ifndef FAIRLANE_TRIAL_H
#define FAIRLANE_TRIAL_H

#include "fairlane.h"

/* A window ends when the drive has done 64 requests, or should have done 128; in 2 to 20 ms. */
#define FL_WINDOW_NS (2ull * NSEC_PER_MSEC)
#define FL_MAX_WINDOW_NS (20ull * NSEC_PER_MSEC)
#define FL_WINDOW_REQUESTS 64

/* In windows: a trial; from one to the next. */
#define FL_TRIAL 2
#define FL_TRY_EVERY 64
#define FL_TRY_SELDOM 4096
/* When it does less than is usual in 1/32 of those running. */
#define FL_TRY_SOONER 32

/* What a drive did so far, or does in a second. */
struct fl_work {
	u64 requests, cost;
};

struct fl_trial {
	unsigned int on; /* for so many more windows nobody waits; 0: no trial */
	u64 window_ns; /* when the window began */
	struct fl_work window; /* done until then */
	unsigned int looks, held; /* in it; those at which somebody was */
	struct fl_work before; /* in the window before the trial */
	struct fl_work usual;
	unsigned int windows, every; /* since the last trial with somebody held; so many are enough */
	unsigned int dry; /* the last so many of them, in which it did clearly less than is usual */
};

enum fl_verdict { FL_TRIAL_GO_ON, FL_TRIAL_BEGINS, FL_TRIAL_NO_GAIN, FL_TRIAL_GAIN };

static inline void fl_trial_init(struct fl_trial *t, u64 now_ns)
{
	t->window_ns = now_ns;
	t->every = FL_TRY_EVERY;
	t->windows = FL_TRY_EVERY - 1; /* the first comes soon */
}

/* 7/8, by both measures: the price list may be wrong. */
static inline bool fl_work_clearly_less(const struct fl_work *a, const struct fl_work *b)
{
	return 8 * a->requests < 7 * b->requests && 8 * a->cost < 7 * b->cost;
}

static inline enum fl_verdict __fl_trial_end(struct fl_trial *t, const struct fl_work *work)
{
	bool gain = fl_work_clearly_less(&t->before, work);

	t->every = gain ? max_t(unsigned int, t->every / 2, FL_TRY_EVERY) :
			  min_t(unsigned int, t->every * 2, FL_TRY_SELDOM);
	t->usual = *work;
	t->windows = 0;
	t->dry = 0;
	return gain ? FL_TRIAL_GAIN : FL_TRIAL_NO_GAIN;
}

/* A window is over, in which the drive did @work a second. @held: somebody was, for 1/8 of it. */
static inline enum fl_verdict __fl_trial_window(struct fl_trial *t, const struct fl_work *work,
						bool held)
{
	if (t->on) {
		WRITE_ONCE(t->on, t->on - 1);
		return t->on ? FL_TRIAL_GO_ON : __fl_trial_end(t, work);
	}
	if (!held) {
		t->usual.requests += (s64)(work->requests - t->usual.requests) >> 2;
		t->usual.cost += (s64)(work->cost - t->usual.cost) >> 2;
		return FL_TRIAL_GO_ON;
	}
	t->dry = fl_work_clearly_less(work, &t->usual) ? t->dry + 1 : 0;
	if (++t->windows < t->every && t->dry < t->every / FL_TRY_SOONER)
		return FL_TRIAL_GO_ON;
	t->before = *work;
	WRITE_ONCE(t->on, FL_TRIAL);
	return FL_TRIAL_BEGINS;
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
	struct fl_work work;

	t->looks++;
	t->held += held;
	if (ns < FL_WINDOW_NS ||
	    (max_t(u64, requests, usual / 2) < FL_WINDOW_REQUESTS && ns < FL_MAX_WINDOW_NS))
		return FL_TRIAL_GO_ON;
	work.requests = mul_u64_u64_div_u64(requests, NSEC_PER_SEC, ns);
	work.cost = mul_u64_u64_div_u64(done->cost - t->window.cost, NSEC_PER_SEC, ns);
	held = 8 * t->held > t->looks;
	t->window_ns = now_ns;
	t->window = *done;
	t->looks = 0;
	t->held = 0;
	return __fl_trial_window(t, &work, held);
}

#endif
