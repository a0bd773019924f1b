// SPDX-License-Identifier: GPL-2.0-only
/* D2FQ, for drivers that ask for the class: see libfairlane/schedulers/d2fq.c. */
#define FL_ROUTES
#include "device.h"

#include "libfairlane/schedulers/d2fq.c"

#define FL_SCHED fl_d2fq
#include "router.c"

MODULE_DESCRIPTION("D2FQ: weighted shares by the drive's own weighted round robin");
MODULE_ALIAS("fairlane-route-d2fq");
