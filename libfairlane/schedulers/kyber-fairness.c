// SPDX-License-Identifier: GPL-2.0-only OR MIT
/*
 * Kyber-fairness: a drive's bandwidth shared by weight, with tokens.
 *
 * After "Kyber-fairness: A Scalable and Low-overhead Proportional-share I/O
 * Scheduler" (Son, Oh, Ahn; JSTS 2020). Section numbers below are the paper's.
 *
 * 1. The idea
 *
 * BFQ shares a drive exactly and loses most of it, because every dispatch
 * goes through one queue. Kyber scales, and shares nothing. So: keep Kyber,
 * give every flow (cgroup) its own request queues on every hardware queue
 * (IV-1), and hand out the drive's bandwidth in advance, as tokens, in
 * proportion to weight. Whoever has tokens dispatches, without asking anyone;
 * whoever has none is throttled, its requests staying in its own queues, until
 * the next refill. Only the refill looks at all flows.
 *
 *     hardware queue 0              hardware queue 1
 *     flow A [r][w][d][o]           flow A [r][w][d][o]  --+- tokens of A
 *     flow B [r][w][d][o]           flow B [r][w][d][o]  --+- tokens of B
 *          \   turns   /                 \   turns   /
 *       one slot of the domain's depth for each request
 *                  \____________ the drive ___________/
 *
 * 2. Tokens (IV-2)
 *
 * A token is a unit of cost (prices.h: by default, one byte). A write costs
 * write_price times as much: the measured ratio of the latencies of a write
 * and a read, at least 1, since a flow that writes takes more of the drive
 * than one that reads.
 *
 * Refills come (1) when a period (100 ms) has passed or (2) as soon as every
 * active flow has spent its tokens. Each time, the predicted total is divided
 * by share. What a flow has left it may keep, up to one grant. Where a request
 * is in the drive for long (a slow drive, large requests, deep queues) the
 * period is longer, too: twice that time. What was granted in a period should
 * be done in it, or nothing can be learned from it.
 *
 *     weights 1000:500:250:100, total 1850 pages:
 *     A gets 1000, B 500, C 250, D 100; when the last of them has spent its
 *     tokens they all get as much again.
 *
 * A flow takes tokens a turn at a time (a quarter of its grant, divided by the
 * hardware queues) into the balance of one of its queues, and passes the turn
 * on when the balance is used up. That does two things: the price of a request
 * is taken from a number that only this hardware queue touches, and within a
 * round flows alternate in proportion to weight, where first come first
 * served would let a light flow spend its tokens early and then wait out the
 * round. A request may cost more than the balance: the queue goes into debt
 * and works it off with its next turns. A queue that was empty has its first
 * turn before those that were not: a tenant that waits for each request
 * should not wait for the turns of all others, too. The root's own requests
 * (swapping, metadata, the kernel's threads) pay, but are never throttled:
 * sooner or later everybody waits for them.
 *
 * 3. The total (IV-3)
 *
 * The total must be a little less than the drive can do in a period. More,
 * and periods end with tokens unspent: nobody is held back and shares are lost.
 * Much less, and refills follow each other in haste. The paper's Algorithm 1
 * is lost; its text says that it goes by the average number of tokens used
 * and by the time that flows were throttled, and raises the prediction when
 * they were throttled for less than a period. Here that is:
 *
 *     used   what the drive did in the round, up to the moment when the first
 *            flow was throttled
 *     time   the length of the round, less the longest time throttled in it
 *     rate   used / time, scaled to a period: what the drive does while
 *            nobody is held back. Averaged with the previous rate, except
 *            that a period that ended with tokens unspent counts in full
 *            if it says less: too much harms shares, too little harms
 *            nobody
 *     total  15/16 of the rate; at most twice and at least half of what it was
 *
 * The margin of 1/16 is what makes rounds end by spending.
 *
 *     the drive does 1600 pages a period, the total is 3000: after a period,
 *     1600 have been used; the totals are 1500, 1500, ..., rounds take 94 ms.
 *     The drive gets twice as fast: 1500 pages are spent in 47 ms, or
 *     3200 a period; the totals are 2250, 2625, 2812, ... 3000.
 *
 * 4. Work conservation
 *
 * A flow that brought no request for a whole period becomes inactive and its
 * share goes to the others (IV-2). The paper stops there, and a heavy flow
 * that does send requests but cannot use its tokens - it waits for each
 * request before it sends the next, its rate is capped, it sits on a
 * hardware queue that is full - would hold all others back in every period.
 * So a flow that at the end of three periods running has used clearly less of
 * its grant than others have of theirs is called limited: it keeps its
 * tokens, but refills do not wait for it, and what it does not use is divided
 * among the others. As soon as it does spend a grant it is waited for again.
 * A drive that stalls or gets slower makes other flows look limited, too, and so
 * do flows with tokens left over from before. So a period in which requests took
 * clearly longer than usual does not count, nor one in which the drive did all
 * that was predicted. And a limited flow is waited for in any case for one
 * period after 16, 32, 64, 64, ... periods.
 *
 * One case hides from that. If the drive half idles while the others wait,
 * what it does is half of what it could do, and so is the total. Of that little
 * the heavy flow does spend its grant, just in time. So in each round the
 * requests that are dispatched just after the first flow was throttled, up to
 * 64, are probes: by Little's law the drive, with as many requests in flight
 * as then, does that number per time that a probe takes. If in four rounds
 * running it did clearly less, waiting looks like waste. Then there is a free
 * run: for two periods the flows that were waited for count as limited. If the
 * drive does more in it, they stay limited; if not, the next free run takes
 * twice as many wasted rounds.
 *
 *     64 in flight when B is throttled, 16 ms for a probe: 400 in 100 ms.
 *     The round took 94 ms and did 207: A holds up B, not the drive.
 *
 * Clearly less is less than four fifths. A free run for less than that would
 * cost shares more often than it gains throughput. So a heavy flow that can use
 * nearly all of its share, but not all, may cost up to a fifth of the drive.
 *
 * And where the drive has less than one request in flight on average, it is
 * not what anybody waits for: throttling would only add to the work of
 * whatever is. As long as that is so, a flow that has spent its tokens is
 * given as many again at once.
 *
 * 5. Latency (Kyber's part)
 *
 * Each domain - read, write, discard, other - may have only so many requests
 * in flight on the whole drive. Every period, histograms of the time spent in
 * the drive and in total are compared with the targets: if the drive is slow
 * (p90 above target), domains that are well within their target get less
 * depth; a domain that misses its own target gets more. Time spent throttled
 * is not counted: it is the flow's share that makes it wait, not the drive.
 * The depth is kept in credits that hardware queues hold and pass on
 * to each other only when one runs out, so that in the steady state this,
 * too, touches nothing global.
 *
 * When to use it: many tenants with deep queues on a fast drive, where exact
 * shares and throughput matter more than the last microseconds of latency.
 * When not: a lone tenant (none is faster), or where a light tenant's latency
 * matters more than everyone's share.
 */
#include "../fairlane.h"
#include "../mechanisms/weights.h"

/* Requests dispatched in a row from one domain, and device-wide depth: Kyber's. */
static const unsigned int kf_batch[FL_NR_OPS] = { 16, 8, 1, 1 };
static const unsigned int kf_max_depth[FL_NR_OPS] = { 256, 128, 64, 16 };

/* The credits that a hardware queue takes from the pool at a time. */
#define KF_CREDIT_BATCH 8

/* A round is divided into this many turns for each flow (per hardware queue). */
#define KF_TURNS 4

/* The smallest total: 256 KiB per period, less than any drive of interest does. */
#define KF_MIN_TOTAL (64ull * FL_COST_ONE)

/* A time shorter than period / this does not tell how fast the drive is. */
#define KF_MIN_WINDOW 8

/* A period is at least so many times as long as a request is in the drive, up to 10 s. */
#define KF_PERIOD_LATENCIES 2
#define KF_MAX_PERIOD (10ull * NSEC_PER_SEC)

/* The part of the rate that is not granted is 1 / this. */
#define KF_MARGIN 16

/* A flow is limited when it leaves 1 / this of what the busiest uses, this many periods running. */
#define KF_LIMITED 16
#define KF_LIMITED_PERIODS 3

/*
 * A round is wasted when the drive could do 5/4 of what it did in it. So many of
 * them running start a free run, at first and at most.
 */
#define KF_WASTED_ROUNDS 4
#define KF_MAX_WASTED_ROUNDS 256

/* For how many periods a flow counts as limited, at first and at most. */
#define KF_LIMITED_FOR 16
#define KF_MAX_LIMITED_FOR 64

/* A write costs at most this many times a read: one slow flush must not stop all writers. */
#define KF_PRICE_SHIFT 8
#define KF_MAX_WRITE_PRICE (16u << KF_PRICE_SHIFT)

/*
 * Latency histograms, as Kyber's: quarters of the target, the first four
 * buckets good, the last four bad. OTHER has no target.
 */
#define KF_NR_TARGETS FL_OTHER
#define KF_BUCKETS 8
#define KF_GOOD_BUCKETS 4
#define KF_MIN_SAMPLES 500
enum { KF_TOTAL, KF_IO, KF_NR_LATENCIES };
enum { KF_READS, KF_WRITES, KF_REST, KF_NR_IO }; /* as FL_READ, FL_WRITE, and all the others */

static const u64 kf_discard_target_ns = 5ull * NSEC_PER_SEC;

struct kf_queue {
	struct fl_queue q;
	/* All under hwq->lock; unthrottled_ns and throttled_ns are read without. */
	struct list_head rqs[FL_NR_OPS]; /* staged */
	struct list_head ready[FL_NR_OPS]; /* in kf_hwq.fresh or .ready, when staged and not throttled */
	struct list_head throttled; /* in kf_hwq.throttled */
	s64 balance; /* tokens drawn and not used; negative: debt */
	u64 throttled_since_ns;
	u64 unthrottled_ns; /* end of the last throttling */
};

struct kf_flow {
	struct fl_flow flow;
	/* Drawn from by any hardware queue, filled by refills; never negative. */
	atomic64_t tokens ____cacheline_aligned_in_smp;
	/* Under dev->lock; turn is read without: a stale turn is an earlier round's. */
	u64 turn;
	u64 granted; /* by the last refill */
	u64 refilled; /* the tokens that it then had */
	u64 used_avg; /* per period */
	u64 given; /* tokens so far, less those that were taken back */
	u64 seen_drawn; /* up to the last prediction */
	/* See 4 above. */
	unsigned int unspent_periods; /* running */
	bool in_free_run; /* limited by the last free run, until that is over */
	bool late; /* had most of its grant left when the first flow was throttled */
	unsigned int limited; /* for so many more periods */
	unsigned int limited_for; /* for how many the next time */
	u64 open_ns; /* since when it is waited for, after that or as it became active */
};

struct kf_hwq {
	struct fl_hwq hwq;
	/* Under hwq->lock. */
	struct list_head fresh[FL_NR_OPS]; /* kf_queue.ready of queues that were empty: first turns */
	struct list_head ready[FL_NR_OPS]; /* of the others, in order of turn */
	struct list_head throttled;
	unsigned int domain; /* being dispatched from */
	unsigned int batching; /* in a row */
	/* Written under hwq->lock; read by refills and has_work(), which then run it once too often. */
	unsigned int nr_throttled;
	u64 throttled_ns; /* of its queues, up to their last unthrottling */
	u64 seen_refills;
	/* Shared with completions, and with other hardware queues that ran out. */
	atomic_t credits[FL_NR_OPS] ____cacheline_aligned_in_smp;
	int waiting[FL_NR_OPS]; /* for a credit; by xchg() */
	/* To use a credit, or to wake another: set by whoever wakes it, cleared by its dispatch(). */
	int woken[FL_NR_OPS];
	/* Added to by completions, read by kf_latency(), which keeps what it saw. */
	atomic_t buckets[KF_NR_TARGETS][KF_NR_LATENCIES][KF_BUCKETS];
	atomic64_t io_ns[KF_NR_IO]; /* time in the drive */
	atomic64_t done; /* cost of all that was completed */
};

/* Marks a probe, in the request's word beside its cost. */
#define KF_PROBE (~(~0ul >> 1))
#define KF_MAX_PROBES 64

struct kf_io {
	u64 ns[KF_NR_IO];
	u32 nr[KF_NR_IO]; /* wraps, as the buckets do; not of what is neither read nor write */
};

struct kf_latency {
	unsigned int buckets[KF_NR_LATENCIES][KF_BUCKETS]; /* since the last percentile */
	unsigned int seen[KF_NR_LATENCIES][KF_BUCKETS]; /* sums over hardware queues, last time */
	u64 first_ns[KF_NR_LATENCIES]; /* when the collecting began; 0 before */
	int p99; /* bucket, kept for when the drive becomes slow; -1: none */
};

struct kf_dev {
	struct fl_dev dev;
	/* Read on the hot path, written on the slow one: a stale read misplaces one sample or price. */
	u64 bucket_mul[KF_NR_TARGETS]; /* 2^32 / (target / 4) */
	u64 bucket_max_ns[KF_NR_TARGETS]; /* from here on it is the last bucket */
	u32 write_price; /* KF_PRICE_SHIFT fixed point */
	u64 refills; /* and grants in between; written under dev->lock; a change unthrottles */
	/*
	 * The probes of the round: how many are still wanted (set under
	 * dev->lock, taken by dispatches), and what became of them (added to by
	 * completions). One that is done too late counts in the next round.
	 */
	atomic_t probes_wanted;
	atomic_t probes_done[2]; /* reads, writes */
	atomic64_t probes_ns; /* time in the drive */

	/* Domain depth: what is not in some hardware queue's credits or in flight; < 0: owed. */
	atomic_t pool[FL_NR_OPS] ____cacheline_aligned_in_smp;
	atomic_t nr_waiting[FL_NR_OPS]; /* hardware queues that wait for a credit */

	/* The rest is under dev->lock. */
	unsigned int depth[FL_NR_OPS];
	struct kf_latency latency[KF_NR_TARGETS];
	struct kf_io price_io; /* at the last look at the write price */
	u64 refilled_ns; /* the last refill */
	u64 predicted_ns; /* the last prediction */
	u64 throttled_ns; /* when the first flow was throttled after that; 0: none was */
	u64 throttled_done; /* kf_done() then */
	struct kf_flow *waits_for; /* the flow with tokens that was found last; NULL: look anew */
	u64 period; /* ns: period_nsec, or longer; see 2 above */
	u64 rate; /* tokens per period */
	struct kf_io round_io; /* at the last prediction */
	unsigned int throttled_in_flight; /* requests, when the first flow was throttled */
	unsigned int wasted_rounds; /* running */
	unsigned int wasted_enough; /* so many of them start a free run */
	u64 before_rate; /* tokens per second before the free run; 0: there is none */
	u64 since_ns, since_done; /* when the free run or the wasted rounds began, and kf_done() then */
	u64 in_flight_avg; /* requests, in the last round, 8 bit fixed point */
	u64 usual_ns[2]; /* a read, a write in the drive: averages over rounds; 0: none in the last */
	bool slowed; /* in the last round requests took clearly longer than that */
	bool met; /* in the last round the drive did what was predicted */
	u64 aged_ns; /* the last ageing of flows, and look at latencies */
	unsigned int nr_active; /* flows, then */

	/* Tunables: written by the operator at any time, read with READ_ONCE(). */
	u64 period_nsec, read_lat_nsec, write_lat_nsec, prediction;
	/* Counters. */
	u64 predicted_total, tokens_granted, tokens_used, throttled_nsec;
	u64 refills_period, refills_spent, write_price_pct;
	u64 read_depth, write_depth;
};

static inline struct kf_dev *to_kf_dev(struct fl_dev *dev)
{
	return container_of(dev, struct kf_dev, dev);
}

static inline struct kf_hwq *to_kf_hwq(struct fl_hwq *hwq)
{
	return container_of(hwq, struct kf_hwq, hwq);
}

static inline struct kf_flow *to_kf_flow(struct fl_flow *flow)
{
	return container_of(flow, struct kf_flow, flow);
}

static inline struct kf_queue *to_kf_queue(struct fl_queue *queue)
{
	return container_of(queue, struct kf_queue, q);
}

/* ---- Domain depth: credits ------------------------------------------- */

static bool kf_take_from_pool(struct kf_dev *kf, struct kf_hwq *khq, enum fl_op op)
{
	int left = atomic_read(&kf->pool[op]), n;

	do {
		if (left <= 0)
			return false;
		n = atomic_read(&kf->nr_waiting[op]) ? 1 : min_t(int, left, KF_CREDIT_BATCH);
	} while (!atomic_try_cmpxchg(&kf->pool[op], &left, left - n));
	if (n > 1)
		atomic_add(n - 1, &khq->credits[op]);
	return true;
}

/* Credits that other hardware queues hold and do not use go back to the pool. */
static void kf_reclaim_credits(struct kf_dev *kf, enum fl_op op)
{
	unsigned int i;

	for (i = 0; i < kf->dev.nr_hwqs; i++) {
		atomic_t *credits = &to_kf_hwq(kf->dev.hwqs[i])->credits[op];

		if (atomic_read(credits))
			atomic_add(atomic_xchg(credits, 0), &kf->pool[op]);
	}
}

/* Returns whether it waited. */
static bool kf_stop_waiting(struct kf_dev *kf, struct kf_hwq *khq, enum fl_op op)
{
	if (!xchg(&khq->waiting[op], 0))
		return false;
	atomic_dec(&kf->nr_waiting[op]);
	return true;
}

static bool kf_get_credit(struct kf_dev *kf, struct kf_hwq *khq, enum fl_op op)
{
	if (likely(atomic_dec_if_positive(&khq->credits[op]) >= 0) ||
	    kf_take_from_pool(kf, khq, op)) {
		/* Nobody is to wake us for what we already have. */
		if (unlikely(READ_ONCE(khq->waiting[op])))
			kf_stop_waiting(kf, khq, op);
		return true;
	}
	if (!xchg(&khq->waiting[op], 1))
		atomic_inc(&kf->nr_waiting[op]);
	/* From here on completions see that we wait; look again for credits that came before. */
	smp_mb();
	kf_reclaim_credits(kf, op);
	if (!kf_take_from_pool(kf, khq, op))
		return false;
	kf_stop_waiting(kf, khq, op);
	return true;
}

/*
 * Wake as many of the waiting hardware queues as there are credits, beginning
 * after @khq. One that turns out to have no use for a credit wakes the next: see
 * kf_pass_on().
 */
static void kf_wake_waiting(struct kf_dev *kf, struct kf_hwq *khq, enum fl_op op)
{
	int credits = atomic_read(&kf->pool[op]);
	unsigned int i, nr = kf->dev.nr_hwqs;

	for (i = 1; i <= nr && credits > 0 && atomic_read(&kf->nr_waiting[op]); i++) {
		struct kf_hwq *other = to_kf_hwq(kf->dev.hwqs[(khq->hwq.index + i) % nr]);

		if (READ_ONCE(other->waiting[op]) && kf_stop_waiting(kf, other, op)) {
			WRITE_ONCE(other->woken[op], 1);
			fl_hwq_run(&other->hwq);
			credits--;
		}
	}
}

static void kf_pass_on(struct kf_dev *kf, struct kf_hwq *khq, enum fl_op op)
{
	if (unlikely(READ_ONCE(khq->woken[op])) && xchg(&khq->woken[op], 0))
		kf_wake_waiting(kf, khq, op);
}

static void kf_put_credit(struct kf_dev *kf, struct kf_hwq *khq, enum fl_op op)
{
	atomic_inc(&khq->credits[op]);
	smp_mb__after_atomic();
	if (likely(!atomic_read(&kf->nr_waiting[op]) && atomic_read(&kf->pool[op]) >= 0))
		return;
	atomic_add(atomic_xchg(&khq->credits[op], 0), &kf->pool[op]);
	kf_wake_waiting(kf, khq, op);
}

static void kf_set_depth(struct kf_dev *kf, enum fl_op op, unsigned int depth)
{
	depth = clamp_t(unsigned int, depth, 1, kf_max_depth[op]);
	atomic_add((int)depth - (int)kf->depth[op], &kf->pool[op]);
	kf->depth[op] = depth;
}

/* ---- Tokens: the slow path ------------------------------------------- */

/* Tokens drawn by @kfl so far, without looking at each of its queues. Under dev->lock. */
static u64 kf_flow_drawn(struct kf_flow *kfl)
{
	return kfl->given - atomic64_read(&kfl->tokens);
}

/*
 * The cost of what the drive has done so far. What was dispatched to it would not
 * do: after a refill all that was waiting is dispatched at once.
 */
static u64 kf_done(struct kf_dev *kf)
{
	u64 done = 0;
	unsigned int i;

	for (i = 0; i < kf->dev.nr_hwqs; i++)
		done += atomic64_read(&to_kf_hwq(kf->dev.hwqs[i])->done);
	return done;
}

/* The part of its last grant that @kfl has drawn, 16 bit fixed point. */
static u64 kf_drawn(struct kf_flow *kfl)
{
	u64 left = atomic64_read(&kfl->tokens);

	/* At most all: what it had left before that grant is a reserve. */
	return div64_u64((kfl->refilled - min_t(u64, left, kfl->refilled)) << 16, kfl->granted);
}

static void kf_set_limited(struct kf_flow *kfl)
{
	if (kfl->limited)
		return;
	kfl->limited = kfl->limited_for;
	kfl->limited_for = min_t(unsigned int, 2 * kfl->limited_for, KF_MAX_LIMITED_FOR);
}

static void kf_not_limited(struct kf_flow *kfl)
{
	kfl->limited = 0;
	kfl->unspent_periods = 0;
	kfl->limited_for = KF_LIMITED_FOR;
}

/* The requests completed so far, and the time that they spent in the drive. */
static void kf_read_io(struct kf_dev *kf, struct kf_io *io)
{
	unsigned int i;
	int op, b;

	memset(io, 0, sizeof(*io));
	for (i = 0; i < kf->dev.nr_hwqs; i++) {
		struct kf_hwq *khq = to_kf_hwq(kf->dev.hwqs[i]);

		for (op = 0; op < KF_NR_IO; op++)
			io->ns[op] += atomic64_read(&khq->io_ns[op]);
		for (op = KF_READS; op <= KF_WRITES; op++)
			for (b = 0; b < KF_BUCKETS; b++)
				io->nr[op] += atomic_read(&khq->buckets[op][KF_IO][b]);
	}
}

/* What came since @from, which is brought up to date. */
static struct kf_io kf_io_since(struct kf_dev *kf, struct kf_io *from)
{
	struct kf_io now, since;
	int op;

	kf_read_io(kf, &now);
	for (op = 0; op < KF_NR_IO; op++) {
		since.ns[op] = now.ns[op] - from->ns[op];
		since.nr[op] = now.nr[op] - from->nr[op];
	}
	*from = now;
	return since;
}

static u64 kf_io_ns(const struct kf_io *io)
{
	return io->ns[KF_READS] + io->ns[KF_WRITES] + io->ns[KF_REST];
}

static unsigned int kf_in_flight(struct kf_dev *kf)
{
	int sum = 0, op;
	unsigned int i;

	for (op = 0; op < FL_NR_OPS; op++) {
		sum += (int)kf->depth[op] - atomic_read(&kf->pool[op]);
		for (i = 0; i < kf->dev.nr_hwqs; i++)
			sum -= atomic_read(&to_kf_hwq(kf->dev.hwqs[i])->credits[op]);
	}
	return max_t(int, sum, 0);
}

/*
 * Did the drive have less than one request in flight on average, in the last
 * round and in this one so far? Those in flight now do not count: a hardware
 * queue dispatches many before it sends the first. But if there are some and none
 * was done in this round, the drive stalls. Under dev->lock.
 */
static bool kf_drive_idles(struct kf_dev *kf, u64 now)
{
	struct kf_io seen = kf->round_io, io;

	if (kf->in_flight_avg >= 1 << 8)
		return false;
	io = kf_io_since(kf, &seen);
	if (!kf_io_ns(&io) && kf_in_flight(kf))
		return false;
	return kf_io_ns(&io) < now - kf->predicted_ns;
}

/* The first flow of the round is throttled. Under dev->lock. */
static void kf_start_probe(struct kf_dev *kf, u64 now)
{
	struct fl_flow *flow;

	kf->throttled_ns = now;
	kf->throttled_done = kf_done(kf);
	kf->throttled_in_flight = kf_in_flight(kf);
	atomic_set(&kf->probes_done[KF_READS], 0);
	atomic_set(&kf->probes_done[KF_WRITES], 0);
	atomic64_set(&kf->probes_ns, 0);
	atomic_set(&kf->probes_wanted,
		   min_t(unsigned int, kf->throttled_in_flight, KF_MAX_PROBES));
	fl_for_each_active(flow, &kf->dev)
		to_kf_flow(flow)->late = kf_drawn(to_kf_flow(flow)) < 3u << 14;
}

/*
 * Did requests take clearly longer than usual in a round? The usual time at most
 * doubles in a round, so that a stall is soon forgotten, and does not change in
 * a round in which nothing was done. Under dev->lock.
 */
static bool kf_slowed(struct kf_dev *kf, const struct kf_io *io)
{
	u64 took = 0, usual = 0;
	int op;

	if (!io->nr[KF_READS] && !io->nr[KF_WRITES])
		return true;
	for (op = KF_READS; op <= KF_WRITES; op++) {
		u64 *avg = &kf->usual_ns[op], ns = div64_u64(io->ns[op], max_t(u32, io->nr[op], 1));

		took += io->ns[op];
		usual += io->nr[op] * (*avg ? *avg : ns);
		*avg = *avg && ns ? min_t(u64, (3 * *avg + ns) / 4, 2 * *avg) : ns;
	}
	return 4 * took > 5 * usual;
}

/* Could the drive, by the round's probes, have done clearly more than it did? Under dev->lock. */
static bool kf_wasted(struct kf_dev *kf, const struct kf_io *io)
{
	/* ns: what the probes took, and what so many requests took on average in the round. */
	u64 took = atomic64_read(&kf->probes_ns), average = 0;
	int op;

	if (!kf->throttled_ns || !took || kf->slowed)
		return false;
	for (op = KF_READS; op <= KF_WRITES; op++)
		average += div64_u64(io->ns[op], max_t(u32, io->nr[op], 1)) *
			   atomic_read(&kf->probes_done[op]);
	/* Requests per time are those in flight divided by the time that each takes. */
	return 4 * ((u64)kf->throttled_in_flight << 8) * average >= 5 * kf->in_flight_avg * took;
}

/* What the drive did per second since kf->since_ns, which becomes now. Under dev->lock. */
static u64 kf_rate_since(struct kf_dev *kf, u64 now, u64 done)
{
	u64 rate = mul_u64_u64_div_u64(done - kf->since_done, NSEC_PER_SEC, now - kf->since_ns);

	kf->since_ns = now;
	kf->since_done = done;
	return rate;
}

/* Waiting looks like waste: wait for nobody for two periods. Under dev->lock. */
static void kf_start_free_run(struct kf_dev *kf, u64 now, u64 done)
{
	struct fl_flow *flow;

	kf->before_rate = kf_rate_since(kf, now, done);
	fl_for_each_active(flow, &kf->dev) {
		struct kf_flow *kfl = to_kf_flow(flow);

		kfl->in_free_run = kfl->late && !kfl->limited;
		if (kfl->in_free_run)
			kf_set_limited(kfl);
	}
}

/* The flows that the free run counted as limited are not. */
static void kf_wait_again(struct kf_dev *kf)
{
	struct fl_flow *flow;

	fl_for_each_active(flow, &kf->dev)
		if (to_kf_flow(flow)->in_free_run)
			kf_not_limited(to_kf_flow(flow));
}

/* If the drive did not do more, waiting was no waste: wait again, longer until the next free run. */
static void kf_end_free_run(struct kf_dev *kf, u64 now, u64 done)
{
	bool waste = 8 * kf_rate_since(kf, now, done) >= 9 * kf->before_rate;

	kf->before_rate = 0;
	kf->wasted_enough =
		waste ? KF_WASTED_ROUNDS :
			min_t(unsigned int, 2 * kf->wasted_enough, KF_MAX_WASTED_ROUNDS);
	if (!waste)
		kf_wait_again(kf);
}

/*
 * Flows came or went. What the drive did before, maybe while the others waited for
 * one that had nothing to send, does not compare with what it does now.
 */
static void kf_forget_wasted(struct kf_dev *kf, u64 now)
{
	if (kf->before_rate)
		kf_wait_again(kf);
	kf->before_rate = 0;
	kf->wasted_rounds = 0;
	kf->since_ns = now;
	kf->since_done = kf_done(kf);
}

/* A round of @window ns ends at @now; the drive has done @done so far. Under dev->lock. */
static void kf_end_probe(struct kf_dev *kf, u64 now, u64 window, u64 done)
{
	struct kf_io io = kf_io_since(kf, &kf->round_io);

	kf->in_flight_avg = div64_u64(kf_io_ns(&io) << 8, window);
	kf->slowed = kf_slowed(kf, &io);
	atomic_set(&kf->probes_wanted, 0);
	if (kf->before_rate) {
		if (now - kf->since_ns >= 2 * kf->period)
			kf_end_free_run(kf, now, done);
	} else if (!kf_wasted(kf, &io)) {
		kf->wasted_rounds = 0;
		kf->since_ns = now;
		kf->since_done = done;
	} else if (++kf->wasted_rounds >= kf->wasted_enough) {
		kf->wasted_rounds = 0;
		kf_start_free_run(kf, now, done);
	}
}

/* What each flow uses per period, for dividing the total. @window: ns since the last time. */
static void kf_average_flows(struct kf_dev *kf, u64 window, u64 period)
{
	struct fl_flow *flow;

	fl_for_each_active(flow, &kf->dev) {
		struct kf_flow *kfl = to_kf_flow(flow);
		u64 drawn, used;

		drawn = kf_flow_drawn(kfl);
		used = mul_u64_u64_div_u64(drawn - kfl->seen_drawn, period, window);
		kfl->used_avg = kfl->used_avg ? (kfl->used_avg + used) / 2 : used;
		kfl->seen_drawn = drawn;
	}
}

/*
 * Adapt the period to the time that requests take now; it at most doubles in a
 * round. What is counted per period is scaled with it.
 */
static void kf_set_period(struct kf_dev *kf)
{
	u64 longest = max_t(u64, kf->usual_ns[KF_READS], kf->usual_ns[KF_WRITES]);
	u64 old = kf->period, period = min_t(u64, KF_PERIOD_LATENCIES * longest, KF_MAX_PERIOD);
	struct fl_flow *flow;

	period = max_t(u64, READ_ONCE(kf->period_nsec), min_t(u64, period, 2 * old));
	if (period == old)
		return;
	kf->period = period;
	kf->rate = mul_u64_u64_div_u64(kf->rate, period, old);
	kf->predicted_total = max_t(u64, KF_MIN_TOTAL,
				    mul_u64_u64_div_u64(kf->predicted_total, period, old));
	fl_for_each_active(flow, &kf->dev)
		to_kf_flow(flow)->used_avg =
			mul_u64_u64_div_u64(to_kf_flow(flow)->used_avg, period, old);
}

/* A round ends at @now: how fast is the drive? See 3 above. Under dev->lock. */
static void kf_predict(struct kf_dev *kf, u64 now, bool period_over)
{
	u64 period = kf->period, total = kf->predicted_total;
	u64 done = kf_done(kf), window = now - kf->predicted_ns, used, rate;

	if (window < period / KF_MIN_WINDOW)
		return;
	kf_average_flows(kf, window, period);
	kf_end_probe(kf, now, window, done);
	used = done - kf->tokens_used;
	if (!period_over && kf->throttled_ns > kf->predicted_ns &&
	    kf->throttled_ns - kf->predicted_ns >= period / KF_MIN_WINDOW) {
		window = kf->throttled_ns - kf->predicted_ns;
		used = kf->throttled_done - kf->tokens_used;
	}
	kf->tokens_used = done;
	kf->predicted_ns = now;
	kf->throttled_ns = 0;

	rate = mul_u64_u64_div_u64(used, period, window);
	kf->met = rate >= total - total / (2 * KF_MARGIN);
	if (!period_over || rate > kf->rate)
		rate = (kf->rate + rate) / 2;
	kf->rate = rate;
	if (READ_ONCE(kf->prediction))
		kf->predicted_total = max_t(u64, KF_MIN_TOTAL,
					    clamp_t(u64, rate - rate / KF_MARGIN, total / 2, total * 2));
	kf_set_period(kf);
}

/*
 * Divide the total. Limited flows get their share, but are expected to use only
 * what they did so far; the rest is divided among the others.
 */
static void kf_grant(struct kf_dev *kf)
{
	u64 total = kf->predicted_total, expected = 0, open_total, open_share = 0;
	struct fl_flow *flow;

	fl_flows_update_shares(&kf->dev);
	fl_for_each_active(flow, &kf->dev) {
		if (to_kf_flow(flow)->limited)
			expected += to_kf_flow(flow)->used_avg;
		else
			open_share += flow->share;
	}
	/* Never less than their own share: what is expected was measured, and may be wrong. */
	open_total = max_t(u64, total - min_t(u64, expected, total),
			   mul_u64_u64_div_u64(total, open_share, FL_SHARE_ONE));

	fl_for_each_active(flow, &kf->dev) {
		struct kf_flow *kfl = to_kf_flow(flow);
		s64 left = atomic64_read(&kfl->tokens), granted;

		granted = kfl->limited ?
				  mul_u64_u64_div_u64(total, flow->share, FL_SHARE_ONE) :
				  mul_u64_u64_div_u64(open_total, flow->share, max_t(u64, open_share, 1));
		granted = max_t(s64, granted, FL_COST_ONE);
		while (!atomic64_try_cmpxchg(&kfl->tokens, &left,
					     granted + min_t(s64, left, granted)))
			;
		kfl->granted = granted;
		kfl->refilled = granted + min_t(s64, left, granted);
		kfl->given += kfl->refilled - left;
		WRITE_ONCE(kfl->turn, max_t(u64, div64_u64(granted, KF_TURNS * kf->dev.nr_hwqs),
					    FL_COST_ONE));
		kf->tokens_granted += granted;
	}
}

/*
 * A period is over and tokens are left. A flow that used clearly less of its grant
 * than the one that used most could not use it. If all are behind alike, the
 * drive was slower than predicted.
 */
static void kf_find_limited(struct kf_dev *kf)
{
	struct fl_flow *flow;
	u64 most = 0;

	fl_for_each_active(flow, &kf->dev)
		most = max_t(u64, most, kf_drawn(to_kf_flow(flow)));
	fl_for_each_active(flow, &kf->dev) {
		struct kf_flow *kfl = to_kf_flow(flow);

		if (kf_drawn(kfl) >= most - most / KF_LIMITED)
			kfl->unspent_periods = 0;
		else if (kfl->open_ns <= kf->refilled_ns &&
			 ++kfl->unspent_periods >= KF_LIMITED_PERIODS)
			kf_set_limited(kfl);
	}
}

/*
 * A flow that is no longer limited is waited for. If it does not spend its grant
 * in one whole period, it is limited again.
 */
static void kf_age_limited(struct kf_dev *kf, u64 now)
{
	struct fl_flow *flow;

	fl_for_each_active(flow, &kf->dev) {
		struct kf_flow *kfl = to_kf_flow(flow);

		if (kfl->limited && !--kfl->limited) {
			kfl->unspent_periods = KF_LIMITED_PERIODS - 1;
			kfl->open_ns = now;
		}
	}
}

/* There are new tokens: throttled queues try again. Under dev->lock. @self as in kf_refill(). */
static void kf_wake(struct kf_dev *kf, struct kf_hwq *self)
{
	unsigned int i;

	WRITE_ONCE(kf->refills, kf->refills + 1);
	smp_mb(); /* against kf_throttle(): it sees the new refill, or we see it throttled */
	for (i = 0; i < kf->dev.nr_hwqs; i++) {
		struct kf_hwq *khq = to_kf_hwq(kf->dev.hwqs[i]);

		if (khq != self && READ_ONCE(khq->nr_throttled))
			fl_hwq_run(&khq->hwq);
	}
}

/* Under dev->lock. @self: the hardware queue that is dispatching, if one is. */
static void kf_refill(struct kf_dev *kf, u64 now, struct kf_hwq *self, bool period_over)
{
	kf_predict(kf, now, period_over);
	if (period_over) {
		kf->refills_period++;
		if (!kf->slowed && !kf->met)
			kf_find_limited(kf);
	} else {
		kf->refills_spent++;
	}
	kf_grant(kf);
	kf->refilled_ns = now;
	fl_trace_refill(&kf->dev, period_over, kf->predicted_total, kf->tokens_used);

	kf_wake(kf, self);
}

/*
 * Is there a flow to wait for? The search goes on from the one found last, so
 * that in a round each flow is looked at once or twice, however many there are.
 */
static bool kf_waits(struct kf_dev *kf)
{
	struct list_head *flows = &kf->dev.active, *pos, *start;

	start = kf->waits_for && kf->waits_for->flow.busy ? &kf->waits_for->flow.active_node : flows;
	pos = start;
	do {
		struct kf_flow *kfl = to_kf_flow(list_entry(pos, struct fl_flow, active_node));

		if (pos != flows && !kfl->limited && atomic64_read(&kfl->tokens)) {
			kf->waits_for = kfl;
			return true;
		}
		pos = pos->next;
	} while (pos != start);
	return false;
}

/*
 * @kfl has drawn its last token: it is not limited, and this may end the round.
 * @debt: tokens that the queue that drew it would need on top.
 */
static void kf_spent(struct kf_dev *kf, struct kf_flow *kfl, struct kf_hwq *self, s64 debt)
{
	unsigned long flags;
	u64 more;

	spin_lock_irqsave(&kf->dev.lock, flags);
	kf_not_limited(kfl);
	if (kf_drive_idles(kf, fl_now_ns())) {
		more = max_t(u64, kfl->granted, debt);
		atomic64_add(more, &kfl->tokens);
		kfl->given += more;
		kf->tokens_granted += more;
		kf_wake(kf, self); /* another hardware queue may have found none left */
		goto out;
	}
	if (!kf->throttled_ns)
		kf_start_probe(kf, fl_now_ns());
	if (!kf_waits(kf))
		kf_refill(kf, fl_now_ns(), self, false);
out:
	spin_unlock_irqrestore(&kf->dev.lock, flags);
}

/* The first request of an inactive flow: it gets a grant at once. */
static void kf_activate(struct kf_dev *kf, struct kf_flow *kfl)
{
	struct fl_flow *flow = &kfl->flow;
	unsigned long flags;
	u64 now = fl_now_ns();

	spin_lock_irqsave(&kf->dev.lock, flags);
	if (flow->busy)
		goto out;
	if (list_empty(&kf->dev.active)) { /* the time without any request does not count */
		kf->predicted_ns = now;
		kf->throttled_ns = 0;
		kf_read_io(kf, &kf->round_io);
		kf->refilled_ns = now;
		kf->aged_ns = now;
	}
	kf_forget_wasted(kf, now);
	kf->nr_active++;
	fl_flow_set_busy(flow, true);
	fl_flow_update_share(flow);
	kf_not_limited(kfl);
	kfl->late = false;
	kfl->in_free_run = false;
	kfl->open_ns = now;
	kfl->granted = max_t(u64, mul_u64_u64_div_u64(kf->predicted_total, flow->share, FL_SHARE_ONE),
			     FL_COST_ONE);
	kfl->used_avg = 0;
	WRITE_ONCE(kfl->turn,
		   max_t(u64, div64_u64(kfl->granted, KF_TURNS * kf->dev.nr_hwqs), FL_COST_ONE));
	kfl->refilled = kfl->granted;
	atomic64_set(&kfl->tokens, kfl->granted);
	kfl->given = kfl->granted;
	kfl->seen_drawn = 0;
	kf->tokens_granted += kfl->granted;
	kf_wake(kf, NULL); /* a hardware queue that saw it busy may have found no tokens */
	fl_dev_kick(&kf->dev);
out:
	spin_unlock_irqrestore(&kf->dev.lock, flags);
}

/* ---- Dispatch: the hot path ------------------------------------------ */

/* Move a turn's worth of the flow's tokens into @kq's balance. */
static bool kf_draw(struct kf_dev *kf, struct kf_hwq *khq, struct kf_queue *kq)
{
	struct kf_flow *kfl = to_kf_flow(kq->q.flow);
	s64 left = atomic64_read(&kfl->tokens), n;

	do {
		if (left <= 0)
			return false;
		n = max_t(s64, READ_ONCE(kfl->turn), 1 - kq->balance);
		n = min_t(s64, n, left);
	} while (!atomic64_try_cmpxchg(&kfl->tokens, &left, left - n));
	kq->balance += n;
	if (n == left)
		kf_spent(kf, kfl, khq, max_t(s64, 1 - kq->balance, 0));
	return kq->balance > 0;
}

static void kf_throttle(struct kf_hwq *khq, struct kf_queue *kq)
{
	int op;

	for (op = 0; op < FL_NR_OPS; op++)
		list_del_init(&kq->ready[op]);
	list_add_tail(&kq->throttled, &khq->throttled);
	kq->throttled_since_ns = fl_now_ns();
	WRITE_ONCE(kq->q.throttled, true);
	WRITE_ONCE(khq->nr_throttled, khq->nr_throttled + 1);
	smp_mb(); /* against kf_refill() */
}

/* If there was a refill since the last look, everybody may try again. */
static void kf_unthrottle(struct kf_dev *kf, struct kf_hwq *khq)
{
	u64 refills = READ_ONCE(kf->refills), now;
	struct kf_queue *kq, *next;
	int op;

	if (likely(khq->seen_refills == refills))
		return;
	WRITE_ONCE(khq->seen_refills, refills);
	if (!khq->nr_throttled)
		return;
	now = fl_now_ns();
	list_for_each_entry_safe(kq, next, &khq->throttled, throttled) {
		list_del_init(&kq->throttled);
		for (op = 0; op < FL_NR_OPS; op++)
			if (!list_empty(&kq->rqs[op]))
				list_add_tail(&kq->ready[op], &khq->ready[op]);
		WRITE_ONCE(kq->q.throttled_ns,
			   kq->q.throttled_ns + (now - kq->throttled_since_ns));
		WRITE_ONCE(khq->throttled_ns,
			   khq->throttled_ns + (now - kq->throttled_since_ns));
		WRITE_ONCE(kq->unthrottled_ns, now);
		WRITE_ONCE(kq->q.throttled, false);
	}
	WRITE_ONCE(khq->nr_throttled, 0);
}

static u64 kf_price(struct kf_dev *kf, struct fl_req *rq)
{
	u64 cost = fl_cost(&kf->dev.prices, fl_req_op(rq), fl_req_bytes(rq));

	if (fl_req_op(rq) == FL_WRITE)
		cost = (cost * READ_ONCE(kf->write_price)) >> KF_PRICE_SHIFT;
	return cost;
}

static struct kf_queue *kf_next_queue(struct kf_hwq *khq, enum fl_op op)
{
	struct list_head *turns = &khq->fresh[op];

	if (list_empty(turns))
		turns = &khq->ready[op];
	return list_empty(turns) ? NULL : container_of(turns->next - op, struct kf_queue, ready[0]);
}

static struct fl_req *kf_dispatch_domain(struct kf_dev *kf, struct kf_hwq *khq)
{
	enum fl_op op = khq->domain;
	struct kf_queue *kq;
	struct fl_req *rq;
	u64 cost;

	while ((kq = kf_next_queue(khq, op))) {
		/* The root goes on, in debt: everybody may depend on its swapping and metadata. */
		if (kq->balance <= 0 && !kf_draw(kf, khq, kq) && kq->q.flow->parent) {
			kf_throttle(khq, kq);
			kf_unthrottle(kf, khq);
			continue;
		}
		if (!kf_get_credit(kf, khq, op))
			return NULL;

		rq = fl_req_of(kq->rqs[op].next);
		list_del_init(fl_req_node(rq));
		cost = kf_price(kf, rq);
		*fl_req_priv(rq) = cost; /* never 0: it holds a credit */
		if (unlikely(atomic_read(&kf->probes_wanted) > 0) && op <= FL_WRITE &&
		    atomic_dec_if_positive(&kf->probes_wanted) >= 0)
			*fl_req_priv(rq) |= KF_PROBE;
		kq->balance -= cost;
		fl_queue_account(&kq->q, rq, cost);
		if (list_empty(&kq->rqs[op]))
			list_del_init(&kq->ready[op]);
		else if (kq->balance <= 0)
			list_move_tail(&kq->ready[op], &khq->ready[op]);
		khq->batching++;
		return rq;
	}
	kf_pass_on(kf, khq, op);
	return NULL;
}

/* As Kyber: a batch from one domain, then the next domain that has something. */
static struct fl_req *kf_dispatch(struct fl_hwq *hwq)
{
	struct kf_dev *kf = to_kf_dev(hwq->dev);
	struct kf_hwq *khq = to_kf_hwq(hwq);
	struct fl_req *rq;
	int i;

	kf_unthrottle(kf, khq);
	if (khq->batching < kf_batch[khq->domain]) {
		rq = kf_dispatch_domain(kf, khq);
		if (rq)
			return rq;
	}
	khq->batching = 0;
	for (i = 0; i < FL_NR_OPS; i++) {
		khq->domain = (khq->domain + 1) % FL_NR_OPS;
		rq = kf_dispatch_domain(kf, khq);
		if (rq)
			return rq;
	}
	return NULL;
}

static bool kf_has_work(struct fl_hwq *hwq)
{
	struct kf_hwq *khq = to_kf_hwq(hwq);
	int op;

	for (op = 0; op < FL_NR_OPS; op++)
		if (!list_empty(&khq->ready[op]) || !list_empty(&khq->fresh[op]) ||
		    READ_ONCE(khq->woken[op]))
			return true;
	return READ_ONCE(khq->nr_throttled) &&
	       READ_ONCE(khq->seen_refills) != READ_ONCE(to_kf_dev(hwq->dev)->refills);
}

static void kf_insert(struct fl_queue *queue, struct fl_req *rq, bool at_head)
{
	struct kf_hwq *khq = to_kf_hwq(queue->hwq);
	struct kf_queue *kq = to_kf_queue(queue);
	enum fl_op op = fl_req_op(rq);

	if (fl_flow_touch(queue))
		kf_activate(to_kf_dev(queue->hwq->dev), to_kf_flow(queue->flow));
	if (at_head)
		list_add(fl_req_node(rq), &kq->rqs[op]);
	else
		list_add_tail(fl_req_node(rq), &kq->rqs[op]);
	if (list_empty(&kq->ready[op]) && !queue->throttled)
		list_add_tail(&kq->ready[op], &khq->fresh[op]);
}

static struct list_head *kf_merge_list(struct fl_queue *queue, enum fl_op op)
{
	return &to_kf_queue(queue)->rqs[op];
}

/* ---- Completion ------------------------------------------------------- */

static void kf_sample(struct kf_dev *kf, struct kf_hwq *khq, enum fl_op op, int type, u64 ns)
{
	unsigned int bucket = KF_BUCKETS - 1;

	if (ns < READ_ONCE(kf->bucket_max_ns[op]))
		bucket = min_t(unsigned int, (ns * READ_ONCE(kf->bucket_mul[op])) >> 32, bucket);
	atomic_inc(&khq->buckets[op][type][bucket]);
}

static void kf_complete(struct fl_queue *queue, struct fl_req *rq, u64 now_ns)
{
	struct kf_dev *kf = to_kf_dev(queue->hwq->dev);
	struct kf_hwq *khq = to_kf_hwq(queue->hwq);
	u64 from = max_t(u64, fl_req_arrival_ns(rq), READ_ONCE(to_kf_queue(queue)->unthrottled_ns));
	u64 io, dispatched = fl_req_dispatch_ns(rq);
	enum fl_op op = fl_req_op(rq);

	if (!dispatched)
		return; /* it failed on its way to the drive */
	atomic64_add(*fl_req_priv(rq) & ~KF_PROBE, &khq->done);
	io = now_ns - dispatched;
	atomic64_add(io, &khq->io_ns[min_t(int, op, KF_REST)]);
	if (op >= KF_NR_TARGETS)
		return;
	if (unlikely(*fl_req_priv(rq) & KF_PROBE)) {
		atomic64_add(io, &kf->probes_ns);
		atomic_inc(&kf->probes_done[op]);
	}
	/* A time of throttling that ended after the dispatch was not this request's. */
	kf_sample(kf, khq, op, KF_TOTAL, from < dispatched ? now_ns - from : io);
	kf_sample(kf, khq, op, KF_IO, io);
}

static void kf_release(struct fl_queue *queue, struct fl_req *rq)
{
	if (!*fl_req_priv(rq))
		return;
	*fl_req_priv(rq) = 0;
	kf_put_credit(to_kf_dev(queue->hwq->dev), to_kf_hwq(queue->hwq), fl_req_op(rq));
}

/* ---- Latency control, once a period ----------------------------------- */

static void kf_set_target(struct kf_dev *kf, enum fl_op op, u64 target_ns)
{
	WRITE_ONCE(kf->bucket_max_ns[op], 2 * target_ns);
	WRITE_ONCE(kf->bucket_mul[op], div64_u64(4ull << 32, target_ns));
}

/* Add what came since the last look to the histograms. */
static void kf_collect(struct kf_dev *kf, enum fl_op op)
{
	struct kf_latency *lat = &kf->latency[op];
	unsigned int i;
	int type, b;

	for (type = 0; type < KF_NR_LATENCIES; type++) {
		for (b = 0; b < KF_BUCKETS; b++) {
			unsigned int sum = 0;

			for (i = 0; i < kf->dev.nr_hwqs; i++)
				sum += atomic_read(
					&to_kf_hwq(kf->dev.hwqs[i])->buckets[op][type][b]);
			lat->buckets[type][b] += sum - lat->seen[type][b];
			lat->seen[type][b] = sum;
		}
	}
}

/*
 * The bucket that holds @percent of the samples, or -1 while there are
 * fewer than 500 and less than a second has passed. Starts the histogram anew.
 */
static int kf_percentile(struct kf_latency *lat, int type, unsigned int percent, u64 now)
{
	unsigned int *buckets = lat->buckets[type], samples = 0, b;

	for (b = 0; b < KF_BUCKETS; b++)
		samples += buckets[b];
	if (!samples)
		return -1;
	if (!lat->first_ns[type])
		lat->first_ns[type] = now;
	if (samples < KF_MIN_SAMPLES && now - lat->first_ns[type] < (u64)NSEC_PER_SEC)
		return -1;
	lat->first_ns[type] = 0;

	samples = div64_u64((u64)samples * percent + 99, 100);
	for (b = 0; b < KF_BUCKETS - 1 && buckets[b] < samples; b++)
		samples -= buckets[b];
	memset(buckets, 0, sizeof(lat->buckets[type]));
	return b;
}

/* Kyber's control of the domain depths; see 5 above. Under dev->lock. */
static void kf_control_depths(struct kf_dev *kf, u64 now)
{
	bool slow = false;
	int op;

	kf_set_target(kf, FL_READ, READ_ONCE(kf->read_lat_nsec));
	kf_set_target(kf, FL_WRITE, READ_ONCE(kf->write_lat_nsec));
	for (op = 0; op < KF_NR_TARGETS; op++) {
		kf_collect(kf, op);
		if (kf_percentile(&kf->latency[op], KF_IO, 90, now) >= KF_GOOD_BUCKETS)
			slow = true;
	}
	for (op = 0; op < KF_NR_TARGETS; op++) {
		struct kf_latency *lat = &kf->latency[op];
		int p99 = kf_percentile(lat, KF_TOTAL, 99, now);

		/*
		 * Domains rarely have enough samples in the same period: keep
		 * a percentile for when the drive gets slow, and use it once.
		 */
		if (slow) {
			if (p99 < 0)
				p99 = lat->p99;
			lat->p99 = -1;
		} else if (p99 >= 0) {
			lat->p99 = p99;
		}
		/* In proportion: p99 at 3/4 of the target leaves 3/4 of the depth. */
		if (p99 >= 0 && (slow || p99 >= KF_GOOD_BUCKETS))
			kf_set_depth(kf, op, kf->depth[op] * (p99 + 1) / KF_GOOD_BUCKETS);
	}
	kf->read_depth = kf->depth[FL_READ];
	kf->write_depth = kf->depth[FL_WRITE];
}

/* How much slower than a read is a write, on average? Under dev->lock. */
static void kf_measure_write_price(struct kf_dev *kf)
{
	struct kf_io seen = kf->price_io, io = kf_io_since(kf, &seen);
	u64 mean[2], price;
	int op;

	if (io.nr[FL_READ] < 32 || io.nr[FL_WRITE] < 32)
		return; /* too few to compare: go on collecting */
	kf->price_io = seen;
	for (op = FL_READ; op <= FL_WRITE; op++)
		mean[op] = div64_u64(io.ns[op], io.nr[op]);
	price = div64_u64(mean[FL_WRITE] << KF_PRICE_SHIFT, max_t(u64, mean[FL_READ], 1));
	price = clamp_t(u64, price, 1u << KF_PRICE_SHIFT, KF_MAX_WRITE_PRICE);
	WRITE_ONCE(kf->write_price, (3 * kf->write_price + (u32)price) / 4);
	kf->write_price_pct = kf->write_price * 100 >> KF_PRICE_SHIFT;
}

static void kf_count_throttled(struct kf_dev *kf)
{
	u64 ns = 0;
	unsigned int i;

	for (i = 0; i < kf->dev.nr_hwqs; i++)
		ns += READ_ONCE(to_kf_hwq(kf->dev.hwqs[i])->throttled_ns);
	kf->throttled_nsec = ns;
}

static u64 kf_tick(struct fl_dev *dev)
{
	struct kf_dev *kf = to_kf_dev(dev);
	u64 period, next = 0, now;
	unsigned int active = 1;
	unsigned long flags;

	spin_lock_irqsave(&dev->lock, flags);
	period = kf->period;
	now = fl_now_ns(); /* under the lock: refilled_ns is never later */
	if (now - kf->aged_ns >= period) {
		kf->aged_ns = now;
		active = fl_flows_age(dev, dev->sched);
		if (active != kf->nr_active)
			kf_forget_wasted(kf, now);
		kf->nr_active = active;
		kf_age_limited(kf, now);
		kf_control_depths(kf, now);
		kf_measure_write_price(kf);
		kf_count_throttled(kf);
	}
	if (now - kf->refilled_ns >= period)
		kf_refill(kf, now, NULL, true);
	if (active)
		next = max_t(s64, 1, min_t(u64, kf->aged_ns, kf->refilled_ns) + kf->period - now);
	spin_unlock_irqrestore(&dev->lock, flags);
	return next;
}

/* ---- Setting up -------------------------------------------------------- */

static void kf_init_dev(struct fl_dev *dev)
{
	struct kf_dev *kf = to_kf_dev(dev);
	u64 now = fl_now_ns();
	unsigned int i;
	int op;

	for (op = 0; op < FL_NR_OPS; op++)
		kf_set_depth(kf, op, kf_max_depth[op]);
	for (op = 0; op < KF_NR_TARGETS; op++)
		kf->latency[op].p99 = -1;
	kf_set_target(kf, FL_READ, kf->read_lat_nsec);
	kf_set_target(kf, FL_WRITE, kf->write_lat_nsec);
	kf_set_target(kf, FL_DISCARD, kf_discard_target_ns);
	kf->read_depth = kf->depth[FL_READ];
	kf->write_depth = kf->depth[FL_WRITE];
	kf->write_price = 1u << KF_PRICE_SHIFT;
	kf->write_price_pct = 100;
	kf->predicted_total = KF_MIN_TOTAL;
	kf->rate = KF_MIN_TOTAL;
	kf->in_flight_avg = 1 << 8; /* busy, until that is known */
	kf->period = kf->period_nsec;
	kf->wasted_enough = KF_WASTED_ROUNDS;
	kf->since_ns = now;
	kf->refilled_ns = now;
	kf->predicted_ns = now;
	kf->aged_ns = now;

	for (i = 0; i < dev->nr_hwqs; i++) {
		struct kf_hwq *khq = to_kf_hwq(dev->hwqs[i]);

		INIT_LIST_HEAD(&khq->throttled);
		for (op = 0; op < FL_NR_OPS; op++) {
			INIT_LIST_HEAD(&khq->fresh[op]);
			INIT_LIST_HEAD(&khq->ready[op]);
		}
	}
}

static void kf_init_queue(struct fl_queue *queue)
{
	struct kf_queue *kq = to_kf_queue(queue);
	int op;

	INIT_LIST_HEAD(&kq->throttled);
	for (op = 0; op < FL_NR_OPS; op++) {
		INIT_LIST_HEAD(&kq->rqs[op]);
		INIT_LIST_HEAD(&kq->ready[op]);
	}
}

static void kf_exit_flow(struct fl_flow *flow)
{
	struct kf_dev *kf = to_kf_dev(flow->dev);

	if (kf->waits_for == to_kf_flow(flow))
		kf->waits_for = NULL;
}

#define KF_TUNABLE(_name, _unit, _min, _max, _def, _help)                                          \
	{ .name = #_name, .unit = _unit, .help = _help, .offset = offsetof(struct kf_dev, _name),  \
	  .min = _min, .max = _max, .def = _def }
#define KF_COUNTER(_name, _unit, _help)                                                            \
	{ .name = #_name, .unit = _unit, .help = _help, .offset = offsetof(struct kf_dev, _name) }

static const struct fl_var kf_vars[] = {
	KF_TUNABLE(period_nsec, "ns", NSEC_PER_MSEC, 10ull * NSEC_PER_SEC, 100ull * NSEC_PER_MSEC,
		   "longest time between two refills, or twice a request's time in the drive"),
	KF_TUNABLE(read_lat_nsec, "ns", NSEC_PER_USEC, 10ull * NSEC_PER_SEC, 2ull * NSEC_PER_MSEC,
		   "target latency of reads"),
	KF_TUNABLE(write_lat_nsec, "ns", NSEC_PER_USEC, 10ull * NSEC_PER_SEC, 10ull * NSEC_PER_MSEC,
		   "target latency of writes"),
	KF_TUNABLE(prediction, "bool", 0, 1, 1,
		   "1: the total follows the drive; 0: it stays as it is"),
	KF_COUNTER(predicted_total, "tokens", "what the drive is expected to do in a period"),
	KF_COUNTER(tokens_granted, "tokens", "handed out so far"),
	KF_COUNTER(tokens_used, "tokens", "cost of what was completed, up to the last prediction"),
	KF_COUNTER(throttled_nsec, "ns", "time that queues waited for tokens, summed"),
	KF_COUNTER(refills_period, "refills", "because a period had passed"),
	KF_COUNTER(refills_spent, "refills", "because every active flow had spent its tokens"),
	KF_COUNTER(write_price_pct, "percent", "price of a write against a read of its size"),
	KF_COUNTER(read_depth, "requests", "reads that may be in flight"),
	KF_COUNTER(write_depth, "requests", "writes that may be in flight"),
	{}
};

const struct fl_sched fl_kyber_fairness = {
	.name = "kyber-fairness",
	.dev_size = sizeof(struct kf_dev),
	.hwq_size = sizeof(struct kf_hwq),
	.flow_size = sizeof(struct kf_flow),
	.queue_size = sizeof(struct kf_queue),
	.init_dev = kf_init_dev,
	.exit_flow = kf_exit_flow,
	.init_queue = kf_init_queue,
	.insert = kf_insert,
	.dispatch = kf_dispatch,
	.has_work = kf_has_work,
	.merge_list = kf_merge_list,
	.complete = kf_complete,
	.release = kf_release,
	.tick = kf_tick,
	.vars = kf_vars,
};
