// SPDX-License-Identifier: GPL-2.0-only OR MIT
#include "ftl.h"

/* Free blocks of a die: collection begins at LOW; the last one is never the host's. */
#define LOW 3
#define KEEP 1
/* Above the die's part of the data, a die needs these blocks, and the two that are open. */
#define SPARE_MIN (LOW + 2)

/* Choosing a victim looks at all blocks of a die, a step of moving at all units of a block. */
#define MAX_DIE_BLOCKS (1u << 16)
#define MAX_BLOCK_UNITS (1u << 20)

/* A random place of the map is in no cache: it is asked for so many units before it is needed. */
#define AHEAD 16

#define NO_BLOCK (~0u)
#define STRIPE_SHIFT 6 /* without a map, 64 neighbouring rows go to dies in turn */

enum { FREE, OPEN, CLOSED };

static u32 log2_of(u64 power)
{
	return fls64(power) - 1;
}

struct shape {
	u64 units, block_units, die_blocks;
};

/* False when the drive has too few blocks or too many, or too many units for the map's words. */
static bool shape_of(const struct ssd_profile *p, struct shape *s)
{
	u64 share, row_dies;

	s->units = p->map >> log2_of(p->unit);
	s->block_units = (p->block_pages * p->planes * p->page) >> log2_of(p->unit);
	row_dies = s->block_units * p->channels * p->dies;
	share = div64_u64(s->units + row_dies - 1, row_dies);
	s->die_blocks = div64_u64(s->units * (1000 + p->spare), 1000 * row_dies);
	return s->die_blocks >= share + SPARE_MIN && s->die_blocks <= MAX_DIE_BLOCKS &&
	       s->block_units <= MAX_BLOCK_UNITS && s->die_blocks * row_dies < FTL_BUFFERED;
}

bool ftl_fits(const struct ssd_profile *p)
{
	struct shape s;

	return shape_of(p, &s);
}

u64 ftl_memory(const struct ssd_profile *p)
{
	struct shape s;
	u64 block;

	if (!p->map || !shape_of(p, &s))
		return 0;
	block = s.block_units * sizeof(u32) + sizeof(struct ftl_block);
	return s.units * sizeof(u32) + s.die_blocks * p->channels * p->dies * block;
}

static bool map_init(struct ftl *f, const struct shape *s)
{
	u32 nr_blocks = (u32)s->die_blocks * f->nr_dies;
	u32 i, k;

	f->map_mask = (u32)s->units - 1;
	f->block_units = (u32)s->block_units;
	f->block_shift = log2_of(s->block_units);
	f->die_blocks = (u32)s->die_blocks;
	f->where = fl_alloc(s->units * sizeof(*f->where));
	f->what = fl_alloc((size_t)nr_blocks * f->block_units * sizeof(*f->what));
	f->blocks = fl_alloc((size_t)nr_blocks * sizeof(*f->blocks));
	f->dies = fl_alloc((size_t)f->nr_dies * sizeof(*f->dies));
	if (!f->where || !f->what || !f->blocks || !f->dies)
		return false;
	memset(f->where, 0xff, s->units * sizeof(*f->where)); /* FTL_NOWHERE */
	for (i = 0; i < f->nr_dies; i++) {
		struct ftl_die *d = &f->dies[i];

		d->first_block = i * f->die_blocks;
		d->nr_free = f->die_blocks;
		d->free_head = d->first_block;
		d->open[FTL_HOST] = d->open[FTL_GC] = d->victim = NO_BLOCK;
		d->row_used = f->row_units;
		for (k = 0; k < f->die_blocks; k++)
			f->blocks[d->first_block + k].next = d->first_block + k + 1;
	}
	return true;
}

bool ftl_init(struct ftl *f, const struct ssd_profile *p, u64 seed)
{
	struct shape s;

	f->mapped = p->map;
	f->seed = seed;
	f->nr_dies = (u32)(p->channels * p->dies);
	f->unit_shift = log2_of(p->unit);
	f->row_shift = log2_of(p->planes * p->page);
	f->row_units = 1u << (f->row_shift - f->unit_shift);
	f->rewrite_percent = (u32)p->rewrite;
	return !f->mapped || (shape_of(p, &s) && map_init(f, &s));
}

void ftl_exit(struct ftl *f)
{
	fl_free(f->where);
	fl_free(f->what);
	fl_free(f->blocks);
	fl_free(f->dies);
}

/* A well-mixed function of x: the finaliser of splitmix64. */
static u64 mix(u64 x)
{
	x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9ull;
	x = (x ^ (x >> 27)) * 0x94d049bb133111ebull;
	return x ^ (x >> 31);
}

/*
 * The die of a row that no map knows: neighbouring rows lie on different
 * dies, as written in sequence; distant ones have nothing to do with each
 * other.
 */
static u32 computed_die(const struct ftl *f, u64 row)
{
	u64 stripe = mix((row >> STRIPE_SHIFT) + f->seed * 0x9e3779b97f4a7c15ull) >> 32;
	u32 first = (u32)((stripe * f->nr_dies) >> 32);

	return (first + (u32)(row & ((1u << STRIPE_SHIFT) - 1))) % f->nr_dies;
}

static struct ftl_place find_computed(const struct ftl *f, u64 offset, u32 bytes)
{
	u64 row = offset >> f->row_shift;
	u64 left = ((row + 1) << f->row_shift) - offset;

	return (struct ftl_place){ .die = computed_die(f, row), .bytes = min_t(u64, bytes, left) };
}

static u32 die_of(const struct ftl *f, u32 place)
{
	return (place >> f->block_shift) / f->die_blocks;
}

struct ftl_place ftl_find(const struct ftl *f, u64 offset, u32 bytes)
{
	u32 row_mask = ~(f->row_units - 1), at, next;
	struct ftl_place place = { 0 };
	u64 end;

	if (!f->mapped)
		return find_computed(f, offset, bytes);
	at = f->where[ftl_unit(f, offset)];
	if (at == FTL_NOWHERE)
		return find_computed(f, offset, min_t(u64, bytes, ftl_unit_left(f, offset)));
	place.buffered = at & FTL_BUFFERED;
	if (!place.buffered)
		place.die = die_of(f, at);
	/* As far as the next units lie in the same row, or in the buffer too. */
	end = offset + ftl_unit_left(f, offset);
	for (; end < offset + bytes; end += 1u << f->unit_shift) {
		next = f->where[ftl_unit(f, end)];
		if (next == FTL_NOWHERE)
			break;
		if (place.buffered ? !(next & FTL_BUFFERED) : (next & row_mask) != (at & row_mask))
			break;
	}
	place.bytes = (u32)(min_t(u64, end, offset + bytes) - offset);
	return place;
}

static u32 take_free_block(struct ftl *f, struct ftl_die *d)
{
	u32 b = d->free_head;

	d->free_head = f->blocks[b].next;
	d->nr_free--;
	f->blocks[b].state = OPEN;
	return b;
}

static bool has_row(const struct ftl *f, const struct ftl_die *d, int stream)
{
	return d->open[stream] != NO_BLOCK && d->filled[stream] < f->block_units;
}

/*
 * A row of the open block for @stream, or of a free one, which there is. A
 * full block is closed only now: as long as its last row is being filled, it
 * must not be collected.
 */
static u32 open_row(struct ftl *f, struct ftl_die *d, int stream)
{
	u32 place, i;

	if (!has_row(f, d, stream)) {
		if (d->open[stream] != NO_BLOCK)
			f->blocks[d->open[stream]].state = CLOSED;
		d->open[stream] = take_free_block(f, d);
		d->filled[stream] = 0;
	}
	place = (d->open[stream] << f->block_shift) + d->filled[stream];
	for (i = 0; i < f->row_units; i++)
		f->what[place + i] = FTL_NOWHERE;
	d->filled[stream] += f->row_units;
	f->nand_units += f->row_units;
	return place;
}

bool ftl_has_room(const struct ftl *f, u32 die)
{
	return !f->mapped || has_row(f, &f->dies[die], FTL_HOST) || f->dies[die].nr_free > KEEP;
}

u32 ftl_open_row(struct ftl *f, u32 die)
{
	struct ftl_die *d;

	if (!f->mapped) {
		f->nand_units += f->row_units;
		return 0;
	}
	d = &f->dies[die];
	if (d->nr_free <= LOW)
		d->debt += f->row_units;
	return open_row(f, d, FTL_HOST);
}

/* The unit's data on NAND, if any, are out of date. */
static void forget(struct ftl *f, u32 unit)
{
	u32 at = f->where[unit];

	if (at & FTL_BUFFERED) /* as FTL_NOWHERE is, too */
		return;
	f->what[at] = FTL_NOWHERE;
	f->blocks[at >> f->block_shift].valid--;
}

static void put(struct ftl *f, u32 unit, u32 place)
{
	f->where[unit] = place;
	f->what[place] = unit;
	f->blocks[place >> f->block_shift].valid++;
}

bool ftl_buffer(struct ftl *f, u32 unit, u32 slot)
{
	u32 at = f->where[unit];

	if (at != FTL_NOWHERE && (at & FTL_BUFFERED))
		return false;
	forget(f, unit);
	f->where[unit] = FTL_BUFFERED | slot;
	return true;
}

void ftl_write(struct ftl *f, u32 unit, u32 slot, u32 place)
{
	if (f->where[unit] == (FTL_BUFFERED | slot)) /* else trimmed since */
		put(f, unit, place);
}

void ftl_trim(struct ftl *f, u32 unit)
{
	forget(f, unit);
	f->where[unit] = FTL_NOWHERE;
}

/* The closed block with the fewest valid units, NO_BLOCK when all units of all are valid. */
static u32 choose_victim(const struct ftl *f, const struct ftl_die *d)
{
	u32 best = NO_BLOCK, least = f->block_units, i;

	for (i = d->first_block; i < d->first_block + f->die_blocks; i++) {
		if (f->blocks[i].state == CLOSED && f->blocks[i].valid < least) {
			best = i;
			least = f->blocks[i].valid;
		}
	}
	return best;
}

static struct ftl_step erase_victim(struct ftl *f, struct ftl_die *d)
{
	f->blocks[d->victim].state = FREE;
	f->blocks[d->victim].next = d->free_head;
	d->free_head = d->victim;
	d->nr_free++;
	d->victim = NO_BLOCK;
	f->erases++;
	return (struct ftl_step){ .erase = true };
}

static void move(struct ftl *f, struct ftl_die *d, u32 unit)
{
	if (d->row_used == f->row_units) {
		d->row = open_row(f, d, FTL_GC);
		d->row_used = 0;
	}
	f->blocks[d->victim].valid--;
	put(f, unit, d->row + d->row_used++);
}

/*
 * Move valid units of the victim until they fill a row or it has no more.
 * There is always a row to move them to: the host leaves the last free block
 * alone, and what a victim still holds fits into one block.
 */
static struct ftl_step move_units(struct ftl *f, struct ftl_die *d)
{
	u32 first = d->victim << f->block_shift, last_row = NO_BLOCK;
	struct ftl_step step = { 0 };

	while (d->scanned < f->block_units && !step.program) {
		u32 at = d->scanned++, unit = f->what[first + at];
		u32 later = f->what[first + ((at + AHEAD) & (f->block_units - 1))];

		if (later != FTL_NOWHERE)
			prefetchw(&f->where[later]);
		if (unit == FTL_NOWHERE) {
			d->debt--;
			continue;
		}
		move(f, d, unit);
		step.rows += at / f->row_units != last_row;
		last_row = at / f->row_units;
		step.program = d->row_used == f->row_units;
	}
	return step;
}

struct ftl_step ftl_collect(struct ftl *f, u32 die)
{
	struct ftl_die *d = &f->dies[die];
	struct ftl_step step;

	if (d->victim == NO_BLOCK) {
		d->victim = choose_victim(f, d);
		d->scanned = 0;
		if (d->victim == NO_BLOCK)
			return (struct ftl_step){ 0 };
	}
	step = move_units(f, d);
	/* Nothing moved: the rest of the block was invalid, too. */
	return step.rows ? step : erase_victim(f, d);
}

/* Make room for a row on @die, without regard to time. False when nothing there is invalid. */
static bool make_room(struct ftl *f, u32 die)
{
	struct ftl_step step;

	while (ftl_must_collect(f, die) || !ftl_has_room(f, die)) {
		step = ftl_collect(f, die);
		if (!step.rows && !step.erase)
			return ftl_has_room(f, die);
	}
	return true;
}

struct filler {
	u32 die, place, used;
};

/* Write @unit to the row that is being filled; rows go to the dies in turn. */
static void fill(struct ftl *f, struct filler *to, u32 unit)
{
	if (to->used == f->row_units) {
		do {
			if (++to->die == f->nr_dies)
				to->die = 0;
		} while (!make_room(f, to->die));
		to->place = ftl_open_row(f, to->die);
		to->used = 0;
		cond_resched();
	}
	forget(f, unit);
	put(f, unit, to->place + to->used++);
}

/* The unit that preconditioning overwrites @i-th. */
static u32 rewritten(const struct ftl *f, u64 i)
{
	return (u32)mix(f->seed + (i + 1) * 0x9e3779b97f4a7c15ull) & f->map_mask;
}

void ftl_precondition(struct ftl *f)
{
	struct filler to = { .die = f->nr_dies - 1, .used = f->row_units };
	u64 rewrites, i;

	if (!f->mapped)
		return;
	for (i = 0; i <= f->map_mask; i++)
		fill(f, &to, (u32)i);
	rewrites = div64_u64(((u64)f->map_mask + 1) * f->rewrite_percent, 100);
	for (i = 0; i < rewrites; i++) {
		prefetchw(&f->where[rewritten(f, i + AHEAD)]);
		fill(f, &to, rewritten(f, i));
	}
	/* At rest: else all dies would at first collect for the last row, whatever the load is. */
	for (to.die = 0; to.die < f->nr_dies; to.die++)
		make_room(f, to.die);
	f->erases = f->nand_units = 0;
}
