// SPDX-License-Identifier: GPL-2.0-only
/* mqFlashFQ as an elevator: see libfairlane/mqflashfq.c. */
#include "core.h"
#include <trace/events/block.h>

#include "libfairlane/mqflashfq.c"

#define FL_SCHED fl_mqflashfq
#include "glue.h"

MODULE_DESCRIPTION("mqFlashFQ: weighted shares by calibrated cost, without locks between cores");
MODULE_ALIAS("mqflashfq-iosched");
