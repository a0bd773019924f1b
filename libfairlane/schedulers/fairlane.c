// SPDX-License-Identifier: GPL-2.0-only OR MIT
/*
 * fairlane: in the path only when it must be.
 *
 * 1. The idea
 *
 * A drive that is not full serves everybody at once, and needs no scheduler. One that is
 * full serves whoever has most in it, and what is in it is what the next one waits for. So all
 * that a scheduler has to do is to keep a full drive from becoming fuller, and to say who is next.
 *
 *	submitters       admit()                       the drive
 *	A  ----------->  room, and not ahead: go  -->  [ budget ]
 *	B  ----------->  else wait; as requests end,
 *	C  ----------->  the one furthest behind goes
 *
 * While the drive is not full, or has one tenant, a request costs a few core-local additions.
 *
 * 2. Who is next: virtual time, level by level
 *
 * Siblings in the cgroup tree share what their parent has. Each has a virtual time: the cost
 * (prices.h) of what it and all below it have sent, divided by its weight; charged when it is sent,
 * at each level up to the root. So a tenant gains nothing by sub-cgroups, and what weights say
 * holds from the first request on: no rate and no share has to be computed or learned.
 *
 * The virtual time of a group of siblings is the least among those that want more than they get:
 * that wait, or were let go a moment ago and may be about to come back. A submitter is one thread,
 * and must wake up before it can send its next request; without that moment, whoever happens
 * to wait would be served instead. The moment is over when a quarter of the budget was let go. Who wants
 * less than its share holds nobody back.
 *
 *	ahead	by more than an eighth of its part of the budget: it waits, unless the drive has
 *		less than 7/8 of the budget in it. So the drive does not run dry for the sake of
 *		somebody who does not come back.
 *	behind	goes as soon as there is room. It is never further behind than it may be ahead: time in
 *		which it wanted less is not saved.
 *
 * 3. The budget
 *
 * As much in the drive as is of use: see fa_look().
 */
#include "../fairlane.h"
#include "../mechanisms/virtual-time.h"
#define FA_DEBUG
#include <stdio.h>

#define FA_TICK_NS (4ull * NSEC_PER_MSEC)
#define FA_GRACE_NS (100ull * NSEC_PER_MSEC)

/* Parts of the budget: see 2. */
#define FA_LEAD 8
#define FA_MOMENT 4

struct fa_group;

/* One that competes with its siblings: a flow's own requests, or all that is below a flow. */
struct fa_node {
	atomic64_t vt; /* by whoever sends; a stale read lets a request go, or wait, that should not */
	u64 reciprocal; /* of its weight; written under dev->lock, stale for a tick */
	struct fa_group *among; /* its siblings and itself; NULL: it is the root's. Does not change */
	/* Under fa_dev.lock. */
	struct fa_node *left, *right; /* in among->waiting, a skew heap */
	u64 key; /* its virtual time when it was put there */
	bool waits; /* it is there */
	struct list_head late; /* in among->late */
	u64 until; /* fa_dev.released */
};

struct fa_group {
	u64 vt; /* written under fa_dev.lock; a stale read: see fa_node.vt */
	u64 lead; /* how far one may be ahead; written under dev->lock */
	struct fa_node *waiting; /* the one furthest behind of those that wait */
	struct list_head late; /* fa_node.late: those that were let go and no longer wait, the first first */
};

struct fa_flow {
	struct fl_flow flow;
	struct fa_node own, below;
	struct fa_group group; /* own, and below of each child */
	struct list_head waiting; /* fl_admission.node, the first first */
};

struct fa_hwq {
	struct fl_hwq hwq;
	atomic64_t in_drive; /* cost; added to by both ends, on the same CPU as a rule */
	atomic64_t done[2], requests; /* cost of reads, and of all others, and how many */
};

struct fa_budget {
	s64 middle, level, spread;
	bool up, settled, have[2];
	int way;
	s64 sum, n, noise, last;
	u64 since_ns, turn_ns, random;
	u64 rate[2][2], done[2], requests, waits;
	s64 most;
	u64 search_ns, again_ns;
};

struct fa_dev {
	struct fl_dev dev;
	/* Read by each request; written at ticks. */
	bool tight; /* a stale read: a request is not held back, and room is off until the next tick */
	s64 limit; /* the budget now */
	atomic64_t room ____cacheline_aligned_in_smp; /* while tight: limit less what is in the drive */
	atomic_t nr_waiting; /* requests; written under lock */

	spinlock_t lock ____cacheline_aligned_in_smp; /* irq-safe; inside dev->lock */
	struct fa_group top; /* of the root's children, and of the root */
	u64 released; /* cost, let go after waiting */
	u64 waits, waited_ns; /* requests that waited; when one last did */

	/* Under dev->lock. */
	struct fa_budget b;
	u64 active, aged_ns;
	bool ticking;

	u64 budget, middle;
};

static inline struct fa_dev *to_fa_dev(struct fl_dev *dev)
{
	return container_of(dev, struct fa_dev, dev);
}

static inline struct fa_flow *to_fa_flow(struct fl_flow *flow)
{
	return container_of(flow, struct fa_flow, flow);
}

static inline struct fa_hwq *to_fa_hwq(struct fl_hwq *hwq)
{
	return container_of(hwq, struct fa_hwq, hwq);
}

/* ---- Virtual time ------------------------------------------------------ */

/* The node above @node, NULL if there is none. */
static struct fa_node *fa_above(const struct fa_node *node, struct fa_dev *fa)
{
	struct fa_flow *f;

	if (node->among == &fa->top)
		return NULL;
	f = container_of(node->among, struct fa_flow, group);
	return &f->below;
}

static s64 fa_ahead(const struct fa_node *node)
{
	return atomic64_read(&node->vt) - READ_ONCE(node->among->vt);
}

static bool fa_is_ahead(const struct fa_node *node)
{
	return fa_ahead(node) > (s64)READ_ONCE(node->among->lead);
}

/* At each level: one that is far behind is brought up first. */
static void fa_charge(struct fa_dev *fa, struct fa_node *node, u64 cost)
{
	for (; node; node = fa_above(node, fa)) {
		s64 vt = atomic64_read(&node->vt), behind = READ_ONCE(node->among->vt) - vt;
		s64 lead = READ_ONCE(node->among->lead);

		if (behind > lead) /* if it moves meanwhile, the next request does this */
			atomic64_try_cmpxchg(&node->vt, &vt, vt + behind - lead);
		atomic64_add(fl_vt_advance(cost, READ_ONCE(node->reciprocal)), &node->vt);
	}
}

/* ---- Those that wait; under lock --------------------------------------- */

static struct fa_node *fa_merge(struct fa_node *a, struct fa_node *b)
{
	struct fa_node *first = NULL, **at = &first;

	while (a && b) {
		struct fa_node *less = fl_vt_before(b->key, a->key) ? b : a;

		if (less == b) {
			b = a;
			a = less;
		}
		*at = a;
		at = &a->left;
		less = a->right;
		a->right = a->left;
		a = less;
	}
	*at = a ? a : b;
	return first;
}

static void fa_put(struct fa_node *node)
{
	node->left = NULL;
	node->right = NULL;
	node->key = atomic64_read(&node->vt);
	node->among->waiting = fa_merge(node->among->waiting, node);
}

/* The one furthest behind, which @group has; virtual times may have moved on since they were put there. */
static struct fa_node *fa_first(struct fa_group *group)
{
	struct fa_node *node;

	while ((node = group->waiting) && node->key != (u64)atomic64_read(&node->vt)) {
		group->waiting = fa_merge(node->left, node->right);
		fa_put(node);
	}
	return node;
}

static void fa_begin_waiting(struct fa_dev *fa, struct fa_node *node)
{
	for (; node && !node->waits; node = fa_above(node, fa)) {
		node->waits = true;
		list_del_init(&node->late);
		fa_put(node);
	}
}

/* The virtual time of @group is the least of those that want more. */
static void fa_group_update(struct fa_dev *fa, struct fa_group *group)
{
	struct fa_node *first = fa_first(group), *node, *next;
	u64 least = first ? first->key : 0;
	bool any = first;

	list_for_each_entry_safe(node, next, &group->late, late) {
		u64 vt = atomic64_read(&node->vt);

		if ((s64)(fa->released - node->until) >= 0) {
			list_del_init(&node->late);
			continue;
		}
		if (!any || fl_vt_before(vt, least))
			least = vt;
		any = true;
	}
	if (any && fl_vt_before(group->vt, least))
		WRITE_ONCE(group->vt, least);
}

/* The flow whose request is next, and whether that is ahead at any level. */
static struct fa_flow *fa_next(struct fa_dev *fa, bool *ahead)
{
	struct fa_group *group = &fa->top;
	struct fa_node *node;
	struct fa_flow *f;

	*ahead = false;
	for (;;) {
		fa_group_update(fa, group);
		node = group->waiting;
		if (!node)
			return NULL;
		*ahead = *ahead || fa_is_ahead(node);
		f = group == &fa->top ? NULL : container_of(group, struct fa_flow, group);
		if (f && node == &f->own)
			return f;
		group = &container_of(node, struct fa_flow, below)->group;
	}
}

/* A request of @f was let go. Those on its way that no longer wait may be about to come back. */
static void fa_went(struct fa_dev *fa, struct fa_flow *f)
{
	bool waits = !list_empty(&f->waiting);
	struct fa_node *node;

	for (node = &f->own; node; node = fa_above(node, fa)) {
		struct fa_group *group = node->among;

		group->waiting = fa_merge(node->left, node->right); /* it was the first */
		node->waits = waits;
		if (waits) {
			fa_put(node);
		} else {
			node->until = fa->released + fa->limit / FA_MOMENT;
			list_add_tail(&node->late, &group->late);
		}
		waits = group->waiting;
	}
}

/* Let go as many as there is room for. */
static void fa_release(struct fa_dev *fa)
{
	while (atomic_read(&fa->nr_waiting)) {
		s64 room = atomic64_read(&fa->room);
		struct fl_admission *a;
		struct fa_flow *f;
		bool ahead;

		if (fa->tight && room <= 0)
			return;
		f = fa_next(fa, &ahead);
		if (fa->tight && ahead && room <= fa->limit / 2)
			return;
		a = list_first_entry(&f->waiting, struct fl_admission, node);
		list_del_init(&a->node);
		atomic_dec(&fa->nr_waiting);
		atomic64_add(-(s64)a->cost, &fa->room);
		atomic64_add(a->cost, &to_fa_hwq(a->queue->hwq)->in_drive);
		fa->released += a->cost;
		fa_charge(fa, &f->own, a->cost);
		fa_went(fa, f);
		fl_admitted(a);
	}
}

/* ---- Requests ----------------------------------------------------------- */

static void fa_activate(struct fa_dev *fa, struct fa_flow *f);

/* May a request of @f go at once? */
static bool fa_goes(struct fa_dev *fa, struct fa_flow *f)
{
	s64 room = atomic64_read(&fa->room);
	struct fa_node *node;

	if (!f->flow.parent)
		return true;
	if (room <= 0 || f->own.waits)
		return false;
	for (node = &f->own; node; node = fa_above(node, fa))
		if (fa_is_ahead(node))
			return room > READ_ONCE(fa->limit) / 2;
	return true;
}

static bool fa_wait(struct fa_dev *fa, struct fa_flow *f, struct fl_admission *a)
{
	unsigned long flags;

	spin_lock_irqsave(&fa->lock, flags);
	list_add_tail(&a->node, &f->waiting);
	atomic_inc(&fa->nr_waiting);
	fa->waits++;
	fa_begin_waiting(fa, &f->own);
	smp_mb__after_atomic(); /* a completion sees that somebody waits, or we see the room that it gave */
	fa_release(fa);
	spin_unlock_irqrestore(&fa->lock, flags);
	return false; /* if it was let go, its submitter was told */
}

static bool fa_admit(struct fl_queue *queue, struct fl_admission *a)
{
	struct fa_dev *fa = to_fa_dev(queue->hwq->dev);
	struct fa_flow *f = to_fa_flow(queue->flow);

	a->cost = fl_cost(&fa->dev.prices, a->op, a->bytes);
	if (fl_flow_touch(queue))
		fa_activate(fa, f);
	if (unlikely(READ_ONCE(fa->tight))) {
		if (!fa_goes(fa, f))
			return fa_wait(fa, f, a);
		atomic64_add(-(s64)a->cost, &fa->room);
		if (f->flow.parent)
			fa_charge(fa, &f->own, a->cost);
	}
	atomic64_add(a->cost, &to_fa_hwq(queue->hwq)->in_drive);
	return true;
}

static void fa_leave(struct fl_queue *queue, enum fl_op op, u64 cost)
{
	struct fa_dev *fa = to_fa_dev(queue->hwq->dev);
	struct fa_hwq *hwq = to_fa_hwq(queue->hwq);
	unsigned long flags;

	atomic64_add(-(s64)cost, &hwq->in_drive);
	atomic64_add(cost, &hwq->done[op != FL_READ]);
	atomic64_add(1, &hwq->requests);
	if (likely(!READ_ONCE(fa->tight)))
		return;
	atomic64_add(cost, &fa->room);
	smp_mb__after_atomic(); /* see fa_wait() */
	if (!atomic_read(&fa->nr_waiting))
		return;
	spin_lock_irqsave(&fa->lock, flags);
	fa_release(fa);
	spin_unlock_irqrestore(&fa->lock, flags);
}

static void fa_charge_ahead(struct fl_queue *queue, enum fl_op op, u32 bytes)
{
	struct fa_dev *fa = to_fa_dev(queue->hwq->dev);

	if (READ_ONCE(fa->tight) && queue->flow->parent)
		fa_charge(fa, &to_fa_flow(queue->flow)->own, fl_cost(&fa->dev.prices, op, bytes));
}

static enum fl_class fa_route(struct fl_queue *queue, struct fl_req *rq)
{
	fl_queue_account(queue, rq, *fl_req_priv(rq));
	return FL_HIGH;
}

static void fa_unroute(struct fl_queue *queue, struct fl_req *rq)
{
	(void)queue;
	(void)rq;
}

/* ---- The budget; under dev->lock --------------------------------------- */

#define FA_TURNOVERS 4
#define FA_TARGET 102 /* elasticity, 10 bit */
#define FA_PAIRS 8

/* By how much more was done at the upper level, of reads or of all others, whichever gained less. */
static s64 fa_diff(const struct fa_budget *b)
{
	s64 sum[2], least = 1024;
	int i;

	for (i = 0; i < 2; i++)
		sum[i] = b->rate[0][i] + b->rate[1][i];
	for (i = 0; i < 2; i++)
		if (16 * sum[i] > sum[0] + sum[1])
			least = min_t(s64, least, div64_s64((s64)(b->rate[1][i] - b->rate[0][i]) * 2048, sum[i]));
	return least;
}

/* Is the mean above the target by twice its standard error (1), below it (-1), or is that not known (0)? */
static int fa_decide(const struct fa_budget *b)
{
	s64 off = div64_s64(b->sum, b->n) - FA_TARGET;
	s64 err2 = div64_s64(4 * b->noise * (1 << 20), b->spread * b->spread * b->n);

	if (b->n < 3 || (b->n < FA_PAIRS && off * off < err2))
		return 0;
	return off > 0 ? 1 : -1;
}

static void fa_step(struct fa_budget *b)
{
	s64 diff = fa_diff(b), change = diff - b->last;
	int way;

	b->noise += (change * change / 2 - b->noise) / 4;
	b->last = diff;
	b->n++;
	b->sum += div64_s64(diff * 512, b->spread);
	way = fa_decide(b);
	if (!way)
		return;
#ifdef FA_DEBUG
	fprintf(stderr, "%8.3f middle %lld spread %lld mean %lld n %lld noise %lld way %d\n", b->since_ns/1e9, (long long)b->middle/4096, (long long)b->spread, (long long)(b->sum / b->n), (long long)b->n, (long long)b->noise, way);
#endif
	if (way > 0)
		b->middle += b->middle * b->spread / 1024;
	else
		b->middle = b->middle * 1024 / (1024 + b->spread);
	b->middle = max_t(s64, b->middle, 64);
	b->spread = way == b->way ? min_t(s64, 2 * b->spread, 512) : max_t(s64, b->spread / 2, 128);
	b->way = way;
	b->n = 0;
	b->sum = 0;
}

static u64 fa_sum(struct fa_dev *fa, u64 done[2], u64 *requests)
{
	u64 in_drive = 0;
	unsigned int i;

	done[0] = done[1] = *requests = 0;
	for (i = 0; i < fa->dev.nr_hwqs; i++) {
		struct fa_hwq *hwq = to_fa_hwq(fa->dev.hwqs[i]);

		in_drive += atomic64_read(&hwq->in_drive);
		done[0] += atomic64_read(&hwq->done[0]);
		done[1] += atomic64_read(&hwq->done[1]);
		*requests += atomic64_read(&hwq->requests);
	}
	return in_drive;
}

static void fa_window_over(struct fa_dev *fa, const u64 done[2], u64 requests, u64 ns)
{
	struct fa_budget *b = &fa->b;
	u64 all = done[0] + done[1] - b->done[0] - b->done[1];
	bool bound = 8 * (fa->waits - b->waits) > requests - b->requests;
	int i;

	for (i = 0; i < 2; i++)
		b->rate[b->up][i] = mul_u64_u64_div_u64(done[i] - b->done[i], NSEC_PER_SEC, ns);
	if (all)
		b->turn_ns = (3 * b->turn_ns +
			      min_t(u64, mul_u64_u64_div_u64(b->middle, ns, all), NSEC_PER_SEC / 10)) / 4;
	b->have[b->up] = bound;
	if (bound && b->have[!b->up])
		fa_step(b);
	if (!bound || b->have[!b->up])
		b->have[0] = b->have[1] = false;
	if (b->have[b->up]) {
		b->up = !b->up;
	} else { /* so that it does not keep step with what the drive does by itself */
		b->random = b->random * 6364136223846793005ull + 1442695040888963407ull;
		b->up = b->random >> 63;
	}
}

static void fa_look(struct fa_dev *fa, u64 now_ns)
{
	struct fa_budget *b = &fa->b;
	u64 done[2], requests, in_drive = fa_sum(fa, done, &requests), ns = now_ns - b->since_ns;

	if (requests && requests < 1000 && !b->n && !b->way) { /* the first ones tell how large requests are */
		b->middle = div64_u64(128 * (done[0] + done[1]), requests);
		b->spread = 256;
	}
	b->most = max_t(s64, b->most, in_drive);
	if (fa->waits != b->waits || (s64)in_drive >= b->level)
		fa->waited_ns = now_ns;
	/* Nobody waits: is less of use to somebody? */
	if (fa->active > 1 && !fa->tight && now_ns >= b->search_ns && in_drive) {
		b->middle = min_t(s64, b->middle, max_t(s64, in_drive - in_drive / 8, 64));
		b->again_ns = min_t(u64, 4 * b->again_ns, 16ull * NSEC_PER_SEC);
		b->search_ns = now_ns + b->again_ns;
		fa->waited_ns = now_ns;
	}
	fa->tight = fa->active > 1 && now_ns - fa->waited_ns < FA_GRACE_NS;
	if (ns >= max_t(u64, b->turn_ns, FA_TICK_NS) * (b->settled ? FA_TURNOVERS : 1)) {
		if (b->settled)
			fa_window_over(fa, done, requests, ns);
		b->settled = !b->settled;
		b->since_ns = now_ns;
		memcpy(b->done, done, sizeof(b->done));
		b->requests = requests;
		b->waits = fa->waits;
		b->most = 0;
	}
	b->level = b->middle + (b->up ? 1 : -1) * (b->middle * b->spread / 1024);
	WRITE_ONCE(fa->limit, fa->budget ? (s64)fa->budget * FL_COST_ONE : b->level);
	atomic64_set(&fa->room, fa->limit - (s64)in_drive);
	fa->middle = b->middle / FL_COST_ONE;
}

/* ---- Activity and weights; under dev->lock ---------------------------- */

static void fa_weigh(struct fa_node *node, u32 weight)
{
	WRITE_ONCE(node->reciprocal, fl_vt_reciprocal(div64_u64((u64)weight * FL_SHARE_ONE, FL_WEIGHT_MAX)));
}

/* How far one of @group, which has @part of the drive and weighs @weight in all, may be ahead. */
static void fa_set_lead(struct fa_dev *fa, struct fa_group *group, u32 part, u32 weight)
{
	u64 cost = mul_u64_u64_div_u64(fa->limit / FA_LEAD, part, FL_SHARE_ONE);

	if (weight)
		WRITE_ONCE(group->lead, mul_u64_u64_div_u64(cost, FL_WEIGHT_MAX, weight));
}

static void fa_update_flow(struct fa_dev *fa, struct fl_flow *flow)
{
	for (; flow; flow = flow->parent) {
		struct fa_flow *f = to_fa_flow(flow);

		fa_weigh(&f->below, flow->weight);
		fa_set_lead(fa, &f->group, fl_flow_part(flow), flow->active_weight);
	}
}

static void fa_update_weights(struct fa_dev *fa)
{
	struct fl_flow *flow;

	fl_flows_update_shares(&fa->dev);
	fl_for_each_active(flow, &fa->dev)
		fa_update_flow(fa, flow);
}

/* A flow that was idle starts at the later of its own virtual time and its group's. */
static void fa_catch_up(struct fa_node *node)
{
	s64 vt = atomic64_read(&node->vt), behind = READ_ONCE(node->among->vt) - vt;

	if (behind > 0)
		atomic64_try_cmpxchg(&node->vt, &vt, vt + behind);
}

static void fa_activate(struct fa_dev *fa, struct fa_flow *f)
{
	struct fl_flow *flow = &f->flow;
	unsigned long flags;
	bool kick = false;

	spin_lock_irqsave(&fa->dev.lock, flags);
	if (!flow->busy) {
		struct fl_flow *up;

		for (up = flow; up->parent && !up->active_weight; up = up->parent)
			fa_catch_up(&to_fa_flow(up)->below);
		fa_catch_up(&f->own);
		fl_flow_set_busy(flow, true);
		fl_flow_update_share(flow);
		fa_update_flow(fa, flow);
		fa->active++;
		kick = !fa->ticking;
		fa->ticking = true;
	}
	spin_unlock_irqrestore(&fa->dev.lock, flags);
	if (kick)
		fl_dev_kick(&fa->dev);
}

static u64 fa_tick(struct fl_dev *dev)
{
	struct fa_dev *fa = to_fa_dev(dev);
	u64 now_ns = fl_now_ns();
	unsigned long flags;
	bool ticking;

	spin_lock_irqsave(&dev->lock, flags);
	if (now_ns - fa->aged_ns >= FA_GRACE_NS) {
		fa->aged_ns = now_ns;
		fa->active = fl_flows_age(dev);
	}
	spin_lock(&fa->lock);
	fa_look(fa, now_ns);
	fa_release(fa);
	spin_unlock(&fa->lock);
	fa_update_weights(fa);
	ticking = fa->ticking = fa->active;
	spin_unlock_irqrestore(&dev->lock, flags);
	return ticking ? FA_TICK_NS : 0;
}

static void fa_group_init(struct fa_group *group)
{
	INIT_LIST_HEAD(&group->late);
}

static void fa_node_init(struct fa_node *node, struct fa_group *among, u32 weight)
{
	node->among = among;
	atomic64_set(&node->vt, among->vt);
	INIT_LIST_HEAD(&node->late);
	fa_weigh(node, weight);
}

static void fa_init_dev(struct fl_dev *dev)
{
	struct fa_dev *fa = to_fa_dev(dev);

	spin_lock_init(&fa->lock);
	fa_group_init(&fa->top);
	fa->b.middle = 128 * FL_COST_ONE;
	fa->b.spread = 256;
	fa->b.level = fa->b.middle;
	fa->limit = fa->b.level;
	fa->b.again_ns = NSEC_PER_SEC / 16;
}

static void fa_init_flow(struct fl_flow *flow)
{
	struct fa_dev *fa = to_fa_dev(flow->dev);
	struct fa_flow *f = to_fa_flow(flow);

	INIT_LIST_HEAD(&f->waiting);
	fa_group_init(&f->group);
	fa_node_init(&f->own, &f->group, FL_WEIGHT_DEFAULT);
	fa_node_init(&f->below, flow->parent ? &to_fa_flow(flow->parent)->group : &fa->top, flow->weight);
}

/* It has no request and nobody below it left; but may be about to come back. */
static void fa_exit_flow(struct fl_flow *flow)
{
	struct fa_dev *fa = to_fa_dev(flow->dev);
	struct fa_flow *f = to_fa_flow(flow);

	spin_lock(&fa->lock);
	list_del_init(&f->own.late);
	list_del_init(&f->below.late);
	spin_unlock(&fa->lock);
}

static const struct fl_var fa_vars[] = {
	FL_TUNABLE(struct fa_dev, budget, "requests", 0, 1 << 20, 0, "in the drive at most; 0: it is found"),
	FL_COUNTER(struct fa_dev, waits, waits, "requests", "that waited"),
	FL_COUNTER(struct fa_dev, middle, middle, "reference requests", "the budget, on average"),
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
	.leave = fa_leave,
	.route = fa_route,
	.unroute = fa_unroute,
	.charge = fa_charge_ahead,
	.tick = fa_tick,
	.vars = fa_vars,
};
