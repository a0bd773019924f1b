/* SPDX-License-Identifier: GPL-2.0-only OR MIT */
/*
 * The flash translation layer: which unit of the drive lies where on NAND.
 * It knows nothing of time; nand.c says when a die programs and collects.
 *
 * Each die has its own blocks. Data that the host writes and data that is
 * moved by collection go to different open blocks (hot and cold). What a die
 * programs at once, a page of each plane, is a row; a block is a whole number
 * of rows.
 *
 * Collection is greedy, die by die: the block with the fewest valid units
 * goes first. It begins when a die is short of free blocks, and then keeps
 * pace: each row that the host writes is a debt of as many units, which
 * collection pays off with the invalid units that it finds.
 *
 * The map may model less than the whole drive, to bound memory: offsets then
 * wrap around. What matters for collection, the fraction of a block that is
 * still valid when it is collected, depends on the over-provisioning and the
 * pattern of writes, not on the capacity.
 *
 * Nothing is collected while the drive idles.
 *
 * Without a map (profile: map = 0), the drive stays fresh: programs go to any
 * die, and the place of data is computed from its offset.
 */
#ifndef FAIRLANE_SSD_FTL_H
#define FAIRLANE_SSD_FTL_H

#include "profile.h"

#define FTL_NOWHERE (~0u) /* never written, or trimmed */
#define FTL_BUFFERED (1u << 31) /* | slot in the write buffer */

struct ftl_die {
	u32 first_block, nr_free;
	u32 free_head; /* list by block.next */
	u32 open[2]; /* FTL_HOST, FTL_GC */
	u32 filled[2]; /* units used of the open block */
	u32 victim, scanned; /* under collection, units looked at */
	u32 row, row_used; /* what is moved goes here, units of it in use */
	s64 debt; /* units to find invalid before the host may program again */
};

enum { FTL_HOST, FTL_GC };

struct ftl_block {
	u32 valid; /* units */
	u32 next; /* in the free list */
	u32 state;
};

struct ftl {
	bool mapped;
	u64 seed;
	u32 nr_dies;
	u32 unit_shift, row_shift; /* log2 of bytes */
	u32 row_units, block_units, block_shift; /* log2 of block_units */
	u32 die_blocks; /* of each die */
	u32 map_mask; /* units of the map - 1 */
	u32 *where; /* unit of the drive -> unit of NAND, or FTL_BUFFERED | slot, or FTL_NOWHERE */
	u32 *what; /* unit of NAND -> unit of the drive, or FTL_NOWHERE when out of date */
	struct ftl_block *blocks;
	struct ftl_die *dies;
	u32 rewrite_percent;
	u64 erases, nand_units;
};

/* Does each die of such a drive have blocks to spare, and nothing be more than can be modelled? */
bool ftl_fits(const struct ssd_profile *p);
/* Bytes that the map of such a drive, which fits, takes. */
u64 ftl_memory(const struct ssd_profile *p);
/* False when memory is short; ftl_exit() cleans up either way. */
bool ftl_init(struct ftl *ftl, const struct ssd_profile *p, u64 seed);
void ftl_exit(struct ftl *ftl);
void ftl_precondition(struct ftl *ftl);

/* The unit of the map that byte @offset of the drive is in. */
static inline u32 ftl_unit(const struct ftl *ftl, u64 offset)
{
	return (u32)(offset >> ftl->unit_shift) & ftl->map_mask;
}

/* Bytes from @offset to the end of its unit. */
static inline u32 ftl_unit_left(const struct ftl *ftl, u64 offset)
{
	u32 size = 1u << ftl->unit_shift;

	return size - ((u32)offset & (size - 1));
}

/*
 * Where a run of data begins, and how far it goes on in the same row. What was
 * never written, or trimmed, lies where a drive without a map would have it: a
 * read of it costs what a read costs.
 */
struct ftl_place {
	u32 die;
	u32 bytes;
	bool buffered;
};
struct ftl_place ftl_find(const struct ftl *ftl, u64 offset, u32 bytes);

/* Must @die collect before the host may program it? */
static inline bool ftl_must_collect(const struct ftl *ftl, u32 die)
{
	return ftl->mapped && ftl->dies[die].debt > 0;
}

/* May the host program a row of @die? Not while the last free blocks are kept for collection. */
bool ftl_has_room(const struct ftl *ftl, u32 die);
/* Open a row for the host on @die, which has room. Returns its first unit for ftl_write(). */
u32 ftl_open_row(struct ftl *ftl, u32 die);
/* @unit's new data go to @slot of the buffer; false when its old data are there: they give way. */
bool ftl_buffer(struct ftl *ftl, u32 unit, u32 slot);
/* @unit of the drive, from @slot of the buffer, goes to @place of an open row. */
void ftl_write(struct ftl *ftl, u32 unit, u32 slot, u32 place);
void ftl_trim(struct ftl *ftl, u32 unit);

/*
 * What a step of collection takes: to sense @rows, and to program a row when
 * what was moved fills one; or to erase a block. What fills no row waits in
 * the controller until the next block has given its part.
 */
struct ftl_step {
	u32 rows;
	bool program, erase;
};
/* The next step on @die; no rows and no erase when no block of it has anything invalid. */
struct ftl_step ftl_collect(struct ftl *ftl, u32 die);

#endif
