// SPDX-License-Identifier: GPL-2.0-only OR MIT
/*
 * Admits everybody, until its variable `fault` is 1: then nobody who may wait, for ever.
 * For the test of kernel/watchdog.c.
 */
#include "../../../libfairlane/mechanisms/activity.h"

struct fta_dev {
	struct fl_dev dev;
	u64 fault;
	u64 waiting; /* under dev.lock, as the list */
	struct list_head line; /* of who waits, and is never told to go on */
};

#define to_fta_dev(_dev) container_of(_dev, struct fta_dev, dev)

static bool fta_admit(struct fl_queue *queue, struct fl_admission *admission)
{
	struct fta_dev *fta = to_fta_dev(queue->hwq->dev);
	unsigned long flags;

	if (fl_flow_touch(queue))
		fl_flow_activate(queue->flow);
	if (!READ_ONCE(fta->fault) || admission->must)
		return true;
	spin_lock_irqsave(&fta->dev.lock, flags);
	list_add_tail(&admission->node, &fta->line);
	WRITE_ONCE(fta->waiting, fta->waiting + 1);
	spin_unlock_irqrestore(&fta->dev.lock, flags);
	return false;
}

/* Looks at all who wait, and so must not be called once they have gone on. */
static void fta_leave(struct fl_queue *queue, enum fl_op op, u64 cost, u64 ns)
{
	struct fta_dev *fta = to_fta_dev(queue->hwq->dev);
	const struct fl_admission *admission;
	unsigned long flags;
	u64 waiting = 0;

	spin_lock_irqsave(&fta->dev.lock, flags);
	list_for_each_entry(admission, &fta->line, node)
		waiting += !admission->must;
	WRITE_ONCE(fta->waiting, waiting);
	spin_unlock_irqrestore(&fta->dev.lock, flags);
}

static void fta_init_dev(struct fl_dev *dev)
{
	INIT_LIST_HEAD(&to_fta_dev(dev)->line);
}

static const struct fl_var fta_vars[] = {
	FL_TUNABLE(struct fta_dev, fault, "", 0, 1, 0, "whether it fails"),
	FL_COUNTER(struct fta_dev, waiting, waiting, "requests", "that wait"),
	{}
};

const struct fl_sched fl_faulty_admission = {
	.name = "faulty-admission",
	.dev_size = sizeof(struct fta_dev),
	.hwq_size = sizeof(struct fl_hwq),
	.flow_size = sizeof(struct fl_flow),
	.queue_size = sizeof(struct fl_queue),
	.init_dev = fta_init_dev,
	.admit = fta_admit,
	.leave = fta_leave,
	.tick = fl_flows_tick,
	.vars = fta_vars,
};
