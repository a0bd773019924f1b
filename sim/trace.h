/* SPDX-License-Identifier: GPL-2.0-only OR MIT */
/*
 * Recorded requests, read line by line, so that a trace of any length takes no
 * memory. A line is five whole numbers between blanks: the arrival (ns, from
 * any time on, never before the line above), the device (not looked at), the
 * first sector and the number of sectors (of 512 bytes), 0 for a write or 1
 * for a read.
 *
 * A trace has no end: after its last request it goes on with its first one, as
 * much later as its requests are apart on average, so at the recorded rate.
 */
#ifndef SIM_TRACE_H
#define SIM_TRACE_H

#include <stdio.h>

#include "../libfairlane/env.h"

struct io {
	u64 arrival_ns, offset, bytes;
	bool read;
};

struct trace {
	FILE *file;
	u64 block; /* offsets are rounded down to it, sizes up; bytes */
	u64 size; /* of the drive: blocks; an offset beyond wraps */
	u64 nth, of; /* which requests are played */
	u64 begun_ns; /* when it was last begun, ~0: not yet */
	u64 round_ns; /* when the first request of this time through arrives */
	u64 first_ns, last_ns; /* recorded arrivals: of the first request, of the one below */
	u64 line; /* of the one below, from 1 on */
	struct io next; /* what arrives next */
	const char *wrong; /* what the last call that failed found in that line */
};

/*
 * For a drive of @size bytes with blocks of @block. NULL when the file cannot be
 * opened, with errno; errno is 0 when it is not a regular file.
 */
struct trace *trace_open(const char *path, u64 size, u64 block, u64 nth, u64 of);
void trace_close(struct trace *trace);
/*
 * Read the trace to its end. False, with trace->wrong, when a line is not a request
 * or some job has none. Call trace_begin() next.
 */
bool trace_check(struct trace *trace);
/* Have the first request arrive at @at_ns. False with trace->wrong when there is none. */
bool trace_begin(struct trace *trace, u64 at_ns);
/* Go on to the next request. False with trace->wrong when the line is not one. */
bool trace_next(struct trace *trace);

#endif
