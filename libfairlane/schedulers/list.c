// SPDX-License-Identifier: GPL-2.0-only OR MIT
/* The schedulers by name, from list.h. Only who links this links them all. */
#include "../user.h"

#define FL_SCHED_PTR(id, name, host, role, about) &fl_##id,

const struct fl_sched *const fl_schedulers[] = { FL_SCHEDULERS(FL_SCHED_PTR) NULL };

const struct fl_sched *fl_sched_find(const char *name)
{
	const struct fl_sched *const *sched;

	for (sched = fl_schedulers; *sched; sched++)
		if (!strcmp((*sched)->name, name))
			return *sched;
	return NULL;
}
