// SPDX-License-Identifier: GPL-2.0-only
/* Kyber-fairness as an elevator: see libfairlane/schedulers/kyber-fairness.c. */
#include "device.h"
#include <trace/events/block.h>

#include "libfairlane/schedulers/kyber-fairness.c"

#define FL_SCHED fl_kyber_fairness
#include "elevator.c"

MODULE_DESCRIPTION("Kyber-fairness: weighted shares by tokens, scalable I/O scheduler");
MODULE_ALIAS("kyber-fairness-iosched");
