/* SPDX-License-Identifier: GPL-2.0-only OR MIT */
#ifndef SIM_NONE_H
#define SIM_NONE_H

#include "../libfairlane/fairlane.h"

extern const struct fl_sched sim_none;

#endif
