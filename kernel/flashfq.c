// SPDX-License-Identifier: GPL-2.0-only
/* FlashFQ as an elevator: see libfairlane/flashfq.c. */
#include "core.h"
#include <trace/events/block.h>

#include "libfairlane/flashfq.c"

#define FL_SCHED fl_flashfq
#include "glue.h"

MODULE_DESCRIPTION("FlashFQ: SFQ(D) under one lock, the baseline of mqFlashFQ");
MODULE_ALIAS("flashfq-iosched");
