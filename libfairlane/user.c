// SPDX-License-Identifier: GPL-2.0-only OR MIT
/* The user-space host: what kernel/ is to Linux. See user.h. */
#include <errno.h>
#include <linux/futex.h>
#include <stdlib.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#include "user.h"

struct fl_user_dev {
	struct fl_host host;
	struct fl_flow *root;
	struct fl_dev dev ____cacheline_aligned_in_smp; /* followed by the scheduler's data */
};

/* Who comes here may have slept with others: whoever unlocks next wakes one, maybe in vain. */
void fl_lock_wait(spinlock_t *lock)
{
	int saved = errno; /* the caller's: a lock does not touch it */

	while (__atomic_exchange_n(&lock->state, FL_LOCK_AWAITED, __ATOMIC_ACQUIRE) != FL_LOCK_FREE)
		syscall(SYS_futex, &lock->state, FUTEX_WAIT_PRIVATE, FL_LOCK_AWAITED, NULL);
	errno = saved;
}

void fl_lock_wake(spinlock_t *lock)
{
	int saved = errno;

	syscall(SYS_futex, &lock->state, FUTEX_WAKE_PRIVATE, 1);
	errno = saved;
}

static u64 (*fl_clock)(void);

static inline u64 fl_read_clock(void)
{
	struct timespec ts;

	if (fl_clock)
		return fl_clock();
	clock_gettime(CLOCK_MONOTONIC, &ts);
	return (u64)ts.tv_sec * NSEC_PER_SEC + ts.tv_nsec;
}

u64 fl_now_ns(void)
{
	return fl_read_clock();
}

void fl_set_clock(u64 (*clock_ns)(void))
{
	fl_clock = clock_ns;
}

static void *fl_zalloc(size_t size)
{
	void *p = NULL;

	size = (size + 63) & ~(size_t)63;
	if (posix_memalign(&p, 64, size))
		return NULL;
	return memset(p, 0, size);
}

static struct fl_user_dev *fl_user(struct fl_dev *dev)
{
	return container_of(dev, struct fl_user_dev, dev);
}

void fl_hwq_run(struct fl_hwq *hwq)
{
	struct fl_host *host = &fl_user(hwq->dev)->host;

	host->run(host->ctx, hwq->index);
}

void fl_dev_kick(struct fl_dev *dev)
{
	struct fl_host *host = &fl_user(dev)->host;

	host->kick(host->ctx);
}

void fl_dev_weights(struct fl_dev *dev, unsigned int high, unsigned int medium, unsigned int low)
{
	struct fl_host *host = &fl_user(dev)->host;

	host->weights(host->ctx, high, medium, low);
}

void fl_tag_granted(struct fl_tag_wait *wait)
{
	struct fl_host *host = &fl_user(wait->queue->hwq->dev)->host;

	host->granted(host->ctx, wait);
}

void fl_admitted(struct fl_admission *admission)
{
	struct fl_host *host = &fl_user(admission->queue->hwq->dev)->host;

	admission->waited_ns = fl_now_ns() - admission->since_ns;
	host->admitted(host->ctx, admission);
}

static void fl_dev_free(struct fl_dev *dev)
{
	unsigned int i;

	for (i = 0; dev->hwqs && i < dev->nr_hwqs; i++)
		free(dev->hwqs[i]);
	free(dev->hwqs);
	free(fl_user(dev));
}

/* The flow's queue for hardware queue @index, made if there is none yet; NULL when memory is short. */
static struct fl_queue *fl_flow_make_queue(struct fl_flow *flow, unsigned int index)
{
	struct fl_dev *dev = flow->dev;
	struct fl_queue *up = flow->parent ? fl_flow_use(flow->parent, index) : NULL;
	struct fl_queue *queue = fl_zalloc(dev->sched->queue_size), *other;

	if (!queue)
		return NULL;
	queue->flow = flow;
	queue->hwq = dev->hwqs[index];
	fl_tags_init(queue, up);
	spin_lock(&dev->lock);
	other = flow->queues[index];
	if (!other) {
		if (dev->sched->init_queue)
			dev->sched->init_queue(queue);
		smp_store_release(&flow->queues[index], queue);
	}
	spin_unlock(&dev->lock);
	if (!other)
		return queue;
	free(queue);
	return other;
}

struct fl_queue *fl_flow_use(struct fl_flow *flow, unsigned int index)
{
	struct fl_queue *queue = fl_flow_queue(flow, index);

	if (!queue)
		queue = fl_flow_make_queue(flow, index);
	while (!queue) { /* the root has all */
		flow = flow->parent;
		queue = fl_flow_queue(flow, index);
	}
	return queue;
}

struct fl_dev *fl_dev_create(const struct fl_sched *sched, unsigned int nr_hwqs,
			     const struct fl_host *host)
{
	struct fl_user_dev *user = fl_zalloc(offsetof(struct fl_user_dev, dev) + sched->dev_size);
	const struct fl_var *var;
	struct fl_dev *dev;
	unsigned int i;

	if (!user)
		return NULL;
	user->host = *host;
	dev = &user->dev;
	dev->sched = sched;
	dev->nr_hwqs = nr_hwqs;
	spin_lock_init(&dev->lock);
	INIT_LIST_HEAD(&dev->flows);
	INIT_LIST_HEAD(&dev->active);
	fl_prices_init(&dev->prices);
	dev->hwqs = fl_zalloc(nr_hwqs * sizeof(dev->hwqs[0]));
	if (!dev->hwqs)
		goto err;
	for (i = 0; i < nr_hwqs; i++) {
		dev->hwqs[i] = fl_zalloc(sched->hwq_size);
		if (!dev->hwqs[i])
			goto err;
		dev->hwqs[i]->dev = dev;
		dev->hwqs[i]->index = i;
		spin_lock_init(&dev->hwqs[i]->lock);
		spin_lock_init(&dev->hwqs[i]->tags_lock);
	}
	for (var = sched->vars; var->name; var++)
		if (fl_var_tunable(var))
			*fl_var_ptr(dev, var) = var->def;
	if (sched->init_dev)
		sched->init_dev(dev);
	user->root = fl_flow_create(dev, NULL, FL_WEIGHT_DEFAULT);
	if (!user->root)
		goto err;
	for (i = 0; i < nr_hwqs; i++)
		if (!fl_flow_make_queue(user->root, i))
			goto err_root;
	return dev;
err_root:
	fl_flow_destroy(user->root);
err:
	fl_dev_free(dev);
	return NULL;
}

void fl_dev_destroy(struct fl_dev *dev)
{
	while (!list_empty(&dev->flows))
		/* The list's last is the youngest: children go before parents. */
		fl_flow_destroy(list_entry(dev->flows.prev, struct fl_flow, node));
	fl_dev_free(dev);
}

struct fl_flow *fl_flow_create(struct fl_dev *dev, struct fl_flow *parent, u32 weight)
{
	const struct fl_sched *sched = dev->sched;
	struct fl_flow *flow;

	if (weight < FL_WEIGHT_MIN || weight > FL_WEIGHT_MAX)
		return NULL;
	flow = fl_zalloc(sched->flow_size);
	if (!flow)
		return NULL;
	flow->queues = fl_zalloc(dev->nr_hwqs * sizeof(flow->queues[0]));
	if (!flow->queues) {
		free(flow);
		return NULL;
	}
	flow->dev = dev;
	flow->parent = parent ? parent : fl_user(dev)->root;
	flow->weight = weight;
	spin_lock(&dev->lock);
	if (sched->init_flow)
		sched->init_flow(flow);
	if (flow->parent)
		WRITE_ONCE(flow->parent->has_below, true);
	list_add_tail(&flow->node, &dev->flows);
	spin_unlock(&dev->lock);
	return flow;
}

void fl_flow_destroy(struct fl_flow *flow)
{
	struct fl_dev *dev = flow->dev;
	unsigned int i;

	spin_lock(&dev->lock);
	if (dev->sched->exit_flow)
		dev->sched->exit_flow(flow);
	fl_flow_set_busy(flow, false);
	list_del_init(&flow->node);
	spin_unlock(&dev->lock);
	for (i = 0; i < dev->nr_hwqs; i++)
		free(flow->queues[i]);
	free(flow->queues);
	free(flow);
}

bool fl_flow_weight(struct fl_flow *flow, u32 weight)
{
	if (weight < FL_WEIGHT_MIN || weight > FL_WEIGHT_MAX)
		return false;
	spin_lock(&flow->dev->lock);
	fl_flow_set_weight(flow, weight);
	spin_unlock(&flow->dev->lock);
	return true;
}

void fl_flow_latency(struct fl_flow *flow, u64 ns)
{
	WRITE_ONCE(flow->latency_ns, ns);
}

struct fl_flow *fl_root(struct fl_dev *dev)
{
	return fl_user(dev)->root;
}

void fl_charge(struct fl_flow *flow, unsigned int index, enum fl_op op, u32 bytes)
{
	fl_queue_charge(fl_flow_use(flow, index), op, bytes);
}

static struct fl_queue *fl_begin(unsigned int index, struct fl_flow *flow, struct fl_req *rq)
{
	struct fl_queue *queue = fl_flow_queue(flow, index);

	if (unlikely(!queue))
		queue = fl_flow_use(flow, index);

	rq->queue = queue;
	rq->priv = 0;
	rq->dispatch_ns = 0;
	atomic_inc(&queue->held);
	return queue;
}

enum fl_class fl_route(struct fl_dev *dev, unsigned int index, struct fl_flow *flow,
		       struct fl_req *rq)
{
	struct fl_queue *queue = fl_begin(index, flow, rq);
	enum fl_class class;

	spin_lock(&queue->hwq->lock);
	class = dev->sched->route(queue, rq);
	spin_unlock(&queue->hwq->lock);
	rq->dispatch_ns = fl_read_clock();
	return class;
}

bool fl_admit(struct fl_flow *flow, unsigned int index, struct fl_admission *admission)
{
	struct fl_queue *queue = fl_flow_use(flow, index);

	atomic_inc(&queue->held);
	admission->held = true;
	admission->waited_ns = 0;
	return fl_queue_admit(queue, admission, 0);
}

bool fl_sent(struct fl_admission *admission)
{
	return fl_queue_sent(admission);
}

void fl_leave(struct fl_admission *admission, u64 ns)
{
	struct fl_queue *queue = admission->queue;

	queue->hwq->dev->sched->leave(queue, admission->op, admission->cost, ns);
	if (ns)
		fl_times_add(&queue->times, admission->waited_ns, admission->waited_ns + ns);
	atomic_dec(&queue->held);
}

void fl_submit(struct fl_dev *dev, unsigned int index, struct fl_flow *flow, struct fl_req *rq)
{
	struct fl_queue *queue = fl_begin(index, flow, rq);

	spin_lock(&queue->hwq->lock);
	dev->sched->insert(queue, rq, false);
	spin_unlock(&queue->hwq->lock);
}

struct fl_req *fl_next(struct fl_dev *dev, unsigned int index)
{
	struct fl_hwq *hwq = dev->hwqs[index];
	struct fl_req *rq;

	if (!dev->sched->has_work(hwq))
		return NULL;
	spin_lock(&hwq->lock);
	rq = dev->sched->dispatch(hwq);
	spin_unlock(&hwq->lock);
	if (rq)
		rq->dispatch_ns = fl_read_clock();
	return rq;
}

void fl_done(struct fl_req *rq)
{
	struct fl_queue *queue = rq->queue;
	const struct fl_sched *sched = queue->hwq->dev->sched;
	u64 now_ns = fl_read_clock();

	if (sched->complete)
		sched->complete(queue, rq, now_ns);
	if (sched->release)
		sched->release(queue, rq);
	fl_times_add(&queue->times, rq->dispatch_ns - rq->arrival_ns, now_ns - rq->arrival_ns);
	atomic_dec(&queue->held);
}

void fl_requeue(struct fl_req *rq)
{
	struct fl_queue *queue = rq->queue;
	const struct fl_sched *sched = queue->hwq->dev->sched;

	if (sched->route) {
		sched->unroute(queue, rq);
		atomic_dec(&queue->held);
		return;
	}
	if (sched->release)
		sched->release(queue, rq);
	rq->dispatch_ns = 0;
	spin_lock(&queue->hwq->lock);
	sched->insert(queue, rq, true);
	spin_unlock(&queue->hwq->lock);
}

void fl_flow_times(struct fl_flow *flow, struct fl_times *times)
{
	unsigned int i;

	*times = (struct fl_times){};
	for (i = 0; i < flow->dev->nr_hwqs; i++) {
		struct fl_queue *queue = fl_flow_queue(flow, i);

		if (queue)
			fl_times_sum(times, &queue->times);
	}
}

u64 fl_tick(struct fl_dev *dev)
{
	return dev->sched->tick ? dev->sched->tick(dev) : 0;
}

void fl_set_tags(struct fl_dev *dev, unsigned int tags)
{
	unsigned int i;

	for (i = 0; i < dev->nr_hwqs; i++)
		dev->hwqs[i]->tags = tags;
}

bool fl_tag_take(struct fl_flow *flow, unsigned int index, struct fl_tag_wait *wait)
{
	wait->queue = fl_flow_use(flow, index);
	if (wait->queue->up)
		return fl_tags_take(wait);
	fl_tags_take_anyway(wait->queue);
	return true;
}

void fl_tag_sent(struct fl_queue *queue)
{
	fl_tags_sent(queue);
}

void fl_tag_give(struct fl_queue *queue)
{
	fl_tags_give(queue);
}

static const struct fl_var *fl_find_var(struct fl_dev *dev, const char *name)
{
	const struct fl_var *var;

	for (var = dev->sched->vars; var->name; var++)
		if (!strcmp(var->name, name))
			return var;
	return NULL;
}

bool fl_get(struct fl_dev *dev, const char *name, u64 *value)
{
	const struct fl_var *var = fl_find_var(dev, name);

	if (!var)
		return false;
	spin_lock(&dev->lock); /* counters are written under it */
	*value = *fl_var_ptr(dev, var);
	spin_unlock(&dev->lock);
	return true;
}

bool fl_set(struct fl_dev *dev, const char *name, u64 value)
{
	const struct fl_var *var = fl_find_var(dev, name);

	if (!var || !fl_var_tunable(var) || value < var->min || value > var->max)
		return false;
	spin_lock(&dev->lock);
	WRITE_ONCE(*fl_var_ptr(dev, var), value); /* tunables are read without it */
	spin_unlock(&dev->lock);
	return true;
}

bool fl_set_prices(struct fl_dev *dev, const char *text)
{
	struct fl_prices prices;

	if (!fl_prices_parse(&prices, text))
		return false;
	spin_lock(&dev->lock); /* against ticks */
	dev->prices = prices;
	spin_unlock(&dev->lock);
	return true;
}
