/* SPDX-License-Identifier: GPL-2.0-only OR MIT */
/*
 * Cost: what a request takes from the drive, in units of the reference
 * request, the write of one page of the drive (mqFlashFQ, III-B: a write takes
 * more than a read, so errors matter least there; and drives fill whole pages,
 * so a part of a page is priced in proportion). Fixed point: FL_COST_ONE is
 * one reference request.
 *
 * A price list has one entry for each operation and power-of-two size, from
 * 512 B to 1 MiB. A size between powers of two is priced as the sum of its
 * power-of-two parts (12 KiB = 8 KiB + 4 KiB); what exceeds 1 MiB is priced
 * per MiB. `fairlane calibrate` measures one.
 *
 * The prices of a drive change only while no request exists, so that a
 * request costs the same whenever it is asked for, and nothing here needs a
 * lock: the kernel freezes the queue for it, the library's user stops.
 */
#ifndef FAIRLANE_COST_H
#define FAIRLANE_COST_H

#define FL_COST_SHIFT 12
#define FL_COST_ONE (1u << FL_COST_SHIFT)
#define FL_COST_SIZES 12 /* 512 B << 0 .. 512 B << 11 */

enum fl_op { FL_READ, FL_WRITE, FL_DISCARD, FL_OTHER, FL_NR_OPS };

struct fl_cost {
	u32 price[FL_NR_OPS][FL_COST_SIZES]; /* read by all; written while no request exists */
};

/*
 * The default prices bytes: a page is 4 KiB, and to read it costs as much as
 * to write it. Discards and the rest move no data, so any of them costs one.
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

/* 4096 reference requests for one: sums and virtual times cannot overflow. */
#define FL_PRICE_MAX (FL_COST_ONE << 12)

static inline const char *__fl_cost_skip(const char *text)
{
	while (*text == ' ' || *text == '\t' || *text == '\n')
		text++;
	return text;
}

/* Move *@text past a price, 1..FL_PRICE_MAX in digits, and return it; 0: there is none. */
static inline u32 __fl_cost_number(const char **text)
{
	const char *p = __fl_cost_skip(*text);
	u32 price = 0;

	for (; *p >= '0' && *p <= '9'; p++) {
		price = price * 10 + (u32)(*p - '0');
		if (price > FL_PRICE_MAX)
			return 0;
	}
	*text = p;
	return price;
}

/*
 * Read a price list from a text: the word read and the prices of reads of
 * 512 B, 1 KiB and so on to 1 MiB, in units of 1/FL_COST_ONE; the word write
 * and those of writes. All or nothing: false when it is anything else, and
 * @c is as it was.
 */
static inline bool fl_cost_parse(struct fl_cost *c, const char *text)
{
	static const char *const names[] = { "read", "write" };
	struct fl_cost found;
	unsigned int op, i;

	fl_cost_init(&found);
	for (op = 0; op < ARRAY_SIZE(names); op++) {
		text = __fl_cost_skip(text);
		if (strncmp(text, names[op], strlen(names[op])))
			return false;
		text += strlen(names[op]);
		for (i = 0; i < FL_COST_SIZES; i++) {
			if (*text != ' ' && *text != '\t' && *text != '\n')
				return false;
			found.price[op][i] = __fl_cost_number(&text);
			if (!found.price[op][i])
				return false;
		}
	}
	if (*__fl_cost_skip(text))
		return false;
	*c = found;
	return true;
}

#endif
