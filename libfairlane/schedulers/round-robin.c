// SPDX-License-Identifier: GPL-2.0-only OR MIT
/*
 * Round robin: flows take turns, one request each. The example to read first.
 *
 * Each hardware queue has a list of the flows that have requests staged on it.
 * The first of the list sends one request and goes to the end. Weights do not
 * count for that; they only divide the tags among active flows (tag-limits.h,
 * activity.h).
 *
 * When to use it: to learn the contract (fairlane.h) from, or to begin a
 * scheduler with. When not: where weights, sizes or the drive's time matter. A
 * cgroup has a turn on each hardware queue that it uses. And turns only count
 * while requests are staged: a drive that takes every request at once serves
 * whoever came first.
 */
#include "../mechanisms/activity.h"

/* What one flow has staged on one hardware queue. All under hwq->lock. */
struct rr_queue {
	struct fl_queue q;
	struct list_head staged;
	struct list_head turn; /* in rr_hwq.turns, while anything is staged */
};

struct rr_hwq {
	struct fl_hwq hwq;
	struct list_head turns; /* changed under hwq->lock; has_work() looks at it without */
};

#define to_rr_hwq(_hwq) container_of(_hwq, struct rr_hwq, hwq)

static void rr_insert(struct fl_queue *queue, struct fl_req *rq, bool at_head)
{
	struct rr_queue *rrq = container_of(queue, struct rr_queue, q);
	struct list_head *turns = &to_rr_hwq(queue->hwq)->turns;

	if (fl_flow_touch(queue))
		fl_flow_activate(queue->flow);
	fl_stage(rq, &rrq->staged, at_head);
	if (at_head) { /* the drive would not take it: its turn is not over */
		list_move(&rrq->turn, turns);
		return;
	}
	if (list_empty(&rrq->turn))
		list_add_tail(&rrq->turn, turns);
}

static struct fl_req *rr_dispatch(struct fl_hwq *hwq)
{
	struct list_head *turns = &to_rr_hwq(hwq)->turns;
	struct rr_queue *rrq;
	struct fl_req *rq;

	if (list_empty(turns))
		return NULL;
	rrq = list_first_entry(turns, struct rr_queue, turn);
	rq = fl_req_of(rrq->staged.next);
	list_del_init(fl_req_node(rq));
	if (list_empty(&rrq->staged))
		list_del_init(&rrq->turn);
	else
		list_move_tail(&rrq->turn, turns);
	fl_queue_account(&rrq->q, rq, fl_cost(&hwq->dev->prices, fl_req_op(rq), fl_req_bytes(rq)));
	return rq;
}

/* A flow whose turn is moved is missed at worst, and the dispatcher that moves it looks again. */
static bool rr_has_work(struct fl_hwq *hwq)
{
	return !list_empty(&to_rr_hwq(hwq)->turns);
}

static void rr_init_dev(struct fl_dev *dev)
{
	unsigned int i;

	for (i = 0; i < dev->nr_hwqs; i++)
		INIT_LIST_HEAD(&to_rr_hwq(dev->hwqs[i])->turns);
}

static void rr_init_queue(struct fl_queue *queue)
{
	struct rr_queue *rrq = container_of(queue, struct rr_queue, q);

	INIT_LIST_HEAD(&rrq->staged);
	INIT_LIST_HEAD(&rrq->turn);
}

static const struct fl_var rr_vars[] = { {} };

const struct fl_sched fl_round_robin = {
	.name = "round-robin",
	.dev_size = sizeof(struct fl_dev),
	.hwq_size = sizeof(struct rr_hwq),
	.flow_size = sizeof(struct fl_flow),
	.queue_size = sizeof(struct rr_queue),
	.init_dev = rr_init_dev,
	.init_queue = rr_init_queue,
	.insert = rr_insert,
	.dispatch = rr_dispatch,
	.has_work = rr_has_work,
	.tick = fl_flows_tick,
	.vars = rr_vars,
};
