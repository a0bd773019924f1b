// SPDX-License-Identifier: GPL-2.0-only
/* MQFQ as an elevator: see libfairlane/schedulers/mqfq.c. */
#include "device.h"
#include <trace/events/block.h>

#include "libfairlane/schedulers/mqfq.c"

#define FL_SCHED fl_mqfq
#include "elevator.c"

MODULE_DESCRIPTION("MQFQ: multi-queue fair queueing by start tags");
MODULE_ALIAS("mqfq-iosched");
