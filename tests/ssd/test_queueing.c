// SPDX-License-Identifier: GPL-2.0-only OR MIT
/* The drive model against queueing theory, where theory is exact. */
#include <math.h>

#include "host.h"

struct sums {
	u64 commands, latency_ns;
};

static void note(struct host *h, struct ssd_cmd *cmd)
{
	struct sums *sums = h->data;

	sums->commands++;
	sums->latency_ns += cmd->done_ns - cmd->submitted_ns;
	cmd->op = SSD_NR_OPS; /* free */
}

#define POOL 4096

/* @n random reads of 4 KiB, exponentially distributed times apart. Returns their mean ns. */
static double poisson(struct host *h, double mean_gap_ns, u64 n)
{
	struct ssd_cmd *pool = calloc(POOL, sizeof(*pool));
	struct sums sums = { 0 };
	double at = 0;
	u64 i, lost = 0;

	for (i = 0; i < POOL; i++)
		pool[i].op = SSD_NR_OPS;
	h->done = note;
	h->data = &sums;
	for (i = 0; i < n; i++) {
		struct ssd_cmd *cmd = &pool[i % POOL];

		at -= mean_gap_ns * log((double)(host_random(h) | 1) / 0x1p64);
		host_run(h, (u64)at);
		if (cmd->op != SSD_NR_OPS) {
			lost++;
			continue;
		}
		*cmd = (struct ssd_cmd){ .op = SSD_READ, .bytes = 4096 };
		cmd->offset = host_below(h, 1 << 20) * 4096;
		host_submit(h, cmd);
	}
	host_run(h, SSD_NEVER);
	CHECK(!lost, "%.0f arrivals found no command to use", (double)lost);
	free(pool);
	return (double)sums.latency_ns / (double)sums.commands;
}

/* Everything takes no time, or next to none, until a test says otherwise. */
static struct host idle_drive(u64 seed)
{
	struct host h = host_of(seed);
	struct ssd_profile *p = &h.profile;

	p->wrr = 0;
	p->commands = p->page_reads = 65536;
	p->read_command_ns = p->write_command_ns = p->overhead_ns = 0;
	p->link_read_mbps = p->link_write_mbps = p->channel_mbps = 1000000; /* 4 KiB: 5 ns */
	p->channels = p->dies = p->planes = p->read_ns = 1;
	return h;
}

enum server { DIE, CONTROLLER, LINK };

static void one_server(enum server server)
{
	static const double loads[] = { 0.3, 0.6, 0.8 };
	const double rest = 11; /* ns that the other stations take: 5 + 5 + 1 at most */
	u32 i;

	for (i = 0; i < ARRAY_SIZE(loads); i++) {
		double service = 20480, wait = loads[i] * service / (2 * (1 - loads[i]));
		struct host h = idle_drive(i + 1);
		double mean;

		if (server == DIE)
			h.profile.read_ns =
				(u64)service - 5; /* a die also waits for its transfer */
		else if (server == CONTROLLER)
			h.profile.read_command_ns = (u64)service;
		else
			h.profile.link_read_mbps = 200; /* 4 KiB: 20480 ns */
		if (server != DIE)
			h.profile.dies = 64;
		host_create(&h, 1);
		mean = poisson(&h, service / loads[i], 1500000);
		CHECK(fabs(mean - service - wait) <= 0.02 * wait + rest,
		      "load %.1f: waits %.0f ns, M/D/1 says %.0f", loads[i], mean - service, wait);
		ssd_destroy(h.ssd);
	}
}

static void test_die(void)
{
	one_server(DIE);
}

static void test_controller(void)
{
	one_server(CONTROLLER);
}

static void test_link(void)
{
	one_server(LINK);
}

static void repeat(struct host *h, struct ssd_cmd *cmd)
{
	u64 *completed = h->data;

	++*completed;
	cmd->offset = host_below(h, 1 << 20) * 4096;
	host_submit(h, cmd);
}

/*
 * For constant service times there is no closed formula; two dies and two
 * commands are solved by hand. A die that finishes sends its command to
 * either with probability 1/2. In steps of the service time, both dies work
 * or one has both commands: from either state, the next has both at work with
 * probability 1/2 (two free choices; one free choice). So 3/2 commands are
 * done per step.
 */
static void test_two_dies(void)
{
	struct ssd_cmd like = { .op = SSD_READ, .bytes = 4096 }, *cmds;
	struct host h = idle_drive(7);
	u64 completed = 0;

	h.profile.dies = 2;
	h.profile.read_ns = 10000;
	h.data = &completed;
	h.done = repeat;
	host_create(&h, 1);
	cmds = host_submit_many(&h, like, 2);
	host_run(&h, 2 * NSEC_PER_SEC);
	CHECK_NEAR((double)completed, 2e9 / 10010 * 1.5, 0.01);
	h.done = NULL;
	host_run(&h, SSD_NEVER);
	ssd_destroy(h.ssd);
	free(cmds);
}

/* The drive's own count of what it holds, integrated over time, against the commands' times. */
struct little {
	u64 since, held, waited, in_drive, in_controller, left;
};

static void count(struct host *h, struct little *l)
{
	struct ssd_stats stats;
	u32 i;
	u64 queued = 0;

	l->held += (h->now - l->since) * l->in_drive;
	l->since = h->now;
	ssd_stats(h->ssd, &stats);
	for (i = 0; i < SSD_NR_CLASSES; i++)
		queued += stats.queued[i];
	l->in_drive = queued + stats.in_controller;
}

static void little_done(struct host *h, struct ssd_cmd *cmd)
{
	struct little *l = h->data;

	l->waited += cmd->done_ns - cmd->submitted_ns;
	if (!l->left)
		return;
	l->left--;
	cmd->op = host_below(h, 3) ? SSD_READ : SSD_WRITE;
	cmd->bytes = 4096u << host_below(h, 4);
	cmd->offset = host_below(h, 1 << 18) * 4096;
	host_submit(h, cmd);
}

static void test_little(void)
{
	u32 seed;

	for (seed = 1; seed <= 20; seed++) {
		struct host h = host_of(seed);
		struct little l = { .left = 5000 };
		struct ssd_cmd like = { .op = SSD_READ, .bytes = 4096 }, *cmds;

		h.data = &l;
		h.done = little_done;
		h.profile.commands = 1 + host_below(&h, 200);
		host_create(&h, 1);
		cmds = host_submit_many(&h, like, 1 + (u32)host_below(&h, 100));
		count(&h, &l);
		while (ssd_next_ns(h.ssd) != SSD_NEVER) {
			host_run(&h, ssd_next_ns(h.ssd) + 1);
			h.now--;
			count(&h, &l);
		}
		CHECK(!l.in_drive, "%.0f left", (double)l.in_drive);
		CHECK_NEAR((double)l.held, (double)l.waited, 0.001);
		ssd_destroy(h.ssd);
		free(cmds);
	}
}

int main(int argc, char **argv)
{
	static const struct test tests[] = {
		{ "a single die waits as M/D/1 does, within 2 %", test_die },
		{ "so does the controller", test_controller },
		{ "so does the link", test_link },
		{ "two commands keep one and a half of two dies busy", test_two_dies },
		{ "Little's law: what the drive holds is what its commands wait", test_little },
		{ NULL, NULL },
	};

	return run_tests(tests, argc, argv);
}
