/* SPDX-License-Identifier: GPL-2.0-only */
/* Tracepoints: /sys/kernel/tracing/events/fairlane/ */
#undef TRACE_SYSTEM
#define TRACE_SYSTEM fairlane

#if !defined(FAIRLANE_TRACEPOINTS_H) || defined(TRACE_HEADER_MULTI_READ)
#define FAIRLANE_TRACEPOINTS_H

#include <linux/blkdev.h>
#include <linux/tracepoint.h>

/* Tokens were handed out, for one of kyber-fairness' causes; done: cost, up to the last prediction. */
TRACE_EVENT(fairlane_refill,
	TP_PROTO(dev_t dev, unsigned int cause, u64 tokens, u64 done),
	TP_ARGS(dev, cause, tokens, done),
	TP_STRUCT__entry(
		__field(dev_t, dev)
		__field(unsigned int, cause)
		__field(u64, tokens)
		__field(u64, done)
	),
	TP_fast_assign(
		__entry->dev = dev;
		__entry->cause = cause;
		__entry->tokens = tokens;
		__entry->done = done;
	),
	TP_printk("%d,%d %s tokens=%llu done=%llu", MAJOR(__entry->dev), MINOR(__entry->dev),
		  __print_symbolic(__entry->cause, { 0, "period" }, { 1, "spent" }, { 2, "floor" }),
		  __entry->tokens, __entry->done)
);

/* A task waits for a scheduler tag: all are taken, or its cgroup, or one above it, has its part of them waiting. */
TRACE_EVENT(fairlane_tag_wait,
	TP_PROTO(dev_t dev, unsigned int hwq, int held),
	TP_ARGS(dev, hwq, held),
	TP_STRUCT__entry(
		__field(dev_t, dev)
		__field(unsigned int, hwq)
		__field(int, held)
	),
	TP_fast_assign(
		__entry->dev = dev;
		__entry->hwq = hwq;
		__entry->held = held;
	),
	TP_printk("%d,%d hwq=%u held=%d", MAJOR(__entry->dev), MINOR(__entry->dev), __entry->hwq,
		  __entry->held)
);

#endif

#undef TRACE_INCLUDE_PATH
#define TRACE_INCLUDE_PATH .
#undef TRACE_INCLUDE_FILE
#define TRACE_INCLUDE_FILE tracepoints
#include <trace/define_trace.h>
