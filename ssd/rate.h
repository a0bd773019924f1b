/* SPDX-License-Identifier: GPL-2.0-only OR MIT */
/* A bandwidth, as a multiplication: no division for each transfer. */
#ifndef FAIRLANE_SSD_RATE_H
#define FAIRLANE_SSD_RATE_H

#include "../libfairlane/env.h"

#define RATE_SHIFT 20

struct rate {
	u64 ns_per_byte; /* << RATE_SHIFT */
};

/* @mbps: 10^6 bytes/s, 1..1000000 */
static inline struct rate rate_of(u64 mbps)
{
	return (struct rate){ div64_u64((1000ull << RATE_SHIFT) + mbps - 1, mbps) };
}

/* Rounded up, so that no sum of transfers is faster than the rate. */
static inline u64 rate_ns(struct rate r, u32 bytes)
{
	return (bytes * r.ns_per_byte + (1u << RATE_SHIFT) - 1) >> RATE_SHIFT;
}

#endif
