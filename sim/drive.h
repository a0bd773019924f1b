/* SPDX-License-Identifier: GPL-2.0-only OR MIT */
/* The drive of a run: the SSD model, or a null drive, which only takes time. */
#ifndef SIM_DRIVE_H
#define SIM_DRIVE_H

#include "../ssd/ssd.h"
#include "config.h"

struct drive {
	struct ssd *ssd; /* NULL: a null drive */
	u64 time_scale; /* the model's time is that much slower than ours */
	/* A null drive: its requests end in the order in which they came. */
	const struct drive_config *config;
	struct ssd_cmd *first, **last;
	u64 free_ps; /* when it has done all that it has, if it does one after the other */
};

/* False when memory is short. */
bool drive_init(struct drive *drive, const struct drive_config *config, u64 seed);
/* No command is left in it. */
void drive_exit(struct drive *drive);

/* What the SSD took from the host and what it programmed, bytes; blocks that it erased. */
struct drive_writes {
	u64 host_bytes, nand_bytes, erases;
};
/* So far; nothing of a null drive. */
struct drive_writes drive_writes(const struct drive *drive);

/* As ssd_submit() and ssd_advance(), for a null drive. */
void null_submit(struct drive *drive, struct ssd_cmd *cmd, u64 now);
struct ssd_cmd *null_advance(struct drive *drive, u64 now);

static inline u64 drive_time(const struct drive *drive, u64 now)
{
	return likely(drive->time_scale == 1) ? now : now / drive->time_scale;
}

static inline void drive_submit(struct drive *drive, struct ssd_cmd *cmd, u64 now)
{
	if (drive->ssd)
		ssd_submit(drive->ssd, cmd, drive_time(drive, now));
	else
		null_submit(drive, cmd, now);
}

static inline u64 drive_next_ns(const struct drive *drive)
{
	u64 next;

	if (!drive->ssd)
		return drive->first ? drive->first->done_ns : SSD_NEVER;
	next = ssd_next_ns(drive->ssd);
	return next == SSD_NEVER ? next : next * drive->time_scale;
}

static inline struct ssd_cmd *drive_advance(struct drive *drive, u64 now)
{
	return drive->ssd ? ssd_advance(drive->ssd, drive_time(drive, now))
			  : null_advance(drive, now);
}

#endif
