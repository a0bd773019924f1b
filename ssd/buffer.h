/* SPDX-License-Identifier: GPL-2.0-only OR MIT */
/*
 * The write buffer: units that have come from the host and are not on NAND
 * yet, first in, first out. Its space is taken when data begin to come in and
 * given back when they are programmed. A unit that is written again while it
 * waits here needs no second place.
 *
 * Units are numbered in the order in which they came in: a flush waits until
 * none below a number is left.
 */
#ifndef FAIRLANE_SSD_BUFFER_H
#define FAIRLANE_SSD_BUFFER_H

#include "ftl.h"

struct buffer {
	struct ftl *ftl;
	u32 capacity, used; /* units; used also counts what is coming in or being programmed */
	u32 mask; /* of units[], a power of two at least as large as the capacity */
	u32 *units; /* by slot; NULL without a map */
	u64 head, tail; /* numbers of the first unit that waits, and of the next to come */
	u64 forced; /* units below this are programmed even when they fill no row */
};

bool buffer_init(struct buffer *b, struct ftl *ftl, const struct ssd_profile *p);
void buffer_exit(struct buffer *b);

/* @units have come in, for which space was taken; the first is that of byte @offset. */
void buffer_add(struct buffer *b, u64 offset, u32 units);

static inline u32 buffer_space(const struct buffer *b)
{
	return b->capacity - b->used;
}

/* Is there anything that should be programmed now? */
static inline bool buffer_ready(const struct buffer *b)
{
	return b->tail - b->head >= b->ftl->row_units || b->head < b->forced;
}

/* Take up to a row out, to be programmed on @die, which has room. Returns the number of units. */
u32 buffer_program(struct buffer *b, u32 die);

#endif
