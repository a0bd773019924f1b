// SPDX-License-Identifier: GPL-2.0-only OR MIT
/* The shared mechanisms: cost, weights, active flows; and the library's own manners. */
#include "drive.h"
#include "test.h"
#include "mechanisms/behind.h"
#include "mechanisms/flood.h"
#include "mechanisms/heap.h"
#include "mechanisms/in-drive.h"
#include "mechanisms/sampled-times.h"
#include "mechanisms/weights.h"

static void test_the_default_prices_bytes(void)
{
	struct fl_prices p;
	u32 bytes;

	fl_prices_init(&p);
	for (bytes = 512; bytes <= 8 << 20; bytes += 512) {
		CHECK(fl_cost(&p, FL_READ, bytes) == bytes, "%u costs %lu", bytes,
		      fl_cost(&p, FL_READ, bytes));
		CHECK(fl_cost(&p, FL_WRITE, bytes) == bytes, "%u", bytes);
	}
	CHECK(fl_cost(&p, FL_DISCARD, 4096) == FL_COST_ONE, "a discard costs at least a request");
	CHECK(fl_cost(&p, FL_DISCARD, 1u << 30) == (1u << 30) / 16, "its size counts: %lu",
	      fl_cost(&p, FL_DISCARD, 1u << 30));
	CHECK(fl_cost(&p, FL_OTHER, 0) == FL_COST_ONE, "nothing is free");
	CHECK(fl_cost(&p, FL_READ, 0) >= 1, "nothing is free");
}

/* Otherwise who asks for single bytes has the drive almost for nothing. */
static void test_part_of_a_sector_costs_a_sector(void)
{
	struct fl_prices p;
	enum fl_op op;
	u32 bytes;

	fl_prices_init(&p);
	p.price[FL_READ][0] = 3000; /* 512 B */
	for (op = FL_READ; op <= FL_WRITE; op++) {
		for (bytes = 0; bytes < 512; bytes++)
			CHECK(fl_cost(&p, op, bytes) == fl_cost(&p, op, 512), "%u costs %lu", bytes,
			      fl_cost(&p, op, bytes));
		CHECK(fl_cost(&p, op, 513) == fl_cost(&p, op, 1024), "%lu", fl_cost(&p, op, 513));
		CHECK(fl_cost(&p, op, (1 << 20) - 1) == fl_cost(&p, op, 1 << 20), "%lu",
		      fl_cost(&p, op, (1 << 20) - 1));
	}
	CHECK(fl_cost(&p, FL_DISCARD, 0) == FL_COST_ONE, "%lu", fl_cost(&p, FL_DISCARD, 0));
}

static void test_a_size_is_the_sum_of_its_parts(void)
{
	struct fl_prices p;

	fl_prices_init(&p);
	p.price[FL_READ][3] = 1000; /* 4 KiB */
	p.price[FL_READ][4] = 1500; /* 8 KiB */
	p.price[FL_READ][FL_PRICE_SIZES - 1] = 100000; /* 1 MiB */
	CHECK(fl_cost(&p, FL_READ, 12 << 10) == 2500, "%lu", fl_cost(&p, FL_READ, 12 << 10));
	CHECK(fl_cost(&p, FL_READ, (2 << 20) + (4 << 10)) == 201000, "%lu",
	      fl_cost(&p, FL_READ, (2 << 20) + (4 << 10)));
}

static const char prices[] = "read 1 2 3 4 5 6 7 8 9 10 11 12\n"
			     "write 13 14 15 16 17 18 19 20 21 22 23 16777216\n";

static void test_a_price_list_is_read_from_a_text(void)
{
	struct fl_prices p;

	CHECK(fl_prices_parse(&p, prices), "refused");
	CHECK(fl_cost(&p, FL_READ, 512) == 1, "%lu", fl_cost(&p, FL_READ, 512));
	CHECK(fl_cost(&p, FL_READ, 1 << 20) == 12, "%lu", fl_cost(&p, FL_READ, 1 << 20));
	CHECK(fl_cost(&p, FL_WRITE, 12 << 10) == 16 + 17, "%lu", fl_cost(&p, FL_WRITE, 12 << 10));
	CHECK(fl_cost(&p, FL_WRITE, 1 << 20) == FL_PRICE_MAX, "the dearest that there is");
	CHECK(fl_cost(&p, FL_DISCARD, 1 << 20) == FL_PRICE_MAX / 16, "as a sixteenth of a write: %lu",
	      fl_cost(&p, FL_DISCARD, 1 << 20));
	CHECK(fl_cost(&p, FL_WRITE, ~0u) == FL_COST_MAX, "%lu", fl_cost(&p, FL_WRITE, ~0u));
}

#define TWELVE "1 2 3 4 5 6 7 8 9 10 11 12"

static void test_what_is_no_price_list_changes_nothing(void)
{
	static const char *const wrong[] = {
		"",
		"read",
		"read " TWELVE,
		"write " TWELVE "\nread " TWELVE,
		"read " TWELVE "\nwrite " TWELVE " 13",
		"read " TWELVE "\nwrite 1 2 3 4 5 6 7 8 9 10 11",
		"read 0 2 3 4 5 6 7 8 9 10 11 12\nwrite " TWELVE,
		"read 1 2 3 4 5 6 7 8 9 10 11 -1\nwrite " TWELVE,
		"read 1 2 3 4 5 6 7 8 9 10 11 16777217\nwrite " TWELVE,
		"read 1 2 3 4 5 6 7 8 9 10 11 18446744073709551617\nwrite " TWELVE,
	};
	struct fl_prices before, p;
	char text[sizeof(prices)];
	unsigned int i, refused = 0;
	u32 random = 1;

	fl_prices_init(&p);
	before = p;
	for (i = 0; i < ARRAY_SIZE(wrong); i++) {
		CHECK(!fl_prices_parse(&p, wrong[i]), "takes: %s", wrong[i]);
		CHECK(!memcmp(&p, &before, sizeof(p)), "changed by: %s", wrong[i]);
	}
	/* Any byte of a good text changed: taken or not, and never read past its end. */
	for (i = 0; i < 200000; i++) {
		memcpy(text, prices, sizeof(text));
		random = random * 1664525 + 1013904223;
		text[(random >> 8) % (sizeof(text) - 1)] = (char)(random >> 24);
		before = p;
		if (fl_prices_parse(&p, text))
			continue;
		refused++;
		CHECK(!memcmp(&p, &before, sizeof(p)), "changed by: %s", text);
	}
	CHECK(refused > 100000 && refused < 200000, "%u of 200000 were refused", refused);
}

/* Against an array: what is least, after adding, taking out the least, and taking out any. */
static void test_a_heap_gives_the_least_and_gives_up_any(void)
{
	static struct fl_heap_entry e[500];
	struct fl_heap heap = { 0 };
	unsigned int seed = 1, n, i;

	for (n = 0; n < 20000; n++) {
		struct fl_heap_entry *at = &e[rand_r(&seed) % ARRAY_SIZE(e)], *least = NULL;

		if (at->in) {
			fl_heap_remove(&heap, rand_r(&seed) % 2 ? at : heap.first);
		} else {
			at->key = (u64)(rand_r(&seed) % 1000) - 500; /* before and after 0 wraps */
			fl_heap_add(&heap, at);
		}
		for (i = 0; i < ARRAY_SIZE(e); i++)
			if (e[i].in && (!least || fl_vt_before(e[i].key, least->key)))
				least = &e[i];
		CHECK(!heap.first == !least && (!least || heap.first->key == least->key), "%u", n);
	}
	for (i = 0; i < ARRAY_SIZE(e); i++)
		fl_heap_remove(&heap, &e[i]);
	CHECK(!heap.first, "not empty");
}

static void test_the_list_says_what_the_schedulers_are(void)
{
	enum { ELEVATOR, ROUTER, RQ_QOS };
	static const struct {
		const struct fl_sched *sched;
		const char *name;
		int host;
	} rows[] = {
#define ROW(id, name, host, role, about) { &fl_##id, name, host },
		FL_SCHEDULERS(ROW)
	};
	unsigned int i;

	for (i = 0; i < ARRAY_SIZE(rows); i++) {
		CHECK(!strcmp(rows[i].sched->name, rows[i].name), "%s", rows[i].name);
		CHECK(fl_sched_find(rows[i].name) == rows[i].sched, "%s", rows[i].name);
		CHECK(fl_schedulers[i] == rows[i].sched, "%s", rows[i].name);
		CHECK((rows[i].host == ELEVATOR) == !!rows[i].sched->dispatch, "%s", rows[i].name);
		CHECK((rows[i].host == ROUTER) == !!rows[i].sched->route, "%s", rows[i].name);
		CHECK((rows[i].host == RQ_QOS) == !!rows[i].sched->admit, "%s", rows[i].name);
	}
	CHECK(!fl_schedulers[i], "more than the list has");
	CHECK(!fl_sched_find("none of ours"), "found");
}

static struct drive d;

static void test_a_device_charges_by_the_prices_it_is_given(void)
{
	struct tenant *reader;
	u64 cost;

	drive_init(&d, &fl_kyber_fairness, 1, 1, MSEC);
	CHECK(!fl_set_prices(d.dev, "cheap"), "taken");
	CHECK(fl_set_prices(d.dev, prices), "refused");
	reader = drive_tenant(&d, NULL, 100, 1);
	drive_start(&d);
	drive_run(&d, 100 * MSEC);
	cost = fl_flow_queue(reader->flow, 0)->cost;
	CHECK(cost >= 4 * reader->done && cost <= 4 * (reader->done + 1), "%lu for %lu", cost,
	      reader->done);
	drive_exit(&d);
}

static double share(struct tenant *t)
{
	return (double)fl_flow_share(t->flow) / FL_SHARE_ONE;
}

static void test_a_weight_counts_among_active_siblings(void)
{
	struct fl_flow *a;
	struct tenant *a1, *a2, *b;

	drive_init(&d, &fl_kyber_fairness, 1, 1, MSEC);
	a = fl_flow_create(d.dev, NULL, 200);
	a1 = drive_tenant(&d, a, 100, 1);
	a2 = drive_tenant(&d, a, 100, 1);
	b = drive_tenant(&d, NULL, 100, 1);

	fl_flow_set_busy(a1->flow, true);
	CHECK_NEAR(share(a1), 1, 1e-6);
	fl_flow_set_busy(b->flow, true);
	CHECK_NEAR(share(a1), 2 / 3.0, 1e-6);
	fl_flow_set_busy(a2->flow, true);
	CHECK_NEAR(share(a1), 1 / 3.0, 1e-6);
	CHECK_NEAR(share(a2), 1 / 3.0, 1e-6);
	CHECK_NEAR(share(b), 1 / 3.0, 1e-6);

	fl_flow_set_weight(a2->flow, 300); /* while active */
	CHECK_NEAR(share(a2), 1 / 2.0, 1e-6);
	fl_flow_set_weight(a, 300);
	CHECK_NEAR(share(b), 1 / 4.0, 1e-6);

	/* What the parent itself issues competes with its children at the default weight. */
	fl_flow_set_busy(a, true);
	CHECK_NEAR(share(a1), 0.75 * 100 / 500, 1e-6);
	fl_flow_set_busy(a, false);

	fl_flow_set_busy(a1->flow, false);
	fl_flow_set_busy(a2->flow, false);
	CHECK_NEAR(share(b), 1, 1e-6);
	CHECK(a->active_weight == 0, "%u is left behind", a->active_weight);
	fl_flow_set_busy(b->flow, false);
	drive_exit(&d);
}

static void test_a_flow_is_active_while_it_has_requests(void)
{
	struct fl_queue *q;
	struct tenant *t;

	drive_init(&d, &fl_kyber_fairness, 1, 1, MSEC);
	t = drive_tenant(&d, NULL, 100, 1);
	q = fl_flow_use(t->flow, 0);
	CHECK(fl_flow_touch(q), "the first request activates");
	fl_flow_set_busy(t->flow, true);
	CHECK(!fl_flow_touch(q), "the second does not");

	atomic_inc(&q->held);
	fl_flows_age(d.dev);
	fl_flows_age(d.dev);
	CHECK(t->flow->busy, "it has a request");
	atomic_dec(&q->held);
	fl_flows_age(d.dev);
	CHECK(t->flow->busy, "it had one in this period");
	fl_flows_age(d.dev);
	CHECK(!t->flow->busy, "it had none for a period");
	CHECK(fl_flow_touch(q), "and is activated by its next");
	drive_exit(&d);
}

/* A flow with a request, of two that are active and due a half each: its queue. */
static struct fl_queue *due_half(void)
{
	struct fl_queue *q;
	unsigned int i;

	drive_init(&d, &fl_kyber_fairness, 1, 1, MSEC);
	for (i = 0; i < 2; i++)
		fl_flow_set_busy(drive_tenant(&d, NULL, 100, 1)->flow, true);
	q = fl_flow_use(d.tenants[0].flow, 0);
	atomic_inc(&q->held);
	return q;
}

static void due_half_is_over(struct fl_queue *q)
{
	unsigned int i;

	atomic_dec(&q->held);
	for (i = 0; i < 2; i++)
		fl_flow_set_busy(d.tenants[i].flow, false);
	drive_exit(&d);
}

static void test_who_has_half_of_its_due_is_helped_by_half_in_the_drive_however_long_it_was_counted(void)
{
	const u64 in_drive = 64 * FL_COST_ONE;
	struct fl_progress sent = {};
	struct fl_behind behind = {};
	unsigned int i, anew = 0;
	struct fl_behind_look look;
	struct fl_queue *q = due_half();
	struct fl_flow *flow = q->flow;

	fl_is_behind(flow, &behind, sent, in_drive, NSEC_PER_SEC, 2 * NSEC_PER_SEC, false, &look); /* it comes */
	for (i = 0; i < 40; i++) {
		u64 fits, before = behind.own;

		sent.requests += 1000;
		sent.cost += 1000 * FL_COST_ONE;
		WRITE_ONCE(q->cost, q->cost + 250 * FL_COST_ONE);
		fits = fl_is_behind(flow, &behind, sent, in_drive, NSEC_PER_SEC, 2 * NSEC_PER_SEC + i * MSEC, false, &look);
		CHECK(fits == in_drive / 2, "look %u: %lu of %lu", i, fits, in_drive);
		anew += behind.own != before;
	}
	CHECK(anew >= 2, "counted anew %u times", anew);
	CHECK(look.has == 1, "%u", look.has);
	due_half_is_over(q);
}

/*
 * One with a request at a time, which is due a half. At each look others have sent 10 requests. It waits for @waits
 * looks, or none, after it @came_behind its siblings or not, and then its request is in the drive for @then. Of @looks,
 * at how many is it behind, but the first ten?
 */
static unsigned int looks_behind(unsigned int waits, unsigned int then, unsigned int looks, bool came_behind)
{
	struct fl_behind behind = { .came_behind = came_behind };
	struct fl_progress sent = {};
	struct fl_behind_look look;
	struct fl_queue *q = due_half();
	unsigned int i, n = 0;

	for (i = 0; i < looks; i++) {
		unsigned int at = i % (waits + then);

		sent.requests += 10;
		sent.cost += 10 * FL_COST_ONE;
		behind.waiting = at < waits;
		WRITE_ONCE(q->cost, q->cost + (at ? 0 : FL_COST_ONE));
		n += fl_is_behind(q->flow, &behind, sent, 64 * FL_COST_ONE, NSEC_PER_SEC, 2 * NSEC_PER_SEC + i * MSEC, true,
				  &look) && i >= 10;
	}
	due_half_is_over(q);
	return n;
}

static void test_who_waited_and_then_sends_nothing_for_a_while_is_not_behind(void)
{
	unsigned int n;

	n = looks_behind(20, 20, 40, false);
	CHECK(n == 0, "it waited, and has no CPU: %u", n);
	n = looks_behind(0, 50, 50, false);
	CHECK(n == 40, "its request is in the drive: %u", n);
	n = looks_behind(2, 18, 2000, false);
	CHECK(n > 1900, "it waits a little, and its request is in the drive for long: %u", n);
}

static void test_who_comes_behind_its_siblings_and_has_to_wait_is_behind(void)
{
	unsigned int n;

	n = looks_behind(15, 5, 2000, true);
	CHECK(n > 1900, "%u", n);
	n = looks_behind(15, 5, 2000, false);
	CHECK(n == 0, "it was not behind when it came: %u", n);
}

#define WALKED (3 * FL_QUEUES_AT_A_TIME + 5)

static struct fl_flow *walked[WALKED];
static unsigned int looked_at[WALKED];
static bool leave;

static void look(struct fl_flow *flow)
{
	unsigned int i;

	for (i = 0; walked[i] != flow; i++)
		;
	looked_at[i]++;
	if (leave && i % 2)
		fl_flow_set_busy(flow, false);
}

/* Every other one becomes inactive by it if @leaves. Returns how many were looked at once. */
static unsigned int walk(bool leaves)
{
	unsigned int i, once = 0;

	memset(looked_at, 0, sizeof(looked_at));
	leave = leaves;
	fl_flows_walk(d.dev, look);
	for (i = 0; i < WALKED; i++)
		once += looked_at[i] == 1;
	return once;
}

static void test_a_walk_looks_at_each_active_flow_once(void)
{
	unsigned int i;

	drive_init(&d, &fl_kyber_fairness, 1, 1, MSEC);
	CHECK(!walk(false), "nobody is active");
	for (i = 0; i < WALKED; i++) {
		walked[i] = fl_flow_create(d.dev, NULL, 100);
		fl_flow_set_busy(walked[i], true);
		fl_flow_set_busy(walked[i], true);
	}
	CHECK(walk(false) == WALKED && d.dev->nr_active == WALKED, "%u", d.dev->nr_active);
	CHECK(walk(true) == WALKED, "also if every other one becomes inactive");
	CHECK(walk(false) == (WALKED + 1) / 2 && d.dev->nr_active == (WALKED + 1) / 2, "%u", d.dev->nr_active);
	drive_exit(&d);
}

static void test_a_queue_is_made_at_first_use(void)
{
	const struct fl_sched *const *sched;
	struct fl_req rq = { .op = FL_READ, .bytes = 4096 };
	struct fl_admission admission = { .op = FL_READ, .bytes = 4096 };
	struct fl_flow *flow;

	for (sched = fl_schedulers; *sched; sched++) {
		drive_init(&d, *sched, 3, 4, MSEC);
		flow = fl_flow_create(d.dev, NULL, 100);
		if ((*sched)->admit)
			CHECK(fl_admit(flow, 1, &admission), "%s", (*sched)->name);
		else if ((*sched)->route)
			fl_route(d.dev, 1, flow, &rq);
		else
			fl_submit(d.dev, 1, flow, &rq);
		fl_tick(d.dev);
		if ((*sched)->dispatch)
			CHECK(fl_next(d.dev, 1) == &rq, "%s", (*sched)->name);
		if ((*sched)->admit)
			fl_leave(&admission, 0);
		else
			fl_done(&rq);
		fl_tick(d.dev);
		CHECK(!fl_flow_queue(flow, 0) && fl_flow_queue(flow, 1) && !fl_flow_queue(flow, 2),
		      "%s", (*sched)->name);
		drive_exit(&d);
	}
}

#define LINE(type, member) (offsetof(type, member) / 64)

/* Completions, on any CPU, write held; who holds hwq->lock writes what follows; the slow path the rest. */
static void test_what_different_cpus_write_is_on_different_cache_lines(void)
{
	struct fl_flow *flow;
	unsigned int i;

	CHECK(LINE(struct fl_queue, held) != LINE(struct fl_queue, inserted), "fl_queue");
	CHECK(LINE(struct fl_flow, busy) != LINE(struct fl_flow, active_node) &&
		      LINE(struct fl_flow, share) != LINE(struct fl_flow, seen),
	      "fl_flow");
	CHECK(LINE(struct fl_dev, hwqs) != LINE(struct fl_dev, lock) &&
		      LINE(struct fl_dev, prices) < LINE(struct fl_dev, lock),
	      "fl_dev");
	CHECK(LINE(struct fl_hwq, lock) != LINE(struct fl_hwq, tags_taken), "fl_hwq");
	drive_init(&d, &fl_kyber_fairness, 4, 1, MSEC);
	flow = fl_flow_create(d.dev, NULL, 100);
	for (i = 0; i < 4; i++)
		CHECK((unsigned long)fl_flow_use(flow, i) % 64 == 0, "the queues of two CPUs");
	drive_exit(&d);
}

static void test_flows_come_and_go(void)
{
	unsigned int i, round;
	struct tenant *t;

	drive_init(&d, &fl_kyber_fairness, 2, 8, MSEC);
	t = drive_tenant(&d, NULL, 100, 8);
	drive_start(&d);
	for (round = 0; round < 20; round++) {
		struct fl_flow *flows[10];

		for (i = 0; i < 10; i++)
			flows[i] = fl_flow_create(d.dev, i ? flows[i - 1] : NULL, 1 + i);
		drive_run(&d, 50 * MSEC);
		for (i = 10; i--;)
			fl_flow_destroy(flows[i]);
	}
	drive_mark(&d);
	drive_run(&d, NSEC_PER_SEC);
	CHECK_NEAR(drive_iops(&d), drive_capacity(&d), 0.02);
	CHECK(t->done, "nothing was done");
	CHECK(!fl_flow_create(d.dev, NULL, 0), "weight 0");
	CHECK(!fl_flow_create(d.dev, NULL, 10001), "weight 10001");
	drive_exit(&d);
}

static void test_a_requeued_request_is_next(void)
{
	struct fl_req a = { .op = FL_READ, .bytes = 4096 }, b = a, *rq;
	struct fl_flow *flow;

	drive_init(&d, &fl_kyber_fairness, 1, 1, MSEC);
	flow = fl_flow_create(d.dev, NULL, 100);
	fl_submit(d.dev, 0, flow, &a);
	fl_submit(d.dev, 0, flow, &b);
	rq = fl_next(d.dev, 0);
	CHECK(rq == &a, "first in, first out");
	fl_requeue(rq);
	rq = fl_next(d.dev, 0);
	CHECK(rq == &a, "the requeued one comes first");
	fl_done(rq);
	rq = fl_next(d.dev, 0);
	CHECK(rq == &b, "then the other");
	fl_done(rq);
	CHECK(!fl_next(d.dev, 0), "and nothing more");
	drive_exit(&d);
}

static void test_a_time_is_counted_where_it_belongs(void)
{
	unsigned int index;
	u64 us;

	for (us = 0; us < 30000000; us = us + us / 64 + 1) {
		index = fl_times_index(us);
		CHECK(index < FL_NR_TIMES, "%lu at %u", us, index);
		CHECK(fl_times_from_us(index) <= us, "%lu us from %lu", us, fl_times_from_us(index));
		CHECK(index == FL_NR_TIMES - 1 || us < fl_times_from_us(index + 1), "%lu us before %lu", us,
		      fl_times_from_us(index + 1));
		CHECK(us < 4 || us - fl_times_from_us(index) <= us / 4, "%lu us from %lu", us,
		      fl_times_from_us(index));
	}
	CHECK(fl_times_index(~0ull) == FL_NR_TIMES - 1, "whatever is longer is in the last");
}

static void test_a_time_in_few_bits_is_that_time(void)
{
	u64 ns, most = fl_short_ns_value((1u << FL_SHORT_NS_BITS) - 1);

	for (ns = 0; ns < most; ns = ns + ns / 512 + 1) {
		u32 time = fl_short_ns(ns);
		u64 value = fl_short_ns_value(time);

		CHECK(time < 1u << FL_SHORT_NS_BITS, "%lu ns in %u", ns, time);
		CHECK(value <= ns && ns - value <= ns >> (FL_SHORT_NS_DIGITS - 1), "%lu ns is %lu", ns, value);
	}
	CHECK(most > 4 * 3600 * NSEC_PER_SEC, "%lu ns", most);
	CHECK(fl_short_ns_value(fl_short_ns(~0ull)) == most, "whatever is longer is the longest");
}

/* A serial drive takes 100 us for each request; one tenant has 8 of them at a time. */
static void times_of(const struct fl_sched *sched, struct fl_times *times, u64 *done)
{
	struct tenant *t;
	struct drive d;

	drive_init(&d, sched, 1, 1, 100 * NSEC_PER_USEC);
	t = drive_tenant(&d, NULL, 100, 8);
	drive_start(&d);
	drive_run(&d, NSEC_PER_SEC);
	fl_flow_times(t->flow, times);
	*done = t->done;
	drive_exit(&d);
}

static void test_what_a_request_waited_and_took_is_counted(void)
{
	struct fl_times times;
	u64 done, nr = 0;
	unsigned int i;

	times_of(&fl_kyber_fairness, &times, &done);
	for (i = 0; i < FL_NR_TIMES; i++)
		nr += atomic64_read(&times.requests[i]);
	CHECK(nr == done, "%lu of %lu", nr, done);
	CHECK_NEAR((double)atomic64_read(&times.took_ns) / done, 800e3, 0.02);
	CHECK_NEAR((double)atomic64_read(&times.waited_ns) / done, 700e3, 0.02);
	CHECK(atomic64_read(&times.requests[fl_times_index(800)]) * 100 > (s64)done * 98, "all took 800 us");
}

struct counting {
	struct fl_hwq hwq;
	struct fl_in_drive in;
};

static void test_what_is_in_the_drive_is_counted_wherever_it_is_done(void)
{
	static struct counting at[2];
	struct fl_hwq *hwqs[] = { &at[0].hwq, &at[1].hwq };
	struct fl_dev dev = { .nr_hwqs = 2, .hwqs = hwqs };
	struct fl_in_drive_sums sums;

	fl_in_drive_sent(&at[0].in, 4096, false);
	fl_in_drive_sent(&at[0].in, 1000, true); /* that one grows */
	fl_in_drive_woken(&at[0].in, 512);
	fl_in_drive_sum(&dev, offsetof(struct counting, in), &sums);
	CHECK(sums.cost == 4096 + 1000 + 512 && sums.requests == 2, "%lu of %lu", sums.cost, sums.requests);
	fl_in_drive_done(&at[1].in, FL_READ, 5096);
	fl_in_drive_sum(&dev, offsetof(struct counting, in), &sums);
	CHECK(sums.cost == 512 && sums.requests == 1 && sums.mean == 512, "%lu of %lu", sums.cost, sums.requests);
	fl_in_drive_done(&at[1].in, FL_WRITE, 512);
	fl_in_drive_done(&at[0].in, FL_WRITE, 4096); /* its being sent is not seen yet */
	fl_in_drive_sum(&dev, offsetof(struct counting, in), &sums);
	CHECK(!sums.cost && !sums.requests, "%lu of %lu", sums.cost, sums.requests);
	CHECK(fl_in_drive_look(&at[0].in, 5095), "that much was sent");
	CHECK(!fl_in_drive_look(&at[0].in, 0), "none since");
}

/* Otherwise who zeroes GiB has the drive taken for empty. */
static void test_what_is_in_the_drive_is_counted_however_much_it_costs(void)
{
	static struct counting at;
	struct fl_hwq *hwqs[] = { &at.hwq };
	struct fl_dev dev = { .nr_hwqs = 1, .hwqs = hwqs };
	struct fl_in_drive_sums sums;
	u64 i;

	for (i = 1; i <= 4000; i++) {
		fl_in_drive_sent(&at.in, FL_COST_MAX, false);
		fl_in_drive_sum(&dev, offsetof(struct counting, in), &sums);
		CHECK(sums.cost == i * FL_COST_MAX && sums.requests == i, "%lu of %lu", sums.cost, sums.requests);
	}
}

static void test_who_was_let_go_has_its_place_for_one_to_two_ticks(void)
{
	struct fl_waking waking = {};
	u64 first = fl_waking_let_go(&waking, 100), second = fl_waking_let_go(&waking, 20), third;

	CHECK(fl_waking_tick(&waking) == 120, "both");
	third = fl_waking_let_go(&waking, 3);
	CHECK(fl_waking_sent(&waking, second, 20), "it is in time");
	CHECK(fl_waking_sent(&waking, third, 3), "it is, too");
	CHECK(!fl_waking_tick(&waking), "the first has waited for long enough");
	CHECK(!fl_waking_sent(&waking, first, 100), "it is late");
	CHECK(!fl_waking_tick(&waking), "nobody waits");
}

static void test_a_flood_is_more_than_a_drive_does_in_a_sixteenth_of_a_second(void)
{
	u64 limit, does = 10000 * FL_COST_ONE; /* in 4 ms */
	struct fl_flood f = {};
	int i;

	CHECK(fl_flood_limit(&f) == FL_FLOOD_FIRST, "how fast it is is not known yet");
	fl_flood_begins(&f, 20 * FL_FLOOD_FIRST);
	for (i = 0; i < 10; i++) {
		fl_flood_done(&f, does, 4 * MSEC);
		CHECK(!fl_flood_was_none(&f), "%d: not known yet", i);
	}
	fl_flood_done(&f, does, 4 * MSEC);
	CHECK(fl_flood_was_none(&f), "it does that in 2 ms");
	CHECK(!fl_flood_was_none(&f), "once");
	for (i = 0; i < 100; i++)
		fl_flood_done(&f, does, 4 * MSEC);
	limit = fl_flood_limit(&f);
	CHECK(limit > does * 15 && limit < does * 17, "%lu", limit / does);
	for (i = 0; i < 100; i++)
		fl_flood_done(&f, does / 100, 4 * MSEC); /* it collects garbage */
	CHECK(fl_flood_limit(&f) < does / 5, "%lu", fl_flood_limit(&f) / does);
	fl_flood_begins(&f, does);
	CHECK(!fl_flood_was_none(&f), "it is known");
}

/* Else nobody would ever wait for it. */
static void test_who_came_when_all_places_were_taken_gets_one_when_another_leaves(void)
{
	static struct fl_sampled who[FL_SLOTS + 2];
	static struct fl_slots slots;
	struct fl_sampled *late = &who[FL_SLOTS], *later = late + 1;
	u64 random = 1;
	unsigned int i;

	for (i = 0; i < ARRAY_SIZE(who); i++) {
		fl_sampled_init(&who[i]);
		fl_sampled_enter(&slots, &who[i], 1000 + i, 0);
	}
	fl_slot_advance(late->slot, 50);
	fl_sampled_stays(&slots, late);
	CHECK(late->slot == &late->own, "there is none");
	for (i = 0; i < FL_SLOTS - 1; i++)
		fl_sampled_leave(&slots, &who[i]);
	fl_sampled_stays(&slots, late);
	CHECK(late->slot != &late->own && fl_sampled_vt(late) == 1000 + FL_SLOTS + 50, "%lu", fl_sampled_vt(late));
	fl_sampled_leave(&slots, &who[FL_SLOTS - 1]);
	CHECK(fl_slots_sample(&slots, later->slot, &random) == late->slot, "others find it");
	CHECK(fl_slots_system(&slots) == fl_sampled_vt(late), "%lu", fl_slots_system(&slots));
	fl_sampled_leave(&slots, late);
	fl_sampled_leave(&slots, later);
	CHECK(!slots.nr && !slots.taken && !slots.backlogged, "%u", slots.taken);
}

static const struct test tests[] = {
	{ "a flood is more than a drive does in a sixteenth of a second",
	  test_a_flood_is_more_than_a_drive_does_in_a_sixteenth_of_a_second },
	{ "what is in the drive is counted wherever it is done",
	  test_what_is_in_the_drive_is_counted_wherever_it_is_done },
	{ "what is in the drive is counted, however much it costs",
	  test_what_is_in_the_drive_is_counted_however_much_it_costs },
	{ "who was let go has its place for one to two ticks",
	  test_who_was_let_go_has_its_place_for_one_to_two_ticks },
	{ "who came when all places were taken gets one when another leaves",
	  test_who_came_when_all_places_were_taken_gets_one_when_another_leaves },
	{ "a heap gives the least, and gives up any", test_a_heap_gives_the_least_and_gives_up_any },
	{ "the list says what the schedulers are", test_the_list_says_what_the_schedulers_are },
	{ "the default price is a request's bytes", test_the_default_prices_bytes },
	{ "part of a sector costs as much as a sector", test_part_of_a_sector_costs_a_sector },
	{ "a size is priced as the sum of its power-of-two parts", test_a_size_is_the_sum_of_its_parts },
	{ "a price list is read from a text", test_a_price_list_is_read_from_a_text },
	{ "what is no price list changes nothing", test_what_is_no_price_list_changes_nothing },
	{ "a device charges by the prices it is given", test_a_device_charges_by_the_prices_it_is_given },
	{ "a weight counts among active siblings", test_a_weight_counts_among_active_siblings },
	{ "a flow is active while it has requests, and for a period more",
	  test_a_flow_is_active_while_it_has_requests },
	{ "who has half of its due is helped by half in the drive, however long it was counted",
	  test_who_has_half_of_its_due_is_helped_by_half_in_the_drive_however_long_it_was_counted },
	{ "who waited and then sends nothing for a while wants for a CPU, and is not behind",
	  test_who_waited_and_then_sends_nothing_for_a_while_is_not_behind },
	{ "who comes behind its siblings, and has to wait, is behind",
	  test_who_comes_behind_its_siblings_and_has_to_wait_is_behind },
	{ "a walk looks at each active flow once, whoever becomes inactive by it",
	  test_a_walk_looks_at_each_active_flow_once },
	{ "a flow has a queue only where it has had requests", test_a_queue_is_made_at_first_use },
	{ "what different CPUs write is on different cache lines",
	  test_what_different_cpus_write_is_on_different_cache_lines },
	{ "flows come and go under load", test_flows_come_and_go },
	{ "a requeued request is dispatched next", test_a_requeued_request_is_next },
	{ "a time is counted where it belongs", test_a_time_is_counted_where_it_belongs },
	{ "a time in few bits is that time, to within 1/4096", test_a_time_in_few_bits_is_that_time },
	{ "what a request waited and took is counted", test_what_a_request_waited_and_took_is_counted },
	{}
};

int main(int argc, char **argv)
{
	return run_tests(tests, argc, argv);
}
