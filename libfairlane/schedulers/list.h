/* SPDX-License-Identifier: GPL-2.0-only OR MIT */
/*
 * The list of schedulers. Everything that must know them all is made from it: the
 * library (user.h, list.c), the kernel modules (kernel/Kbuild), the simulator,
 * the microbenchmarks, and the knobs of the command (fairlane/schedulers.py).
 * To add a scheduler, write NAME.c beside this file and add its row:
 *
 *	X(identifier, "name", host, role,
 *	  "what it is, in one line for users")
 *
 *	identifier  its struct fl_sched is fl_<identifier>
 *	name        the same as .name in that: of its file, its module, its knob
 *	host        ELEVATOR: it stages requests; it is chosen in queue/scheduler
 *	            ROUTER: it has route(); it is chosen in fairlane/scheduler, for a drive
 *	            with weighted round robin arbitration
 *	            RQ_QOS: it has admit(); it is chosen in fairlane/scheduler
 *	role        MAIN
 *	            BASELINE: others are compared with it; the demo leaves it out
 *	            EXAMPLE: for its readers; runs only where it is named
 *
 * Kbuild and Python read the rows as text: write them as these are.
 */
#ifndef FAIRLANE_SCHEDULERS_LIST_H
#define FAIRLANE_SCHEDULERS_LIST_H

#define FL_SCHEDULERS(X)                                                                           \
	X(fairlane, "fairlane", RQ_QOS, MAIN,                                                      \
	  "fairlane: shares by io.fairlane.weight, and no more in the drive than is of use")       \
	X(kyber_fairness, "kyber-fairness", ELEVATOR, MAIN,                                        \
	  "Kyber-fairness: shares by io.fairlane.weight")                                          \
	X(mqflashfq, "mqflashfq", ELEVATOR, MAIN,                                                  \
	  "mqFlashFQ: shares of the drive's time by io.fairlane.weight, by what requests cost")    \
	X(flashfq, "flashfq", ELEVATOR, BASELINE,                                                  \
	  "FlashFQ: as mqFlashFQ, but with one lock for all cores; to compare with")               \
	X(d2fq, "d2fq", ROUTER, MAIN,                                                              \
	  "D2FQ: shares by io.fairlane.weight, kept by the drive's own WRR arbitration")           \
	X(mqfq, "mqfq", ELEVATOR, BASELINE,                                                        \
	  "MQFQ: shares by io.fairlane.weight, with start tags and a queue for each core")         \
	X(round_robin, "round-robin", ELEVATOR, EXAMPLE,                                           \
	  "round robin: cgroups take turns, one request each; weights count for tags only")

#endif
