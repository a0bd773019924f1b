// SPDX-License-Identifier: GPL-2.0-only OR MIT
#include "buffer.h"

bool buffer_init(struct buffer *b, struct ftl *ftl, const struct ssd_profile *p)
{
	b->ftl = ftl;
	b->capacity = (u32)(p->buffer >> ftl->unit_shift);
	if (!ftl->mapped)
		return true;
	b->mask = (u32)((1ull << fls64(b->capacity - 1)) - 1);
	b->units = fl_alloc(((size_t)b->mask + 1) * sizeof(*b->units));
	return b->units;
}

void buffer_exit(struct buffer *b)
{
	fl_free(b->units);
}

void buffer_add(struct buffer *b, u64 offset, u32 units)
{
	u32 i, slot;

	if (!b->units) {
		b->tail += units;
		return;
	}
	for (i = 0; i < units; i++) {
		u32 unit = ftl_unit(b->ftl, offset + ((u64)i << b->ftl->unit_shift));

		slot = (u32)b->tail & b->mask;
		if (ftl_buffer(b->ftl, unit, slot)) {
			b->units[slot] = unit;
			b->tail++;
		} else {
			b->used--;
		}
	}
}

u32 buffer_program(struct buffer *b, u32 die)
{
	u32 units = (u32)min_t(u64, b->tail - b->head, b->ftl->row_units);
	u32 place = ftl_open_row(b->ftl, die), i;

	for (i = 0; b->units && i < units; i++) {
		u32 slot = (u32)(b->head + i) & b->mask;

		ftl_write(b->ftl, b->units[slot], slot, place + i);
	}
	b->head += units;
	return units;
}
