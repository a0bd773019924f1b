/* SPDX-License-Identifier: GPL-2.0-only OR MIT */
/*
 * A list by virtual time, for entries that belong near one of its ends as a rule. Of those with the same
 * time, the one that was added first comes first, as it does not in a heap.
 *
 * The caller's lock protects it.
 */
#ifndef FAIRLANE_SORTED_LIST_H
#define FAIRLANE_SORTED_LIST_H

#include "virtual-time.h"

struct fl_sorted {
	struct list_head node;
	u64 key; /* virtual time when it was added */
};

static inline u64 __fl_sorted_key(const struct list_head *node)
{
	return list_entry(node, struct fl_sorted, node)->key;
}

/*
 * Its key is set; it is in no list. From both ends: whoever comes before all others does so at the first look,
 * so that the walk stays in the list.
 */
static inline void fl_sorted_add(struct list_head *list, struct fl_sorted *entry)
{
	struct list_head *pos = list->prev, *front = list->next;

	if (front == list || fl_vt_before(entry->key, __fl_sorted_key(front))) {
		list_add(&entry->node, list);
		return;
	}
	while (fl_vt_before(entry->key, __fl_sorted_key(pos))) {
		front = front->next;
		pos = fl_vt_before(entry->key, __fl_sorted_key(front)) ? front->prev : pos->prev;
	}
	list_add(&entry->node, pos);
}

#endif
