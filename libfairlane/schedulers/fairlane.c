// SPDX-License-Identifier: GPL-2.0-only OR MIT
/*
 * fairlane: in the path only when it must be.
 *
 * 1. The idea
 *
 * A drive that is not full serves everybody at once, and needs no scheduler. One that is full serves whoever has most
 * in it, and what is in it is what the next one waits for. So all that a scheduler has to do is to keep a full drive
 * from becoming fuller, and to say who is next.
 *
 *	submitters       admit()                       the drive
 *	A  ----------->  room, and not ahead: go  -->  [ budget ]
 *	B  ----------->  else wait; as requests end,
 *	C  ----------->  the one furthest behind goes
 *
 * While nobody is behind (behind.h), a request costs an addition at its hardware queue when it is sent, and one when it
 * is done. There is no elevator in the path, and tenants that the drive serves alike anyway pay for nothing.
 *
 * 2. Who is next: virtual time, level by level
 *
 * Siblings in the cgroup tree share what their parent has. Each has a virtual time: the cost (prices.h) of what it and
 * all below it have sent, divided by its weight; charged when it is sent, at each level up to the root. So a tenant
 * gains nothing by sub-cgroups, and weights hold from the first request on: no rate and no share has to be learned.
 *
 * The virtual time of a group of siblings is the least among those that want more than they get: that wait, or were let
 * go a moment ago and may be about to come back. For a submitter has to wake up before it sends its next request;
 * without that moment, whoever happens to wait would be served instead. A moment is twice as long as it takes those
 * that come back. Who wants less than its share holds nobody back for longer; who sends one at a time, only until it is
 * back. Who wakes up late finds its place taken: in-drive.h.
 *
 *	ahead	by more than its part of an eighth of the budget: it waits, unless more than a third of the
 *		budget is left with it (though credit may take of that). So a drive does not run dry for somebody
 *		who is slow to come back, or short of CPU time.
 *	behind	by half as much or more at some level: it goes at once, though the budget be exceeded by about an
 *		eighth; if at every level, and with a latency target, by however much. Nobody is further behind than its
 *		part of the budget: who comes back late makes up for that much, and who wanted less saves no more.
 *	else	it goes if there is room in the budget.
 *
 * To sleep and to wake up costs CPU time. So who is let go gets credit, charged at once, for one request, and then,
 * if it used that up, for 3, 7 and 8 more: a deep queue sleeps once in nine requests. What it does not come back for
 * in a moment is for others of it that wait; what is left after 16 ms is given back.
 *
 * 3. The budget: as much in the drive as is of use
 *
 * More than that only waits in the drive instead of here, where it waits in the right order. knee.h finds how much it
 * is, and follows it. It is less for two kinds of flows:
 *
 *	behind	though all that it wants is in the drive, or came behind and had to wait, as others are in its way.
 *		behind.h says with how much there it would get its due: the knee's ceiling
 *	late	by a latency target (io.fairlane.latency), in more than one of a hundred requests: pressing.h
 *
 * Both have a limit, the knee's. What targets cost all others is for the operator to say (latency_loss). And a target
 * gives no share: who is ahead waits.
 *
 * Ticks look at all that, the sooner the more is sent. In a flood (flood.h) the budget holds though nobody is behind
 * yet: a burst of thousands of large requests. dev->lock is taken by ticks, and where somebody waits.
 */
#include "../mechanisms/activity.h"
#include "../mechanisms/behind.h"
#include "../mechanisms/flood.h"
#include "../mechanisms/heap.h"
#include "../mechanisms/in-drive.h"
#include "../mechanisms/knee.h"
#include "../mechanisms/pressing.h"

#define FA_TICK_NS FL_BEHIND_TICK_NS
#define FA_TICK_TIGHT_NS NSEC_PER_MSEC
/* Parts of the budget: see 2. */
#define FA_LEAD 8
#define FA_IDLE 3
#define FA_CREDIT 4
/* Credit: for so many requests, for so many flows, so long. */
#define FA_CREDIT_REQUESTS 8
#define FA_CREDIT_FLOWS 64
#define FA_CREDIT_NS (16ull * NSEC_PER_MSEC)
#define FA_MOMENT_FIRST_NS (100ull * NSEC_PER_USEC)
#define FA_MOMENT_MAX_NS (10ull * NSEC_PER_MSEC)
/* The drive counts as full while somebody waits, and that long after; but not if it does nothing for so long. */
#define FA_GRACE_NS (100ull * NSEC_PER_MSEC)
#define FA_STALL_NS (2 * NSEC_PER_SEC)
#define FA_BATCH 32 /* so many are let go, or put elsewhere in a heap, before interrupts are allowed again */

/* The budget: see 3. */
#define FA_FIRST 256 /* requests, when somebody is behind; until then, or a flood, there is no budget */
#define FA_LEAST 4 /* requests like those in the drive: below this, levels cannot be told apart */
#define FA_PARTS 4 /* of a flood, from one hardware queue each; at most 8 times as many */
#define FA_FADES_NS (NSEC_PER_SEC / 16) /* what was in the drive counts for so long */
#define FA_AGAIN_MIN_NS (NSEC_PER_SEC / 16)
#define FA_AGAIN_MAX_NS (16ull * NSEC_PER_SEC)

/* Siblings: the flows below one, and its own requests. Under dev->lock but for vt. */
struct fa_group {
	atomic64_t vt; /* read without: a stale one lets a request go, or wait, that should not */
	struct fl_heap waiting; /* fa_node.waiting of those that wait */
	struct fl_heap late; /* fa_node.late of those that were let go */
};

/* One that competes with its siblings: a flow's own requests, or all that is below a flow. */
struct fa_node {
	atomic64_t vt; /* by whoever sends, without a lock; a stale read: as of fa_group.vt */
	struct fa_group *among; /* its siblings and itself. Does not change */
	/* Under dev->lock. */
	struct fl_heap_entry waiting, late; /* by its virtual time when it was put there */
	u64 went_ns; /* when it was last let go */
};

struct fa_flow {
	struct fl_flow flow;
	struct fa_node own, below; /* the root has nobody beside it, and so no below */
	struct fa_group group; /* its own, and the below of each child */
	struct list_head waiting[FL_NR_RANKS]; /* fl_admission.node, the first first; written under dev->lock */

	atomic64_t credit; /* cost it may send at once; given under dev->lock, taken by whoever sends */
	/* Under dev->lock. */
	struct list_head credited; /* in fa_dev.credited */
	u64 credit_ns; /* when it was given */
	u64 several_ns; /* when one would have had to wait that was not its only one last */
	u32 credit_requests; /* of the last one */
	struct fl_behind behind;
};

struct fa_hwq {
	struct fl_hwq hwq;
	struct fl_in_drive in;
};

struct fa_dev {
	struct fl_dev dev;
	/* Read by each request. */
	bool tight; /* by ticks. A stale read: a request is not held back; room is off until a tick */
	s64 limit; /* the budget now; by ticks. A stale read is the one before */
	u64 part; /* when a hardware queue has sent so much, a tick comes; by ticks. A stale read: too soon, or late */
	struct fa_flow *root; /* does not change */
	atomic64_t room ____cacheline_aligned_in_smp; /* while tight: limit, less what is in the drive, has a place there, or credit */
	atomic64_t credits; /* of all flows; a part of what room is without */
	atomic_t nr_waiting; /* admissions; written under dev->lock */
	atomic64_t discards; /* what they cost beyond what they count for in the drive; since the last tick */

	/* Under dev->lock. */
	u64 waits ____cacheline_aligned_in_smp; /* admissions that had to */
	u64 limited, last_limited; /* and for how many there was credit, too; at the last tick */
	u64 full_ns, done_ns; /* when the drive was last full, and did something, as ticks see it */
	struct list_head credited; /* fa_flow.credited, the first to end first */
	unsigned int nr_credited;
	u64 tick_ns, now_ns; /* the time of the last tick, and of whatever was last */
	u64 moment_ns; /* see 2 */
	struct fl_knee knee;
	struct fl_flood flood;
	struct fl_waking waking;
	s64 owed; /* cost of the root's that are done: others may go for it without room */
	struct fl_pressing pressing;
	s64 filled; /* cost that was in the drive of late */
	u64 since_ns; /* who is behind since then counts */
	struct fl_in_drive_sums last; /* of the last tick */
	struct fl_progress all; /* of all, since ever */
	u64 begin_ns, again_ns, aged_ns; /* when to search again, how long until then; when flows were aged */
	u64 budget, latency_loss, middle; /* tunables, and what is shown of the knee */
};

#define to_fa_dev(_dev) container_of(_dev, struct fa_dev, dev)
#define to_fa_flow(_flow) container_of(_flow, struct fa_flow, flow)
#define to_fa_hwq(_hwq) container_of(_hwq, struct fa_hwq, hwq)
#define fa_head(_f) fl_first_waiting((_f)->waiting)
#define fa_owner(_group) container_of(_group, struct fa_flow, group) /* the flow that it is below */

/* ---- Virtual time ------------------------------------------------------ */

/* The node above @node, NULL if there is none. */
static struct fa_node *fa_above(const struct fa_node *node)
{
	return fa_owner(node->among)->flow.parent ? &fa_owner(node->among)->below : NULL;
}

/* How far @cost brings one of that weight. */
static u64 fa_advance(u64 cost, u32 weight)
{
	return max_t(u64, div64_u64(cost * FL_WEIGHT_MAX, weight), 1);
}

static u32 fa_weight(const struct fa_node *node)
{
	const struct fa_flow *owner = fa_owner(node->among);

	return node == &owner->own ? FL_WEIGHT_DEFAULT : READ_ONCE(container_of(node, struct fa_flow, below)->flow.weight);
}

/* How far one of @group may be ahead; behind, FA_LEAD times as far. */
static s64 fa_lead(struct fa_dev *fa, struct fa_group *group)
{
	u32 weight = READ_ONCE(fa_owner(group)->flow.active_weight);

	return fa_advance(READ_ONCE(fa->limit) / FA_LEAD, max_t(u32, weight, 1));
}

/* Would more than a third of the budget be left, or is the drive empty now? */
static bool fa_spare(const struct fa_dev *fa, s64 room, u64 cost)
{
	return room - (s64)cost > READ_ONCE(fa->limit) / FA_IDLE ||
	       room + atomic64_read(&fa->credits) >= READ_ONCE(fa->limit);
}

/* Does anybody of @group want more than it gets? A stale answer: as of fa_group.vt. */
static bool fa_wanted(const struct fa_group *group)
{
	return READ_ONCE(group->waiting.first) || READ_ONCE(group->late.first);
}

/* 1: @f is ahead at some level; -2: behind at each; -1: at one or more; but for levels where nobody wants more. */
static int fa_place(struct fa_dev *fa, const struct fa_flow *f)
{
	int behind = 0, levels = 0;

	for (const struct fa_node *node = &f->own; node; node = fa_above(node)) {
		s64 by = (u64)atomic64_read(&node->vt) - atomic64_read(&node->among->vt), lead;

		if (!fa_wanted(node->among))
			continue;
		lead = fa_lead(fa, node->among);
		if (by > lead)
			return 1;
		behind += by < -lead / 2;
		levels++;
	}
	return !behind ? 0 : behind < levels ? -1 : -2;
}

/* How far @node is ahead; one too far behind is brought up first. */
static s64 fa_bring_up(struct fa_dev *fa, struct fa_node *node)
{
	s64 vt = atomic64_read(&node->vt);
	u64 among = atomic64_read(&node->among->vt), now = fl_vt_caught_up(vt, among, FA_LEAD * fa_lead(fa, node->among));

	if (now != (u64)vt)
		atomic64_try_cmpxchg(&node->vt, &vt, now);
	return now - among;
}

/* At each level, up to a limit. One beside whom nobody waits is not ahead. */
static void fa_charge(struct fa_dev *fa, struct fa_node *node, u64 cost)
{
	for (; node; node = fa_above(node)) {
		s64 ahead = fa_bring_up(fa, node), vt = atomic64_read(&node->vt), among = (u64)vt - ahead;

		if (ahead > 0 && !fa_wanted(node->among))
			atomic64_try_cmpxchg(&node->among->vt, &among, vt);
		if (ahead < (s64)FL_VT_AHEAD / 2)
			atomic64_add(fa_advance(cost, fa_weight(node)), &node->vt);
	}
}

/* ---- Credit: see 2 ------------------------------------------------------- */

/* May @f send @cost of its credit? */
static bool fa_use_credit(struct fa_dev *fa, struct fa_flow *f, u64 cost)
{
	s64 credit = atomic64_read(&f->credit);

	while (credit >= (s64)cost)
		if (atomic64_try_cmpxchg(&f->credit, &credit, credit - cost)) {
			atomic64_add(-(s64)cost, &fa->credits);
			return true;
		}
	return false;
}

/* Under dev->lock, as the rest of this section. */
static void fa_end_credit(struct fa_dev *fa, struct fa_flow *f)
{
	u64 rest = atomic64_xchg(&f->credit, 0);
	struct fa_node *node;

	list_del_init(&f->credited);
	fa->nr_credited--;
	if (!rest)
		return;
	atomic64_add(-(s64)rest, &fa->credits);
	f->credit_requests = 0;
	for (node = &f->own; node; node = fa_above(node)) {
		atomic64_add(-(s64)fa_advance(rest, fa_weight(node)), &node->vt);
		if (node->waiting.in)
			fl_heap_put(&node->among->waiting, &node->waiting, atomic64_read(&node->vt));
	}
	atomic64_add(rest, &fa->room);
}

/* A request of @f was let go: how much more may it send when it has woken up? Twice as much as it has used up. */
static void fa_give_credit(struct fa_dev *fa, struct fa_flow *f, u64 cost)
{
	s64 spare = fa->limit / FA_CREDIT - atomic64_read(&fa->credits), more;

	if (atomic64_read(&f->credit) >= (s64)cost || spare < (s64)cost)
		return;
	f->credit_requests = min_t(u64, min_t(u32, 2 * f->credit_requests + 1, FA_CREDIT_REQUESTS), div64_u64(spare, cost));
	more = cost * f->credit_requests;
	if (list_empty(&f->credited)) {
		if (fa->nr_credited == FA_CREDIT_FLOWS)
			return;
		fa->nr_credited++;
	}
	list_move_tail(&f->credited, &fa->credited);
	f->credit_ns = fa->now_ns;
	atomic64_add(more, &fa->credits);
	fa->limited += f->credit_requests;
	atomic64_add(-more, &fa->room);
	fa_charge(fa, &f->own, more);
	atomic64_add(more, &f->credit);
}

/* ---- Those that wait; under dev->lock --------------------------------- */

/* The one furthest behind of @group that waits, or is @late; or nearly, if too many virtual times have moved on. */
static struct fa_node *fa_first_of(struct fa_dev *fa, struct fa_group *group, bool late)
{
	struct fl_heap *heap = late ? &group->late : &group->waiting;
	struct fl_heap_entry *entry;

	for (int i = 0; (entry = heap->first); i++) {
		struct fa_node *node = late ? container_of(entry, struct fa_node, late) :
					      container_of(entry, struct fa_node, waiting);

		if (late && i < FA_BATCH && fa->now_ns - node->went_ns > fa->moment_ns)
			fl_heap_remove(heap, entry);
		else if (i == FA_BATCH || entry->key == (u64)atomic64_read(&node->vt))
			return node;
		else
			fl_heap_put(heap, entry, atomic64_read(&node->vt));
	}
	return NULL;
}

/* The first of @group that waits; its virtual time is brought up to date. */
static struct fa_node *fa_first(struct fa_dev *fa, struct fa_group *group)
{
	struct fa_node *first = fa_first_of(fa, group, false), *late = fa_first_of(fa, group, true);
	struct fl_heap_entry *least = first ? &first->waiting : NULL;

	if (late && (!least || fl_vt_before(late->late.key, least->key)))
		least = &late->late;
	if (least && fl_vt_before(atomic64_read(&group->vt), least->key))
		atomic64_set(&group->vt, least->key);
	return first;
}

/* The flow that is next, if any waits. */
static struct fa_flow *fa_next(struct fa_dev *fa)
{
	struct fa_flow *f = fa->root;
	struct fa_node *node;

	while ((node = fa_first(fa, &f->group)) && node != &f->own)
		f = container_of(node, struct fa_flow, below);
	return node ? f : NULL;
}

/* A moment is twice as long as it takes who was let go to come back and wait. */
static void fa_begin_waiting(struct fa_dev *fa, struct fa_node *node)
{
	s64 took_ns = min_t(u64, fa->now_ns - node->went_ns, FA_MOMENT_MAX_NS);

	if (node->late.in)
		fa->moment_ns += (2 * took_ns - (s64)fa->moment_ns) / 16;
	for (; node && !node->waiting.in; node = fa_above(node)) {
		fl_heap_remove(&node->among->late, &node->late);
		fa_bring_up(fa, node);
		fl_heap_put(&node->among->waiting, &node->waiting, atomic64_read(&node->vt));
	}
}

/* Nobody waits for @node to come back, nor for those above it that are late for its sake alone. */
static void fa_is_not_late(struct fa_dev *fa, struct fa_node *node)
{
	bool wanted = false;

	for (; node && !wanted; node = fa_above(node)) {
		fl_heap_remove(&node->among->late, &node->late);
		fa_first(fa, node->among);
		wanted = fa_wanted(node->among);
	}
}

/* A request of @f was let go. Those on its way of whom no other waits may be about to come back. */
static void fa_went(struct fa_dev *fa, struct fa_flow *f)
{
	bool more = fa_head(f);
	struct fa_node *node;

	for (node = &f->own; node && !more; node = fa_above(node)) {
		fl_heap_remove(&node->among->waiting, &node->waiting);
		node->went_ns = fa->now_ns;
		fl_heap_put(&node->among->late, &node->late, atomic64_read(&node->vt));
		more = node->among->waiting.first;
	}
}

/* The first of @f that waits goes; what it costs was charged. */
static void fa_let_go(struct fa_dev *fa, struct fa_flow *f)
{
	struct fl_admission *a = fa_head(f);

	list_del_init(&a->node);
	atomic_dec(&fa->nr_waiting);
	a->let_go = fl_waking_let_go(&fa->waking, fl_in_drive_counts(a));
	fl_admitted(a);
}

/*
 * Credit that nobody came back for in a moment is for those of its flow that wait. What is left of it in the end is
 * given back; so is that of others, if together they are too much for a budget that has fallen.
 */
static void fa_look_at_credits(struct fa_dev *fa)
{
	struct fa_flow *f, *next;
	int i = 0;

	list_for_each_entry_safe(f, next, &fa->credited, credited) {
		if (fa->now_ns - f->credit_ns > fa->moment_ns && fa_head(f)) {
			for (; i < FA_BATCH && fa_head(f) && fa_use_credit(fa, f, fa_head(f)->cost); i++)
				fa_let_go(fa, f);
			fa_went(fa, f);
		}
		if (!atomic64_read(&f->credit) || fa->now_ns - f->credit_ns >= FA_CREDIT_NS ||
		    atomic64_read(&fa->credits) > fa->limit / FA_CREDIT)
			fa_end_credit(fa, f);
	}
}

/*
 * Let go as many as there is room for; and, as the root's take room and never wait, for as much as was done of those.
 * True: there may be more, which should be done soon.
 */
static bool fa_release(struct fa_dev *fa)
{
	int i;

	fa->now_ns = fl_now_ns();
	for (i = 0; i < FA_BATCH && atomic_read(&fa->nr_waiting); i++) {
		s64 room = atomic64_read(&fa->room);
		struct fa_flow *f;
		u64 cost, counts;

		if (fa->tight && room <= 0 && !fa->owed)
			return false;
		f = fa_next(fa);
		cost = fa_head(f)->cost;
		counts = fl_in_drive_counts(fa_head(f));
		if (fa->tight && ((room <= 0 && fa->owed < min_t(s64, counts, fa->limit)) ||
				  (fa_place(fa, f) > 0 && !fa_spare(fa, room, cost))))
			return false;
		atomic64_add(-(s64)counts, &fa->room);
		fa_charge(fa, &f->own, cost);
		fa_let_go(fa, f);
		if (fa->tight && room > 0)
			fa_give_credit(fa, f, cost);
		fa->owed = room > 0 ? 0 : max_t(s64, fa->owed - counts, 0);
		fa_went(fa, f);
	}
	return atomic_read(&fa->nr_waiting);
}

/* ---- Requests ----------------------------------------------------------- */

/* May a request of @f go at once? If there is room. One behind may without: a little; at each level, for its target. */
static bool fa_goes(struct fa_dev *fa, struct fa_flow *f, u64 cost)
{
	s64 room = atomic64_read(&fa->room);
	int place;

	if (fl_waits_before(f->waiting, FL_NR_RANKS - 1))
		return false;
	place = fa_place(fa, f);
	if (place < 0 && (room > -READ_ONCE(fa->limit) / FA_LEAD || (place < -1 && fl_flow_target_ns(&f->flow))))
		return true;
	return room > 0 && (place <= 0 || fa_spare(fa, room, cost));
}

static void fa_wait(struct fa_dev *fa, struct fa_flow *f, struct fl_admission *a, bool as_first)
{
	list_add(&a->node, as_first ? &f->waiting[a->rank] : f->waiting[a->rank].prev);
	f->behind.waiting++;
	atomic_inc(&fa->nr_waiting);
	fa_begin_waiting(fa, &f->own);
	smp_mb__after_atomic(); /* a completion sees that somebody waits, or we see the room that it gave */
}

/* Does a request of @f wait? Who sends one at a time is not waited for: it is not late, and may be behind. */
static bool fa_waits(struct fa_dev *fa, struct fa_flow *f, struct fl_admission *a)
{
	bool others = fl_flow_has_others(a), goes = false;
	unsigned long flags;

	spin_lock_irqsave(&fa->dev.lock, flags);
	fa->now_ns = a->since_ns = fl_now_ns();
	if (others) {
		f->several_ns = fa->now_ns;
	} else if (fa->now_ns - f->several_ns > FA_MOMENT_MAX_NS) {
		fa_is_not_late(fa, &f->own);
		goes = fa_goes(fa, f, a->cost);
	}
	if (!goes) {
		f->behind.came_behind = fa_place(fa, f) < 0;
		fa->waits++;
		fa->limited++;
		fa_wait(fa, f, a, false);
	}
	fa_release(fa); /* virtual times may have moved, too */
	spin_unlock_irqrestore(&fa->dev.lock, flags);
	return !goes;
}

/* ---- The budget; under dev->lock --------------------------------------- */

/* Is the drive to be kept from becoming fuller? */
static bool fa_decide(struct fa_dev *fa, const struct fl_in_drive_sums *now)
{
	bool several = fa->dev.nr_active > 1, again = fa->tick_ns >= fa->begin_ns, begins, full;
	struct fl_behind_all behind = {};
	bool waited = fa->tight && fa->limited != fa->last_limited;
	bool flooded = now->requests > FA_LEAST && fl_in_drive_cheap(now) > fl_flood_limit(&fa->flood);
	u64 judged = now->judged - fa->last.judged, least = 2 * FA_LEAST * now->mean;
	u32 timely = judged, late = judged >> 32;
	s64 level = fa->tight ? fa->limit : min_t(s64, fa->filled, max_t(s64, now->cost, FA_FIRST * now->mean));

	if (memcmp(now->done, fa->last.done, sizeof(now->done)) || !fa->last.requests)
		fa->done_ns = fa->tick_ns;
	if ((fa->tight && fa->knee.searching) ||
	    ((flooded || waited || (fa->tight && atomic_read(&fa->nr_waiting))) && fa->tick_ns - fa->done_ns < FA_STALL_NS))
		fa->full_ns = fa->tick_ns;
	begins = !fa->tight && several && now->requests > FA_LEAST && again && fl_knee_may_search(&fa->knee);
	if (fa->tight || begins)
		behind = fl_somebody_is_behind(&fa->dev, offsetof(struct fa_flow, behind), fa->all, level,
					       fa->since_ns, fa->tick_ns, fa->tight);
	begins = begins && (late || behind.fits);
	fl_press(&fa->pressing, behind.fits, timely, late, fl_counted_requests(now->sent - fa->last.sent));
	if (fa->tight && fa->knee.searching) {
		if (fl_knee_lower(&fa->knee, fl_presses_behind(&fa->pressing) ? behind.fits : 0, least, level, behind.wait))
			fa->since_ns = fa->tick_ns + 1;
		fa->begin_ns = fa->tick_ns + fa->again_ns;
	} else if (fa->tight) {
		if (waited && fl_nobody_presses(&fa->pressing) && again)
			fa->again_ns = FA_AGAIN_MIN_NS; /* it is of use, and enough */
		begins = fl_presses_most(&fa->pressing) && again;
	} else if (begins) {
		fl_knee_guess(&fa->knee, behind.fits, least, level);
		fa->full_ns = fa->tick_ns;
	}
	if (begins) {
		fa->since_ns = fa->tick_ns + 1;
		if (!fa->tight) /* with as much as there is, so that nobody waits at first; but not with thousands */
			level = min_t(s64, level, FA_FIRST * now->mean);
		fl_knee_search(&fa->knee, level, fa->tight ? -1 : 0, now->cost);
		fa->again_ns = min_t(u64, 4 * fa->again_ns, FA_AGAIN_MAX_NS);
		fa->begin_ns = fa->tick_ns + fa->again_ns;
	}
	full = READ_ONCE(fa->budget) || (fa->tick_ns - fa->full_ns < FA_GRACE_NS && !fl_flood_was_none(&fa->flood));
	if (full && several && !fa->tight && !begins) {
		fl_knee_resume(&fa->knee, now->cost);
		if (fa->knee.searching) /* nothing is known yet */
			fa->since_ns = fa->tick_ns + 1;
		fl_flood_begins(&fa->flood, now->cost);
	}
	return full && several;
}

/* What was done since the last tick, and so how much is of use in the drive. */
static void fa_follow(struct fa_dev *fa, const struct fl_in_drive_sums *now, u64 ns, u64 busy_ns)
{
	u64 reads = now->done[0] - fa->last.done[0], others = now->done[1] - fa->last.done[1];
	struct fl_knee_look look = {
		.ns = ns, .busy_ns = busy_ns,
		.done = { fl_counted_cost(reads), fl_counted_cost(others), fl_counted_requests(reads + others) },
		.sent = fl_counted_requests(now->sent - fa->last.sent),
		.limited = fa->limited - fa->last_limited,
	};

	fa->knee.loss = READ_ONCE(fa->latency_loss);
	if (!fa->tight) {
		fl_knee_without(&fa->knee, &look, now->cost);
		return;
	}
	fl_knee_look(&fa->knee, &look, &fa->pressing,
		     clamp_t(s64, FA_LEAST * now->mean, 1, FA_FIRST * FL_COST_ONE));
	if (fa->knee.searching && !fa->knee.window.ns && !fa->knee.settled) /* what another level did is over */
		fa->pressing = (struct fl_pressing){}, fa->since_ns = fa->tick_ns + ns + 1;
}

static void fa_look(struct fa_dev *fa)
{
	u64 now_ns = fl_now_ns(), ns = now_ns - fa->tick_ns, busy_ns, sent, done, parts;
	struct fl_in_drive_sums now;
	s64 budget = READ_ONCE(fa->budget), room;

	fa->now_ns = now_ns;
	fa_look_at_credits(fa);
	fl_in_drive_sum(&fa->dev, offsetof(struct fa_hwq, in), &now);
	sent = now.sent - fa->last.sent;
	fa->all.cost += fl_counted_cost(sent) + atomic64_xchg(&fa->discards, 0);
	fa->all.requests += fl_counted_requests(sent);
	done = now.done[0] - fa->last.done[0] + now.done[1] - fa->last.done[1];
	busy_ns = fa->last.requests ? ns : done ? min_t(u64, ns, FA_TICK_NS) : 0;
	fl_flood_done(&fa->flood, fl_counted_cost(done), busy_ns);
	fa_follow(fa, &now, ns, busy_ns);
	if (fl_knee_was_in_vain(&fa->knee, FA_FIRST * FL_COST_ONE)) { /* nobody has to wait */
		WRITE_ONCE(fa->tight, false);
		fa->full_ns = now_ns - FA_GRACE_NS;
	}
	/* The CPU may be late with more; long ago says nothing. */
	fa->filled -= mul_u64_u64_div_u64(fa->filled, min_t(u64, ns, FA_FADES_NS), FA_FADES_NS);
	fa->filled = max_t(s64, fa->filled, fl_in_drive_cheap(&now));
	fa->tick_ns = now_ns;
	WRITE_ONCE(fa->tight, fa_decide(fa, &now));
	fa->last = now;
	fa->last_limited = fa->limited;
	WRITE_ONCE(fa->limit, min_t(s64, budget ? budget * FL_COST_ONE : fl_knee_level(&fa->knee), fl_in_drive_all_tags(&now)));
	room = fa->limit - (s64)now.cost - atomic64_read(&fa->credits);
	if (!budget && now.requests < FA_LEAST) /* one that is dearer than all is not in the way of all */
		room = max_t(s64, room, fa->limit / 2);
	room -= fl_waking_tick(&fa->waking);
	atomic64_set(&fa->room, room);
	fa->owed = fa->tight && room <= 0 ? min_t(s64, fa->owed, fa->limit) : 0;
	parts = clamp_t(u64, fa->dev.nr_hwqs, FA_PARTS, 8 * FA_PARTS);
	WRITE_ONCE(fa->part, fa->tight ? FL_KNEE_MOST : fl_flood_limit(&fa->flood) / parts);
}

static u64 fa_tick(struct fl_dev *dev)
{
	struct fa_dev *fa = to_fa_dev(dev);
	unsigned long flags;
	bool idle = fl_is_due(dev, &fa->aged_ns, FL_AGE_NS) && !fl_flows_tick(dev);

	spin_lock_irqsave(&dev->lock, flags);
	fa_look(fa);
	fa->middle = fa->knee.middle / FL_COST_ONE;
	while (fa_release(fa)) { /* interrupts may come in between */
		spin_unlock_irqrestore(&dev->lock, flags);
		spin_lock_irqsave(&dev->lock, flags);
	}
	spin_unlock_irqrestore(&dev->lock, flags);
	return idle ? 0 : fa->tight ? FA_TICK_TIGHT_NS : FA_TICK_NS;
}

/* ---- What is sent, and done --------------------------------------------- */

static bool fa_admit(struct fl_queue *queue, struct fl_admission *a)
{
	struct fa_dev *fa = to_fa_dev(queue->hwq->dev);
	struct fa_flow *f = to_fa_flow(queue->flow);
	struct fa_hwq *hwq = to_fa_hwq(queue->hwq);
	u64 counts = fl_in_drive_counts(a);

	if (unlikely(counts != a->cost))
		atomic64_add(a->cost - counts, &fa->discards);
	if (fl_flow_touch(queue))
		fl_flow_activate(queue->flow);
	if (unlikely(fl_in_drive_look(&hwq->in, READ_ONCE(fa->part)))) /* the next tick may be too late */
		fl_dev_kick(&fa->dev);
	if (unlikely(READ_ONCE(fa->tight)) &&
	    (fl_waits_before(f->waiting, a->rank - 1) || !fa_use_credit(fa, f, a->cost))) {
		if (!a->must && !fa_goes(fa, f, a->cost) && fa_waits(fa, f, a))
			return false; /* if it was let go already, its submitter was told */
		atomic64_add(-(s64)counts, &fa->room);
		fa_charge(fa, &f->own, a->cost);
	}
	fl_in_drive_sent(&hwq->in, counts, a->more);
	return true;
}

/*
 * Who is late goes if there is nearly room, or nothing was in the drive: then it takes nobody's place. Else it waits again,
 * and pays again for a place; for FA_STALL_NS at most.
 */
static bool fa_sent(struct fl_admission *a)
{
	struct fa_dev *fa = to_fa_dev(a->queue->hwq->dev);
	struct fa_flow *f = to_fa_flow(a->queue->flow);
	u64 counts = fl_in_drive_counts(a);
	unsigned long flags;
	bool late, goes;

	spin_lock_irqsave(&fa->dev.lock, flags);
	fa->now_ns = fl_now_ns();
	late = !fl_waking_sent(&fa->waking, a->let_go, counts);
	goes = !late || !fa->tight || !fa->last.requests || atomic64_read(&fa->room) > -fa->limit / FA_LEAD ||
	       fa->now_ns - a->since_ns > FA_STALL_NS;
	a->let_go = 0;
	f->behind.waiting--;
	if (goes) {
		fl_in_drive_woken(&to_fa_hwq(a->queue->hwq)->in, counts);
		atomic64_add(late ? -(s64)counts : 0, &fa->room);
	} else {
		fl_heap_remove(&f->group.late, &f->own.late); /* it is no measure of a moment */
		fa_wait(fa, f, a, true);
		fa_release(fa);
	}
	spin_unlock_irqrestore(&fa->dev.lock, flags);
	return goes;
}

static void fa_leave(struct fl_queue *queue, enum fl_op op, u64 cost, u64 ns)
{
	struct fa_dev *fa = to_fa_dev(queue->hwq->dev);
	struct fa_hwq *hwq = to_fa_hwq(queue->hwq);
	u64 target_ns = ns ? fl_flow_target_ns(queue->flow) : 0;
	unsigned long flags;

	cost = fl_in_drive_cost(op, cost, false);
	fl_in_drive_done(&hwq->in, op, cost);
	if (target_ns)
		fl_in_drive_judge(&hwq->in, ns <= target_ns);
	if (likely(!READ_ONCE(fa->tight)))
		return;
	atomic64_add(cost, &fa->room);
	smp_mb__after_atomic(); /* see fa_waits() */
	if (!atomic_read(&fa->nr_waiting))
		return;
	spin_lock_irqsave(&fa->dev.lock, flags);
	if (!queue->up)
		fa->owed = min_t(s64, fa->owed + cost, fa->limit);
	fa_release(fa);
	spin_unlock_irqrestore(&fa->dev.lock, flags);
}

/* What the root sends for a flow: it pays while there is something to share. */
static void fa_charge_ahead(struct fl_queue *queue, enum fl_op op, u32 bytes)
{
	struct fa_dev *fa = to_fa_dev(queue->hwq->dev);

	if (READ_ONCE(fa->tight))
		fa_charge(fa, &to_fa_flow(queue->flow)->own, fl_cost(&fa->dev.prices, op, bytes));
}

/* ---- Devices and flows ----------------------------------------------------- */

static void fa_init_dev(struct fl_dev *dev)
{
	struct fa_dev *fa = to_fa_dev(dev);

	INIT_LIST_HEAD(&fa->credited);
	fl_knee_anew(&fa->knee, FA_FIRST * FL_COST_ONE);
	fa->again_ns = FA_AGAIN_MIN_NS;
	fa->moment_ns = FA_MOMENT_FIRST_NS;
	fa->limit = fl_knee_level(&fa->knee);
	fa->part = FL_FLOOD_FIRST / FA_PARTS;
}

static void fa_init_flow(struct fl_flow *flow)
{
	struct fa_dev *fa = to_fa_dev(flow->dev);
	struct fa_flow *f = to_fa_flow(flow);

	for (int i = 0; i < FL_NR_RANKS; i++)
		INIT_LIST_HEAD(&f->waiting[i]);
	INIT_LIST_HEAD(&f->credited);
	f->own.among = &f->group;
	if (flow->parent) {
		f->below.among = &to_fa_flow(flow->parent)->group;
		atomic64_set(&f->below.vt, atomic64_read(&f->below.among->vt));
	} else {
		fa->root = f;
	}
}

/* It has no request and nobody below it left; but it may still be counted as about to come back. */
static void fa_exit_flow(struct fl_flow *flow)
{
	struct fa_dev *fa = to_fa_dev(flow->dev);
	struct fa_flow *f = to_fa_flow(flow);

	if (!list_empty(&f->credited))
		fa_end_credit(fa, f);
	fl_heap_remove(&f->group.late, &f->own.late);
	if (flow->parent)
		fl_heap_remove(&f->below.among->late, &f->below.late);
}

static const struct fl_var fa_vars[] = {
	FL_TUNABLE(struct fa_dev, budget, "requests", 0, 1 << 20, 0,
		   "reference requests in the drive at most; 0: as many as are of use"),
	FL_TUNABLE(struct fa_dev, latency_loss, "percent", 0, 90, FL_KNEE_LOSS,
		   "of the drive's throughput that latency targets may cost at most"),
	FL_COUNTER(struct fa_dev, middle, middle, "requests", "reference requests that are of use in the drive"),
	FL_COUNTER(struct fa_dev, waits, waits, "requests", "that had to wait"),
	{}
};

const struct fl_sched fl_fairlane = {
	.name = "fairlane",
	.dev_size = sizeof(struct fa_dev),
	.hwq_size = sizeof(struct fa_hwq),
	.flow_size = sizeof(struct fa_flow),
	.queue_size = sizeof(struct fl_queue),
	.init_dev = fa_init_dev,
	.init_flow = fa_init_flow,
	.exit_flow = fa_exit_flow,
	.admit = fa_admit,
	.sent = fa_sent,
	.leave = fa_leave,
	.charge = fa_charge_ahead,
	.tick = fa_tick,
	.vars = fa_vars,
};
