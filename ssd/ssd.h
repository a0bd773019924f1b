/* SPDX-License-Identifier: GPL-2.0-only OR MIT */
/*
 * A model of a multi-queue NVMe SSD: submission queues with round robin or
 * weighted round robin arbitration, a controller, a link, and NAND with or
 * without a flash translation layer.
 *
 * The model owns no clock and no thread. Its host submits commands at a time,
 * asks when something happens next, and moves it there:
 *
 *	ssd_submit(ssd, cmd, now);
 *	for (;;) {
 *		wait until ssd_next_ns(ssd);
 *		for (cmd = ssd_advance(ssd, now); cmd; cmd = next) {
 *			next = cmd->next;
 *			complete(cmd);
 *		}
 *	}
 *
 * The parts: arbiter.c chooses what is fetched next, ssd.c takes a command from
 * there to its completion, buffer.c holds writes, ftl.c knows where data lies,
 * nand.c has the dies and channels; profile.h has every number.
 *
 * Time never goes back: every @now is at least the one before. The same calls
 * with the same profile, seed and times give the same completions, on any
 * machine: there is no floating point here, and no random number that is not
 * derived from the seed.
 *
 * Locking: none. The host serialises all calls for one drive (the virtual
 * block device holds a lock, the simulator has one thread). No call sleeps
 * or allocates, except ssd_create() and ssd_precondition().
 */
#ifndef FAIRLANE_SSD_H
#define FAIRLANE_SSD_H

#include "../libfairlane/env.h"

enum ssd_op { SSD_READ, SSD_WRITE, SSD_TRIM, SSD_FLUSH, SSD_NR_OPS };

/* The classes of submission queues, in the order of the NVMe specification's WRR arbitration. */
enum ssd_class { SSD_URGENT, SSD_HIGH, SSD_MEDIUM, SSD_LOW, SSD_NR_CLASSES };

#define SSD_NEVER (~0ull)

/* One command. The owner's memory; the model's from ssd_submit() until ssd_advance() returns it. */
struct ssd_cmd {
	/* Filled in by the owner. */
	u64 offset; /* bytes from the start of the drive; a multiple of 512 */
	u32 bytes; /* a multiple of 512, not 0; unused by a flush */
	u8 op; /* enum ssd_op */
	u8 class; /* enum ssd_class; SSD_HIGH unless the drive does WRR */
	bool fua; /* a write that is done when it is on NAND, not in the buffer */
	u32 core; /* whose submission queues, 0..cores-1 */
	/* Filled in by the model. */
	u64 submitted_ns, fetched_ns, done_ns;
	struct ssd_cmd *next; /* in a queue of the model, or in what ssd_advance() returned */
	/* The model's own. */
	u32 todo; /* bytes that are not yet on their way */
	u32 pending; /* page reads on their way */
	u64 target; /* what must be on NAND before a flush or a FUA write is done */
};

struct ssd_profile; /* profile.h: every number of a drive, with its unit */
struct ssd;

/*
 * A drive for @cores cores with empty queues, fresh; @profile has passed
 * ssd_profile_check() and is copied. @seed decides what is random in it: the
 * placement of data on a drive without a map, and what ssd_precondition()
 * writes. WRR weights start as 1:1:1. May sleep. NULL when memory is short.
 */
struct ssd *ssd_create(const struct ssd_profile *profile, unsigned int cores, u64 seed);
/*
 * Bytes that ssd_create() allocates for such a drive, but for a few KiB: a map
 * of some TiB takes more than a machine has, or than the kernel gives at once.
 */
u64 ssd_memory(const struct ssd_profile *profile);
/* No command may be left in it. */
void ssd_destroy(struct ssd *ssd);

/*
 * Fill an idle drive as its profile says, at no cost in time: the steady
 * state that sustained use leads to. Does nothing without a map. May sleep.
 */
void ssd_precondition(struct ssd *ssd);

/*
 * Put @cmd into the submission queue of its core and class. Whatever happens
 * before @now happens first; what that completes is returned by the next
 * ssd_advance().
 */
void ssd_submit(struct ssd *ssd, struct ssd_cmd *cmd, u64 now);
/*
 * When something happens next, SSD_NEVER when the drive has nothing to do. A
 * drive with nothing to do may hold data in its buffer that fill no page.
 */
u64 ssd_next_ns(const struct ssd *ssd);
/*
 * Move to @now, not SSD_NEVER. Returns the commands that are done by then, in
 * the order of their done_ns, linked by next.
 */
struct ssd_cmd *ssd_advance(struct ssd *ssd, u64 now);

/* WRR weights of high, medium and low, 1..256 each: from the next arbitration round on. */
void ssd_set_weights(struct ssd *ssd, unsigned int high, unsigned int medium, unsigned int low);
/* Another arbitration burst than the profile's, at least 1: from each queue's next turn on. */
void ssd_set_burst(struct ssd *ssd, u32 burst);

struct ssd_stats {
	u64 commands[SSD_NR_CLASSES][SSD_NR_OPS]; /* completed */
	u64 bytes[SSD_NR_CLASSES][SSD_NR_OPS];
	u32 queued[SSD_NR_CLASSES]; /* in submission queues now */
	u32 in_controller; /* fetched and not completed, now */
	u64 die_busy_ns, channel_busy_ns; /* sums over dies and channels, of what has been begun */
	u64 link_busy_ns[2]; /* read, write */
	/*
	 * Taken from the host, and programmed in all, since ssd_create() or
	 * ssd_precondition(): their ratio is the write amplification. In
	 * whole units of the map; nand_bytes also counts what collection
	 * moves and what fills a page that is programmed before it is full.
	 */
	u64 host_bytes, nand_bytes;
	u64 erases; /* blocks collected */
};
void ssd_stats(const struct ssd *ssd, struct ssd_stats *stats);

#endif
