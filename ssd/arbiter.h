/* SPDX-License-Identifier: GPL-2.0-only OR MIT */
/*
 * Which submission queue the controller fetches from: the arbitration of the
 * NVMe specification (section "Command Arbitration").
 *
 * Round robin: all queues are equal; each in turn gives up to the arbitration
 * burst.
 *
 * Weighted round robin with urgent class: a queue of the urgent class goes
 * before all others (strict; round robin among them). Otherwise high, medium
 * and low share by credits: in a round each class may give as many commands
 * as its weight. The classes take turns; one turn is the arbitration burst or
 * the credits left, whichever is smaller. When no class with commands has
 * credits, a new round begins: each class starts it with its weight of the
 * time, and unused credits are lost.
 *
 *	weights 4:4:1, burst 2:  HH MM L HH MM | HH MM L HH MM | ...
 *
 * The queues of a class take turns of a burst. When the credits end in the
 * middle of a burst, the queue gets the rest of it when its class is next. Else
 * the queues behind it would always get the odd end.
 *
 * Only queues with commands are looked at, in a list for each class, so the
 * cost of a choice does not grow with the number of queues. A queue that
 * becomes non-empty goes to the end of its list: it is served after every
 * other queue of its class that is waiting.
 */
#ifndef FAIRLANE_SSD_ARBITER_H
#define FAIRLANE_SSD_ARBITER_H

#include "ssd.h"
#include "fifo.h"

struct arbiter_queue {
	struct fifo cmds;
	struct list_head node; /* in its class while non-empty */
};

struct arbiter_class {
	struct list_head queues; /* the non-empty ones, in turn */
	u32 turn; /* what the first of them may still give before the next has its turn */
	u32 weight, credits;
};

struct arbiter {
	bool wrr;
	u32 burst;
	u32 at, turn; /* the weighted class whose turn it is, and what is left of the turn */
	u32 waiting[SSD_NR_CLASSES]; /* commands, by class of queue */
	u32 total; /* their sum */
	struct arbiter_class classes[SSD_NR_CLASSES]; /* all in the first without wrr */
	struct arbiter_queue *queues; /* [core][class] */
};

/* False when memory is short; arbiter_exit() cleans up either way. */
bool arbiter_init(struct arbiter *a, bool wrr, u32 burst, unsigned int cores);
void arbiter_exit(struct arbiter *a);
void arbiter_add(struct arbiter *a, struct ssd_cmd *cmd);
/* The next command, NULL when all queues are empty. */
struct ssd_cmd *arbiter_next(struct arbiter *a);

#endif
