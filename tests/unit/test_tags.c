// SPDX-License-Identifier: GPL-2.0-only OR MIT
/* Who may take a tag, and who waits for whom: libfairlane/mechanisms/tag-limits.h, without a drive. */
#include <pthread.h>
#include <sched.h>
#include <stdlib.h>

#include "user.h"
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

/* @nr that want a tag each, of a new flow, which is throttled: it may not use what others leave. */
static struct fl_flow *greedy(struct fl_flow *parent, u32 weight, unsigned int nr, u32 bytes)
{
	struct fl_flow *flow = fl_flow_create(dev, parent, weight);

	fl_flow_set_busy(flow, true);
	queue_of(flow)->throttled = true;
	for (; nr; nr--) {
		takers[nr_takers].flow = flow;
		takers[nr_takers].wait.op = FL_READ;
		takers[nr_takers++].wait.bytes = bytes;
	}
	return flow;
}

static void all_take(void)
{
	unsigned int i;

	fl_flows_update_shares(dev);
	for (i = 0; i < nr_takers; i++)
		take(&takers[i]);
}

/* The oldest tags come back, so many, and those who had them want the next. */
static void go_on(unsigned long nr)
{
	for (; nr; nr--) {
		struct taker *t = order[oldest++ % MOST];

		nr_have--;
		t->has = false;
		fl_tag_give(t->wait.queue);
		take(t);
	}
}

static unsigned int held_below(struct fl_flow *flow)
{
	return atomic_read(&queue_of(flow)->below.taken);
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

	for (i = 0; i < nr_takers; i++)
		takers[i].given = 0;
	while (nr_have) {
		nr_have--;
		fl_tag_give(order[oldest++ % MOST]->wait.queue);
	}
	for (i = 0; i < nr_takers; i++)
		CHECK(takers[i].given <= 1 && !atomic_read(&queue_of(takers[i].flow)->own.taken),
		      "whoever waited has had a tag, and gave it back");
	fl_dev_destroy(dev);
}

static void test_a_tenant_with_300_groups_holds_its_part(void)
{
	struct fl_flow *many, *one;
	unsigned int i;

	begin(granted);
	many = fl_flow_create(dev, NULL, 100);
	for (i = 0; i < 300; i++)
		greedy(many, 100, 3, 4096);
	one = greedy(NULL, 900, 256, 4096);
	all_take();
	CHECK(held_below(many) == 12, "a tenth of 7/8 of %d tags: %u", TAGS, held_below(many));
	CHECK(nr_have == 112, "%u", nr_have);
	go_on(20000);
	CHECK(held_below(many) == 12, "%u", held_below(many));
	CHECK(nr_have == 112, "%u", nr_have);
	for (i = 0; i < 900; i++)
		CHECK(takers[i].given > 0, "each of the 300 has its turn");
	CHECK_NEAR(given_to(one), 9.0 * (20112 - given_to(one)), 0.08);
	end();
}

static void test_what_is_due_goes_before_what_is_less_than_a_place(void)
{
	unsigned long before;
	struct fl_flow *one;
	unsigned int i;

	begin(granted);
	for (i = 0; i < 300; i++)
		greedy(NULL, 100, 1, 4096);
	all_take();
	CHECK(nr_have == 112, "those of less than a place have all of them: %u", nr_have);
	one = greedy(NULL, 10000, 256, 4096); /* a quarter is due to it: 28 */
	fl_flows_update_shares(dev);
	for (i = 300; i < nr_takers; i++)
		take(&takers[i]);
	CHECK(given_to(one) == 0, "it waits for tags: %lu", given_to(one));
	go_on(28);
	CHECK(given_to(one) == 28, "it has the next ones: %lu", given_to(one));
	before = given_to(one);
	go_on(10000);
	CHECK_NEAR(given_to(one) - before, 2500, 0.02);
	end();
}

/*
 * Below a flow that has four places, twenty flows of weight 100 that send @bytes, and twenty
 * of @weight that send 4 KiB: what these send for each request of the others, in @turns.
 */
static double by_turns(u32 bytes, u32 weight, unsigned int turns)
{
	struct fl_flow *many, *some[20], *others[20];
	unsigned long s = 0, o = 0;
	unsigned int i;

	begin(granted);
	many = fl_flow_create(dev, NULL, 100);
	for (i = 0; i < 20; i++) {
		some[i] = greedy(many, 100, 2, bytes);
		others[i] = greedy(many, weight, 2, 4096);
	}
	greedy(NULL, 3000, 256, 4096);
	all_take();
	CHECK(held_below(many) == 4, "%u", held_below(many));
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

static void test_what_others_leave_may_be_used(void)
{
	struct fl_flow *alone, *inner, *busy;

	begin(granted);
	alone = greedy(NULL, 100, 300, 4096);
	queue_of(alone)->throttled = false;
	greedy(NULL, 900, 1, 4096);
	all_take();
	CHECK(nr_have == 97, "up to 3/4 of %d tags, and 1: %u", TAGS, nr_have);
	end();

	begin(granted);
	greedy(NULL, 100, 300, 4096);
	inner = fl_flow_create(dev, NULL, 100);
	busy = greedy(inner, 100, 300, 4096);
	queue_of(busy)->throttled = false;
	greedy(inner, 900, 1, 4096);
	all_take();
	CHECK(held_below(inner) == 49, "of 56 places, up to 6/7, and 1: %u", held_below(inner));
	end();
}

/* One of two cgroups has taken all that their parent has, and more, while others left it. */
static void test_who_has_less_than_its_part_gets_it_at_once_in_a_full_cgroup(void)
{
	struct fl_flow *inner, *busy, *steady;

	begin(granted);
	greedy(NULL, 100, 1, 4096);
	inner = fl_flow_create(dev, NULL, 100);
	busy = greedy(inner, 100, 300, 4096);
	queue_of(busy)->throttled = false;
	steady = greedy(inner, 100, 10, 4096);
	all_take();
	CHECK(held_below(inner) > 56 + 10, "of 56 places: %u", held_below(inner));
	CHECK(given_to(steady) == 10, "of 28 that are its part: %lu", given_to(steady));
	end();
}

/* All tags that there are belong to one that always has its part. */
static void test_who_was_idle_does_not_wait_behind_those_that_were_not(void)
{
	struct fl_flow *idle;
	unsigned int i;

	begin(granted);
	greedy(NULL, 100, 300, 4096);
	for (i = 0; i < 30; i++)
		greedy(NULL, 1, 10, 4096);
	all_take();
	CHECK(nr_have == 112, "%u", nr_have);
	idle = greedy(NULL, 100, 1, 4096);
	fl_flow_set_busy(idle, false); /* until its request is there */
	take(&takers[nr_takers - 1]);
	go_on(1);
	CHECK(given_to(idle) == 1, "it has the next one");
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
				sched_yield();
			break;
		case 2:
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
		queue_of(leaves[i])->throttled = i % 2;
	}
	fl_flows_update_shares(dev);
	for (i = 0; i < THREADS; i++)
		pthread_create(&threads[i], NULL, take_and_give, (void *)(long)i);
	for (i = 0; i < THREADS; i++)
		pthread_join(threads[i], NULL);
	for (i = 0; i < ARRAY_SIZE(leaves); i++)
		CHECK(!atomic_read(&queue_of(leaves[i])->own.taken), "all places were given back");
	CHECK(!held_below(inner), "%u", held_below(inner));
	fl_dev_destroy(dev);
}

int main(int argc, char **argv)
{
	static const struct test tests[] = {
		{ "a tenant with 300 groups holds its part of the tags",
		  test_a_tenant_with_300_groups_holds_its_part },
		{ "what is due goes before what is less than a place",
		  test_what_is_due_goes_before_what_is_less_than_a_place },
		{ "turns come by weight", test_turns_come_by_weight },
		{ "large requests gain nothing", test_large_requests_gain_nothing },
		{ "what others leave may be used", test_what_others_leave_may_be_used },
		{ "who has less than its part of a cgroup gets it at once, though others have taken all",
		  test_who_has_less_than_its_part_gets_it_at_once_in_a_full_cgroup },
		{ "who was idle does not wait behind those that were not",
		  test_who_was_idle_does_not_wait_behind_those_that_were_not },
		{ "no wake-up is lost among threads", test_no_wakeup_is_lost },
		{ NULL, NULL },
	};

	return run_tests(tests, argc, argv);
}
