// SPDX-License-Identifier: GPL-2.0-only OR MIT
#include "drive.h"

bool drive_init(struct drive *drive, const struct drive_config *config, u64 seed)
{
	memset(drive, 0, sizeof(*drive));
	drive->config = config;
	drive->last = &drive->first;
	if (config->null)
		return true;
	drive->ssd = ssd_create(&config->profile, config->queues, seed);
	if (!drive->ssd)
		return false;
	drive->time_scale = config->time_scale;
	if (config->precondition)
		ssd_precondition(drive->ssd);
	return true;
}

void drive_exit(struct drive *drive)
{
	if (drive->ssd)
		ssd_destroy(drive->ssd);
}

struct drive_writes drive_writes(const struct drive *drive)
{
	struct ssd_stats stats = { 0 };

	if (drive->ssd)
		ssd_stats(drive->ssd, &stats);
	return (struct drive_writes){ stats.host_bytes, stats.nand_bytes, stats.erases };
}

void null_submit(struct drive *drive, struct ssd_cmd *cmd, u64 now)
{
	u64 done_ns = now;

	if (drive->config->interval_ps) {
		drive->free_ps =
			max_t(u64, drive->free_ps, now * 1000) + drive->config->interval_ps;
		done_ns = drive->free_ps / 1000;
	}
	cmd->submitted_ns = now;
	cmd->fetched_ns = now;
	cmd->done_ns = done_ns + drive->config->latency_ns;
	cmd->next = NULL;
	*drive->last = cmd;
	drive->last = &cmd->next;
}

struct ssd_cmd *null_advance(struct drive *drive, u64 now)
{
	struct ssd_cmd *done = drive->first, **end = &drive->first;

	while (*end && (*end)->done_ns <= now)
		end = &(*end)->next;
	if (end == &drive->first)
		return NULL;
	drive->first = *end;
	if (!drive->first)
		drive->last = &drive->first;
	*end = NULL;
	return done;
}
