// SPDX-License-Identifier: GPL-2.0-only OR MIT
/* Round robin, which fails as its variable `fault` says, for the test of kernel/watchdog.c. */
#include "../../../libfairlane/schedulers/round-robin.c"

enum ft_fault {
	FT_NONE,
	FT_FORGETS, /* each request that it should give out is on none of its lists any more */
	FT_REPEATS, /* it gives out one that it gave out before */
	FT_MISCOUNTS, /* it spoils the count of its flows' places */
	FT_LAST = FT_MISCOUNTS,
};

struct ft_dev {
	struct fl_dev dev;
	u64 fault;
};

struct ft_hwq {
	struct rr_hwq rr; /* first: round robin's own is used as it is */
	struct fl_req *last; /* that it gave out; under hwq->lock */
};

static struct fl_req *ft_dispatch(struct fl_hwq *hwq)
{
	struct ft_hwq *fthwq = container_of(to_rr_hwq(hwq), struct ft_hwq, rr);
	u64 fault = READ_ONCE(container_of(hwq->dev, struct ft_dev, dev)->fault);
	struct fl_req *rq;

	if (fault == FT_REPEATS && fthwq->last)
		return fthwq->last;
	rq = rr_dispatch(hwq);
	if (!rq)
		return NULL;
	if (fault == FT_MISCOUNTS)
		atomic_sub(1 << 20, &fl_req_queue(rq)->unsent);
	if (fault == FT_FORGETS) {
		/* Whoever goes by its list now goes astray. */
		fl_req_node(rq)->next = fl_req_node(rq)->prev = (struct list_head *)1;
		return NULL;
	}
	return fthwq->last = rq;
}

static const struct fl_var ft_vars[] = {
	FL_TUNABLE(struct ft_dev, fault, "", 0, FT_LAST, FT_NONE, "how it fails"),
	{}
};

const struct fl_sched fl_faulty = {
	.name = "faulty",
	.dev_size = sizeof(struct ft_dev),
	.hwq_size = sizeof(struct ft_hwq),
	.flow_size = sizeof(struct fl_flow),
	.queue_size = sizeof(struct rr_queue),
	.init_dev = rr_init_dev,
	.init_queue = rr_init_queue,
	.insert = rr_insert,
	.dispatch = ft_dispatch,
	.has_work = rr_has_work,
	.tick = fl_flows_tick,
	.vars = ft_vars,
};
