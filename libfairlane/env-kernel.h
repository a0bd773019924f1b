/* SPDX-License-Identifier: GPL-2.0-only OR MIT */
/*
 * The kernel side of env.h. A request is the block layer's own struct
 * request, or what a driver keeps of it for a scheduler that routes. The
 * host's services are in kernel/device.h.
 */
#ifndef FAIRLANE_ENV_KERNEL_H
#define FAIRLANE_ENV_KERNEL_H

#include <linux/atomic.h>
#include <linux/bitops.h>
#include <linux/blk-mq.h>
#include <linux/cache.h>
#include <linux/container_of.h>
#include <linux/ktime.h>
#include <linux/ioprio.h>
#include <linux/limits.h>
#include <linux/list.h>
#include <linux/log2.h>
#include <linux/math64.h>
#include <linux/minmax.h>
#include <linux/mm.h>
#include <linux/prefetch.h>
#include <linux/sched.h>
#include <linux/slab.h>
#include <linux/spinlock.h>
#include <linux/stddef.h>
#include <linux/string.h>
#include <linux/time64.h>
#include <linux/timekeeping.h>
#include <linux/types.h>

/* Without a warning: whoever asks says what is short. */
#define fl_alloc(size) kvzalloc(size, GFP_KERNEL | __GFP_NOWARN)
#define fl_free(p) kvfree(p)

#define fl_now_ns() ktime_get_ns()

#define fl_opf_op(opf)                                            \
	(((opf) & REQ_OP_MASK) == REQ_OP_READ	 ? FL_READ :       \
	 ((opf) & REQ_OP_MASK) == REQ_OP_WRITE	 ? FL_WRITE :      \
	 ((opf) & REQ_OP_MASK) == REQ_OP_ZONE_APPEND ? FL_WRITE :  \
	 ((opf) & REQ_OP_MASK) == REQ_OP_WRITE_ZEROES ? FL_WRITE : \
	 ((opf) & REQ_OP_MASK) == REQ_OP_DISCARD ? FL_DISCARD :    \
						   FL_OTHER)

/* Realtime, best effort, idle: 1, 2, 3. */
#define fl_rank(ioprio) (IOPRIO_PRIO_CLASS(ioprio) ?: IOPRIO_CLASS_BE)

#ifdef FL_ROUTES /* a module whose scheduler has route() says so first; see kernel/route.h */
#define fl_req fl_route_rq
#define fl_req_op(frq) ((enum fl_op)(frq)->op)
#define fl_req_bytes(frq) ((frq)->bytes)
#define fl_req_priv(frq) (&(frq)->priv)
#else
#define fl_req request
#define fl_req_op(rq) fl_opf_op((rq)->cmd_flags)
#define fl_req_bytes(rq) blk_rq_bytes(rq)
#define fl_req_rank(rq) fl_rank(req_get_ioprio(rq))
#define fl_req_arrival_ns(rq) ((rq)->start_time_ns)
#define fl_req_dispatch_ns(rq) ((rq)->io_start_time_ns)
#define fl_req_node(rq) (&(rq)->queuelist)
#define fl_req_of(node) list_entry(node, struct request, queuelist)
#define fl_req_queue(rq) ((struct fl_queue *)(rq)->elv.priv[0])
#define fl_req_priv(rq) ((unsigned long *)&(rq)->elv.priv[1])
#endif

#endif
