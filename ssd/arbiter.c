// SPDX-License-Identifier: GPL-2.0-only OR MIT
#include "arbiter.h"

bool arbiter_init(struct arbiter *a, bool wrr, u32 burst, unsigned int cores)
{
	unsigned int i;

	a->wrr = wrr;
	a->burst = burst;
	a->at = SSD_HIGH;
	a->turn = burst;
	for (i = 0; i < SSD_NR_CLASSES; i++) {
		INIT_LIST_HEAD(&a->classes[i].queues);
		a->classes[i].turn = burst;
		a->classes[i].weight = 1;
	}
	a->queues = fl_alloc((size_t)cores * SSD_NR_CLASSES * sizeof(*a->queues));
	return a->queues;
}

void arbiter_exit(struct arbiter *a)
{
	fl_free(a->queues);
}

void arbiter_add(struct arbiter *a, struct ssd_cmd *cmd)
{
	struct arbiter_queue *q = &a->queues[(size_t)cmd->core * SSD_NR_CLASSES + cmd->class];

	if (!q->cmds.head)
		list_add_tail(&q->node, &a->classes[a->wrr ? cmd->class : 0].queues);
	fifo_push(&q->cmds, cmd);
	a->waiting[cmd->class]++;
	a->total++;
}

/* The next command of a class that has one; turn is back at the burst when the turn ends. */
static struct ssd_cmd *class_next(struct arbiter *a, struct arbiter_class *c)
{
	struct arbiter_queue *q = list_first_entry(&c->queues, struct arbiter_queue, node);
	struct ssd_cmd *cmd = fifo_pop(&q->cmds);

	if (!q->cmds.head) {
		list_del_init(&q->node);
		c->turn = a->burst;
	} else if (!--c->turn) {
		list_move_tail(&q->node, &c->queues);
		c->turn = a->burst;
	}
	a->waiting[cmd->class]--;
	a->total--;
	return cmd;
}

static bool may_give(const struct arbiter_class *c)
{
	return c->credits && !list_empty(&c->queues);
}

static void next_turn(struct arbiter *a)
{
	a->turn = a->burst;
	if (++a->at == SSD_NR_CLASSES)
		a->at = SSD_HIGH;
}

/* The weighted class whose turn it is; at least one has commands. */
static struct arbiter_class *weighted_class(struct arbiter *a)
{
	unsigned int i;

	for (;;) {
		for (i = SSD_HIGH; i < SSD_NR_CLASSES; i++) {
			if (may_give(&a->classes[a->at]))
				return &a->classes[a->at];
			next_turn(a);
		}
		for (i = SSD_HIGH; i < SSD_NR_CLASSES; i++)
			a->classes[i].credits = a->classes[i].weight;
		a->at = SSD_HIGH;
	}
}

struct ssd_cmd *arbiter_next(struct arbiter *a)
{
	struct arbiter_class *c = &a->classes[SSD_URGENT];
	struct ssd_cmd *cmd;

	if (!a->total)
		return NULL;
	if (!list_empty(&c->queues))
		return class_next(a, c);
	c = weighted_class(a);
	cmd = class_next(a, c);
	if (!--c->credits || !--a->turn)
		next_turn(a);
	return cmd;
}
