/* SPDX-License-Identifier: GPL-2.0-only OR MIT */
/*
 * Included before libfairlane's files when they are compiled for the
 * simulator. It has one thread, so locks need not lock; but whoever takes the
 * lock that all cores share is counted, so that the host model can make its
 * core wait for it (host.c).
 */
#ifndef SIM_LOCKS_H
#define SIM_LOCKS_H

#include "../libfairlane/env.h"

extern const spinlock_t *sim_shared_lock;
extern unsigned int sim_shared_taken; /* how often, since the host model last looked */

static inline bool sim_lock(const spinlock_t *lock)
{
	sim_shared_taken += lock == sim_shared_lock;
	return true;
}

#undef spin_lock
#undef spin_trylock
#undef spin_unlock
#define spin_lock(l) ((void)sim_lock(l))
#define spin_trylock(l) sim_lock(l)
#define spin_unlock(l) ((void)(l))

#endif
