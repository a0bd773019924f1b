/* SPDX-License-Identifier: GPL-2.0-only OR MIT */
/*
 * The knee: how much must be in a drive for it to do all that it can, found and followed
 * while it runs.
 *
 * The more a drive has to do at once, the more it does in a second, up to a point. Beyond
 * it, requests only wait inside, where nobody can say which of them is next:
 *
 *	cost/s  |        ________________
 *	        |      /.
 *	        |    /  .                      in the drive    32    64    96   128   192
 *	        |  /    .                      a P4500 does   .53   .79   .92     1     1
 *	        |/______.________________
 *	              the knee       in the drive
 *
 * Where it is depends on the drive, on the requests' sizes and directions, and on what the
 * drive does besides. So it is measured, by comparing two levels that take turns, one a
 * little above the middle and one a little below, each for a window of time. By how many
 * percent does the drive do more, if it has one percent more in it? Where that is less than
 * "enough", the middle moves down, else up. It moves by as much as the levels are apart,
 * which doubles while it moves one way and halves when it turns.
 *
 * - A window lasts until the drive has done the level's worth, and enough requests for chance
 *   to be small; fewer where little is in the drive, as a little more is plainly more then, and a slow drive
 *   would take long. It begins after one that does not count, in which what was in the drive before is done. In a search
 *   of a drive that writes, that one is as long: else a buffer that the level before has filled, or left to become
 *   empty, says that more is of use, although it is of none.
 * - What a drive does by itself (it flushes, it collects garbage) is noise. Which level is
 *   first is chosen at random, pair by pair. The middle moves down when the mean of some pairs
 *   is off by more than twice its standard error, up when by more than once, and either way after
 *   eight of them: who suffers from too much presses, from too little nobody does.
 * - The cost of reads, that of all other requests, and the number of requests are counted
 *   apart, and the gain is that of whichever gains less. A drive that is given more may take
 *   more writes, which its buffer hides, at the expense of reads. And where prices are wrong,
 *   it seems to do more by cost, or by number, if somebody else gets more of it. In the single pair
 *   of a search, reads and all others have a sixteenth more, which chance may have taken; twice as much
 *   where a window has a quarter of the requests.
 * - A search goes by halves or doubles, with a single pair for each: from 256 requests to the
 *   knee of a drive for 20 in about 30 ms. Where it finds that more is of use, it looks twice,
 *   unless that is plain: when a drive that is being filled had little in it at first. Where steps
 *   up find that plain, as what it was to be kept low for is over, they double it.
 * - A window in which hardly anybody had to wait says nothing of its level.
 * - No slope tells that keeping requests waiting is itself what costs: if the CPU is what is short, or if they wait for
 *   some that take long and little of the drive, it does as little at one level as at the other. But the curve bends to
 *   one side only. So of the requests that it did without a level, with so much in it, a level of a half does a half or
 *   more. Where it does less than three quarters of that, it is in vain, and the caller lets go; unless it does more of
 *   reads, or of all others, than it did, as then somebody has them (or the load is another one). That is asked in the
 *   search that begins while nobody waits: by and by the drive becomes slower or faster by itself.
 *
 * "Enough" is a slope of 1/16. Somebody may press for less in the drive. Who is behind may do so up to 5/16. So it is
 * above a ceiling, with more than which in the drive somebody does not get its share. The ceiling is a
 * little below that, and rises slowly, since who was that may have gone.
 *
 * Who presses for its share may do so whatever that costs. Whose requests are late may as long as the drive does all but
 * so many percent of the most that it can (loss), up to a slope of 5/16 for 12 percent, and in proportion from 1/16
 * to 2. No slope alone says what that costs: where the knee is sharp, 5/16 is at nearly all of it, and where the curve
 * bends slowly, at two thirds. The most is what it did in the last search that nobody pressed for, from the ceiling, if
 * there is one; or whatever was more since. Where it does less, and more in it is of no use, the most becomes less.
 *
 * The caller's lock protects it.
 */
#ifndef FAIRLANE_KNEE_H
#define FAIRLANE_KNEE_H

#include "pressing.h"
#include "prices.h"

#define FL_KNEE_ONE 1024 /* slopes, and how far levels are apart, are in these units */
#define FL_KNEE_ENOUGH (FL_KNEE_ONE / 16)
#define FL_KNEE_ENOUGH_SEARCH (3 * FL_KNEE_ONE / 32) /* a single pair is not exact */
#define FL_KNEE_ENOUGH_PRESSED (5 * FL_KNEE_ONE / 16)
#define FL_KNEE_LOSS 12 /* percent of the most: for these who is late may press as far */
#define FL_KNEE_LESS 16 /* by one in so many the most is less, step by step */
#define FL_KNEE_SPREAD_MIN (FL_KNEE_ONE / 16)
#define FL_KNEE_SPREAD_MAX (FL_KNEE_ONE / 4)
#define FL_KNEE_SPREAD_SEARCH (FL_KNEE_ONE / 3) /* one level is twice the other */
#define FL_KNEE_REQUESTS 512
#define FL_KNEE_MIX (FL_KNEE_ONE / 16) /* by chance 512 requests have so many fewer reads, or fewer others */
#define FL_KNEE_ROUNDS 16 /* a window also ends when so many times the level was done */
#define FL_KNEE_WINDOW_MIN_NS (4ull * NSEC_PER_MSEC)
#define FL_KNEE_WINDOW_MAX_NS (2 * NSEC_PER_SEC) /* one that is longer says nothing: the drive was idle */
#define FL_KNEE_JUDGE_NS (NSEC_PER_SEC / 16) /* for so long, if need be, it is looked at; 4 times as long at each kind */
#define FL_KNEE_PAIRS_MIN 2
#define FL_KNEE_PAIRS_MAX 8
#define FL_KNEE_PLAIN (FL_KNEE_ONE / 2)
#define FL_KNEE_MARGIN 8
#define FL_KNEE_RISE 16 /* the ceiling by one in so many, in so many requests */
#define FL_KNEE_RISE_REQUESTS 4096
#define FL_KNEE_MOST (1ll << 40)

enum { FL_KNEE_READS, FL_KNEE_OTHERS, FL_KNEE_REQUESTS_DONE, FL_KNEE_KINDS };

/* What a drive did since the last look. */
struct fl_knee_look {
	u64 ns, busy_ns; /* busy: it had something to do */
	u64 done[FL_KNEE_KINDS]; /* cost of reads, cost of all others, requests */
	u64 sent, limited; /* requests; those that the level kept waiting */
};

/* What it did of late without a level, while it had something to do. */
struct fl_knee_without {
	u64 ns, done[FL_KNEE_KINDS]; /* halved when it is 512 requests, and 8 ms, and more comes */
	u64 in; /* cost in the drive, times us */
};

struct fl_knee {
	struct fl_knee_without without, longer; /* of late; and for longer, as of requests that take long few are done */
	s64 middle, spread; /* cost; the levels are middle (1 ± spread) */
	s64 ceiling; /* FL_KNEE_MOST: there is none */
	s64 rises; /* a part of what it is to rise by */
	s64 fair, timely; /* of how much use more has to be, as who is behind, or late, presses */
	u32 loss; /* percent of the most that who is late may take; the caller's */
	u64 most; /* that it does; requests per second */
	bool guess; /* it is from before anybody was kept waiting */
	s64 before; /* what was in the drive when a search began: its first window lasts until that is done */
	s64 grown; /* the level grows to what it is to be by no more than is done */
	s64 got; /* what somebody got of its due when the level was lowered last; 0: that is long ago */
	bool searching, again; /* its pair is measured once more */
	bool up, settled; /* of this window: its level; what was in the drive before is done */
	struct fl_knee_look window; /* so far */
	bool have[2]; /* of this pair: which of them */
	bool in_vain; /* the last level was */
	u64 rate[2][FL_KNEE_KINDS]; /* per second */
	u64 low; /* of pairs: sum of the requests per second at the lower level */
	s64 n, sum[FL_KNEE_KINDS], noise[FL_KNEE_KINDS], last[FL_KNEE_KINDS]; /* of pairs: how many; slopes; variance of, and the last gain */
	int way; /* the last step */
	u64 random;
};

static inline s64 __fl_knee_upper(const struct fl_knee *k)
{
	return k->middle + k->middle * k->spread / FL_KNEE_ONE;
}

/* How much may be in the drive now; cost. Grown at once, all that is new would be whose that sends first. */
static inline s64 fl_knee_level(const struct fl_knee *k)
{
	return min_t(s64, k->grown, k->up ? __fl_knee_upper(k) : k->middle - k->middle * k->spread / FL_KNEE_ONE);
}

/* What is known of other levels does not count. */
static inline void __fl_knee_forget(struct fl_knee *k)
{
	k->n = 0;
	k->low = 0;
	memset(k->sum, 0, sizeof(k->sum));
	k->have[0] = false;
	k->have[1] = false;
}

/* What the drive does without a level is to be found out anew. */
static inline void __fl_knee_forget_without(struct fl_knee *k)
{
	k->without = (struct fl_knee_without){};
	k->longer = (struct fl_knee_without){};
}

static inline void __fl_knee_begin_window(struct fl_knee *k, bool settled)
{
	k->settled = settled;
	k->before = 0;
	k->window = (struct fl_knee_look){};
}

/*
 * The level holds again, and what was measured before does not count: it may have been another load. What is in the
 * drive now, @in_drive, is done before anything is measured.
 */
static inline void fl_knee_resume(struct fl_knee *k, s64 in_drive)
{
	__fl_knee_forget(k);
	__fl_knee_begin_window(k, false);
	k->before = in_drive;
}

/* Search from @level on, or from the ceiling, if that is less: @way -1: down, 0: down or up. @in_drive: as above. */
static inline void fl_knee_search(struct fl_knee *k, s64 level, int way, s64 in_drive)
{
	k->grown = level;
	if (way < 0) /* since long there is a level, and what the drive does without one may have changed */
		__fl_knee_forget_without(k);
	else
		k->most = 0;
	if (k->ceiling < level) {
		level = k->ceiling;
		way = 0;
	}
	fl_knee_resume(k, in_drive);
	k->searching = true;
	k->again = false;
	k->way = way;
	k->spread = FL_KNEE_SPREAD_SEARCH;
	k->middle = level * 3 / 4;
	k->up = true; /* as much as it is now */
}

/* From now on by steps. */
static inline void fl_knee_search_over(struct fl_knee *k)
{
	__fl_knee_forget(k);
	k->searching = false;
	k->again = false;
	k->way = 0;
	k->spread = FL_KNEE_SPREAD_MAX / 2;
	__fl_knee_forget_without(k);
}

/* Nobody is known who does not get its share. */
static inline void __fl_knee_unknown(struct fl_knee *k)
{
	k->ceiling = FL_KNEE_MOST;
	k->guess = false;
	k->got = 0;
}

/* Nothing is known. Should the drive be full, search from @first on, down or up. */
static inline void fl_knee_anew(struct fl_knee *k, s64 first)
{
	__fl_knee_unknown(k);
	fl_knee_search(k, first, 0, 0);
}

/*
 * With more than @fits in the drive somebody does not get its share; 0, or @level: nobody. The ceiling is
 * a little below. Less than @least does not count: there would be nothing to search. Of @level, it gets
 * @fits: so much of its due. True if that is less by half than when
 * it was lowered last: else lower is no help, what holds it up is elsewhere.
 */
static inline bool fl_knee_fits(struct fl_knee *k, s64 fits, s64 least, s64 level)
{
	s64 got, lacked = FL_KNEE_ONE - k->got;

	fits = fits ? max_t(s64, fits, least) : 0;
	if (!fits || fits >= level)
		return false;
	got = div64_s64(fits * FL_KNEE_ONE, level);
	if (k->got && 2 * (FL_KNEE_ONE - got) > lacked)
		return false;
	k->got = max_t(s64, got, 1);
	k->guess = false;
	k->ceiling = min_t(s64, k->ceiling, max_t(s64, fits - fits / FL_KNEE_MARGIN, 1));
	return true;
}

/*
 * The same when nobody was kept waiting yet, and so nobody knows how much more each has to send, or whether
 * all have begun.
 */
static inline void fl_knee_guess(struct fl_knee *k, s64 fits, s64 least, s64 level)
{
	__fl_knee_unknown(k);
	k->guess = fl_knee_fits(k, fits, least, level);
}

/*
 * The same in a search. One that began without knowing begins again at the ceiling. True if it does. @level: then
 * somebody was behind; since then it may have grown.
 * @all_wait: all are kept waiting, or have yet to wake up, so it would be no help to anybody; a guess was wrong, and
 * too little is in the drive to search from.
 */
static inline bool fl_knee_lower(struct fl_knee *k, s64 fits, s64 least, s64 level, bool all_wait)
{
	bool known = level > k->ceiling;

	if (all_wait && k->guess) {
		__fl_knee_unknown(k);
		fl_knee_search(k, 2 * level, 0, level);
		k->grown = level;
		return true;
	}
	if (!fl_knee_fits(k, fits, least, level) || known)
		return false;
	fl_knee_search(k, level, 0, level);
	return true;
}

/* @look is added to @w; @shift: of which a half is forgotten first. */
static inline void __fl_knee_add(struct fl_knee_without *w, bool shift, const struct fl_knee_look *look, u64 in_drive)
{
	int i;

	w->ns = (w->ns >> shift) + look->busy_ns;
	w->in = (w->in >> shift) + in_drive * div64_u64(look->busy_ns, NSEC_PER_USEC);
	for (i = 0; i < FL_KNEE_KINDS; i++)
		w->done[i] = (w->done[i] >> shift) + look->done[i];
}

/* What it did without a level since the last look. Then @in_drive was in it. */
static inline void fl_knee_without(struct fl_knee *k, const struct fl_knee_look *look, u64 in_drive)
{
	const struct fl_knee_without *w = &k->without;

	__fl_knee_add(&k->without, w->done[FL_KNEE_REQUESTS_DONE] >= FL_KNEE_REQUESTS && w->ns >= 2 * FL_KNEE_WINDOW_MIN_NS,
		      look, in_drive);
	__fl_knee_add(&k->longer, k->longer.ns >= 4 * FL_KNEE_JUDGE_NS, look, in_drive);
}

/* Is it known what the drive does without a level, so that one can be judged? Chance is less than a tenth of it. */
static inline bool fl_knee_can_judge(const struct fl_knee *k)
{
	return k->without.done[FL_KNEE_REQUESTS_DONE] >= FL_KNEE_REQUESTS / 4 && k->without.ns >= FL_KNEE_WINDOW_MIN_NS;
}

/* May a search begin? Not before it can be judged, unless that takes long: then it is the drive that is slow. */
static inline bool fl_knee_may_search(const struct fl_knee *k)
{
	return fl_knee_can_judge(k) || k->without.ns >= FL_KNEE_JUDGE_NS;
}

/* Was a level in vain? True once: what was found is no measure, and all begins anew from @first on. */
static inline bool fl_knee_was_in_vain(struct fl_knee *k, s64 first)
{
	if (!k->in_vain)
		return false;
	k->in_vain = false;
	fl_knee_anew(k, first);
	return true;
}

/* Had more than hardly anybody to wait in this window? */
static inline bool __fl_knee_holds(const struct fl_knee *k)
{
	return 8 * k->window.limited > k->window.sent;
}

/* Is this window's level in vain? It need not be @over: if requests take long, that may be long after all have waited. */
static inline bool __fl_knee_in_vain(const struct fl_knee *k, bool over)
{
	const struct fl_knee_without *w = &k->without;
	const struct fl_knee_look *now = &k->window;
	u64 ns = now->busy_ns, level = fl_knee_level(k), in, due = 0, did;
	int i;

	if (!k->searching || (!over && ns < FL_KNEE_JUDGE_NS) || !__fl_knee_holds(k) || !fl_knee_can_judge(k))
		return false;
	in = div64_u64(w->in, div64_u64(w->ns, NSEC_PER_USEC)); /* the mean */
	if (level < in)
		ns = mul_u64_u64_div_u64(ns, level, in);
	for (i = 0; i < FL_KNEE_KINDS; i++) {
		due = 3 * mul_u64_u64_div_u64(w->done[i], ns, w->ns) / 4;
		did = i == FL_KNEE_REQUESTS_DONE ? 0 : mul_u64_u64_div_u64(k->longer.done[i], now->busy_ns, k->longer.ns);
		if (now->done[i] > max_t(u64, due, did))
			return false;
	}
	return over || due >= FL_KNEE_REQUESTS / 4; /* of the requests */
}

/* So much is enough of the most, for who is late. */
static inline u64 __fl_knee_enough_done(const struct fl_knee *k)
{
	return mul_u64_u64_div_u64(k->most, 100 - k->loss, 100);
}

/* Does the drive do enough of the most at the lower level, over these pairs? */
static inline bool __fl_knee_does(const struct fl_knee *k)
{
	return k->low >= (u64)k->n * __fl_knee_enough_done(k);
}

/*
 * Where between the levels is what is looked for, -ONE .. ONE? Where it does enough of the most; or the nearer to one
 * of them, the further the slope is from @least.
 */
static inline s64 __fl_knee_between(const struct fl_knee *k, s64 slope, s64 least, bool does)
{
	s64 low = k->rate[0][FL_KNEE_REQUESTS_DONE], high = k->rate[1][FL_KNEE_REQUESTS_DONE];
	s64 enough = __fl_knee_enough_done(k);

	if (k->timely == FL_KNEE_ENOUGH || k->fair > FL_KNEE_ENOUGH || does || high <= low)
		return div64_s64(clamp_t(s64, slope - least, -least, least) * FL_KNEE_ONE, least);
	return clamp_t(s64, div64_s64((enough - low) * 2 * FL_KNEE_ONE, high - low) - FL_KNEE_ONE, -FL_KNEE_ONE,
		       FL_KNEE_ONE);
}

/* Of how much use does more have to be, at least @enough? Above the ceiling of more. */
static inline s64 __fl_knee_enough(const struct fl_knee *k, s64 enough)
{
	enough = max_t(s64, enough, k->fair);
	if (__fl_knee_does(k))
		enough = max_t(s64, enough, k->timely);
	return __fl_knee_upper(k) > k->ceiling ? max_t(s64, enough, FL_KNEE_ENOUGH_PRESSED) : enough;
}

/* By how much the upper window of a pair did more of one kind than the lower one. */
static inline s64 __fl_knee_gain(const struct fl_knee *k, int i)
{
	u64 sum = k->rate[0][i] + k->rate[1][i];

	return sum ? div64_s64((s64)(k->rate[1][i] - k->rate[0][i]) * 2 * FL_KNEE_ONE, sum) : 0;
}

/* Of what it does, are reads, or all others, more than a sixteenth? In the last window of each level. */
static inline bool __fl_knee_counts(const struct fl_knee *k, int i)
{
	u64 of_all = k->rate[0][i] + k->rate[1][i];

	return 16 * of_all > k->rate[0][FL_KNEE_READS] + k->rate[0][FL_KNEE_OTHERS] + k->rate[1][FL_KNEE_READS] +
				    k->rate[1][FL_KNEE_OTHERS];
}

/*
 * A pair is complete. What is the slope, and its error, squared? That of reads, or of all others, does
 * not count if they are a sixteenth of all, or less.
 */
static inline s64 __fl_knee_slope(struct fl_knee *k, s64 *error2)
{
	s64 least = FL_KNEE_ONE * FL_KNEE_ONE, chance = FL_KNEE_MIX;
	u64 requests;
	int i;

	for (requests = FL_KNEE_REQUESTS / 2; k->window.sent < requests; requests /= 4)
		chance *= 2;
	k->n++;
	k->low += k->rate[0][FL_KNEE_REQUESTS_DONE];
	for (i = 0; i < FL_KNEE_KINDS; i++) {
		s64 gain = __fl_knee_gain(k, i), change = gain - k->last[i], mean;

		if (k->searching && i != FL_KNEE_REQUESTS_DONE)
			gain += chance;
		if (k->n > 1) /* of the same levels */
			k->noise[i] += (change * change / 2 - k->noise[i]) / 4;
		k->last[i] = gain;
		k->sum[i] += div64_s64(gain * FL_KNEE_ONE / 2, k->spread);
		mean = div64_s64(k->sum[i], k->n);
		if ((i == FL_KNEE_REQUESTS_DONE || __fl_knee_counts(k, i)) && mean < least) {
			least = mean;
			*error2 = div64_s64(k->noise[i] * FL_KNEE_ONE * FL_KNEE_ONE, k->spread * k->spread * k->n);
		}
	}
	return least;
}

/*
 * A pair of a search. On the way down the most of all levels stays: many small losses would be a
 * large one. Where it turns, and does so once more when the pair is measured again - the drive may have
 * been faster, or slower, then - what is looked for is between its levels.
 */
static inline void __fl_knee_search_on(struct fl_knee *k)
{
	s64 error2 = 0, slope = __fl_knee_slope(k, &error2), upper = __fl_knee_upper(k), least;
	bool turns, does;
	int way, i;

	k->most = max_t(u64, k->most, k->rate[1][FL_KNEE_REQUESTS_DONE]);
	does = __fl_knee_does(k);
	least = __fl_knee_enough(k, FL_KNEE_ENOUGH_SEARCH);
	way = slope > least ? 1 : -1;
	turns = way == -k->way || (way > 0 && !k->way && slope < FL_KNEE_PLAIN);
	__fl_knee_forget(k);
	if (way > 0 && 2 * upper > k->ceiling && slope <= FL_KNEE_ENOUGH_PRESSED) { /* as much as there may be */
		k->middle = upper - upper / FL_KNEE_MARGIN;
		fl_knee_search_over(k);
		return;
	}
	if (turns && k->again && k->way) {
		k->middle += k->middle * k->spread / FL_KNEE_ONE * __fl_knee_between(k, slope, least, does) / FL_KNEE_ONE;
		fl_knee_search_over(k);
		return;
	}
	k->again = turns && !k->again;
	if (k->again) {
		k->up = true;
		return;
	}
	k->way = way;
	k->have[way < 0] = true;
	k->up = way > 0;
	for (i = 0; i < FL_KNEE_KINDS; i++)
		k->rate[way < 0][i] = way > 0 ? k->rate[1][i] : max_t(u64, k->rate[0][i], k->rate[1][i]);
	k->middle = way > 0 ? 2 * k->middle : k->middle / 2;
}

/* Is what was before this window over? */
static inline bool __fl_knee_settles(const struct fl_knee *k, s64 done, bool over)
{
	return over || !k->searching ||
	       (16 * (s64)k->window.done[FL_KNEE_OTHERS] <= done && !__fl_knee_counts(k, FL_KNEE_OTHERS));
}

/* One step, if it is known where to. */
static inline void __fl_knee_step(struct fl_knee *k)
{
	s64 error2 = 0, slope = __fl_knee_slope(k, &error2);
	bool less = slope <= FL_KNEE_ENOUGH && !__fl_knee_does(k);
	int way;

	slope -= __fl_knee_enough(k, FL_KNEE_ENOUGH);
	way = slope > 0 ? 1 : -1;
	if (k->n < FL_KNEE_PAIRS_MIN || (k->n < FL_KNEE_PAIRS_MAX && slope * slope < (slope > 0 ? 1 : 4) * error2))
		return;
	k->most = less ? k->most - div_u64(k->most, FL_KNEE_LESS) : max_t(u64, k->most, div_u64(k->low, k->n));
	if (slope > FL_KNEE_PLAIN && way == k->way && k->spread == FL_KNEE_SPREAD_MAX)
		k->middle *= 2; /* it is far above */
	else if (way > 0)
		k->middle += k->middle * k->spread / FL_KNEE_ONE;
	else
		k->middle = div64_s64(k->middle * FL_KNEE_ONE, FL_KNEE_ONE + k->spread);
	k->spread = way == k->way ? min_t(s64, 2 * k->spread, FL_KNEE_SPREAD_MAX) :
				    max_t(s64, k->spread / 2, FL_KNEE_SPREAD_MIN);
	k->way = way;
	__fl_knee_forget(k);
}

static inline void __fl_knee_window_over(struct fl_knee *k)
{
	const struct fl_knee_look *w = &k->window;
	int i;

	for (i = 0; i < FL_KNEE_KINDS; i++)
		k->rate[k->up][i] = mul_u64_u64_div_u64(w->done[i], NSEC_PER_SEC, w->ns);
	k->have[k->up] = k->up || __fl_knee_holds(k);
	if (!k->have[k->up]) {
		fl_knee_search_over(k);
	} else if (!k->have[!k->up]) {
		k->up = !k->up;
		return;
	} else if (k->searching) {
		__fl_knee_search_on(k);
	} else {
		__fl_knee_step(k);
	}
	if (k->searching)
		return;
	/* not in step with what the drive does by itself */
	k->have[0] = false;
	k->have[1] = false;
	k->random = k->random * 6364136223846793005ull + 1442695040888963407ull;
	k->up = k->random >> 63;
}

/* Of how much use more has to be, as somebody presses; @most: if it cannot press more. */
static inline s64 __fl_knee_pressed(s64 pressing, s64 most)
{
	return FL_KNEE_ENOUGH + div64_s64((most - FL_KNEE_ENOUGH) * pressing, FL_PRESS_MAX);
}

/*
 * What the drive did since the last look, and who presses for less in it. @least: less than that in the drive is never
 * of use.
 */
static inline void fl_knee_look(struct fl_knee *k, const struct fl_knee_look *look, const struct fl_pressing *pressing,
				s64 least)
{
	struct fl_knee_look *w = &k->window;
	s64 done, enough_done;
	bool over;
	int i;

	k->fair = __fl_knee_pressed(pressing->behind, FL_KNEE_ENOUGH_PRESSED);
	k->timely = __fl_knee_pressed(pressing->late, clamp_t(s64, FL_KNEE_ENOUGH_PRESSED * k->loss / FL_KNEE_LOSS,
							      FL_KNEE_ENOUGH, 2 * FL_KNEE_ONE));
	k->grown = fl_knee_level(k) + look->done[FL_KNEE_READS] + look->done[FL_KNEE_OTHERS];
	w->ns += look->ns;
	w->busy_ns += look->busy_ns;
	for (i = 0; i < FL_KNEE_KINDS; i++)
		w->done[i] += look->done[i];
	w->sent += look->sent;
	w->limited += look->limited;
	k->rises += k->ceiling / FL_KNEE_RISE * (s64)look->sent;
	k->ceiling = min_t(s64, k->ceiling + k->rises / FL_KNEE_RISE_REQUESTS, FL_KNEE_MOST);
	k->rises %= FL_KNEE_RISE_REQUESTS;
	if (k->middle < least && k->searching)
		fl_knee_search_over(k);
	k->middle = clamp_t(s64, k->middle, least, FL_KNEE_MOST);
	if (w->ns > FL_KNEE_WINDOW_MAX_NS) {
		if (k->searching)
			fl_knee_search_over(k);
		__fl_knee_begin_window(k, false);
		return;
	}
	done = w->done[FL_KNEE_READS] + w->done[FL_KNEE_OTHERS];
	if (done < (k->settled ? fl_knee_level(k) : max_t(s64, __fl_knee_upper(k), k->before)))
		return;
	enough_done = FL_KNEE_ROUNDS * fl_knee_level(k);
	over = w->ns >= FL_KNEE_WINDOW_MIN_NS && (w->sent >= FL_KNEE_REQUESTS || done >= enough_done);
	if (__fl_knee_in_vain(k, over && k->settled)) {
		k->in_vain = true;
		fl_knee_search_over(k);
	} else if (!k->settled) {
		if (__fl_knee_settles(k, done, over))
			__fl_knee_begin_window(k, true);
		return;
	} else if (over) {
		__fl_knee_window_over(k);
	} else {
		return;
	}
	__fl_knee_begin_window(k, false);
}

#endif
