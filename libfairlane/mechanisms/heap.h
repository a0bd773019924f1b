/* SPDX-License-Identifier: GPL-2.0-only OR MIT */
/*
 * A heap by virtual time: a skew heap, so that an entry is two pointers down and one
 * up, nothing is ever allocated, and any entry can be taken out. Each operation takes
 * a number of steps that is logarithmic on average over many of them.
 *
 * The caller's lock protects it. An entry is in one heap at most.
 */
#ifndef FAIRLANE_HEAP_H
#define FAIRLANE_HEAP_H

#include "virtual-time.h"

static inline struct fl_heap_entry *__fl_heap_merge(struct fl_heap_entry *a, struct fl_heap_entry *b)
{
	struct fl_heap_entry *first = NULL, *up = NULL, **at = &first;

	while (a && b) {
		struct fl_heap_entry *less = fl_vt_before(b->key, a->key) ? b : a, *rest = less->right;

		b = less == a ? b : a;
		*at = less;
		less->up = up;
		less->right = less->left;
		up = less;
		at = &less->left;
		a = rest;
	}
	*at = a ? a : b;
	if (*at)
		(*at)->up = up;
	return first;
}

/* Its key is set; it is in no heap. */
static inline void fl_heap_add(struct fl_heap *heap, struct fl_heap_entry *entry)
{
	entry->left = NULL;
	entry->right = NULL;
	entry->in = true;
	WRITE_ONCE(heap->first, __fl_heap_merge(heap->first, entry));
}

/* No effect if it is in none. */
static inline void fl_heap_remove(struct fl_heap *heap, struct fl_heap_entry *entry)
{
	struct fl_heap_entry *below, *up = entry->up;

	if (!entry->in)
		return;
	below = __fl_heap_merge(entry->left, entry->right);
	if (below)
		below->up = up;
	if (!up)
		WRITE_ONCE(heap->first, below);
	else if (up->left == entry)
		up->left = below;
	else
		up->right = below;
	entry->up = NULL;
	entry->in = false;
}

/* Put @entry, which is in @heap or in none, to where @key belongs. */
static inline void fl_heap_put(struct fl_heap *heap, struct fl_heap_entry *entry, u64 key)
{
	fl_heap_remove(heap, entry);
	entry->key = key;
	fl_heap_add(heap, entry);
}

#endif
