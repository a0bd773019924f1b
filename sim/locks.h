/* SPDX-License-Identifier: GPL-2.0-only OR MIT */
/*
 * Included before libfairlane's files when they are compiled for the
 * simulator. It has one thread, so locks need not lock, and atomic operations,
 * which would take more time than all else here, need not be atomic. But the
 * lock that all cores share is counted each time it is taken, and so are the
 * reads of shared memory under it, of which slow paths that look at all flows do
 * many. From these the host model knows how long its core holds the lock, by
 * what microbench/ measured.
 */
#ifndef SIM_LOCKS_H
#define SIM_LOCKS_H

#define __atomic_fetch_add(p, n, order) ((void)(*(p) += (n)))
#define __atomic_add_fetch(p, n, order) (*(p) += (n))
#define __atomic_exchange_n(p, n, order)                                                           \
	({                                                                                         \
		__typeof__(p) __p = (p);                                                           \
		__typeof__(*__p) __old = *__p;                                                     \
		*__p = (n);                                                                        \
		__old;                                                                             \
	})
#define __atomic_compare_exchange_n(p, old, n, weak, success, failure)                             \
	({                                                                                         \
		bool __same = *(p) == *(old);                                                      \
		if (__same)                                                                        \
			*(p) = (n);                                                                \
		else                                                                               \
			*(old) = *(p);                                                             \
		__same;                                                                            \
	})
#define __atomic_thread_fence(order) __asm__ volatile("" ::: "memory")

#include "../libfairlane/env.h"

extern struct sim_shared {
	const spinlock_t *lock;
	/* Since the host model last looked: how often it was taken, and reads under it. */
	u64 taken, reads;
	u64 all_reads, reads_before; /* in all; when it was taken */
} sim_shared;

static inline bool sim_lock(const spinlock_t *lock)
{
	if (lock == sim_shared.lock)
		sim_shared.reads_before = sim_shared.all_reads;
	return true;
}

static inline void sim_unlock(const spinlock_t *lock)
{
	if (lock != sim_shared.lock)
		return;
	sim_shared.taken++;
	sim_shared.reads += sim_shared.all_reads - sim_shared.reads_before;
}

#undef spin_lock
#undef spin_trylock
#undef spin_unlock
#define spin_lock(l) ((void)sim_lock(l))
#define spin_trylock(l) sim_lock(l)
#define spin_unlock(l) sim_unlock(l)

#undef READ_ONCE
#define READ_ONCE(x) (sim_shared.all_reads++, __atomic_load_n(&(x), __ATOMIC_RELAXED))
#define atomic_read(v) (sim_shared.all_reads++, atomic_read(v))
#define atomic64_read(v) (sim_shared.all_reads++, atomic64_read(v))

#endif
