/* SPDX-License-Identifier: GPL-2.0-only OR MIT */
/*
 * How long the requests of a flow took on one hardware queue: all of it, what of it they
 * waited here, and how many took how long.
 *
 * The counts are log-linear, as in HdrHistogram: four to each power of two of a
 * microsecond, so a quantile is right to within an eighth. Who was served meanwhile, and
 * so for whom they waited, is not counted here: costs (fl_queue.cost) and times, read
 * often enough, say it (fairlane/linux/contention.py), and a request pays nothing for it.
 */
#ifndef FAIRLANE_TIMES_H
#define FAIRLANE_TIMES_H

#include "../env.h"

#define FL_TIMES_SHIFT 2 /* counts to a power of two: 1 << FL_TIMES_SHIFT */
#define FL_NR_TIMES 96 /* the last is all from 29.4 s on */

/* By completions, on any CPU: atomic. Read without a lock, at any time. */
struct fl_times {
	atomic64_t waited_ns, took_ns; /* sums over requests */
	atomic64_t requests[FL_NR_TIMES];
};

/* Where a request is counted that took @us. Any context. */
static inline unsigned int fl_times_index(u64 us)
{
	unsigned int shift;

	if (us < 1 << FL_TIMES_SHIFT)
		return us;
	shift = fls64(us) - 1 - FL_TIMES_SHIFT;
	return min_t(u64, (us >> shift) + ((u64)shift << FL_TIMES_SHIFT), FL_NR_TIMES - 1);
}

/* The least of what is counted at @index, us; all that is counted there took less than the next one's. */
static inline u64 fl_times_from_us(unsigned int index)
{
	unsigned int shift = index >> FL_TIMES_SHIFT;

	if (shift < 2)
		return index;
	return (u64)((1 << FL_TIMES_SHIFT) + index % (1 << FL_TIMES_SHIFT)) << (shift - 1);
}

/* Count a request that took @took_ns, of which it waited @waited_ns. Any context, no lock. */
static inline void fl_times_add(struct fl_times *times, u64 waited_ns, u64 took_ns)
{
	atomic64_inc(&times->requests[fl_times_index(div_u64(took_ns, NSEC_PER_USEC))]);
	atomic64_add(took_ns, &times->took_ns);
	if (waited_ns)
		atomic64_add(waited_ns, &times->waited_ns);
}

/*
 * A time in FL_SHORT_NS_BITS bits, for where there is no room for more: the first 13 binary
 * digits, and how many follow. It is at most 1/4096 too small, and exact below 8.2 us. What is
 * longer than 4.9 hours is that.
 */
#define FL_SHORT_NS_BITS 18
#define FL_SHORT_NS_DIGITS 13

static inline u32 fl_short_ns(u64 ns)
{
	unsigned int follow = max_t(int, fls64(ns) - FL_SHORT_NS_DIGITS, 0);

	if (follow >> (FL_SHORT_NS_BITS - FL_SHORT_NS_DIGITS))
		return (1u << FL_SHORT_NS_BITS) - 1;
	return follow << FL_SHORT_NS_DIGITS | (u32)(ns >> follow);
}

static inline u64 fl_short_ns_value(u32 time)
{
	return (u64)(time & ((1u << FL_SHORT_NS_DIGITS) - 1)) << (time >> FL_SHORT_NS_DIGITS);
}

/* For whoever shows them: add those of @times to @sum, which nobody else uses. */
static inline void fl_times_sum(struct fl_times *sum, const struct fl_times *times)
{
	unsigned int i;

	atomic64_add(atomic64_read(&times->waited_ns), &sum->waited_ns);
	atomic64_add(atomic64_read(&times->took_ns), &sum->took_ns);
	for (i = 0; i < FL_NR_TIMES; i++)
		atomic64_add(atomic64_read(&times->requests[i]), &sum->requests[i]);
}

#endif
