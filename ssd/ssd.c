// SPDX-License-Identifier: GPL-2.0-only OR MIT
/*
 * The life of a command:
 *
 *	submission queue   until the arbiter chooses it and the controller has
 *	                   a place for it
 *	fetch              the cost of the command, one command at a time
 *	read               pages wait for dies and channels (nand.c), then for
 *	                   the link; the last one completes the command
 *	write              waits for space in the buffer and for the link;
 *	                   complete when it is in the buffer, with FUA when it
 *	                   is on NAND
 *	flush              waits until all that is in the buffer is on NAND
 *	trim               complete at once
 *	completion         overhead_ns later; the place in the controller is
 *	                   free again
 *
 * What happens next is the soonest of five things: the end of a fetch, the
 * end of a transfer into the buffer, the first of the completions in each of
 * two queues (which are in order, because the link is), and NAND's next event.
 */
#include "ssd.h"
#include "arbiter.h"
#include "nand.h"

struct ssd {
	u64 now;
	/* From the profile. */
	u32 max_commands;
	u64 read_command_ns, write_command_ns, overhead_ns;
	bool buffer_volatile;
	struct rate link[2]; /* by SSD_READ, SSD_WRITE */

	struct arbiter arbiter;
	struct ftl ftl;
	struct buffer buffer;
	struct nand nand;

	u32 in_controller;
	struct ssd_cmd *fetching; /* until fetched_ns */
	struct fifo reading; /* reads whose pages are not all on their way */
	struct fifo writing; /* writes that are not all in the buffer; the first is coming in */
	u32 coming; /* bytes of the first write on the link, until come_ns; 0: none */
	u64 come_ns;
	u64 read_link_free; /* when the link has sent what it was asked to */
	struct fifo durable; /* flushes and FUA writes that wait for NAND, by target */
	struct fifo sent, acked; /* completions, by done_ns: reads; all others */
	struct fifo done; /* for ssd_advance() to return */
	struct ssd_stats stats;
};

struct ssd *ssd_create(const struct ssd_profile *p, unsigned int cores, u64 seed)
{
	struct ssd *s = fl_alloc(sizeof(*s));
	bool ok;

	if (!s)
		return NULL;
	s->max_commands = (u32)p->commands;
	s->read_command_ns = p->read_command_ns;
	s->write_command_ns = p->write_command_ns;
	s->overhead_ns = p->overhead_ns;
	s->buffer_volatile = p->buffer_volatile;
	s->link[SSD_READ] = rate_of(p->link_read_mbps);
	s->link[SSD_WRITE] = rate_of(p->link_write_mbps);
	ok = arbiter_init(&s->arbiter, p->wrr, (u32)p->burst, cores);
	ok = ftl_init(&s->ftl, p, seed) && ok;
	ok = buffer_init(&s->buffer, &s->ftl, p) && ok;
	ok = nand_init(&s->nand, &s->ftl, &s->buffer, p) && ok;
	if (ok)
		return s;
	ssd_destroy(s);
	return NULL;
}

u64 ssd_memory(const struct ssd_profile *p)
{
	/* The buffer's slots are a power of two: up to twice as many as it holds units. */
	u64 slots = p->map ? 2 * (p->buffer >> (fls64(p->unit) - 1)) : 0;

	return ftl_memory(p) + slots * sizeof(u32) + p->page_reads * sizeof(struct page_read) +
	       p->channels * p->dies * sizeof(struct die);
}

void ssd_destroy(struct ssd *s)
{
	nand_exit(&s->nand);
	buffer_exit(&s->buffer);
	ftl_exit(&s->ftl);
	arbiter_exit(&s->arbiter);
	fl_free(s);
}

void ssd_precondition(struct ssd *s)
{
	ftl_precondition(&s->ftl);
	s->stats.host_bytes = 0;
}

void ssd_set_weights(struct ssd *s, unsigned int high, unsigned int medium, unsigned int low)
{
	s->arbiter.classes[SSD_HIGH].weight = high;
	s->arbiter.classes[SSD_MEDIUM].weight = medium;
	s->arbiter.classes[SSD_LOW].weight = low;
}

void ssd_set_burst(struct ssd *s, u32 burst)
{
	s->arbiter.burst = burst;
}

static void fetch(struct ssd *s)
{
	struct ssd_cmd *cmd;

	if (s->fetching || s->in_controller == s->max_commands)
		return;
	cmd = arbiter_next(&s->arbiter);
	if (!cmd)
		return;
	s->fetching = cmd;
	s->in_controller++;
	cmd->fetched_ns = s->now + (cmd->op == SSD_READ ? s->read_command_ns : s->write_command_ns);
}

static void ack(struct ssd *s, struct ssd_cmd *cmd)
{
	cmd->done_ns = s->now + s->overhead_ns;
	fifo_push(&s->acked, cmd);
}

static void send_page(struct ssd *s, struct ssd_cmd *cmd, u32 bytes)
{
	u64 ns = rate_ns(s->link[SSD_READ], bytes);

	s->read_link_free = max_t(u64, s->read_link_free, s->now) + ns;
	s->stats.link_busy_ns[SSD_READ] += ns;
	if (--cmd->pending || cmd->todo)
		return;
	cmd->done_ns = s->read_link_free + s->overhead_ns;
	fifo_push(&s->sent, cmd);
}

/* Ask NAND for pages of the reads in turn, as far as it takes them. */
static void read_pages(struct ssd *s)
{
	struct ssd_cmd *cmd;

	while ((cmd = s->reading.head) && nand_can_read(&s->nand)) {
		u64 offset = cmd->offset + cmd->bytes - cmd->todo;
		struct ftl_place p = ftl_find(&s->ftl, offset, cmd->todo);

		cmd->todo -= p.bytes;
		cmd->pending++;
		if (!cmd->todo)
			fifo_pop(&s->reading);
		if (p.buffered)
			send_page(s, cmd, p.bytes);
		else
			nand_read(&s->nand, p.die, cmd, p.bytes, s->now);
	}
}

/* The units that @bytes at @offset touch. */
static u32 units_of(const struct ssd *s, u64 offset, u32 bytes)
{
	u32 shift = s->ftl.unit_shift;

	return (u32)(((offset + bytes - 1) >> shift) - (offset >> shift)) + 1;
}

/* Let the first write come in, or as much of it as the buffer has space for. */
static void write_link(struct ssd *s)
{
	struct ssd_cmd *cmd = s->writing.head;
	u32 space = buffer_space(&s->buffer), units;
	u64 offset, ns;

	if (!cmd || s->coming || !space)
		return;
	offset = cmd->offset + cmd->bytes - cmd->todo;
	s->coming = cmd->todo;
	units = units_of(s, offset, cmd->todo);
	if (units > space) {
		units = space;
		s->coming = ((units - 1) << s->ftl.unit_shift) + ftl_unit_left(&s->ftl, offset);
	}
	s->buffer.used += units;
	ns = rate_ns(s->link[SSD_WRITE], s->coming);
	s->come_ns = s->now + ns;
	s->stats.link_busy_ns[SSD_WRITE] += ns;
}

/* Complete flushes and FUA writes whose data are on NAND. */
static void settle(struct ssd *s)
{
	u64 settled;

	if (!s->durable.head)
		return;
	settled = nand_settled(&s->nand);
	while (s->durable.head && s->durable.head->target <= settled)
		ack(s, fifo_pop(&s->durable));
}

/* All that is in the buffer is to go to NAND before @cmd is complete. */
static void make_durable(struct ssd *s, struct ssd_cmd *cmd)
{
	if (!s->buffer_volatile) {
		ack(s, cmd);
		return;
	}
	cmd->target = s->buffer.forced = s->buffer.tail;
	fifo_push(&s->durable, cmd);
	nand_kick(&s->nand, s->now);
	settle(s);
}

static void write_came(struct ssd *s)
{
	struct ssd_cmd *cmd = s->writing.head;
	u64 offset = cmd->offset + cmd->bytes - cmd->todo;
	u32 units = units_of(s, offset, s->coming);

	buffer_add(&s->buffer, offset, units);
	s->stats.host_bytes += (u64)units << s->ftl.unit_shift;
	cmd->todo -= s->coming;
	s->coming = 0;
	if (!cmd->todo) {
		fifo_pop(&s->writing);
		if (cmd->fua)
			make_durable(s, cmd);
		else
			ack(s, cmd);
	}
	nand_kick(&s->nand, s->now);
	write_link(s);
}

/* Forget the whole units of the map within the command's range. */
static void trim(struct ssd *s, const struct ssd_cmd *cmd)
{
	u32 size = 1u << s->ftl.unit_shift;
	u64 at = (cmd->offset + size - 1) & ~(u64)(size - 1), end = cmd->offset + cmd->bytes;

	if (!s->ftl.mapped)
		return;
	for (; at + size <= end; at += size)
		ftl_trim(&s->ftl, ftl_unit(&s->ftl, at));
}

static void fetched(struct ssd *s)
{
	struct ssd_cmd *cmd = s->fetching;

	s->fetching = NULL;
	cmd->todo = cmd->bytes;
	cmd->pending = 0;
	switch (cmd->op) {
	case SSD_READ:
		fifo_push(&s->reading, cmd);
		read_pages(s);
		break;
	case SSD_WRITE:
		fifo_push(&s->writing, cmd);
		write_link(s);
		break;
	case SSD_TRIM:
		trim(s, cmd);
		ack(s, cmd);
		break;
	default:
		make_durable(s, cmd);
	}
	fetch(s);
}

static void nand_event(struct ssd *s)
{
	struct nand_done done = nand_step(&s->nand, s->now);

	if (done.cmd) {
		send_page(s, done.cmd, done.bytes);
		read_pages(s);
	} else if (done.units) {
		settle(s);
		write_link(s);
	}
}

static void finish(struct ssd *s, struct fifo *from)
{
	struct ssd_cmd *cmd = fifo_pop(from);

	fifo_push(&s->done, cmd);
	s->stats.commands[cmd->class][cmd->op]++;
	s->stats.bytes[cmd->class][cmd->op] += cmd->bytes;
	s->in_controller--;
	fetch(s);
}

static u64 next_event(const struct ssd *s)
{
	u64 next = nand_next_ns(&s->nand);

	if (s->fetching)
		next = min_t(u64, next, s->fetching->fetched_ns);
	if (s->coming)
		next = min_t(u64, next, s->come_ns);
	if (s->sent.head)
		next = min_t(u64, next, s->sent.head->done_ns);
	if (s->acked.head)
		next = min_t(u64, next, s->acked.head->done_ns);
	return next;
}

u64 ssd_next_ns(const struct ssd *s)
{
	/* What ssd_submit() completed on its way waits for ssd_advance(). */
	return s->done.head ? s->now : next_event(s);
}

static void run(struct ssd *s, u64 until)
{
	for (;;) {
		u64 next = next_event(s);

		if (next > until)
			break;
		s->now = next;
		if (s->sent.head && s->sent.head->done_ns == next)
			finish(s, &s->sent);
		else if (s->acked.head && s->acked.head->done_ns == next)
			finish(s, &s->acked);
		else if (nand_next_ns(&s->nand) == next)
			nand_event(s);
		else if (s->coming && s->come_ns == next)
			write_came(s);
		else
			fetched(s);
	}
	s->now = until;
}

void ssd_submit(struct ssd *s, struct ssd_cmd *cmd, u64 now)
{
	run(s, now);
	cmd->submitted_ns = now;
	arbiter_add(&s->arbiter, cmd);
	fetch(s);
}

struct ssd_cmd *ssd_advance(struct ssd *s, u64 now)
{
	struct ssd_cmd *done;

	run(s, now);
	done = s->done.head;
	s->done.head = NULL;
	return done;
}

void ssd_stats(const struct ssd *s, struct ssd_stats *stats)
{
	*stats = s->stats;
	memcpy(stats->queued, s->arbiter.waiting, sizeof(stats->queued));
	stats->in_controller = s->in_controller;
	stats->die_busy_ns = s->nand.die_busy_ns;
	stats->channel_busy_ns = s->nand.channel_busy_ns;
	stats->nand_bytes = s->ftl.nand_units << s->ftl.unit_shift;
	stats->erases = s->ftl.erases;
}
