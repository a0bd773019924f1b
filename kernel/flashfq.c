// SPDX-License-Identifier: GPL-2.0-only
/* FlashFQ as an elevator: see libfairlane/schedulers/flashfq.c. */
#include "device.h"
#include <trace/events/block.h>

#include "libfairlane/schedulers/flashfq.c"

#define FL_SCHED fl_flashfq
#include "elevator.c"

MODULE_DESCRIPTION("FlashFQ: SFQ(D) under one lock, the baseline of mqFlashFQ");
MODULE_ALIAS("flashfq-iosched");
