/* SPDX-License-Identifier: GPL-2.0-only OR MIT */
/*
 * Cost: what a request takes from the drive, in units of the reference
 * request, a read of one 4 KiB page. Fixed point: FL_COST_ONE is one
 * reference request.
 *
 * A price list has one entry for each operation and power-of-two size, from
 * 512 B to 1 MiB. A size between powers of two is priced as the sum of its
 * power-of-two parts (12 KiB = 8 KiB + 4 KiB); what exceeds 1 MiB is priced
 * per MiB.
 */
#ifndef FAIRLANE_COST_H
#define FAIRLANE_COST_H

#define FL_COST_SHIFT 12
#define FL_COST_ONE (1u << FL_COST_SHIFT)
#define FL_COST_SIZES 12 /* 512 B << 0 .. 512 B << 11 */

enum fl_op { FL_READ, FL_WRITE, FL_DISCARD, FL_OTHER, FL_NR_OPS };

struct fl_cost {
	u32 price[FL_NR_OPS][FL_COST_SIZES]; /* written before I/O starts, then only read */
};

/*
 * The default prices bytes: 4 KiB costs one reference request, whichever way
 * it goes. Discards and the rest move no data, so any of them costs one.
 */
static inline void fl_cost_init(struct fl_cost *c)
{
	int op, i;

	for (op = 0; op < FL_NR_OPS; op++)
		for (i = 0; i < FL_COST_SIZES; i++)
			c->price[op][i] = op <= FL_WRITE ? (512u << i) >> (12 - FL_COST_SHIFT) :
							   FL_COST_ONE;
}

/* The price of @bytes (0..4 GiB) of @op; at least 1, so that nothing is free. */
static inline u64 fl_cost(const struct fl_cost *c, enum fl_op op, u32 bytes)
{
	const u32 *price = c->price[op];
	unsigned long parts = bytes >> 9;
	u64 sum;

	if (op > FL_WRITE)
		return price[0];
	sum = (u64)(parts >> FL_COST_SIZES) * 2 * price[FL_COST_SIZES - 1];
	for (parts &= (1ul << FL_COST_SIZES) - 1; parts; parts &= parts - 1)
		sum += price[__ffs(parts)];
	return sum ? sum : 1;
}

#endif
