/* SPDX-License-Identifier: GPL-2.0-only OR MIT */
/* The events to come: a heap with four children to a node; ties in order of addition. */
#ifndef SIM_HEAP_H
#define SIM_HEAP_H

#include <stdio.h>
#include <stdlib.h>

#include "../libfairlane/env.h"

struct event {
	u64 at; /* ns */
	u64 order; /* unique; the low bits say what kind of event it is */
	void *what;
};

#define EVENT_KIND_BITS 2

struct heap {
	struct event *events;
	size_t nr, size;
	u64 made;
};

static inline bool event_before(const struct event *a, const struct event *b)
{
	return a->at != b->at ? a->at < b->at : a->order < b->order;
}

static inline void *must(void *p)
{
	if (p)
		return p;
	fprintf(stderr, "fl-sim: out of memory\n");
	exit(2);
}

static inline void heap_push(struct heap *h, u64 at, unsigned int kind, void *what)
{
	struct event event = { at, h->made++ << EVENT_KIND_BITS | kind, what };
	size_t i, up;

	if (h->nr == h->size) {
		size_t size = h->size ? 2 * h->size : 256;

		h->events = must(realloc(h->events, size * sizeof(*h->events)));
		h->size = size;
	}
	for (i = h->nr++; i; i = up) {
		up = (i - 1) / 4;
		if (!event_before(&event, &h->events[up]))
			break;
		h->events[i] = h->events[up];
	}
	h->events[i] = event;
}

/* The first event, which there is. */
static inline struct event heap_pop(struct heap *h)
{
	struct event first = h->events[0], last = h->events[--h->nr];
	size_t i = 0, child, end, least;

	while ((child = 4 * i + 1) < h->nr) {
		least = child;
		end = child + 4 < h->nr ? child + 4 : h->nr;
		while (++child < end)
			if (event_before(&h->events[child], &h->events[least]))
				least = child;
		if (!event_before(&h->events[least], &last))
			break;
		h->events[i] = h->events[least];
		i = least;
	}
	h->events[i] = last;
	return first;
}

#endif
