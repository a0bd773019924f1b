/* SPDX-License-Identifier: GPL-2.0-only OR MIT */
/*
 * The environment that a scheduler is compiled in: the Linux kernel, or user
 * space (the C library, its tests, the simulator).
 *
 * Where the kernel has a name for a thing (READ_ONCE, atomic64_t, spinlock_t,
 * list_head, div64_u64), that name is used, and the user-space side supplies
 * it with the kernel's meaning. Besides those, each side defines, for the
 * host's own request type `struct fl_req`:
 *
 *   fl_req_op(rq)           enum fl_op
 *   fl_req_bytes(rq)        size in bytes, merges included
 *   fl_req_arrival_ns(rq)   when it entered the block layer
 *   fl_req_dispatch_ns(rq)  when it was sent to the drive; 0 when not measured
 *   fl_req_node(rq)         the list_head by which a scheduler stages it
 *   fl_req_of(node)         the request of such a list_head
 *   fl_req_rank(rq)         ionice's class: of a flow's requests, the least goes first
 *   fl_req_queue(rq)        the struct fl_queue that it was inserted into, until
 *                           it is done
 *   fl_req_priv(rq)         one unsigned long for the scheduler; 0 until it
 *                           is first inserted
 *
 * and the host's services:
 *
 *   fl_now_ns()             monotonic clock, ns
 *   fl_hwq_run(hwq)         have dispatch() called for this hardware queue
 *                           soon, from another context; any context, any lock
 *   fl_dev_kick(dev)        have tick() called soon; any context, any lock
 *   fl_dev_weights(dev, high, medium, low)
 *                           the weights of the classes that route() chooses
 *                           from, 1..FL_CLASS_WEIGHT_MAX: soon; any context, any lock
 *   fl_trace_*()            tracepoints; nothing in user space
 *   fl_alloc(size)          zeroed memory, NULL when it is short; may sleep
 *   fl_free(p)              gives it back; NULL is fine
 */
#ifndef FAIRLANE_ENV_H
#define FAIRLANE_ENV_H

#ifdef __KERNEL__
#include "env-kernel.h"
#else
#include "env-user.h"
#endif

#endif
