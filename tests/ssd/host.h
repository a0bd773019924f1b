/* SPDX-License-Identifier: GPL-2.0-only OR MIT */
/* What the tests of the drive model have in common: a host without a processor. */
#ifndef HOST_H
#define HOST_H

#include <stdio.h>
#include <stdlib.h>

#include "profile.h"
#include "ssd.h"
#include "test.h"

struct host {
	struct ssd *ssd;
	struct ssd_profile profile;
	u64 now, random;
	/* Called for each completed command at its time; may submit it again. */
	void (*done)(struct host *host, struct ssd_cmd *cmd);
	void *data; /* the test's */
};

static inline u64 host_random(struct host *h)
{
	return next_random(&h->random);
}

/* 0..n-1 */
static inline u64 host_below(struct host *h, u64 n)
{
	return (u64)((unsigned __int128)host_random(h) * n >> 64);
}

/* A host without a drive; its profile is the default one. */
static inline struct host host_of(u64 seed)
{
	struct host h = { .random = seed * 0x9e3779b97f4a7c15ull + 1 };

	ssd_profile_init(&h.profile);
	return h;
}

static inline void host_create(struct host *h, unsigned int cores)
{
	const struct ssd_profile_field *field;
	const char *why = ssd_profile_check(&h->profile, &field);

	if (why) {
		printf("profile: %s %s\n", field->name, why);
		exit(2);
	}
	h->ssd = ssd_create(&h->profile, cores, host_random(h));
	if (!h->ssd)
		exit(2);
}

static inline void host_submit(struct host *h, struct ssd_cmd *cmd)
{
	ssd_submit(h->ssd, cmd, h->now);
}

/* Let everything happen that does before @until. */
static inline void host_run(struct host *h, u64 until)
{
	struct ssd_cmd *cmd, *next;
	u64 soon;

	while ((soon = ssd_next_ns(h->ssd)) < until) {
		h->now = soon;
		for (cmd = ssd_advance(h->ssd, soon); cmd; cmd = next) {
			next = cmd->next;
			if (h->done)
				h->done(h, cmd);
		}
	}
	if (until != SSD_NEVER)
		h->now = until;
}

/* @n commands like @like, submitted now. The caller frees them. */
static inline struct ssd_cmd *host_submit_many(struct host *h, struct ssd_cmd like, unsigned int n)
{
	struct ssd_cmd *cmds = calloc(n, sizeof(*cmds));
	unsigned int i;

	for (i = 0; i < n; i++) {
		cmds[i] = like;
		host_submit(h, &cmds[i]);
	}
	return cmds;
}

#endif
