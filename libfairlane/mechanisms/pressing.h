/* SPDX-License-Identifier: GPL-2.0-only OR MIT */
/*
 * Who presses for less in a drive, and how much: 0, nobody, to FL_PRESS_MAX.
 *
 *	behind	somebody gets less than its share, since too much of others is in its way (behind.h). Four
 *		ticks in a row press the most, and 64 ease it, if 16 requests are sent in each, or more. One with
 *		fewer counts in proportion: on a slow drive, what somebody lacks for a moment is more often a CPU
 *	late	more than one of a hundred requests of those with a latency target miss it: a late one presses
 *		as 99 in time ease. Eight late ones in a row are enough. Whatever is sent eases it, too, so a late one
 *		in a while is no reason; on a slow drive a while is long, so that is counted in requests
 *
 * How far down each may press: knee.h. The caller's lock protects it.
 */
#ifndef FAIRLANE_PRESSING_H
#define FAIRLANE_PRESSING_H

#include "../env.h"

#define FL_PRESS_TIMELY 32
#define FL_PRESS_MAX (8 * 99 * FL_PRESS_TIMELY)
#define FL_PRESS_REQUESTS 16 /* a tick with so many, or more, counts as one */
#define FL_PRESS_BEHIND (FL_PRESS_MAX / 4)
#define FL_PRESS_EASE (FL_PRESS_MAX / 64) /* per tick; of late for each request that is sent 1, and no more than this */

struct fl_pressing {
	s64 behind, late;
};

/* At a tick: is somebody behind? @timely and @late: of requests that have a target; @sent: all requests. */
static inline void fl_press(struct fl_pressing *p, bool behind, u32 timely, u32 late, u64 sent)
{
	s64 requests = clamp_t(s64, sent, 1, FL_PRESS_REQUESTS);

	p->behind += (behind ? FL_PRESS_BEHIND : -FL_PRESS_EASE) * requests / FL_PRESS_REQUESTS;
	p->behind = clamp_t(s64, p->behind, 0, FL_PRESS_MAX);
	p->late += FL_PRESS_TIMELY * (99 * (s64)late - timely) - clamp_t(s64, sent, 1, FL_PRESS_EASE);
	p->late = clamp_t(s64, p->late, 0, FL_PRESS_MAX);
}

/* Was somebody behind of late, and for more than a few requests? */
static inline bool fl_presses_behind(const struct fl_pressing *p)
{
	return p->behind >= FL_PRESS_BEHIND;
}

static inline bool fl_presses_most(const struct fl_pressing *p)
{
	return max_t(s64, p->behind, p->late) >= FL_PRESS_MAX;
}

static inline bool fl_nobody_presses(const struct fl_pressing *p)
{
	return p->behind <= 0 && p->late <= 0;
}

#endif
