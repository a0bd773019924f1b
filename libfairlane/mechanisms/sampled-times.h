/* SPDX-License-Identifier: GPL-2.0-only OR MIT */
/*
 * Virtual times that are compared by sampling, with no lock and no order among them.
 *
 * Whoever has a virtual time is idle or backlogged. While it is backlogged, its virtual
 * time is in a slot of a table. To learn whether it is ahead of others, it looks into one
 * slot that is chosen at random (mqFlashFQ: Kang, Kim; JCSE 17(2), 2023, III-A):
 *
 *	slot        0    1    2    3
 *	vt         70   64   72   (free)     the one in 0 finds itself ahead of 1, not of 2
 *	waiters    -   hwq 5  -
 *
 * 1. Slots
 *
 * They belong to the device, so that a sample of a flow that has just gone is at worst an
 * old number. They are taken and left under dev->lock, the first free one first. Whoever
 * comes when all are taken has a slot of its own, out of the table: it is not sampled,
 * but samples; until one is free, when it is next looked at.
 *
 * 2. Coming and going
 *
 * Who becomes backlogged starts at the later of its own virtual time and the system's, the
 * least of those that are: what it did not use it has lost, what it owes it still owes. From a
 * sample it might start far ahead, where others were let go, and wait for all that were not.
 * When nobody is backlogged, the system's is the furthest that anyone was.
 *
 * 3. Waiters
 *
 * A hardware queue that waits for a slot to advance says so to its scheduler, sets its bit
 * there, and then looks at the slot again. Whoever dispatches for a slot adds to its virtual
 * time, looks at the bits, and asks those whose bits it has taken. There are full barriers in
 * between, so that one of them sees the other; before the bit, too, which may be set already.
 * Hardware queues n, n + 64, ... share a bit: some are asked in vain. Who waits for a slot that
 * moves otherwise (a charge, or all are brought nearer) finds that out at the next test.
 */
#ifndef FAIRLANE_SAMPLED_TIMES_H
#define FAIRLANE_SAMPLED_TIMES_H

#include "virtual-time.h"

/* As many can be sampled. */
#define FL_SLOTS 256

/* Random tries before the next slot in use is good enough. */
#define FL_SLOT_TRIES 4

struct fl_slot {
	/* Added to by any hardware queue; a stale read is by what is added just now too little. */
	atomic64_t vt;
	/* Written under dev->lock; a stale read samples one that just went, or misses one that came. */
	int used;
	/* Set by hardware queues that wait, cleared by whoever advances it. */
	atomic64_t waiters;
} ____cacheline_aligned_in_smp;

struct fl_slots {
	/* From here on none is used. Written under dev->lock; a stale read: as of used. */
	unsigned int nr;
	/* The rest is under dev->lock, but for the slots. */
	u64 backlogged; /* how many are; a counter to be shown */
	unsigned int taken; /* slots */
	u64 idle_vt; /* the furthest that any was when it ceased to be backlogged */
	u64 random;
	struct fl_slot slot[FL_SLOTS];
};

/* What has a virtual time: embedded in a flow, or in a hardware queue. */
struct fl_sampled {
	/*
	 * In the table, or &own. Written under dev->lock, while this is idle or has come too late for a
	 * place in the table; a stale read advances the wrong one, once.
	 */
	struct fl_slot *slot;
	bool in; /* backlogged; written under dev->lock; a stale read comes a request late */
	/*
	 * How far a charge without a dispatch took it since it was last not ahead. Added to by whoever charges, made
	 * less by its dispatch and under dev->lock, without order: what is lost of a charge counts as used.
	 */
	atomic64_t unpaid;
	struct fl_slot own; /* when idle, or all slots were taken */
};

static inline void fl_sampled_init(struct fl_sampled *who)
{
	who->slot = &who->own;
}

static inline u64 fl_sampled_vt(const struct fl_sampled *who)
{
	return atomic64_read(&READ_ONCE(who->slot)->vt);
}

/* 0..n-1: the upper bits of Knuth's linear congruence. */
static inline unsigned int fl_random_below(u64 *state, unsigned int n)
{
	*state = *state * 6364136223846793005ull + 1442695040888963407ull;
	return (*state >> 32) * n >> 32;
}

/* A random slot in use, other than @self; NULL when there is none. No lock, but @random's. */
static inline struct fl_slot *fl_slots_sample(struct fl_slots *slots, const struct fl_slot *self,
					      u64 *random)
{
	unsigned int nr = READ_ONCE(slots->nr), i = 0, n;

	if (!nr)
		return NULL;
	for (n = 0; n < FL_SLOT_TRIES + nr; n++) {
		struct fl_slot *slot;

		i = n < FL_SLOT_TRIES ? fl_random_below(random, nr) : i + 1 < nr ? i + 1 : 0;
		slot = &slots->slot[i];
		if (slot != self && READ_ONCE(slot->used))
			return slot;
	}
	return NULL;
}

/* Is @slot in use, and behind @vt? */
static inline bool fl_slot_is_behind(const struct fl_slot *slot, u64 vt)
{
	return fl_vt_before(atomic64_read(&slot->vt), vt) && READ_ONCE(slot->used);
}

/* ---- Coming and going: under dev->lock ---- */

/* The least of those that are backlogged; when nobody is, the furthest that any was. */
static inline u64 fl_slots_system(const struct fl_slots *slots)
{
	const struct fl_slot *slot, *end = slots->slot + slots->nr;
	u64 least = slots->idle_vt;
	bool found = false;

	for (slot = slots->slot; slot < end; slot++) {
		u64 vt = atomic64_read(&slot->vt);

		if (slot->used && (!found || fl_vt_before(vt, least))) {
			least = vt;
			found = true;
		}
	}
	return least;
}

/* @who, which is not in the table, is at @vt; there, if there is a place. */
static inline void __fl_sampled_place(struct fl_slots *slots, struct fl_sampled *who, u64 vt)
{
	unsigned int i;

	atomic64_set(&who->own.vt, vt);
	if (slots->taken == FL_SLOTS)
		return;
	for (i = 0; slots->slot[i].used; i++)
		;
	atomic64_set(&slots->slot[i].vt, vt);
	WRITE_ONCE(slots->slot[i].used, 1);
	WRITE_ONCE(slots->nr, max_t(unsigned int, slots->nr, i + 1));
	WRITE_ONCE(who->slot, &slots->slot[i]);
	slots->taken++;
}

/* @who becomes backlogged, if it is not, no earlier than @debt after @system, the system's virtual time. */
static inline void fl_sampled_enter(struct fl_slots *slots, struct fl_sampled *who, u64 system, u64 debt)
{
	u64 vt = fl_vt_later(atomic64_read(&who->own.vt), system + debt);

	if (who->in)
		return;
	__fl_sampled_place(slots, who, vt);
	atomic64_set(&who->unpaid, min_t(u64, atomic64_read(&who->unpaid) + debt, vt - system));
	WRITE_ONCE(who->in, true);
	slots->backlogged++;
}

/* @who is still backlogged, if it was. If it has no place in the table, there may be one by now. */
static inline void fl_sampled_stays(struct fl_slots *slots, struct fl_sampled *who)
{
	if (who->in && who->slot == &who->own && slots->taken < FL_SLOTS)
		__fl_sampled_place(slots, who, atomic64_read(&who->own.vt));
}

/* @who ceases to be backlogged, if it is. */
static inline void fl_sampled_leave(struct fl_slots *slots, struct fl_sampled *who)
{
	struct fl_slot *slot = who->slot;
	u64 vt = atomic64_read(&slot->vt);

	if (!who->in)
		return;
	WRITE_ONCE(who->in, false);
	slots->backlogged--;
	if (fl_vt_before(slots->idle_vt, vt))
		slots->idle_vt = vt;
	if (slot == &who->own)
		return;
	atomic64_set(&who->own.vt, vt);
	WRITE_ONCE(who->slot, &who->own);
	WRITE_ONCE(slot->used, 0);
	slots->taken--;
	while (slots->nr && !slots->slot[slots->nr - 1].used)
		WRITE_ONCE(slots->nr, slots->nr - 1);
}

/*
 * Those behind @least move forward, by no more than @most: all by as much, until the first of
 * them is there, and those more than @apart behind until they are no further. So none overtakes
 * another, and what they owe each other stays, up to @apart.
 */
static inline void fl_slots_bring_nearer(struct fl_slots *slots, u64 least, u64 apart, u64 most)
{
	struct fl_slot *slot, *end = slots->slot + slots->nr;
	u64 first = most; /* how far the first of them is */

	for (slot = slots->slot; slot < end; slot++)
		if (fl_slot_is_behind(slot, least))
			first = min_t(u64, first, least - atomic64_read(&slot->vt));
	for (slot = slots->slot; slot < end; slot++) {
		s64 behind = least - atomic64_read(&slot->vt);

		if (behind > 0 && READ_ONCE(slot->used))
			atomic64_add(min_t(s64, most, max_t(s64, first, behind - (s64)apart)),
				     &slot->vt);
	}
}

/* ---- Waiters: any context, no lock ---- */

static inline void __fl_slot_add_waiter(struct fl_slot *slot, unsigned int hwq)
{
	s64 old = atomic64_read(&slot->waiters), bit = 1ull << hwq % 64;

	while (!(old & bit) && !atomic64_try_cmpxchg(&slot->waiters, &old, old | bit))
		;
}

/* Hardware queue @hwq waits until @slot is no longer behind @vt, and has said so. False: it is not. */
static inline bool fl_slot_wait(struct fl_slot *slot, unsigned int hwq, u64 vt)
{
	smp_mb(); /* see 3 above */
	__fl_slot_add_waiter(slot, hwq);
	smp_mb();
	return fl_slot_is_behind(slot, vt);
}

/* Returns whether hardware queues wait for that: see fl_slot_wake(). */
static inline bool fl_slot_advance(struct fl_slot *slot, u64 step)
{
	atomic64_add(step, &slot->vt);
	smp_mb__after_atomic(); /* see 3 above */
	return atomic64_read(&slot->waiters);
}

/* More than that at once brings only who has next to no weight. */
#define FL_SLOT_LARGE (1ull << 30)

/* The same of @who without a dispatch: no further than half of FL_VT_AHEAD. May take @dev's lock. */
static inline void fl_sampled_charge(struct fl_slots *slots, struct fl_dev *dev, struct fl_sampled *who, u64 by)
{
	struct fl_slot *slot = READ_ONCE(who->slot);
	unsigned long flags;
	u64 system;

	if (unlikely(by >= FL_SLOT_LARGE)) {
		spin_lock_irqsave(&dev->lock, flags);
		system = fl_slots_system(slots);
		spin_unlock_irqrestore(&dev->lock, flags);
		if (!fl_vt_before(atomic64_read(&slot->vt), system + FL_VT_AHEAD / 2))
			return;
	}
	atomic64_add(by, &who->unpaid);
	fl_slot_advance(slot, by);
}

/* @who is not ahead: it owes nothing more of what it was charged. */
static inline void fl_sampled_paid(struct fl_sampled *who)
{
	if (unlikely(atomic64_read(&who->unpaid)))
		atomic64_set(&who->unpaid, 0);
}

/* Ask those that wait for @slot. @wake returns false: it goes on waiting, and is asked once more when that is seen. */
static inline void fl_slot_wake(struct fl_slot *slot, struct fl_dev *dev,
				bool (*wake)(struct fl_hwq *hwq, const struct fl_slot *slot))
{
	u64 waiters = atomic64_xchg(&slot->waiters, 0);
	unsigned int bit, i;

	for (bit = 0; bit < 64 && waiters >> bit; bit++)
		for (i = bit; (waiters >> bit & 1) && i < dev->nr_hwqs; i += 64)
			if (!wake(dev->hwqs[i], slot)) {
				__fl_slot_add_waiter(slot, i);
				smp_mb(); /* see 3 above */
				wake(dev->hwqs[i], slot);
			}
}

#endif
