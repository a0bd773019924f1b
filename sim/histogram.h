/* SPDX-License-Identifier: GPL-2.0-only OR MIT */
/*
 * A log-linear histogram, as HdrHistogram's: exact below 256, then 128
 * buckets for each power of two, so that a value is known within 0.8 %.
 * Debian has no package of HdrHistogram's C library.
 */
#ifndef SIM_HISTOGRAM_H
#define SIM_HISTOGRAM_H

#include "../libfairlane/env.h"

#define HISTOGRAM_BITS 7
#define HISTOGRAM_BUCKETS ((64 - HISTOGRAM_BITS + 1) << HISTOGRAM_BITS)

struct histogram {
	u64 samples, max;
	unsigned __int128 sum;
	u64 buckets[HISTOGRAM_BUCKETS];
};

static inline void histogram_add(struct histogram *h, u64 value)
{
	unsigned int bits = fls64(value | 1);
	unsigned int shift = bits > HISTOGRAM_BITS + 1 ? bits - (HISTOGRAM_BITS + 1) : 0;

	h->buckets[(shift << HISTOGRAM_BITS) + (value >> shift)]++;
	h->samples++;
	h->sum += value;
	if (value > h->max)
		h->max = value;
}

/* The largest value of the bucket that @permille of the samples reach; there is at least one. */
static inline u64 histogram_at(const struct histogram *h, unsigned int permille)
{
	u64 left = (u64)(((unsigned __int128)h->samples * permille + 999) / 1000), top;
	unsigned int i = 0, shift;

	while (h->buckets[i] < left)
		left -= h->buckets[i++];
	shift = i < 2u << HISTOGRAM_BITS ? 0 : (i >> HISTOGRAM_BITS) - 1;
	top = (((u64)i - ((u64)shift << HISTOGRAM_BITS) + 1) << shift) - 1;
	return top < h->max ? top : h->max;
}

#endif
