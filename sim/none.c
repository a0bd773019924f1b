// SPDX-License-Identifier: GPL-2.0-only OR MIT
/*
 * No scheduler: each hardware queue is first come, first served. What the
 * kernel does without an elevator once a drive's tags are taken, and the empty
 * frame that microbench/ compares a scheduler's CPU time with.
 */
#include "none.h"

struct none_hwq {
	struct fl_hwq hwq;
	struct list_head rqs; /* under hwq->lock */
};

static struct none_hwq *to_none(struct fl_hwq *hwq)
{
	return container_of(hwq, struct none_hwq, hwq);
}

static void none_init_dev(struct fl_dev *dev)
{
	unsigned int i;

	for (i = 0; i < dev->nr_hwqs; i++)
		INIT_LIST_HEAD(&to_none(dev->hwqs[i])->rqs);
}

static void none_insert(struct fl_queue *queue, struct fl_req *rq, bool at_head)
{
	if (at_head)
		list_add(fl_req_node(rq), &to_none(queue->hwq)->rqs);
	else
		list_add_tail(fl_req_node(rq), &to_none(queue->hwq)->rqs);
}

static struct fl_req *none_dispatch(struct fl_hwq *hwq)
{
	struct list_head *rqs = &to_none(hwq)->rqs;
	struct fl_req *rq;

	if (list_empty(rqs))
		return NULL;
	rq = fl_req_of(rqs->next);
	list_del_init(fl_req_node(rq));
	return rq;
}

static bool none_has_work(struct fl_hwq *hwq)
{
	return !list_empty(&to_none(hwq)->rqs);
}

static const struct fl_var none_vars[] = { {} };

const struct fl_sched sim_none = {
	.name = "none",
	.dev_size = sizeof(struct fl_dev),
	.hwq_size = sizeof(struct none_hwq),
	.flow_size = sizeof(struct fl_flow),
	.queue_size = sizeof(struct fl_queue),
	.init_dev = none_init_dev,
	.insert = none_insert,
	.dispatch = none_dispatch,
	.has_work = none_has_work,
	.vars = none_vars,
};
