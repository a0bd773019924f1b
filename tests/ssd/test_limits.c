// SPDX-License-Identifier: GPL-2.0-only OR MIT
/*
 * No drive does more than its parts can: random drives under random
 * workloads, each case from its number. A failure prints the number; give it
 * as the second argument to run that case alone.
 */
#include "host.h"

#define CASES 4000
#define MAX_COMMANDS 400
#define CORES 5

struct run {
	struct ssd_cmd cmds[MAX_COMMANDS];
	u32 nr, sent, completed;
	u64 last_done;
	bool backwards, early; /* completions out of order; before their time */
	bool overfull;	       /* more came in than was programmed and the buffer holds */
	u64 digest;	       /* of all times */
};

static struct run run;
static u64 only_case;

static u64 one_of(struct host *h, const u64 *values, u32 n)
{
	return values[host_below(h, n)];
}

#define ONE_OF(h, ...)                                                                             \
	one_of(h, (const u64[]){ __VA_ARGS__ }, sizeof((const u64[]){ __VA_ARGS__ }) / sizeof(u64))

static void random_profile(struct host *h)
{
	struct ssd_profile *p = &h->profile;

	p->size = 1ull << 30;
	p->wrr = host_below(h, 2);
	p->burst = ONE_OF(h, 1, 2, 8, 65536);
	p->commands = 1 + host_below(h, ONE_OF(h, 2, 16, 256));
	p->read_command_ns = host_below(h, ONE_OF(h, 1, 1000, 20000));
	p->write_command_ns = host_below(h, ONE_OF(h, 1, 1000, 20000));
	p->overhead_ns = host_below(h, ONE_OF(h, 1, 50000));
	p->link_read_mbps = 1 + host_below(h, ONE_OF(h, 50, 10000));
	p->link_write_mbps = 1 + host_below(h, ONE_OF(h, 50, 10000));
	p->channels = 1 + host_below(h, 4);
	p->dies = 1 + host_below(h, 4);
	p->planes = ONE_OF(h, 1, 2, 4);
	p->page = ONE_OF(h, 4096, 16384);
	p->unit = ONE_OF(h, 512, 4096);
	p->read_ns = 1 + host_below(h, ONE_OF(h, 10, 100000));
	p->program_ns = 1 + host_below(h, ONE_OF(h, 10, 1000000));
	p->erase_ns = 1 + host_below(h, 5000000);
	p->channel_mbps = 1 + host_below(h, ONE_OF(h, 50, 2000));
	p->page_reads = 1 + host_below(h, ONE_OF(h, 2, 100));
	p->reads_per_program = 1 + host_below(h, 8);
	p->buffer = p->planes * p->page * (2 + host_below(h, 16)) + host_below(h, 4) * 4096;
	p->buffer_volatile = host_below(h, 2);
	p->rewrite = host_below(h, 200);
	p->block_pages = 2;
	p->map = 0;
	if (host_below(h, 2)) {
		/* Enough blocks to spare on each die: 5 and a bit. */
		p->map = ONE_OF(h, 1 << 20, 1 << 22, 1 << 24);
		p->spare =
			1000 * (p->planes * p->page * 2 * p->channels * p->dies * 7) / p->map + 1;
		p->spare += host_below(h, 100);
		if (p->spare > 4000) {
			p->spare = 70;
			p->map = 0;
		}
	}
}

static void random_command(struct host *h, struct ssd_cmd *cmd)
{
	static const u8 ops[] = { SSD_READ,  SSD_READ,	SSD_READ, SSD_WRITE,
				  SSD_WRITE, SSD_WRITE, SSD_TRIM, SSD_FLUSH };
	u64 range =
		ONE_OF(h, 1 << 18, 1 << 30); /* some come back to the same place, in the buffer */

	*cmd = (struct ssd_cmd){
		.op = ops[host_below(h, ARRAY_SIZE(ops))],
		.class = (u8)host_below(h, SSD_NR_CLASSES),
		.core = (u32)host_below(h, CORES),
		.fua = !host_below(h, 4),
		.bytes = 512 * (1 + (u32)host_below(h, ONE_OF(h, 1, 8, 64, 512))),
	};
	cmd->offset = host_below(h, (range - cmd->bytes) / 512 + 1) * 512;
}

static void send_one(struct host *h)
{
	random_command(h, &run.cmds[run.sent]);
	host_submit(h, &run.cmds[run.sent++]);
}

static void digest(u64 value)
{
	run.digest = (run.digest ^ value) * 0x100000001b3ull;
}

static void done(struct host *h, struct ssd_cmd *cmd)
{
	struct ssd_stats stats;

	ssd_stats(h->ssd, &stats);
	run.overfull |= !h->profile.map && stats.host_bytes > stats.nand_bytes + h->profile.buffer;
	run.completed++;
	run.backwards |= cmd->done_ns < run.last_done;
	run.last_done = cmd->done_ns;
	run.early |= cmd->done_ns != h->now || cmd->fetched_ns > cmd->done_ns ||
		     cmd->submitted_ns > cmd->fetched_ns;
	digest((u64)(cmd - run.cmds));
	digest(cmd->done_ns);
	digest(cmd->fetched_ns);
	if (run.sent < run.nr && host_below(h, 4))
		send_one(h);
}

static const struct ssd_profile *drive; /* of this case */

static u64 fetch_ns(const struct ssd_cmd *cmd)
{
	return cmd->op == SSD_READ ? drive->read_command_ns : drive->write_command_ns;
}

/* At the same time: those that take no time come after the one that does. */
static int by_fetch(const void *a, const void *b)
{
	const struct ssd_cmd *x = a, *y = b;

	if (x->fetched_ns != y->fetched_ns)
		return x->fetched_ns < y->fetched_ns ? -1 : 1;
	return !fetch_ns(x) - !fetch_ns(y);
}

static int by_time(const void *a, const void *b)
{
	u64 x = *(const u64 *)a, y = *(const u64 *)b;

	return x < y ? -1 : x > y;
}

/* The most commands that were in the controller at once; a completion frees its place at once. */
static u32 most_held(void)
{
	static u64 begins[MAX_COMMANDS], ends[MAX_COMMANDS];
	u32 i, k = 0, most = 0;

	for (i = 0; i < run.nr; i++) {
		begins[i] = run.cmds[i].fetched_ns;
		ends[i] = run.cmds[i].done_ns;
	}
	qsort(begins, run.nr, sizeof(*begins), by_time);
	qsort(ends, run.nr, sizeof(*ends), by_time);
	for (i = 0; i < run.nr; i++) {
		while (ends[k] <= begins[i] && k < i)
			k++;
		most = max_t(u32, most, i - k + 1);
	}
	return most;
}

static void check_controller(const struct ssd_profile *p)
{
	u32 i, wrong = 0;

	CHECK(most_held() <= p->commands, "%u of %.0f commands", most_held(), (double)p->commands);
	drive = p;
	qsort(run.cmds, run.nr, sizeof(*run.cmds), by_fetch);
	for (i = 1; i < run.nr; i++) {
		u64 since = run.cmds[i].fetched_ns - run.cmds[i - 1].fetched_ns;

		wrong += since < fetch_ns(&run.cmds[i]);
	}
	CHECK(!wrong, "%u commands were fetched too soon after another", wrong);
}

/* No command is faster than the parts that it must pass through. */
static void check_latencies(const struct ssd_profile *p)
{
	u32 i, wrong = 0;

	for (i = 0; i < run.nr; i++) {
		const struct ssd_cmd *cmd = &run.cmds[i];
		u64 took = cmd->done_ns - cmd->fetched_ns, least = p->overhead_ns;

		if (cmd->op == SSD_READ)
			least += cmd->bytes * 1000ull / p->link_read_mbps;
		if (cmd->op == SSD_READ && !p->map)
			least += p->read_ns;
		if (cmd->op == SSD_WRITE)
			least += cmd->bytes * 1000ull / p->link_write_mbps;
		if (cmd->op == SSD_WRITE && cmd->fua && p->buffer_volatile && !p->map)
			least += p->program_ns;
		wrong += took < least;
	}
	CHECK(!wrong, "%u commands were faster than their parts", wrong);
}

/* What all did together took the time that the parts need for it, to the last event. */
static void check_bandwidth(struct host *h)
{
	const struct ssd_profile *p = &h->profile;
	double dies = (double)(p->channels * p->dies), elapsed = (double)h->now;
	double read = 0, written = 0, reads = 0, row = (double)(p->planes * p->page);
	struct ssd_stats stats;
	u32 i;

	for (i = 0; i < run.nr; i++) {
		read += run.cmds[i].op == SSD_READ ? run.cmds[i].bytes : 0;
		reads += run.cmds[i].op == SSD_READ;
		written += run.cmds[i].op == SSD_WRITE ? run.cmds[i].bytes : 0;
	}
	ssd_stats(h->ssd, &stats);
	CHECK(read * 1000 / (double)p->link_read_mbps <= elapsed, "link, reading");
	CHECK(written * 1000 / (double)p->link_write_mbps <= elapsed, "link, writing");
	CHECK((double)stats.link_busy_ns[SSD_READ] <= elapsed, "link busy, reading");
	CHECK((double)stats.link_busy_ns[SSD_WRITE] <= elapsed, "link busy, writing");
	CHECK((double)stats.channel_busy_ns <= elapsed * (double)p->channels, "channels busy");
	CHECK((double)stats.die_busy_ns <= elapsed * dies, "dies busy");
	CHECK((double)stats.nand_bytes / row * (double)p->program_ns <= elapsed * dies, "programs");
	CHECK((double)stats.nand_bytes * 1000 / (double)p->channel_mbps <=
		      elapsed * (double)p->channels,
	      "channels, programs");
	if (p->map)
		return; /* a read may come from the buffer, a write be written over in it */
	CHECK(reads * (double)p->read_ns <= elapsed * dies, "senses");
	CHECK((read + (double)stats.nand_bytes) * 1000 / (double)p->channel_mbps <=
		      elapsed * (double)p->channels,
	      "channels");
}

static void play(u64 number)
{
	struct host h = host_of(number);

	random_profile(&h);
	memset(&run, 0, sizeof(run));
	run.nr = 20 + (u32)host_below(&h, MAX_COMMANDS - 20);
	h.done = done;
	host_create(&h, CORES);
	ssd_set_weights(h.ssd, 1 + (u32)host_below(&h, 256), 1 + (u32)host_below(&h, 256),
			1 + (u32)host_below(&h, 256));
	if (host_below(&h, 2))
		ssd_precondition(h.ssd);
	while (run.sent < run.nr) {
		u64 burst = 1 + host_below(&h, ONE_OF(&h, 1, 50));

		host_run(&h, h.now + host_below(&h, ONE_OF(&h, 1, 1000, 1000000)));
		for (; burst && run.sent < run.nr; burst--)
			send_one(&h);
	}
	host_run(&h, SSD_NEVER);
	CHECK(run.completed == run.nr, "%u of %u commands completed", run.completed, run.nr);
	CHECK(!run.backwards, "completions go back in time");
	CHECK(!run.early, "a command has times that cannot be");
	CHECK(!run.overfull, "the buffer held more than it can");
	if (run.completed == run.nr) {
		check_controller(&h.profile);
		check_latencies(&h.profile);
		check_bandwidth(&h);
	}
	ssd_destroy(h.ssd);
}

static void test_limits(void)
{
	u64 number, digest;

	for (number = 1; number <= CASES && !test_failures; number++) {
		if (only_case && number != only_case)
			continue;
		play(number);
		if (number % 8 == 0) {
			digest = run.digest;
			play(number);
			CHECK(run.digest == digest, "the second time it was different");
		}
		if (test_failures)
			printf("    case %.0f\n", (double)number);
	}
}

int main(int argc, char **argv)
{
	static const struct test tests[] = {
		{ "no drive does more than its parts can, and the same again does the same",
		  test_limits },
		{ NULL, NULL },
	};

	if (argc > 2)
		only_case = strtoull(argv[2], NULL, 10);
	return run_tests(tests, argc, argv);
}
