// SPDX-License-Identifier: GPL-2.0-only
/* MQFQ as an elevator: see libfairlane/mqfq.c. */
#include "core.h"
#include <trace/events/block.h>

#include "libfairlane/mqfq.c"

#define FL_SCHED fl_mqfq
#include "glue.h"

MODULE_DESCRIPTION("MQFQ: multi-queue fair queueing by start tags");
MODULE_ALIAS("mqfq-iosched");
