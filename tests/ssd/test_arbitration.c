// SPDX-License-Identifier: GPL-2.0-only OR MIT
/* Who is fetched from, and how often: round robin, and weighted round robin with urgent class. */
#include "host.h"

#define CORES 4
#define DEPTH 64
#define MAX_FETCHES 200000

/* Commands in the order in which they were fetched. */
struct log {
	u32 n;
	u8 core[MAX_FETCHES], class[MAX_FETCHES];
	u64 time[MAX_FETCHES];
	bool stop[SSD_NR_CLASSES]; /* do not submit this class again */
};

static struct log log;

/*
 * Fetching is the only thing that takes time, one command after another, so
 * commands complete in the order in which they are fetched, and all other
 * commands wait in their queues.
 */
static void front_only(struct host *h)
{
	h->profile.commands = 1;
	h->profile.read_command_ns = 1000;
	h->profile.overhead_ns = 0;
	h->profile.read_ns = 1;
	h->profile.channel_mbps = h->profile.link_read_mbps = 1000000;
}

static void note_and_repeat(struct host *h, struct ssd_cmd *cmd)
{
	if (log.n < MAX_FETCHES) {
		log.core[log.n] = (u8)cmd->core;
		log.class[log.n] = cmd->class;
		log.time[log.n++] = cmd->fetched_ns;
	}
	if (!log.stop[cmd->class])
		host_submit(h, cmd);
}

struct fixture {
	struct host host;
	struct ssd_cmd *cmds[CORES][SSD_NR_CLASSES];
};

/* All queues of @classes (a mask) are full, on every core, and stay so. */
static void start(struct fixture *f, u32 classes, u64 burst, bool wrr)
{
	struct ssd_cmd like = { .op = SSD_READ, .bytes = 4096 };
	u32 class;

	memset(&log, 0, sizeof(log));
	memset(f, 0, sizeof(*f));
	f->host = host_of(1);
	f->host.done = note_and_repeat;
	f->host.profile.wrr = wrr;
	f->host.profile.burst = burst;
	front_only(&f->host);
	host_create(&f->host, CORES);
	for (like.core = 0; like.core < CORES; like.core++) {
		for (class = 0; class < SSD_NR_CLASSES; class++) {
			like.class = (u8)class;
			if (classes & 1u << class)
				f->cmds[like.core][class] = host_submit_many(&f->host, like, DEPTH);
		}
	}
}

static void finish(struct fixture *f)
{
	u32 core, class;

	f->host.done = NULL;
	host_run(&f->host, SSD_NEVER);
	ssd_destroy(f->host.ssd);
	for (core = 0; core < CORES; core++)
		for (class = 0; class < SSD_NR_CLASSES; class++)
			free(f->cmds[core][class]);
}

static u64 bytes_of(struct fixture *f, u32 class)
{
	struct ssd_stats stats;

	ssd_stats(f->host.ssd, &stats);
	return stats.bytes[class][SSD_READ];
}

#define HIGH_MEDIUM_LOW (1u << SSD_HIGH | 1u << SSD_MEDIUM | 1u << SSD_LOW)

static void test_weights(void)
{
	static const u32 weights[][3] = { { 1, 1, 1 },	  { 2, 3, 5 },	  { 1, 4, 16 },
					  { 1, 16, 256 }, { 256, 16, 1 }, { 7, 7, 2 } };
	static const u32 bursts[] = { 1, 8, 65536 };
	struct fixture f;
	u32 w, b, k;

	for (w = 0; w < ARRAY_SIZE(weights); w++) {
		for (b = 0; b < ARRAY_SIZE(bursts); b++) {
			const u32 *weight = weights[w];
			u32 sum = weight[0] + weight[1] + weight[2];
			u64 total = 0;

			start(&f, HIGH_MEDIUM_LOW, bursts[b], true);
			ssd_set_weights(f.host.ssd, weight[0], weight[1], weight[2]);
			host_run(&f.host, 100 * NSEC_PER_MSEC);
			for (k = 0; k < 3; k++)
				total += bytes_of(&f, SSD_HIGH + k);
			CHECK(total > 50000ull * 4096, "only %.0f bytes", (double)total);
			for (k = 0; k < 3; k++)
				CHECK_NEAR((double)bytes_of(&f, SSD_HIGH + k) / (double)total,
					   (double)weight[k] / sum, 0.01);
			finish(&f);
		}
	}
}

/* Within a class, too, every queue has the same. */
static void test_equal_cores(void)
{
	u32 count[CORES] = { 0 }, i, core;
	struct fixture f;

	start(&f, HIGH_MEDIUM_LOW, 8, true);
	ssd_set_weights(f.host.ssd, 3, 50, 1);
	host_run(&f.host, 100 * NSEC_PER_MSEC);
	for (i = 0; i < log.n; i++)
		count[log.core[i]] += log.class[i] == SSD_HIGH;
	for (core = 0; core < CORES; core++)
		CHECK(count[core] + 16 >= log.n * 3 / 54 / CORES &&
			      count[core] <= log.n * 3 / 54 / CORES + 16,
		      "core %u: %u of %u", core, count[core], log.n);
	finish(&f);
}

/* Each of 16 queues in turn, exactly the burst, for ever. */
static void test_round_robin(void)
{
	static const u32 bursts[] = { 1, 3, 16 };
	struct fixture f;
	u32 b, i, wrong;

	for (b = 0; b < ARRAY_SIZE(bursts); b++) {
		u32 round = bursts[b] * CORES * SSD_NR_CLASSES, from;

		start(&f, 15, bursts[b], false);
		host_run(&f.host, 60 * NSEC_PER_MSEC);
		CHECK(log.n > 50000, "%u", log.n);
		/* The first rounds are while the queues fill. */
		from = (DEPTH * CORES * SSD_NR_CLASSES / round + 1) * round;
		wrong = 0;
		for (i = from; i + round < log.n; i++)
			wrong += log.core[i] != log.core[i + round] ||
				 log.class[i] != log.class[i + round];
		CHECK(!wrong, "%u of %u differ from the round before", wrong, log.n);
		/* A turn is the whole burst: the queue changes once per turn, never more. */
		wrong = 0;
		for (i = from; i < from + round; i++)
			wrong += log.core[i] != log.core[i + 1] || log.class[i] != log.class[i + 1];
		CHECK(wrong == CORES * SSD_NR_CLASSES, "%u turns in a round, burst %u", wrong,
		      bursts[b]);
		for (i = 0; i < SSD_NR_CLASSES; i++)
			CHECK_NEAR(bytes_of(&f, i), bytes_of(&f, 0), 0.002);
		finish(&f);
	}
}

static void test_urgent(void)
{
	struct fixture f;
	u64 last_urgent = 0;
	u32 i, others = 0;

	start(&f, 15, 4, true);
	host_run(&f.host, 20 * NSEC_PER_MSEC);
	for (i = CORES * DEPTH; i < log.n; i++)
		others += log.class[i] != SSD_URGENT;
	CHECK(log.n > 10000 && !others, "%u others among %u", others, log.n);

	log.stop[SSD_URGENT] = true;
	log.n = 0;
	host_run(&f.host, 40 * NSEC_PER_MSEC);
	for (i = 0; i < log.n; i++)
		if (log.class[i] == SSD_URGENT)
			last_urgent = i;
	CHECK(last_urgent < CORES * DEPTH, "urgent after all that it had: %.0f",
	      (double)last_urgent);
	CHECK(log.n > 10000, "%u: the others do not get on", log.n);
	for (i = 1; i < SSD_NR_CLASSES; i++)
		CHECK_NEAR((double)bytes_of(&f, i), (double)bytes_of(&f, SSD_HIGH), 0.01);

	/* One urgent command, at any moment, is the next to be fetched. */
	for (i = 0; i < 100; i++) {
		struct ssd_cmd one = { .op = SSD_READ, .bytes = 4096, .class = SSD_URGENT };

		log.n = 0;
		host_submit(&f.host, &one);
		host_run(&f.host, f.host.now + 10000 + host_below(&f.host, 10000));
		CHECK(log.n > 3 && (log.class[0] == SSD_URGENT || log.class[1] == SSD_URGENT),
		      "urgent was not next");
	}
	finish(&f);
}

/* The commands of each class in the @n that were fetched from @from on. */
static void count_classes(u32 from, u32 n, u32 *count)
{
	u32 i;

	memset(count, 0, SSD_NR_CLASSES * sizeof(*count));
	for (i = from; i < from + n && i < log.n; i++)
		count[log.class[i]]++;
}

/* After new weights, the old round is finished, and then each round is exactly the new one. */
static void test_new_weights(void)
{
	static const u32 weights[][3] = {
		{ 1, 1, 1 }, { 100, 10, 1 }, { 1, 4, 16 }, { 5, 256, 31 }, { 2, 3, 5 }
	};
	struct fixture f;
	u32 i, k, from, old, sum, count[SSD_NR_CLASSES];

	/* With a burst of 1 all rounds are alike: any window of that length counts the same. */
	start(&f, HIGH_MEDIUM_LOW, 1, true);
	for (i = 0; i < ARRAY_SIZE(weights); i++) {
		const u32 *w = weights[i];

		host_run(&f.host,
			 f.host.now + 10 * NSEC_PER_MSEC + host_below(&f.host, NSEC_PER_MSEC));
		from = log.n;
		ssd_set_weights(f.host.ssd, w[0], w[1], w[2]);
		host_run(&f.host, f.host.now + 10 * NSEC_PER_MSEC);
		old = i ? weights[i - 1][0] + weights[i - 1][1] + weights[i - 1][2] : 3;
		sum = w[0] + w[1] + w[2];
		/* One command is being fetched already; then at most one old round. */
		for (k = 0; k <= 20; k++) {
			count_classes(from + 1 + old + k * sum, sum, count);
			CHECK(count[SSD_HIGH] == w[0] && count[SSD_MEDIUM] == w[1] &&
				      count[SSD_LOW] == w[2],
			      "%u:%u:%u, wanted %u:%u:%u", count[SSD_HIGH], count[SSD_MEDIUM],
			      count[SSD_LOW], w[0], w[1], w[2]);
		}
	}
	finish(&f);
}

/* The classes take turns of a burst each, as far as their credits go: the example in arbiter.h. */
static void test_turns(void)
{
	static const char round[] = "HHMMLHHMM";
	struct fixture f;
	char got[sizeof(round) * 20];
	u32 i, from;

	start(&f, HIGH_MEDIUM_LOW, 2, true);
	ssd_set_weights(f.host.ssd, 4, 4, 1);
	host_run(&f.host, 2 * NSEC_PER_MSEC);
	/* Low has its only command of a round before the last four. */
	for (from = 500; log.class[from] != SSD_LOW; from++)
		;
	for (from += 5, i = 0; i < sizeof(got) - 1; i++)
		got[i] = "UHML"[log.class[from + i]];
	got[i] = '\0';
	for (i = 0; i + sizeof(round) <= sizeof(got); i += sizeof(round) - 1)
		CHECK(!strncmp(got + i, round, sizeof(round) - 1), "%s, wanted %s again and again",
		      got, round);
	finish(&f);
}

/* Round robin with another burst: turns of just that length, again and again. */
static void test_new_burst(void)
{
	struct fixture f;
	u32 i, from, turns = 0;

	start(&f, 1u << SSD_HIGH, 1, true);
	host_run(&f.host, NSEC_PER_MSEC);
	ssd_set_burst(f.host.ssd, 8);
	host_run(&f.host, 2 * NSEC_PER_MSEC);
	for (from = 1500; log.core[from] == log.core[from - 1]; from++)
		;
	for (i = from; i < from + 8 * 20; i++)
		turns += log.core[i] != log.core[i - 1];
	CHECK(turns == 20, "%u turns of 20", turns);
	finish(&f);
}

/* What a class leaves is shared by the others as their weights say, and nothing is left over. */
static void test_work_conserving(void)
{
	struct fixture f;
	u64 medium, low;

	start(&f, 1u << SSD_MEDIUM | 1u << SSD_LOW, 8, true);
	ssd_set_weights(f.host.ssd, 256, 3, 1);
	host_run(&f.host, 100 * NSEC_PER_MSEC);
	medium = bytes_of(&f, SSD_MEDIUM);
	low = bytes_of(&f, SSD_LOW);
	CHECK_NEAR((double)medium / (double)low, 3.0, 0.01);
	/* A command takes 1000 ns to fetch, 1 to sense, and a few to transfer. */
	CHECK_NEAR((double)(medium + low) / 4096, 100e6 / 1015, 0.01);
	finish(&f);
}

int main(int argc, char **argv)
{
	static const struct test tests[] = {
		{ "round robin gives every queue the burst in turn, exactly", test_round_robin },
		{ "bytes per class follow the weights within 1 %", test_weights },
		{ "queues of a class are equal", test_equal_cores },
		{ "classes take turns of a burst each", test_turns },
		{ "urgent starves the rest, and only while it has work", test_urgent },
		{ "new weights act within one round", test_new_weights },
		{ "a new burst acts from the next turns on", test_new_burst },
		{ "what an idle class leaves goes to the others", test_work_conserving },
		{ NULL, NULL },
	};

	return run_tests(tests, argc, argv);
}
