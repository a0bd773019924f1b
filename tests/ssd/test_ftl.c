// SPDX-License-Identifier: GPL-2.0-only OR MIT
/* The write buffer, the map and collection. */
#include <math.h>

#include "ftl.h"
#include "host.h"

/* A small drive with a map: 8 dies, 16 MiB each. */
static struct host mapped_host(u64 seed, u64 spare)
{
	struct host h = host_of(seed);
	struct ssd_profile *p = &h.profile;

	p->size = p->map = 128 << 20;
	p->channels = 4;
	p->dies = 2;
	p->planes = 1;
	p->page = 16384;
	p->block_pages = 4;
	p->erase_ns = 50000; /* 3 ms for 256 pages */
	p->spare = spare;
	p->buffer = 1 << 20;
	return h;
}

/* --- The map by itself --- */

/* How often where units are and what places hold disagree, or a count is wrong. */
static u32 contradictions(const struct ftl *f)
{
	u32 nr_blocks = f->die_blocks * f->nr_dies, wrong = 0, unit, b, i;
	u32 *valid = calloc(nr_blocks, sizeof(*valid));

	for (unit = 0; unit <= f->map_mask; unit++) {
		u32 at = f->where[unit];

		if (at & FTL_BUFFERED) /* or nowhere */
			continue;
		wrong += f->what[at] != unit;
		valid[at >> f->block_shift]++;
	}
	for (b = 0; b < nr_blocks; b++)
		wrong += f->blocks[b].valid != valid[b];
	for (i = 0; i < f->nr_dies; i++) {
		u32 left = f->dies[i].nr_free, last = f->dies[i].free_head;

		for (; left; left--, last = f->blocks[last].next) {
			wrong += last / f->die_blocks != i;
			wrong += valid[last] != 0;
		}
	}
	free(valid);
	return wrong;
}

struct writer {
	struct ftl ftl;
	u32 die, place, used;
	u64 units;
};

/* Rows go to the dies in turn, collecting as the drive does when it is short of blocks. */
static void write_unit(struct writer *w, u32 unit)
{
	struct ftl *f = &w->ftl;
	u32 tried = 0;

	if (w->used == f->row_units) {
		do {
			w->die = (w->die + 1) % f->nr_dies;
			while (ftl_must_collect(f, w->die) || !ftl_has_room(f, w->die)) {
				struct ftl_step step = ftl_collect(f, w->die);

				if (!step.rows && !step.erase)
					break;
			}
			CHECK(tried++ <= f->nr_dies, "no die has room");
		} while (!ftl_has_room(f, w->die) && tried <= f->nr_dies);
		w->place = ftl_open_row(f, w->die);
		w->used = 0;
	}
	ftl_buffer(f, unit, 0);
	ftl_write(f, unit, 0, w->place + w->used++);
	w->units++;
}

/* What is trimmed while it waits in the buffer does not come back when its place is programmed. */
static void trim_in_buffer(struct writer *w, u32 unit)
{
	if (w->used == w->ftl.row_units)
		return;
	ftl_buffer(&w->ftl, unit, 0);
	ftl_trim(&w->ftl, unit);
	ftl_write(&w->ftl, unit, 0, w->place + w->used++);
	CHECK(w->ftl.where[unit] == FTL_NOWHERE, "unit %u is at %u", unit, w->ftl.where[unit]);
}

static struct writer writer_of(struct host *h)
{
	struct writer w = { .units = 0 };
	const struct ssd_profile_field *field;

	CHECK(!ssd_profile_check(&h->profile, &field), "%s", field->name);
	CHECK(ftl_init(&w.ftl, &h->profile, 1), "memory");
	ftl_precondition(&w.ftl);
	w.used = w.ftl.row_units;
	return w;
}

/* Else the first that anybody measured on it would be the collection that the last writes owe. */
static void test_at_rest_after_preconditioning(void)
{
	struct host h = mapped_host(3, 130);
	struct writer w = writer_of(&h);
	u32 die;

	for (die = 0; die < w.ftl.nr_dies; die++)
		CHECK(!ftl_must_collect(&w.ftl, die) && ftl_has_room(&w.ftl, die), "die %u", die);
	ftl_exit(&w.ftl);
}

static void test_map(void)
{
	static const u64 spares[] = { 90, 130, 500, 2000 };
	u32 s, i;

	for (s = 0; s < ARRAY_SIZE(spares); s++) {
		struct host h = mapped_host(s + 1, spares[s]);
		struct writer w = writer_of(&h);

		CHECK(!contradictions(&w.ftl), "after preconditioning: %u", contradictions(&w.ftl));
		for (i = 0; i < 200000; i++) {
			u32 unit = (u32)host_random(&h) & w.ftl.map_mask;

			if (host_below(&h, 10) == 0)
				ftl_trim(&w.ftl, unit);
			else
				write_unit(&w, host_below(&h, 2) ? unit
								 : unit & 1023); /* some are hot */
			if (host_below(&h, 100) == 0)
				trim_in_buffer(&w, unit);
			if (i % 20000 == 0)
				CHECK(!contradictions(&w.ftl), "after %u: %u", i,
				      contradictions(&w.ftl));
		}
		ftl_exit(&w.ftl);
	}
}

/*
 * Random overwrites and the oldest block first: with a as the ratio of NAND
 * to data, a block still holds the fraction x of its data when its turn
 * comes, x = exp(-a (1 - x)), and write amplification is 1 / (1 - x). Greedy
 * is a little better, the more so the smaller the blocks.
 */
static double oldest_first(double ratio)
{
	double x = 0.5;
	u32 i;

	for (i = 0; i < 1000; i++)
		x = exp(-ratio * (1 - x));
	return 1 / (1 - x);
}

static void test_amplification(void)
{
	static const u64 spares[] = { 100, 150, 250, 500, 1000 };
	u32 s, i;

	for (s = 0; s < ARRAY_SIZE(spares); s++) {
		struct host h = mapped_host(s + 1, spares[s]);
		struct writer w;
		double theory, got, blocks;
		u64 before, units;

		h.profile.block_pages = 16; /* 64 blocks on each die */
		h.profile.map = h.profile.size = 256 << 20;
		w = writer_of(&h);
		/* What collection keeps free is of no use as spare. */
		blocks = (double)w.ftl.die_blocks - 3;
		theory = oldest_first(blocks * w.ftl.block_units * w.ftl.nr_dies /
				      (w.ftl.map_mask + 1.0));
		for (i = 0; i < 2 * w.ftl.map_mask; i++)
			write_unit(&w, (u32)host_random(&h) & w.ftl.map_mask);
		before = w.ftl.nand_units;
		units = w.units;
		for (i = 0; i < 2 * w.ftl.map_mask; i++)
			write_unit(&w, (u32)host_random(&h) & w.ftl.map_mask);
		got = (double)(w.ftl.nand_units - before) / (double)(w.units - units);
		CHECK(got <= theory && got >= 0.9 * theory, "spare %.0f: %.3f, oldest first %.3f",
		      (double)spares[s], got, theory);
		ftl_exit(&w.ftl);
	}
}

/* Data that are written in the order in which they were cost nothing to collect. */
static void test_sequential(void)
{
	struct host h = mapped_host(1, 100);
	struct writer w;
	u64 before;
	u32 i;

	h.profile.rewrite = 0;
	w = writer_of(&h);
	before = w.ftl.nand_units;
	for (i = 0; i < 4 * w.ftl.map_mask; i++)
		write_unit(&w, i & w.ftl.map_mask);
	CHECK_NEAR((double)(w.ftl.nand_units - before) / (double)w.units, 1.0, 0.01);
	ftl_exit(&w.ftl);
}

/* --- The drive --- */

static void complete(struct host *h, struct ssd_cmd *cmd)
{
	(void)cmd;
	++*(u64 *)h->data;
}

/* One command by itself; returns how long it took. */
static u64 alone(struct host *h, u8 op, u64 offset, u32 bytes, bool fua)
{
	struct ssd_cmd cmd = { .op = op, .offset = offset, .bytes = bytes, .fua = fua };
	u64 completed = 0;

	h->data = &completed;
	h->done = complete;
	host_submit(h, &cmd);
	host_run(h, SSD_NEVER);
	CHECK(completed == 1, "%.0f completed", (double)completed);
	return cmd.done_ns - cmd.submitted_ns;
}

static void test_buffer(void)
{
	struct host h = mapped_host(1, 200);
	u64 read_ns = h.profile.read_ns, program_ns = h.profile.program_ns;
	struct ssd_stats stats;

	host_create(&h, 1);
	CHECK(alone(&h, SSD_READ, 0, 4096, false) >= read_ns, "a read of NAND");
	CHECK(alone(&h, SSD_WRITE, 0, 4096, false) < 20000, "a write completes in the buffer");
	CHECK(alone(&h, SSD_READ, 0, 4096, false) < 20000, "a read is served by the buffer");
	CHECK(alone(&h, SSD_WRITE, 1 << 20, 4096, true) >= program_ns, "FUA waits for NAND");
	CHECK(alone(&h, SSD_READ, 0, 4096, false) >= read_ns,
	      "what was before FUA went to NAND, too");
	CHECK(alone(&h, SSD_FLUSH, 0, 0, false) < 20000, "nothing to flush");
	alone(&h, SSD_WRITE, 0, 8192, false);
	CHECK(alone(&h, SSD_FLUSH, 0, 0, false) >= program_ns, "flush waits for NAND");
	ssd_stats(h.ssd, &stats);
	CHECK(stats.nand_bytes == 2 * 16384, "two pages that were not full: %.0f",
	      (double)stats.nand_bytes);
	/* 100 times the same unit takes one place. */
	for (u32 i = 0; i < 100; i++)
		alone(&h, SSD_WRITE, 1 << 21, 4096, false);
	alone(&h, SSD_FLUSH, 0, 0, false);
	ssd_stats(h.ssd, &stats);
	CHECK(stats.nand_bytes == 3 * 16384, "one more page: %.0f", (double)stats.nand_bytes);
	ssd_destroy(h.ssd);

	h = mapped_host(1, 200);
	h.profile.buffer_volatile = 0;
	host_create(&h, 1);
	CHECK(alone(&h, SSD_WRITE, 0, 4096, true) < 20000,
	      "with capacitors, FUA is done in the buffer");
	CHECK(alone(&h, SSD_FLUSH, 0, 0, false) < 20000, "and flush has nothing to do");
	ssd_destroy(h.ssd);
}

/* A flush waits for every write that was complete before it, whatever comes after. */
static void test_flush_order(void)
{
	struct host h = host_of(3);
	struct ssd_cmd write = { .op = SSD_WRITE, .bytes = 4096 }, flush = { .op = SSD_FLUSH },
		       *before, *after;
	u64 completed = 0;
	struct ssd_stats stats;

	h.profile.buffer = 64 << 20;
	h.data = &completed;
	h.done = complete;
	host_create(&h, 1);
	before = host_submit_many(&h, write, 1001);
	while (completed < 1001)
		host_run(&h, ssd_next_ns(h.ssd) + 1);
	host_submit(&h, &flush);
	after = host_submit_many(&h, write, 1000);
	while (!flush.done_ns || h.now < flush.done_ns)
		host_run(&h, ssd_next_ns(h.ssd) + 1);
	ssd_stats(h.ssd, &stats);
	CHECK(stats.nand_bytes >= 1001 * 4096, "only %.0f bytes on NAND", (double)stats.nand_bytes);
	host_run(&h, SSD_NEVER);
	CHECK(completed == 2002, "%.0f completed", (double)completed);
	ssd_destroy(h.ssd);
	free(before);
	free(after);
}

/* The senses that reading 1 MiB takes, as time of dies. */
static double senses(u64 rewrite)
{
	struct host h = mapped_host(8, 200);
	struct ssd_stats stats;

	h.profile.rewrite = rewrite;
	h.profile.channel_mbps = 1000000; /* as good as none of the time is for transfers */
	host_create(&h, 1);
	ssd_precondition(h.ssd);
	alone(&h, SSD_READ, 0, 1 << 20, false);
	ssd_stats(h.ssd, &stats);
	ssd_destroy(h.ssd);
	return (double)stats.die_busy_ns / (double)h.profile.read_ns;
}

static void test_scattered(void)
{
	CHECK_NEAR(senses(0), 64, 0.01);		      /* 16 KiB pages, in sequence */
	CHECK(senses(300) > 0.95 * 256, "%.1f", senses(300)); /* 4 KiB units, all over the place */
}

/* While reads and writes wait, a die programs after so many reads, not sooner and not later. */
static void repeat(struct host *h, struct ssd_cmd *cmd)
{
	++((u64 *)h->data)[cmd->op];
	cmd->offset = host_below(h, h->profile.size / 16384) * 16384;
	host_submit(h, cmd);
}

static void test_reads_per_program(void)
{
	static const u64 numbers[] = { 1, 4, 50 };
	u32 i;

	for (i = 0; i < ARRAY_SIZE(numbers); i++) {
		struct host h = mapped_host(9, 200);
		struct ssd_cmd like = { .bytes = 16384, .op = SSD_READ }, *reads, *writes;
		u64 completed[SSD_NR_OPS] = { 0 };

		h.profile.map = 0;
		h.profile.channels = h.profile.dies = 1;
		h.profile.reads_per_program = numbers[i];
		h.data = completed;
		h.done = repeat;
		host_create(&h, 1);
		reads = host_submit_many(&h, like, 20);
		like.op = SSD_WRITE;
		writes = host_submit_many(&h, like, 100);
		host_run(&h, NSEC_PER_SEC); /* the buffer is full by then */
		memset(completed, 0, sizeof(completed));
		host_run(&h, 10 * NSEC_PER_SEC);
		CHECK_NEAR((double)completed[SSD_READ] / (double)completed[SSD_WRITE],
			   (double)numbers[i], 0.02);
		h.done = NULL;
		host_run(&h, SSD_NEVER);
		ssd_destroy(h.ssd);
		free(reads);
		free(writes);
	}
}

/* Bytes/s of random 4 KiB writes, 64 at a time, in a second. */
static void write_again(struct host *h, struct ssd_cmd *cmd)
{
	++*(u64 *)h->data;
	cmd->offset = host_below(h, h->profile.size / 4096) * 4096;
	host_submit(h, cmd);
}

static double random_writes(struct host *h, double *amplification)
{
	struct ssd_cmd like = { .op = SSD_WRITE, .bytes = 4096 }, *cmds;
	struct ssd_stats stats;
	u64 completed = 0;

	h->data = &completed;
	h->done = write_again;
	cmds = host_submit_many(h, like, 64);
	host_run(h, h->now + NSEC_PER_SEC);
	ssd_stats(h->ssd, &stats);
	*amplification = (double)stats.nand_bytes / (double)stats.host_bytes;
	h->done = NULL;
	host_run(h, SSD_NEVER);
	free(cmds);
	return (double)completed * 4096;
}

static void test_collapse(void)
{
	double fresh, steady, amplification, none;
	struct host h = mapped_host(5, 120);

	h.profile.map = 0;
	host_create(&h, 1);
	fresh = random_writes(&h, &none);
	CHECK_NEAR(none, 1.0, 0.02);
	ssd_destroy(h.ssd);

	h = mapped_host(5, 120);
	host_create(&h, 1);
	ssd_precondition(h.ssd);
	steady = random_writes(&h, &amplification);
	CHECK(amplification > 3, "%.2f", amplification);
	/* Each program for the host takes the others with it, and what is moved is read first. */
	CHECK(steady < fresh / amplification && steady > 0.6 * fresh / amplification,
	      "%.1f MB/s fresh, %.1f steady, amplification %.2f", fresh / 1e6, steady / 1e6,
	      amplification);
	ssd_destroy(h.ssd);
}

/* A mapped drive is as fast as a fresh one until its blocks are used up, and slower ever after. */
static void test_onset(void)
{
	double first, later = 0, amplification;
	struct host h = mapped_host(6, 120);
	u32 i;

	host_create(&h, 1);
	first = random_writes(&h, &amplification);
	CHECK(amplification < 1.05, "%.2f", amplification);
	for (i = 0; i < 5; i++)
		later = random_writes(&h, &amplification);
	CHECK(later < first / 2, "%.1f MB/s at first, %.1f later", first / 1e6, later / 1e6);
	ssd_destroy(h.ssd);
}

/* What is trimmed need not be moved. */
static void test_trim(void)
{
	double all, half;
	struct host h = mapped_host(7, 120);
	u64 offset;

	host_create(&h, 1);
	ssd_precondition(h.ssd);
	random_writes(&h, &all);
	ssd_destroy(h.ssd);

	h = mapped_host(7, 120);
	host_create(&h, 1);
	ssd_precondition(h.ssd);
	for (offset = 64 << 20; offset < h.profile.size; offset += 1 << 20)
		alone(&h, SSD_TRIM, offset, 1 << 20, false);
	h.profile.size = 64 << 20;
	random_writes(&h, &half);
	CHECK(half < 0.6 * all, "amplification %.2f, with half of it trimmed %.2f", all, half);
	ssd_destroy(h.ssd);
}

int main(int argc, char **argv)
{
	static const struct test tests[] = {
		{ "the map never contradicts itself, and a die with room is always found",
		  test_map },
		{ "a preconditioned drive is at rest", test_at_rest_after_preconditioning },
		{ "write amplification is what theory says, or up to 10 % better",
		  test_amplification },
		{ "sequential overwrites are not amplified", test_sequential },
		{ "a write completes in the buffer; FUA and flush wait for NAND", test_buffer },
		{ "a flush waits for all that was written before it", test_flush_order },
		{ "what was written in sequence is read by the page, what was not by the unit",
		  test_scattered },
		{ "a die programs after a number of reads", test_reads_per_program },
		{ "sustained random writes collapse by their amplification", test_collapse },
		{ "collection begins when the fresh blocks are used up", test_onset },
		{ "what is trimmed is not moved", test_trim },
		{ NULL, NULL },
	};

	return run_tests(tests, argc, argv);
}
