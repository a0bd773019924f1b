// SPDX-License-Identifier: GPL-2.0-only
/* mqFlashFQ as an elevator: see libfairlane/schedulers/mqflashfq.c. */
#include "device.h"
#include <trace/events/block.h>

#include "libfairlane/schedulers/mqflashfq.c"

#define FL_SCHED fl_mqflashfq
#include "elevator.c"

MODULE_DESCRIPTION("mqFlashFQ: weighted shares by calibrated cost, without locks between cores");
MODULE_ALIAS("mqflashfq-iosched");
