/* SPDX-License-Identifier: GPL-2.0-only OR MIT */
/*
 * Prices: what a request costs the drive.
 *
 * Cost is measured in reference requests. A reference request is the write of
 * one page of the drive (mqFlashFQ, III-B): writes take more than reads, so
 * errors matter least there, and drives fill whole pages, so part of a page is
 * priced in proportion. Fixed point: FL_COST_ONE is one reference request.
 *
 * A price list has one price for each operation and each power-of-two size,
 * from 512 B to 1 MiB. Any other size costs the sum of its power-of-two parts
 * (12 KiB = 8 KiB + 4 KiB); what exceeds 1 MiB is priced per MiB. Part of 512 B costs
 * as much as all of it: the drive has as much work with it.
 * `fairlane calibrate` measures a price list.
 *
 * A drive's prices change only while no request exists. So a request costs the
 * same whenever its cost is computed, and needs no lock. The kernel freezes the queue
 * for the change; a user of the library stops its requests. A tick, which may come
 * meanwhile, looks at them under dev->lock.
 */
#ifndef FAIRLANE_PRICES_H
#define FAIRLANE_PRICES_H

#define FL_COST_SHIFT 12
#define FL_COST_ONE (1u << FL_COST_SHIFT)
#define FL_PRICE_SIZES 12 /* 512 B << 0 .. 512 B << 11 */

enum fl_op { FL_READ, FL_WRITE, FL_DISCARD, FL_OTHER, FL_NR_OPS };

struct fl_prices {
	u32 price[FL_NR_OPS][FL_PRICE_SIZES]; /* read by all; written while no request exists */
};

/*
 * A discard writes no data, but the drive changes its map for each page, and later
 * pays for that in collection. How much differs widely from drive to drive. A
 * sixteenth of a write is on the safe side: a tenant that discards all it can is a
 * light one, and what it cannot do is discard without end at the price of a request.
 * Other operations move no data, and cost one reference request.
 */
#define FL_DISCARD_PART 16

static inline void __fl_prices_derive(struct fl_prices *p)
{
	int i;

	for (i = 0; i < FL_PRICE_SIZES; i++) {
		u32 price = p->price[FL_WRITE][i] / FL_DISCARD_PART;

		p->price[FL_DISCARD][i] = price ? price : 1;
		p->price[FL_OTHER][i] = FL_COST_ONE;
	}
}

/*
 * By default a request costs its bytes: the reference page has 4 KiB, and a
 * read costs as much as a write.
 */
static inline void fl_prices_init(struct fl_prices *p)
{
	int op, i;

	for (op = 0; op <= FL_WRITE; op++)
		for (i = 0; i < FL_PRICE_SIZES; i++)
			p->price[op][i] = (512u << i) >> (12 - FL_COST_SHIFT);
	__fl_prices_derive(p);
}

/* Are they the default ones? */
static inline bool fl_prices_are_bytes(const struct fl_prices *p)
{
	struct fl_prices bytes;

	fl_prices_init(&bytes);
	return !memcmp(p, &bytes, sizeof(bytes));
}

/* No request costs more, so that virtual-time.h can multiply: 2 GiB, at the default prices. */
#define FL_COST_MAX ((1ull << 31) - 1)

/* Of a request that is not one part, or no read or write. 0 @parts cost what 1 does. */
static noinline u64 __fl_cost_of_parts(const struct fl_prices *p, enum fl_op op, unsigned long parts)
{
	const u32 *price = p->price[op];
	u64 sum;

	if (op == FL_OTHER)
		return price[0];
	parts = parts ? parts : 1;
	sum = (u64)(parts >> FL_PRICE_SIZES) * 2 * price[FL_PRICE_SIZES - 1];
	for (parts &= (1ul << FL_PRICE_SIZES) - 1; parts; parts &= parts - 1)
		sum += price[__ffs(parts)];
	return clamp_t(u64, sum, op == FL_DISCARD ? FL_COST_ONE : 1, FL_COST_MAX);
}

/*
 * The cost of @bytes (0..4 GiB) of @op, in whole 512 B. At least 1, so that nothing is free; where no
 * data are moved, at least a reference request.
 */
static __always_inline u64 fl_cost(const struct fl_prices *p, enum fl_op op, u32 bytes)
{
	unsigned long parts = ((u64)bytes + 511) >> 9;

	/* As a rule a request is a read or a write of one part. No price is 0, or above the most. */
	if (likely(op <= FL_WRITE && parts - 1 < (1ul << FL_PRICE_SIZES) - 1 && !(parts & (parts - 1))))
		return p->price[op][__ffs(parts)];
	return __fl_cost_of_parts(p, op, parts);
}

/* 4096 reference requests for one: sums and virtual times cannot overflow. */
#define FL_PRICE_MAX (FL_COST_ONE << 12)

static inline const char *__fl_prices_skip(const char *text)
{
	while (*text == ' ' || *text == '\t' || *text == '\n')
		text++;
	return text;
}

/* Parse a price, 1..FL_PRICE_MAX in digits, and move *@text past it; 0: there is none. */
static inline u32 __fl_prices_number(const char **text)
{
	const char *digit = __fl_prices_skip(*text);
	u32 price = 0;

	for (; *digit >= '0' && *digit <= '9'; digit++) {
		price = price * 10 + (u32)(*digit - '0');
		if (price > FL_PRICE_MAX)
			return 0;
	}
	*text = digit;
	return price;
}

/*
 * Parse a price list: the word "read", the prices of reads of 512 B, 1 KiB and
 * so on to 1 MiB in units of 1/FL_COST_ONE, then "write" and the prices of
 * writes. Returns false for any other text, and leaves @p unchanged.
 */
static inline bool fl_prices_parse(struct fl_prices *p, const char *text)
{
	static const char *const names[] = { "read", "write" };
	struct fl_prices found;
	unsigned int op, i;

	fl_prices_init(&found);
	for (op = 0; op < ARRAY_SIZE(names); op++) {
		text = __fl_prices_skip(text);
		if (strncmp(text, names[op], strlen(names[op])))
			return false;
		text += strlen(names[op]);
		for (i = 0; i < FL_PRICE_SIZES; i++) {
			if (*text != ' ' && *text != '\t' && *text != '\n')
				return false;
			found.price[op][i] = __fl_prices_number(&text);
			if (!found.price[op][i])
				return false;
		}
	}
	if (*__fl_prices_skip(text))
		return false;
	__fl_prices_derive(&found);
	*p = found;
	return true;
}

#endif
