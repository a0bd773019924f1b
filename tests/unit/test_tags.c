// SPDX-License-Identifier: GPL-2.0-only OR MIT
/* Who may take a tag, and who waits for whom: libfairlane/mechanisms/tag-limits.h, without a drive. */
#include <pthread.h>
#include <stdlib.h>

#include "user.h"
#include "mechanisms/tag-limits.h"
#include "test.h"

#define TAGS 128
#define MOST 4096

/* One that takes a tag, keeps it, gives it back, and takes the next. */
struct taker {
	struct fl_tag_wait wait;
	struct fl_flow *flow;
	unsigned long given; /* tags that it has had */
	bool has; /* one */
};

static struct fl_dev *dev;
static struct taker takers[MOST];
static unsigned int nr_takers;
static struct taker *order[MOST]; /* a ring: who has a tag, the oldest first */
static unsigned int oldest, nr_have;
static bool held_back; /* what has a tag is sent only just before it gives that back */

static void nothing(void *ctx, unsigned int index)
{
	(void)ctx;
	(void)index;
}

static void nothing_to_tick(void *ctx)
{
	(void)ctx;
}

static void has_it(struct taker *t)
{
	t->has = true;
	t->given++;
	order[(oldest + nr_have++) % MOST] = t;
	if (!held_back)
		fl_tag_sent(t->wait.queue);
}

static void granted(void *ctx, struct fl_tag_wait *wait)
{
	(void)ctx;
	has_it(container_of(wait, struct taker, wait));
}

static void begin(void (*on_granted)(void *ctx, struct fl_tag_wait *wait))
{
	const struct fl_host host = { .run = nothing, .kick = nothing_to_tick, .granted = on_granted };

	dev = fl_dev_create(&fl_round_robin, 1, &host);
	fl_set_tags(dev, TAGS);
	memset(takers, 0, sizeof(takers));
	nr_takers = nr_have = oldest = 0;
	held_back = false;
}

static struct fl_queue *queue_of(struct fl_flow *flow)
{
	return fl_flow_use(flow, 0);
}

static void take(struct taker *t)
{
	if (fl_tag_take(t->flow, 0, &t->wait))
		has_it(t);
}

/* @nr that want a tag each, of a new flow. */
static struct fl_flow *deep(struct fl_flow *parent, u32 weight, unsigned int nr, u32 bytes)
{
	struct fl_flow *flow = fl_flow_create(dev, parent, weight);

	fl_flow_set_busy(flow, true);
	for (; nr; nr--) {
		takers[nr_takers].flow = flow;
		takers[nr_takers].wait.op = FL_READ;
		takers[nr_takers++].wait.bytes = bytes;
	}
	return flow;
}

/* Those from @first on. */
static void take_from(unsigned int first)
{
	fl_flows_update_shares(dev);
	for (; first < nr_takers; first++)
		take(&takers[first]);
}

/* The oldest tag comes back. */
static struct taker *give(void)
{
	struct taker *t = order[oldest++ % MOST];

	nr_have--;
	t->has = false;
	if (held_back)
		fl_tag_sent(t->wait.queue);
	fl_tag_give(t->wait.queue);
	return t;
}

/* The oldest tags come back, so many, and those who had them want the next. */
static void go_on(unsigned long nr)
{
	for (; nr; nr--)
		take(give());
}

static unsigned int unsent_below(struct fl_flow *flow)
{
	return atomic_read(&queue_of(flow)->unsent_below);
}

static unsigned long given_to(struct fl_flow *flow)
{
	unsigned long sum = 0;
	unsigned int i;

	for (i = 0; i < nr_takers; i++)
		if (takers[i].flow == flow)
			sum += takers[i].given;
	return sum;
}

static void end(void)
{
	unsigned int i;

	while (nr_have)
		give();
	CHECK(!dev->hwqs[0]->tags_wanted && !atomic_read(&dev->hwqs[0]->tags_taken), "nobody waits, and all came back");
	for (i = 0; i < nr_takers; i++)
		CHECK(takers[i].given && !atomic_read(&queue_of(takers[i].flow)->unsent),
		      "whoever waited has had a tag, and gave it back");
	fl_dev_destroy(dev);
}

static void test_a_tenant_with_300_groups_keeps_no_more_than_its_part_waiting(void)
{
	struct fl_flow *many, *one;
	unsigned int i;

	begin(granted);
	held_back = true;
	one = deep(NULL, 900, 256, 4096);
	many = fl_flow_create(dev, NULL, 100);
	for (i = 0; i < 300; i++)
		deep(many, 100, 3, 4096);
	take_from(0);
	CHECK(unsent_below(many) == 6, "a tenth of half of %d tags: %u", TAGS, unsent_below(many));
	CHECK(atomic_read(&queue_of(one)->unsent) == 57, "nine tenths: %d", atomic_read(&queue_of(one)->unsent));
	go_on(20000);
	CHECK(unsent_below(many) == 6, "%u", unsent_below(many));
	for (i = 256; i < nr_takers; i++)
		CHECK(takers[i].given > 0, "each of the 300 has its turn");
	end();
}

static void test_who_is_held_back_leaves_tags_to_others(void)
{
	struct fl_flow *one, *other;

	begin(granted);
	held_back = true;
	one = deep(NULL, 900, 300, 4096);
	take_from(0);
	CHECK(given_to(one) == TAGS / 2, "half of %d, though nobody else wants any: %lu", TAGS, given_to(one));
	other = deep(NULL, 100, 10, 4096);
	take_from(300);
	CHECK(given_to(other) == 6, "a tenth of that: %lu", given_to(other));
	end();
}

/* As at the start of a load: its part is that of when it was alone, until shares are computed again. */
static void test_who_was_there_first_takes_no_more_than_its_part(void)
{
	struct fl_flow *parent;
	unsigned int i;

	begin(granted);
	held_back = true;
	parent = fl_flow_create(dev, NULL, 100);
	deep(parent, 100, TAGS, 4096);
	fl_flows_update_shares(dev);
	for (i = 0; i < 3; i++)
		deep(i ? NULL : parent, 100, 0, 0);
	for (i = 0; i < nr_takers; i++)
		take(&takers[i]);
	CHECK(nr_have == TAGS / 2 / 6, "a sixth of half of them, not half: %u", nr_have);
	end();
}

static void test_what_others_leave_may_be_used(void)
{
	struct fl_flow *alone;

	begin(granted);
	alone = deep(NULL, 100, 300, 4096);
	deep(NULL, 900, 1, 4096);
	take_from(0);
	CHECK(given_to(alone) == TAGS, "what is sent is not limited: %lu", given_to(alone));
	end();
}

/* They go at once, and some of them may wait for a tag. */
static void test_the_roots_requests_leave_others_what_they_have(void)
{
	struct fl_queue *root;
	struct fl_flow *other;
	unsigned int i;

	begin(granted);
	root = queue_of(fl_root(dev));
	for (i = 0; i < 3 * TAGS; i++) {
		fl_tags_take_anyway(root);
		if (i % 2)
			fl_tag_sent(root);
	}
	other = deep(NULL, 100, 10, 4096);
	take_from(0);
	CHECK(given_to(other) == 10, "%lu", given_to(other));
	for (i = 0; i < 3 * TAGS; i++) {
		if (!(i % 2))
			fl_tag_sent(root);
		fl_tag_give(root);
	}
	end();
}

static void test_who_was_idle_has_the_next_tag(void)
{
	struct fl_flow *idle;

	begin(granted);
	deep(NULL, 1000, 300, 4096);
	deep(fl_flow_create(dev, NULL, 1000), 1000, 300, 4096);
	take_from(0);
	go_on(1000);
	CHECK(nr_have == TAGS, "%u", nr_have);
	idle = deep(NULL, 100, 1, 4096);
	fl_flow_set_busy(idle, false); /* until its request is there */
	take(&takers[nr_takers - 1]);
	go_on(3); /* one of each of the others may be as late */
	CHECK(given_to(idle) == 1, "it has one of the next three");
	end();
}

/*
 * Below a flow, twenty flows of weight 100 that send @bytes, and twenty of @weight that send
 * 4 KiB, beside another flow: what these send for each request of the others, in @turns.
 */
static double by_turns(u32 bytes, u32 weight, unsigned int turns)
{
	struct fl_flow *many, *some[20], *others[20];
	unsigned long s = 0, o = 0;
	unsigned int i;

	begin(granted);
	many = fl_flow_create(dev, NULL, 1000);
	for (i = 0; i < 20; i++) {
		some[i] = deep(many, 100, 10, bytes);
		others[i] = deep(many, weight, 10, 4096);
	}
	deep(NULL, 1000, 256, 4096);
	take_from(0);
	go_on(turns);
	for (i = 0; i < 20; i++) {
		s += given_to(some[i]);
		o += given_to(others[i]);
	}
	end();
	return (double)o / s;
}

static void test_turns_come_by_weight(void)
{
	CHECK_NEAR(by_turns(4096, 400, 100000), 4.0, 0.05);
}

static void test_large_requests_gain_nothing(void)
{
	CHECK_NEAR(by_turns(65536, 100, 200000), 16.0, 0.08);
}

static void test_many_small_cgroups_have_no_more_turns_than_their_parent(void)
{
	struct fl_flow *many, *one;
	unsigned int i;

	begin(granted);
	many = fl_flow_create(dev, NULL, 100);
	for (i = 0; i < 300; i++)
		deep(many, 100, 3, 4096);
	one = deep(NULL, 900, 256, 4096);
	take_from(0);
	for (i = 0; i < nr_takers; i++)
		takers[i].given = 0;
	go_on(20000);
	CHECK_NEAR((double)given_to(one), 18000, 0.02);
	end();
}

static void test_of_those_that_are_as_late_the_first_goes_first(void)
{
	unsigned int i, first;

	begin(granted);
	deep(NULL, 100, TAGS, 4096);
	take_from(0);
	first = nr_takers;
	for (i = 0; i < 300; i++)
		deep(NULL, 100, 1, 4096);
	take_from(first);
	for (i = 0; i < TAGS; i++) {
		give();
		CHECK(takers[first + i].given == 1 && !takers[first + i + 1].given, "the %uth", i);
	}
	end();
}

/* As a submitter that sleeps until it has a tag, and is not back before somebody else has had the next one. */
static void test_who_waits_with_one_at_a_time_has_its_turns(void)
{
	unsigned int i, n, next = 0, big = 0;
	bool waits = false;

	begin(granted);
	deep(NULL, 1000, TAGS, 4096);
	for (i = 0; i < 20; i++)
		deep(NULL, 100, 20, 4096);
	fl_flows_update_shares(dev);
	for (i = TAGS; i < nr_takers; i++)
		take(&takers[i]);
	for (n = 0; n < 30000; n++) {
		unsigned long before = takers[next].given;
		struct taker *t = give();

		if (t >= takers + TAGS)
			take(t);
		if (waits && takers[next].given > before) {
			big++;
			waits = false;
			next = (next + 1) % TAGS;
		} else if (!waits && !takers[next].has) {
			take(&takers[next]);
			waits = true;
		}
	}
	CHECK_NEAR((double)big, 10000, 0.05);
	end();
}

/* ---- Threads ---- */

#define THREADS 4
#define SLOTS 24 /* of each thread */
#define TURNS 20000

struct slot {
	struct taker taker;
	int state; /* 0: idle, 1: waits, 2: has one */
};

static struct slot slots[THREADS][SLOTS];
static struct fl_flow *leaves[8];

static void slot_granted(void *ctx, struct fl_tag_wait *wait)
{
	struct slot *slot = container_of(wait, struct slot, taker.wait);

	(void)ctx;
	__atomic_store_n(&slot->state, 2, __ATOMIC_RELEASE);
}

static void *take_and_give(void *arg)
{
	struct slot *mine = slots[(long)arg];
	unsigned int seed = 1 + (long)arg, n, i, left = SLOTS;

	for (n = 0; left; n++) {
		struct slot *slot = &mine[n % SLOTS];

		switch (__atomic_load_n(&slot->state, __ATOMIC_ACQUIRE)) {
		case 0:
			if (n > TURNS)
				break;
			slot->taker.flow = leaves[rand_r(&seed) % ARRAY_SIZE(leaves)];
			slot->taker.wait.bytes = 4096;
			__atomic_store_n(&slot->state, 1, __ATOMIC_RELEASE);
			if (fl_tag_take(slot->taker.flow, 0, &slot->taker.wait))
				__atomic_store_n(&slot->state, 2, __ATOMIC_RELEASE);
			break;
		case 1:
			if (n > TURNS)
				let_others_run();
			break;
		case 2:
			fl_tag_sent(slot->taker.wait.queue);
			fl_tag_give(slot->taker.wait.queue);
			slot->taker.given++;
			__atomic_store_n(&slot->state, 0, __ATOMIC_RELEASE);
			break;
		}
		for (i = 0, left = 0; n >= TURNS && i < SLOTS; i++)
			left += __atomic_load_n(&mine[i].state, __ATOMIC_ACQUIRE) != 0;
		left += n < TURNS;
	}
	return NULL;
}

static void test_no_wakeup_is_lost(void)
{
	pthread_t threads[THREADS];
	struct fl_flow *inner;
	unsigned int i;

	begin(slot_granted);
	fl_set_tags(dev, 16);
	memset(slots, 0, sizeof(slots));
	inner = fl_flow_create(dev, NULL, 100);
	for (i = 0; i < ARRAY_SIZE(leaves); i++) {
		leaves[i] = fl_flow_create(dev, i < 6 ? inner : NULL, i < 6 ? 1 : 100);
		fl_flow_set_busy(leaves[i], true);
	}
	fl_flows_update_shares(dev);
	for (i = 0; i < THREADS; i++)
		pthread_create(&threads[i], NULL, take_and_give, (void *)(long)i);
	for (i = 0; i < THREADS; i++)
		pthread_join(threads[i], NULL);
	for (i = 0; i < ARRAY_SIZE(leaves); i++)
		CHECK(!atomic_read(&queue_of(leaves[i])->unsent), "all tags were given back");
	CHECK(!unsent_below(inner), "%u", unsent_below(inner));
	CHECK(!atomic_read(&dev->hwqs[0]->tags_taken), "%u", atomic_read(&dev->hwqs[0]->tags_taken));
	fl_dev_destroy(dev);
}

int main(int argc, char **argv)
{
	static const struct test tests[] = {
		{ "a tenant with 300 groups keeps no more than its part waiting",
		  test_a_tenant_with_300_groups_keeps_no_more_than_its_part_waiting },
		{ "who is held back leaves tags to others", test_who_is_held_back_leaves_tags_to_others },
		{ "who was there first takes no more than its part",
		  test_who_was_there_first_takes_no_more_than_its_part },
		{ "what others leave may be used", test_what_others_leave_may_be_used },
		{ "the root's requests leave others what they have",
		  test_the_roots_requests_leave_others_what_they_have },
		{ "who was idle has the next tag", test_who_was_idle_has_the_next_tag },
		{ "turns come by weight", test_turns_come_by_weight },
		{ "large requests gain nothing", test_large_requests_gain_nothing },
		{ "many small cgroups have no more turns than their parent",
		  test_many_small_cgroups_have_no_more_turns_than_their_parent },
		{ "of those that are as late the first goes first",
		  test_of_those_that_are_as_late_the_first_goes_first },
		{ "who waits with one at a time has its turns", test_who_waits_with_one_at_a_time_has_its_turns },
		{ "no wake-up is lost among threads", test_no_wakeup_is_lost },
		{ NULL, NULL },
	};

	return run_tests(tests, argc, argv);
}
