// SPDX-License-Identifier: GPL-2.0-only OR MIT
#include "nand.h"

bool nand_init(struct nand *n, struct ftl *ftl, struct buffer *b, const struct ssd_profile *p)
{
	u32 i;

	n->ftl = ftl;
	n->buffer = b;
	n->nr_channels = (u32)p->channels;
	n->nr_dies = (u32)(p->channels * p->dies);
	n->reads_per_program = (u32)p->reads_per_program;
	n->read_ns = p->read_ns;
	n->program_ns = p->program_ns;
	n->erase_ns = p->erase_ns;
	n->channel_rate = rate_of(p->channel_mbps);
	n->row_ns = rate_ns(n->channel_rate, (u32)(p->planes * p->page));
	INIT_LIST_HEAD(&n->idle);
	n->channel_free = fl_alloc(n->nr_channels * sizeof(*n->channel_free));
	n->dies = fl_alloc(n->nr_dies * sizeof(*n->dies));
	n->events = fl_alloc(n->nr_dies * sizeof(*n->events));
	n->pool = fl_alloc(p->page_reads * sizeof(*n->pool));
	if (!n->channel_free || !n->dies || !n->events || !n->pool)
		return false;
	for (i = 0; i < n->nr_dies; i++) {
		n->dies[i].channel = i % n->nr_channels; /* neighbours have different channels */
		list_add_tail(&n->dies[i].idle, &n->idle);
	}
	for (i = 0; i < p->page_reads; i++) {
		n->pool[i].next = n->free_reads;
		n->free_reads = &n->pool[i];
	}
	return true;
}

void nand_exit(struct nand *n)
{
	fl_free(n->channel_free);
	fl_free(n->dies);
	fl_free(n->events);
	fl_free(n->pool);
}

static void add_event(struct nand *n, u64 when, u32 die)
{
	u32 i = n->nr_events++, parent;

	for (; i; i = parent) {
		parent = (i - 1) / 2;
		if (n->events[parent].when <= when)
			break;
		n->events[i] = n->events[parent];
	}
	n->events[i] = (struct nand_event){ when, die };
}

/* Put @event, in place of the soonest, where it belongs. */
static void sift_down(struct nand *n, struct nand_event event)
{
	u32 i = 0, child;

	while ((child = 2 * i + 1) < n->nr_events) {
		if (child + 1 < n->nr_events && n->events[child + 1].when < n->events[child].when)
			child++;
		if (event.when <= n->events[child].when)
			break;
		n->events[i] = n->events[child];
		i = child;
	}
	n->events[i] = event;
}

/* The channel of @d is @ns busy for it, as soon as it is free. Returns when that is over. */
static u64 use_channel(struct nand *n, const struct die *d, u64 ns, u64 now)
{
	u64 *free = &n->channel_free[d->channel];

	*free = max_t(u64, *free, now) + ns;
	n->channel_busy_ns += ns;
	return *free;
}

static u64 start_program(struct nand *n, struct die *d, u32 die, u64 now)
{
	d->state = PROGRAMMING;
	d->first = n->buffer->head;
	d->units = buffer_program(n->buffer, die);
	return use_channel(n, d, n->row_ns, now) + n->program_ns;
}

/* 0 when nothing on @die is invalid. */
static u64 start_collection(struct nand *n, struct die *d, u32 die, u64 now)
{
	struct ftl_step step = ftl_collect(n->ftl, die);

	if (!step.rows && !step.erase)
		return 0;
	d->state = COLLECTING;
	d->collect_ns = step.program ? 2 * n->row_ns : 0;
	return now + (step.erase ? n->erase_ns : step.rows * n->read_ns);
}

/* Begin what @die should do next. Returns when it ends, 0 when there is nothing to do. */
static u64 start(struct nand *n, struct die *d, u32 die, u64 now)
{
	bool ready = buffer_ready(n->buffer), room = !ready || ftl_has_room(n->ftl, die);
	bool collect = ftl_must_collect(n->ftl, die) || !room;
	u64 end;

	if (d->reads && (d->reads_in_row < n->reads_per_program || !(ready || collect))) {
		d->state = SENSING;
		d->reads_in_row++;
		return now + n->read_ns;
	}
	d->reads_in_row = 0;
	if (collect) {
		end = start_collection(n, d, die, now);
		if (end)
			return end;
	}
	if (ready && room)
		return start_program(n, d, die, now);
	if (!d->reads)
		return 0;
	d->state = SENSING; /* the program that waits cannot go here */
	return now + n->read_ns;
}

static bool wake(struct nand *n, struct die *d, u64 now)
{
	u32 die = (u32)(d - n->dies);
	u64 end = start(n, d, die, now);

	if (!end)
		return false;
	list_del_init(&d->idle);
	n->die_busy_ns += end - now;
	add_event(n, end, die);
	return true;
}

void nand_read(struct nand *n, u32 die, struct ssd_cmd *cmd, u32 bytes, u64 now)
{
	struct page_read *r = n->free_reads;
	struct die *d = &n->dies[die];

	n->free_reads = r->next;
	*r = (struct page_read){ .cmd = cmd, .bytes = bytes };
	if (d->reads)
		d->last_read->next = r;
	else
		d->reads = r;
	d->last_read = r;
	if (d->state == IDLE)
		wake(n, d, now);
}

void nand_kick(struct nand *n, u64 now)
{
	struct die *d, *next;

	list_for_each_entry_safe(d, next, &n->idle, idle) {
		if (!buffer_ready(n->buffer))
			break;
		wake(n, d, now);
	}
}

static struct nand_done finish_read(struct nand *n, struct die *d)
{
	struct page_read *r = d->reads;
	struct nand_done done = { .cmd = r->cmd, .bytes = r->bytes };

	d->reads = r->next;
	r->next = n->free_reads;
	n->free_reads = r;
	return done;
}

struct nand_done nand_step(struct nand *n, u64 now)
{
	struct nand_done done = { 0 };
	u32 die = n->events[0].die;
	struct die *d = &n->dies[die];
	u64 end = 0;

	if (d->state == SENSING) {
		d->state = SENDING;
		end = use_channel(n, d, rate_ns(n->channel_rate, d->reads->bytes), now);
	} else if (d->state == COLLECTING && d->collect_ns) {
		end = use_channel(n, d, d->collect_ns, now) + n->program_ns;
		d->collect_ns = 0;
	} else {
		if (d->state == SENDING) {
			done = finish_read(n, d);
		} else if (d->state == PROGRAMMING) {
			done.units = d->units;
			n->buffer->used -= d->units;
		}
		d->state = IDLE;
		end = start(n, d, die, now);
	}
	if (end) {
		n->die_busy_ns += end - now;
		sift_down(n, (struct nand_event){ end, die });
	} else {
		list_add_tail(&d->idle, &n->idle);
		sift_down(n, n->events[--n->nr_events]);
	}
	return done;
}

u64 nand_settled(const struct nand *n)
{
	u64 first = n->buffer->head;
	u32 i;

	for (i = 0; i < n->nr_dies; i++)
		if (n->dies[i].state == PROGRAMMING && n->dies[i].first < first)
			first = n->dies[i].first;
	return first;
}
