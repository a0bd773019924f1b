/* SPDX-License-Identifier: GPL-2.0-only OR MIT */
/*
 * A flood: more in a drive than it does in a sixteenth of a second.
 *
 * Whoever comes next waits for all of it, so it is too much, whoever's it is and however fast the drive. How
 * much that is follows from what the drive did of late while it had something to do. Before
 * anybody knows, more than FL_FLOOD_FIRST is taken for one, until it turns out to have been none.
 *
 * The caller's lock protects it.
 */
#ifndef FAIRLANE_FLOOD_H
#define FAIRLANE_FLOOD_H

#include "prices.h"

#define FL_FLOOD_NS (NSEC_PER_SEC / 16)
#define FL_FLOOD_KNOWN_NS (FL_FLOOD_NS / 2)
#define FL_FLOOD_FIRST (256 * FL_COST_ONE)

struct fl_flood {
	u64 done, busy_ns; /* cost, in so much time with something to do: about the last FL_FLOOD_NS of it */
	u64 guess; /* cost that was taken for one before that was known; 0: none */
};

/* More cost than that in the drive is a flood. */
static inline u64 fl_flood_limit(const struct fl_flood *f)
{
	u64 does = f->busy_ns ? mul_u64_u64_div_u64(f->done, FL_FLOOD_NS, f->busy_ns) : 0;

	return max_t(u64, does, FL_FLOOD_FIRST);
}

/* The drive did @done cost in the last @ns, in which it had something to do. */
static inline void fl_flood_done(struct fl_flood *f, u64 done, u64 ns)
{
	u64 rest = FL_FLOOD_NS - min_t(u64, ns, FL_FLOOD_NS);

	f->done = mul_u64_u64_div_u64(f->done, rest, FL_FLOOD_NS) + done;
	f->busy_ns = mul_u64_u64_div_u64(f->busy_ns, rest, FL_FLOOD_NS) + ns;
}

/* @cost in the drive is taken for one. */
static inline void fl_flood_begins(struct fl_flood *f, u64 cost)
{
	f->guess = f->busy_ns < FL_FLOOD_KNOWN_NS ? cost : 0;
}

/* Has it turned out that what was taken for one was none? True once. */
static inline bool fl_flood_was_none(struct fl_flood *f)
{
	u64 guess = f->guess;

	if (f->busy_ns < FL_FLOOD_KNOWN_NS)
		return false;
	f->guess = 0;
	return guess && guess <= fl_flood_limit(f);
}

#endif
