/* SPDX-License-Identifier: GPL-2.0-only OR MIT */
/*
 * The least of many virtual times, each changed by its own thread at any time:
 * a tree of minima, after "Mindicators: A Scalable Approach to Quiescence"
 * (Liu, Luchangco, Spear; ICDCS 2013). Four children to a node:
 *
 *            [3]
 *      [3]         [7]
 *    9 3 - 5     7 - - -       the leaves; -: idle
 *
 * Whoever changes its leaf refreshes the nodes above it, as far up as it was
 * or becomes the least. A refresh is a compare-and-swap of the least of the
 * children. It is done twice (as in Jayanti's f-arrays): if both fail, another
 * thread has read the new leaf meanwhile. A word has 48 bits of virtual time,
 * compared by difference, a bit that says idle, and a version, so that no swap
 * mistakes a value that came back for one that never changed.
 *
 * After all changes are done, the root is the least of the leaves.
 */
#ifndef FAIRLANE_MINIMUM_TREE_H
#define FAIRLANE_MINIMUM_TREE_H

#include "../fairlane.h"

#define FL_MIND_FANOUT 4
#define FL_MIND_IDLE 1ll
#define FL_MIND_VERSION 2ll /* counted in this bit and those above, below virtual time */
#define FL_MIND_LOW 0xffffll

/* A cache line for each, since every core writes its own leaf. */
struct fl_mind_node {
	atomic64_t word;
} ____cacheline_aligned_in_smp;

/*
 * A tree with @nr leaves. Each of its @nr owners has room for two nodes, at
 * @offset bytes, so that none have to be allocated.
 */
struct fl_mind {
	void **owners;
	size_t offset;
	unsigned int nr, nr_inner; /* nodes in heap order: the root first, the leaves last */
};

#define FL_MIND_NODES 2

static inline atomic64_t *fl_mind_node(const struct fl_mind *m, unsigned int i)
{
	void *owner = m->owners[i < m->nr ? i : i - m->nr];
	struct fl_mind_node *nodes = (struct fl_mind_node *)((char *)owner + m->offset);

	return &nodes[i >= m->nr].word;
}

/* A virtual time as a word keeps it: in units of 2^8. */
static inline s64 fl_mind_word(u64 vt)
{
	return (s64)(vt << 8) & ~FL_MIND_LOW;
}

static inline u64 fl_mind_vt(s64 word)
{
	return (u64)(word & ~FL_MIND_LOW) >> 8;
}

/* How far word @a is ahead of @b, in virtual time; neither is idle. */
static inline s64 fl_mind_ahead(s64 a, s64 b)
{
	return (s64)((u64)(a & ~FL_MIND_LOW) - (u64)(b & ~FL_MIND_LOW)) >> 8;
}

static inline bool fl_mind_before(s64 a, s64 b)
{
	if ((a | b) & FL_MIND_IDLE)
		return !(a & FL_MIND_IDLE);
	return fl_mind_ahead(a, b) < 0;
}

static inline bool fl_mind_same(s64 a, s64 b)
{
	return !((a ^ b) & (~FL_MIND_LOW | FL_MIND_IDLE));
}

/* All leaves are idle. */
static inline void fl_mind_init(struct fl_mind *m, void **owners, unsigned int nr, size_t offset)
{
	unsigned int i;

	m->owners = owners;
	m->offset = offset;
	m->nr = nr;
	m->nr_inner = (nr - 1 + FL_MIND_FANOUT - 2) / (FL_MIND_FANOUT - 1);
	for (i = 0; i < m->nr_inner + nr; i++)
		atomic64_set(fl_mind_node(m, i), FL_MIND_IDLE);
}

/* The least, or idle. */
static inline s64 fl_mind_least(const struct fl_mind *m)
{
	return atomic64_read(fl_mind_node(m, 0));
}

static inline void fl_mind_refresh(struct fl_mind *m, unsigned int node)
{
	unsigned int child = node * FL_MIND_FANOUT + 1, end = child + FL_MIND_FANOUT;
	s64 old = atomic64_read(fl_mind_node(m, node)), least = FL_MIND_IDLE, word;

	smp_mb(); /* the children are read after the node */
	for (; child < end && child < m->nr_inner + m->nr; child++) {
		word = atomic64_read(fl_mind_node(m, child));
		if (fl_mind_before(word, least))
			least = word;
	}
	least &= ~FL_MIND_LOW | FL_MIND_IDLE;
	word = (old + FL_MIND_VERSION) & FL_MIND_LOW & ~FL_MIND_IDLE;
	atomic64_try_cmpxchg(fl_mind_node(m, node), &old, least | word);
}

/* Leaf @leaf becomes @word, from fl_mind_word() or FL_MIND_IDLE; its only writer calls. */
static inline void fl_mind_set(struct fl_mind *m, unsigned int leaf, s64 word)
{
	unsigned int node = m->nr_inner + leaf;
	s64 was = atomic64_read(fl_mind_node(m, node)), above;
	bool refreshed = false; /* a node below, which may have brought up another leaf's change */

	if (fl_mind_same(was, word))
		return;
	atomic64_xchg(fl_mind_node(m, node), word); /* a full barrier */
	while (node) {
		node = (node - 1) / FL_MIND_FANOUT;
		above = atomic64_read(fl_mind_node(m, node));
		/* It was not the least here, nor is it now: who read the old leaf refreshes twice. */
		if (!refreshed && !fl_mind_same(above, was) && !fl_mind_before(word, above))
			return;
		refreshed = true;
		fl_mind_refresh(m, node);
		fl_mind_refresh(m, node);
	}
}

#endif
