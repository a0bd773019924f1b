/* SPDX-License-Identifier: GPL-2.0-only OR MIT */
/* Commands in order, linked by their next. */
#ifndef FAIRLANE_SSD_FIFO_H
#define FAIRLANE_SSD_FIFO_H

#include "ssd.h"

struct fifo {
	struct ssd_cmd *head, *tail;
};

static inline void fifo_push(struct fifo *f, struct ssd_cmd *cmd)
{
	cmd->next = NULL;
	if (f->head)
		f->tail->next = cmd;
	else
		f->head = cmd;
	f->tail = cmd;
}

/* Not empty. */
static inline struct ssd_cmd *fifo_pop(struct fifo *f)
{
	struct ssd_cmd *cmd = f->head;

	f->head = cmd->next;
	return cmd;
}

#endif
