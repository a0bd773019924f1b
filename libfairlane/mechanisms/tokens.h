/* SPDX-License-Identifier: GPL-2.0-only OR MIT */
/*
 * Tokens, handed out to all flows at once and granted level by level.
 *
 * A token is a unit of cost (prices.h). Whoever hands out tokens only adds to a counter,
 * so that it takes the same time however many flows there are. A flow gets its part of them
 * when it next runs out: by its share of all that was handed out since it last did.
 *
 * A cgroup with cgroups below it has tokens, too, for all of them together. What one of
 * them spends is spent at every level above:
 *
 *	root ── one (weight 900)      own 90
 *	     └─ many (weight 100)     below 10 ── 64 cgroups, own 10/64 each
 *
 * A flow has tokens as long as each level has some. So however many cgroups there are, old or
 * new, and however small, they get no more than their parents are due, and a request each.
 *
 * 1. What may be kept, and what is owed
 *
 * The total is what is to be handed out in a period. Of what a flow has left it keeps up to
 * its part of the total, and is granted as much again at most: who waits for each request
 * before it sends the next cannot save up for hours. A request may cost more than the
 * flow has. Then the flow is in debt, and works that off with its next grants.
 *
 * 2. Turns
 *
 * Each of a flow's queues draws a turn's worth into a balance of its own, under hwq->lock,
 * and pays its requests from that. So most requests touch nothing that hardware queues
 * share. A request that costs more than the balance draws the rest, too. That has been paid
 * for, but counts in the next turn.
 */
#ifndef FAIRLANE_TOKENS_H
#define FAIRLANE_TOKENS_H

#include "weights.h"

/* Of what was handed out since a flow last had some, more than this pays for no more debt. */
#define FL_TOKENS_MISSED (1ull << 50)

/* All under dev->lock. */
struct fl_tokens {
	u64 total; /* to hand out in a period; the caller's */
	u64 handed_out; /* so far, to all together; the caller adds to it, read by anyone */
	u32 turns; /* into which each flow's part of the total is divided; does not change */
};

/* What a flow has. The scheduler's struct for a flow begins with it. */
struct fl_token_flow {
	struct fl_flow flow;
	/*
	 * Drawn from by any hardware queue, granted under dev->lock; below zero: debt. A stale
	 * read draws a turn too many, which is then owed, or looks again under dev->lock.
	 */
	atomic64_t own ____cacheline_aligned_in_smp; /* for its own requests */
	atomic64_t below; /* for these, and for those of all cgroups below; not the root's */
	u64 turn; /* written under dev->lock; a stale one is that of an earlier grant */
	u64 seen; /* fl_tokens.handed_out at its last grant; written under dev->lock */
};

#define to_fl_token_flow(_flow) container_of(_flow, struct fl_token_flow, flow)

static inline u64 __fl_tokens_part(u64 tokens, u32 share)
{
	return mul_u64_u64_div_u64(tokens, share, FL_SHARE_ONE);
}

/*
 * Add the part of @handed_out that is due to @share. What is left may be kept, up to a grant,
 * but not over a whole period without a look. Debt is kept in any case.
 */
static inline void __fl_tokens_add(const struct fl_tokens *tokens, atomic64_t *to, u32 share,
				   u64 handed_out)
{
	s64 grant = max_t(u64, __fl_tokens_part(handed_out, share), 1);
	s64 most = __fl_tokens_part(tokens->total, share), left = atomic64_read(to);

	most = max_t(s64, handed_out > tokens->total ? most : 2 * most, 1);
	while (!atomic64_try_cmpxchg(to, &left, min_t(s64, left + grant, max_t(s64, most, left))))
		;
}

/* @flow, and what it is below, get their part of what was handed out since they last did. */
static inline void fl_tokens_grant(const struct fl_tokens *tokens, struct fl_flow *flow)
{
	for (; flow; flow = flow->parent) {
		struct fl_token_flow *tf = to_fl_token_flow(flow);
		u64 handed_out = min_t(u64, tokens->handed_out - tf->seen, FL_TOKENS_MISSED);
		u32 part;

		if (!handed_out)
			continue;
		WRITE_ONCE(tf->seen, tokens->handed_out);
		part = fl_flow_update_part(flow);
		if (flow->parent)
			__fl_tokens_add(tokens, &tf->below, part, handed_out);
		if (!flow->busy)
			continue;
		WRITE_ONCE(flow->share, fl_flow_share(flow));
		__fl_tokens_add(tokens, &tf->own, flow->share, handed_out);
		WRITE_ONCE(tf->turn, div64_u64(__fl_tokens_part(tokens->total, flow->share),
					       tokens->turns));
	}
}

/*
 * For init_flow(). What was handed out before @flow was there is not its own; but its part of a
 * period's tokens, so that it need not wait for the next refill.
 */
static inline void fl_tokens_init_flow(const struct fl_tokens *tokens, struct fl_flow *flow)
{
	to_fl_token_flow(flow)->seen =
		tokens->handed_out - min_t(u64, tokens->handed_out, tokens->total);
}

/*
 * Was anything handed out since @flow was last granted some? No lock: a stale read misses what
 * was handed out just now. Whoever hands out runs those that wait, after a barrier.
 */
static inline bool fl_tokens_due(const struct fl_tokens *tokens, struct fl_flow *flow)
{
	return READ_ONCE(to_fl_token_flow(flow)->seen) != READ_ONCE(tokens->handed_out);
}

/* Has @flow any, at every level? No lock. */
static inline bool fl_tokens_left(struct fl_flow *flow)
{
	if (atomic64_read(&to_fl_token_flow(flow)->own) <= 0)
		return false;
	for (; flow->parent; flow = flow->parent)
		if (atomic64_read(&to_fl_token_flow(flow)->below) <= 0)
			return false;
	return true;
}

static inline void fl_tokens_spend(struct fl_flow *flow, s64 n)
{
	atomic64_add(-n, &to_fl_token_flow(flow)->own);
	for (; flow->parent; flow = flow->parent)
		atomic64_add(-n, &to_fl_token_flow(flow)->below);
}

/* What a queue with that @balance, none or below, has after it has drawn; @flow has some. */
static inline s64 __fl_tokens_drawn(struct fl_flow *flow, s64 balance)
{
	struct fl_token_flow *tf = to_fl_token_flow(flow);

	return max_t(s64, min_t(s64, atomic64_read(&tf->own), READ_ONCE(tf->turn) + balance), 1);
}

/* Move a turn's worth from @flow, which has some, to a queue's empty @balance. Under hwq->lock. */
static inline void fl_tokens_draw(struct fl_flow *flow, s64 *balance)
{
	*balance = __fl_tokens_drawn(flow, *balance);
	fl_tokens_spend(flow, *balance);
}

/*
 * A request of @flow takes @cost from its queue's balance. With @draw that is empty, and draws
 * a turn's worth, too: both at once, as each level above is one more word that others write.
 * Under hwq->lock.
 */
static inline void fl_tokens_pay(struct fl_flow *flow, s64 *balance, s64 cost, bool draw)
{
	s64 has = draw ? __fl_tokens_drawn(flow, *balance) : *balance;

	if (draw || cost > has)
		fl_tokens_spend(flow, max_t(s64, cost, has) - (draw ? 0 : max_t(s64, has, 0)));
	*balance = has - cost;
}

#endif
