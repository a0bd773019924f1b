// SPDX-License-Identifier: GPL-2.0-only OR MIT
/* fairlane: prototype. */
#include "../fairlane.h"
#include "../mechanisms/virtual-time.h"
#include <stdio.h>

#define FA_GRACE_NS (100ull * NSEC_PER_MSEC)
#define FA_TICK_NS (4ull * NSEC_PER_MSEC)


/* The budget: found by trying a little more and a little less in turn. */
#define FA_SETTLE 1
#define FA_TURNOVERS 4
#define FA_WINDOW_NS (4ull * NSEC_PER_MSEC)
#define FA_TARGET 102 /* elasticity, 10 bit */
struct fa_budget {
	s64 middle, level;
	bool up, settled; s64 spread; int way; s64 noise, last, most;
	u64 since_ns, waits, turn_ns, random; s64 done;
	s64 rate[2][2]; u64 op_done[2]; bool have[2];
	s64 sum, n;
};

struct fa_flow {
	struct fl_flow flow;
	u64 vt, reciprocal;
	struct list_head waiting; /* fl_admission.node */
	struct list_head wants; /* in fa_dev.wants */
	u64 wants_until; /* fa_dev.done */
};

struct fa_dev {
	struct fl_dev dev;
	u64 vt, lead;
	s64 in_drive;
	u64 done;
	struct list_head wants;
	u64 waits, seen_waits, nr_active, aged_ns, idle_since;
	u64 budget, limit;
	bool ticking, tight;
	struct fa_budget b;
	u64 nr_done, seen_done, middle, op_done[2];
};

static inline struct fa_dev *to_fa_dev(struct fl_dev *dev)
{
	return container_of(dev, struct fa_dev, dev);
}

static inline struct fa_flow *to_fa_flow(struct fl_flow *flow)
{
	return container_of(flow, struct fa_flow, flow);
}

static void fa_update_vt(struct fa_dev *fa)
{
	struct fa_flow *f, *next;
	u64 least = 0;
	bool any = false;

	list_for_each_entry_safe(f, next, &fa->wants, wants) {
		if (list_empty(&f->waiting) && (s64)(fa->done - f->wants_until) >= 0) {
			list_del_init(&f->wants);
			continue;
		}
		if (!any || fl_vt_before(f->vt, least))
			least = f->vt;
		any = true;
	}
	if (any && fl_vt_before(fa->vt, least))
		fa->vt = least;
}

static void fa_update_weights(struct fa_dev *fa)
{
	struct fl_flow *flow, *root = NULL;

	fl_flows_update_shares(&fa->dev);
	fl_for_each_active(flow, &fa->dev) {
		to_fa_flow(flow)->reciprocal = fl_vt_reciprocal(fl_flow_relative_weight(flow));
		root = flow;
	}
	while (root && root->parent)
		root = root->parent;
	if (root && root->active_weight)
		fa->lead = div64_u64((u64)fa->limit / 8 * FL_WEIGHT_MAX, root->active_weight);
}

static bool fa_ahead(struct fa_dev *fa, struct fa_flow *f)
{
	return fl_vt_before(fa->vt + fa->lead, f->vt);
}

static bool fa_may_go(struct fa_dev *fa, struct fa_flow *f)
{
	if (fa->in_drive >= (s64)fa->limit)
		return false;
	return !fa_ahead(fa, f) || fa->in_drive < (s64)(fa->limit - fa->limit / 8);
}

static void fa_charge(struct fa_dev *fa, struct fa_flow *f, struct fl_admission *a)
{
	a->cost = fl_cost(&fa->dev.prices, a->op, a->bytes);
	f->vt += fl_vt_advance(a->cost, f->reciprocal);
	fa->in_drive += a->cost;
	fa->b.most = max_t(s64, fa->b.most, fa->in_drive);
}

static void fa_release(struct fa_dev *fa)
{
	for (;;) {
		struct fa_flow *f, *first = NULL;
		struct fl_admission *a;

		fa_update_vt(fa);
		list_for_each_entry(f, &fa->wants, wants)
			if (!list_empty(&f->waiting) && (!first || fl_vt_before(f->vt, first->vt)))
				first = f;
		if (!first || !fa_may_go(fa, first))
			return;
		a = list_first_entry(&first->waiting, struct fl_admission, node);
		list_del_init(&a->node);
		fa_charge(fa, first, a);
		first->wants_until = fa->done + fa->limit / 4;
		fl_admitted(a);
	}
}

static bool fa_admit(struct fl_queue *queue, struct fl_admission *a)
{
	struct fa_dev *fa = to_fa_dev(queue->hwq->dev);
	struct fa_flow *f = to_fa_flow(queue->flow);
	unsigned long flags;
	bool go, kick = false;

	spin_lock_irqsave(&fa->dev.lock, flags);
	queue->inserted++;
	if (!f->flow.busy) {
		if (fl_vt_before(f->vt, fa->vt))
			f->vt = fa->vt;
		fl_flow_set_busy(&f->flow, true);
		fa->nr_active++;
		fa_update_weights(fa);
		kick = !fa->ticking;
		fa->ticking = true;
	}
	if (fl_vt_before(f->vt, fa->vt - fa->lead))
		f->vt = fa->vt - fa->lead;
	fa_update_vt(fa);
	if (list_empty(&fa->wants) && fl_vt_before(fa->vt, f->vt))
		fa->vt = f->vt;
	go = !f->flow.parent || !fa->tight || (list_empty(&f->waiting) && fa_may_go(fa, f));
	if (go) {
		fa_charge(fa, f, a);
	} else {
		fa->waits++;
		list_add_tail(&a->node, &f->waiting);
		if (list_empty(&f->wants))
			list_add_tail(&f->wants, &fa->wants);
		fa_release(fa);
	}
	spin_unlock_irqrestore(&fa->dev.lock, flags);
	if (kick)
		fl_dev_kick(&fa->dev);
	return go;
}

static void fa_leave(struct fl_queue *queue, enum fl_op op, u64 cost)
{
	struct fa_dev *fa = to_fa_dev(queue->hwq->dev);
	unsigned long flags;

	spin_lock_irqsave(&fa->dev.lock, flags);
	fa->in_drive -= cost;
	if (fa->nr_done < 64) {
		fa->b.middle = 128 * (fa->done + cost) / (fa->nr_done + 1);
		fa->b.level = fa->b.middle;
		fa->limit = fa->budget ? fa->budget * FL_COST_ONE : (u64)fa->b.level;
	}
	fa->done += cost;
	fa->nr_done++;
	fa->op_done[op != FL_READ] += cost;
	fa_release(fa);
	spin_unlock_irqrestore(&fa->dev.lock, flags);
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

/* Is the mean above the target by twice its standard error (1), below it (-1), or is that not known (0)? */
static int fa_decide(const struct fa_budget *b)
{
	s64 off = b->sum / b->n - FA_TARGET, err2 = 4 * b->noise * 1024 / b->spread * 1024 / b->spread / b->n;

	if (b->n < 3 || (b->n < 8 && off * off < err2))
		return 0;
	return off > 0 ? 1 : -1;
}

/* @diff: by how much more was done at the upper level than at the lower one, of their mean, 10 bit. */
static void fa_step(struct fa_dev *fa, s64 diff)
{
	struct fa_budget *b = &fa->b;
	s64 e = diff * 512 / b->spread, change = diff - b->last;
	int way;

	b->noise += (change * change / 2 - b->noise) / 4;
	b->last = diff;
	b->n++;
	b->sum += e;
	way = fa_decide(b);
	if (getenv("FA")) fprintf(stderr, "%8.3f middle %lld spread %lld e %lld mean %lld n %lld noise %lld way %d\n", fa->b.since_ns/1e9, (long long)b->middle/4096, (long long)b->spread, (long long)e, (long long)(b->sum / b->n), (long long)b->n, (long long)b->noise, way);
	if (!way)
		return;
	if (way > 0)
		b->middle += b->middle * b->spread / 1024;
	else
		b->middle = b->middle * 1024 / (1024 + b->spread);
	b->middle = max_t(s64, b->middle, 64);
	if (way == b->way)
		b->spread = min_t(s64, 2 * b->spread, 512);
	else
		b->spread = max_t(s64, b->spread / 2, 128);
	b->way = way;
	b->n = b->sum = 0;
}

/* By how much more was done at the upper level, of reads or of all others, whichever gained less. */
static s64 fa_diff(const struct fa_budget *b)
{
	s64 sum[2], least = 1024;
	int i;

	for (i = 0; i < 2; i++)
		sum[i] = b->rate[0][i] + b->rate[1][i];
	for (i = 0; i < 2; i++)
		if (16 * sum[i] > sum[0] + sum[1])
			least = min_t(s64, least, (b->rate[1][i] - b->rate[0][i]) * 2048 / sum[i]);
	return least;
}

static void fa_look(struct fa_dev *fa, u64 now_ns)
{
	struct fa_budget *b = &fa->b;
	s64 did = fa->done - b->done;
	u64 ns = now_ns - b->since_ns;

	if (ns < max_t(u64, b->turn_ns, FA_WINDOW_NS) * (b->settled ? FA_TURNOVERS : FA_SETTLE))
		return;
	if (!b->settled) {
		b->settled = true;
	} else {
		s64 rate = mul_u64_u64_div_u64(did, NSEC_PER_SEC, ns);
		int i;

		b->settled = false;
		for (i = 0; i < 2; i++)
			b->rate[b->up][i] = mul_u64_u64_div_u64(fa->op_done[i] - b->op_done[i], NSEC_PER_SEC, ns);
		if (rate)
			b->turn_ns = (3 * b->turn_ns + min_t(u64, div64_u64(b->middle * NSEC_PER_SEC, rate), NSEC_PER_SEC / 10)) / 4;
		if (8 * (fa->waits - b->waits) > fa->nr_done - fa->seen_done) {
			b->have[b->up] = true;
			if (b->have[!b->up]) {
				fa_step(fa, fa_diff(b));
				b->have[0] = b->have[1] = false;
			}
		} else {
			b->have[0] = b->have[1] = false;
			if (fa->tight && fa->waits == b->waits && list_empty(&fa->wants) && b->most < b->middle)
				b->middle = max_t(s64, b->most, 64);
		}
		if (b->have[b->up]) {
			b->up = !b->up;
		} else {
			b->random = b->random * 6364136223846793005ull + 1442695040888963407ull;
			b->up = b->random >> 63;
		}
		b->level = b->middle + (b->up ? 1 : -1) * (b->middle * b->spread / 1024);
	}
	b->since_ns = now_ns;
	b->done = fa->done;
	memcpy(b->op_done, fa->op_done, sizeof(b->op_done));
	b->waits = fa->waits;
	b->most = fa->in_drive;
	fa->seen_done = fa->nr_done;
}

/*
 * Do virtual times keep together by themselves? Then nobody has to wait. What was ahead by more
 * than the lead while nobody waited was idle capacity, and is forgotten.
 */
static void fa_together(struct fa_dev *fa)
{
	struct fl_flow *flow;
	u64 least = 0, most = 0;
	bool any = false;

	fl_for_each_active(flow, &fa->dev) {
		u64 vt = to_fa_flow(flow)->vt;

		if (!flow->parent)
			continue;
		if (!any || fl_vt_before(vt, least))
			least = vt;
		if (!any || fl_vt_before(most, vt))
			most = vt;
		any = true;
	}
	if (!any)
		return;
	if (fa->tight && fa->waits != fa->seen_waits)
		fa->idle_since = fl_now_ns();
	fa->seen_waits = fa->waits;
	if (!fa->tight && most - least > fa->lead) {
		fa->tight = true;
		fa->vt = least;
		fa->idle_since = fl_now_ns();
	} else if (fa->tight && fl_now_ns() - fa->idle_since > FA_GRACE_NS) {
		fa->tight = false;
	}
	if (!fa->tight)
		fa->vt = least;
	if (fl_vt_before(fa->vt + 16 * fa->lead, most) && fa->waits == fa->seen_waits && !fa->tight)
		fa->vt = most - 16 * fa->lead;
}

static u64 fa_tick(struct fl_dev *dev)
{
	struct fa_dev *fa = to_fa_dev(dev);
	u64 now_ns = fl_now_ns(), next;
	unsigned long flags;

	spin_lock_irqsave(&dev->lock, flags);
	if (getenv("FT")) fprintf(stderr,"middle T %llu %llu %llu\n",(unsigned long long)now_ns/1000,(unsigned long long)fa->done,(unsigned long long)fa->waits);
	fa_look(fa, now_ns);
	fa->middle = fa->b.middle / FL_COST_ONE;
	fa->limit = fa->budget ? fa->budget * FL_COST_ONE : (u64)fa->b.level;
	if (now_ns - fa->aged_ns >= FA_GRACE_NS) {
		fa->aged_ns = now_ns;
		fa->nr_active = fl_flows_age(dev, dev->sched);
		fa_update_weights(fa);
	}
	fa_together(fa);
	fa_release(fa);
	next = fa->nr_active ? FA_TICK_NS : 0;
	fa->ticking = next;
	spin_unlock_irqrestore(&dev->lock, flags);
	return next;
}

static void fa_init_dev(struct fl_dev *dev)
{
	struct fa_dev *fa = to_fa_dev(dev);

	INIT_LIST_HEAD(&fa->wants);
	fa->b.middle = fa->b.level = 128 * FL_COST_ONE;
	fa->b.spread = 256;
	fa->b.noise = 0;
	fa->limit = fa->budget ? fa->budget * FL_COST_ONE : (u64)fa->b.level;
}

static void fa_init_flow(struct fl_flow *flow)
{
	INIT_LIST_HEAD(&to_fa_flow(flow)->waiting);
	INIT_LIST_HEAD(&to_fa_flow(flow)->wants);
	to_fa_flow(flow)->reciprocal = fl_vt_reciprocal(FL_SHARE_ONE);
}

static void fa_exit_flow(struct fl_flow *flow)
{
	list_del_init(&to_fa_flow(flow)->wants);
}

static const struct fl_var fa_vars[] = {
	FL_TUNABLE(struct fa_dev, budget, "requests", 0, 1 << 20, 0, "in the drive"),
	FL_COUNTER(struct fa_dev, waits, waits, "times", "a request waited"),
	FL_COUNTER(struct fa_dev, middle, middle, "", "budget"),
	{}
};

const struct fl_sched fl_fairlane = {
	.name = "fairlane",
	.dev_size = sizeof(struct fa_dev),
	.hwq_size = sizeof(struct fl_hwq),
	.flow_size = sizeof(struct fa_flow),
	.queue_size = sizeof(struct fl_queue),
	.init_dev = fa_init_dev,
	.init_flow = fa_init_flow,
	.exit_flow = fa_exit_flow,
	.admit = fa_admit,
	.leave = fa_leave,
	.route = fa_route,
	.unroute = fa_unroute,
	.tick = fa_tick,
	.vars = fa_vars,
};
