/* SPDX-License-Identifier: GPL-2.0-only OR MIT */
/*
 * Included before libfairlane's files when they are compiled for the
 * benchmark: real locks, the time for which the one that all cores share is
 * held, and the number of reads of shared memory meanwhile. See sim/locks.h.
 */
#ifndef BENCH_LOCKS_H
#define BENCH_LOCKS_H

#include <time.h>

#include "../libfairlane/env.h"

extern struct bench_shared {
	const spinlock_t *lock;
	u64 taken, held_ns, reads;
	u64 since_ns, all_reads, reads_before;
} bench_shared;

static inline u64 bench_now_ns(void)
{
	struct timespec ts;

	clock_gettime(CLOCK_MONOTONIC, &ts);
	return (u64)ts.tv_sec * NSEC_PER_SEC + ts.tv_nsec;
}

static inline void bench_lock(spinlock_t *lock)
{
	fl_lock(lock);
	if (lock != bench_shared.lock)
		return;
	bench_shared.reads_before = bench_shared.all_reads;
	bench_shared.since_ns = bench_now_ns();
}

static inline void bench_unlock(spinlock_t *lock)
{
	if (lock == bench_shared.lock) {
		bench_shared.held_ns += bench_now_ns() - bench_shared.since_ns;
		bench_shared.reads += bench_shared.all_reads - bench_shared.reads_before;
		bench_shared.taken++;
	}
	fl_unlock(lock);
}

#undef spin_lock
#undef spin_unlock
#define spin_lock(l) bench_lock(l)
#define spin_unlock(l) bench_unlock(l)

#undef READ_ONCE
#define READ_ONCE(x) (bench_shared.all_reads++, __atomic_load_n(&(x), __ATOMIC_RELAXED))
#define atomic_read(v) (bench_shared.all_reads++, atomic_read(v))
#define atomic64_read(v) (bench_shared.all_reads++, atomic64_read(v))

#endif
