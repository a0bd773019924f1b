/* SPDX-License-Identifier: GPL-2.0-only OR MIT */
/*
 * Dies and channels. A die does one thing at a time and holds what it has
 * read until its channel has taken it:
 *
 *	read      sense, then (when the channel is free) transfer out
 *	program   (when the channel is free) transfer in, then program
 *	collect   sense rows, and when they fill one, transfer out and in, then
 *	          program; or erase
 *
 * A read waits behind what its die is doing, and behind reads that came
 * before. A program goes to any die that has nothing to read, or has done
 * reads_per_program reads in a row; until there is one it waits in the buffer.
 * A channel serves in the order in which its dies ask.
 *
 * A die has at most one event to come, so the heap of events is no larger
 * than the number of dies.
 */
#ifndef FAIRLANE_SSD_NAND_H
#define FAIRLANE_SSD_NAND_H

#include "buffer.h"
#include "rate.h"
#include "ssd.h"

struct page_read {
	struct ssd_cmd *cmd;
	u32 bytes;
	struct page_read *next;
};

struct die {
	/* The first is being done while SENSING or SENDING. */
	struct page_read *reads, *last_read;
	enum { IDLE, SENSING, SENDING, PROGRAMMING, COLLECTING } state;
	u32 channel;
	u32 reads_in_row; /* since the last program, collection or idleness */
	u32 units; /* of the buffer, PROGRAMMING */
	u64 first; /* their lowest number, PROGRAMMING */
	u64 collect_ns; /* COLLECTING: transfers and program after the senses; 0: nothing follows */
	struct list_head idle; /* in nand.idle while IDLE */
};

struct nand_event {
	u64 when;
	u32 die;
};

struct nand {
	struct ftl *ftl;
	struct buffer *buffer;
	u32 nr_dies, nr_channels;
	u32 reads_per_program;
	u64 read_ns, program_ns, erase_ns, row_ns; /* row_ns: transfer of a row */
	struct rate channel_rate;
	u64 *channel_free; /* when a channel has done what it was asked for */
	struct die *dies;
	struct list_head idle; /* dies, longest idle first */
	struct page_read *pool, *free_reads;
	struct nand_event *events; /* a heap, soonest first */
	u32 nr_events;
	u64 die_busy_ns, channel_busy_ns;
};

/* What an event brought: a read whose data is out of the channel, or units that are on NAND. */
struct nand_done {
	struct ssd_cmd *cmd; /* NULL: no read */
	u32 bytes;
	u32 units;
};

bool nand_init(struct nand *n, struct ftl *ftl, struct buffer *b, const struct ssd_profile *p);
void nand_exit(struct nand *n);

static inline u64 nand_next_ns(const struct nand *n)
{
	return n->nr_events ? n->events[0].when : SSD_NEVER;
}

/* Let the soonest event happen, which is at @now. */
struct nand_done nand_step(struct nand *n, u64 now);

static inline bool nand_can_read(const struct nand *n)
{
	return n->free_reads;
}

/* Read @bytes of a row of @die for @cmd; nand_can_read(). */
void nand_read(struct nand *n, u32 die, struct ssd_cmd *cmd, u32 bytes, u64 now);
/* The buffer has more to program than before. */
void nand_kick(struct nand *n, u64 now);
/* No unit that came in before this number is on its way to NAND. */
u64 nand_settled(const struct nand *n);

#endif
