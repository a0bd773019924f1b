/* SPDX-License-Identifier: GPL-2.0-only OR MIT */
/*
 * Classes of a drive's submission queues that a scheduler with route() chooses
 * from: those of NVMe's weighted round robin arbitration, with weights of
 * 1..FL_CLASS_WEIGHT_MAX.
 */
#ifndef FAIRLANE_QUEUE_CLASS_H
#define FAIRLANE_QUEUE_CLASS_H

enum fl_class { FL_HIGH, FL_MEDIUM, FL_LOW, FL_NR_CLASSES };
#define FL_CLASS_WEIGHT_MAX 256

#endif
