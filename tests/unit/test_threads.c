// SPDX-License-Identifier: GPL-2.0-only OR MIT
/*
 * Many threads at once: some submit, some dispatch and complete, one ticks,
 * one changes weights and tunables and makes and destroys flows, and uses some
 * of them for a moment, so that others sample what is about to go. Nothing may
 * race (ThreadSanitizer), leak (AddressSanitizer), get lost or be stuck.
 */
#include <pthread.h>
#include <stdlib.h>

#include "user.h"
#include "test.h"

#define HWQS 3
#define FLOWS 5
#define SUBMITTERS 3
#define PER_THREAD 20000
#define OUTSTANDING 64 /* per submitter */
#define VISITS 50

struct request {
	struct fl_req rq;
	bool busy;
};

static struct fl_dev *dev;
static struct fl_flow *flows[FLOWS];
static struct request pool[SUBMITTERS][OUTSTANDING];
static atomic64_t done;
static atomic_t stop, stop_operator; /* the operator first: others serve its visits */

static void run(void *ctx, unsigned int hwq)
{
	(void)ctx;
	(void)hwq; /* the dispatchers poll */
}

static void kick(void *ctx)
{
	(void)ctx; /* the ticker ticks anyway */
}

static void *submitter(void *arg)
{
	long me = (long)arg;
	unsigned int seed = 1 + me, n, i = 0;

	for (n = 0; n < PER_THREAD; n++) {
		struct request *r;

		while (__atomic_load_n(&pool[me][i % OUTSTANDING].busy, __ATOMIC_ACQUIRE)) {
			i++;
			let_others_run();
		}
		r = &pool[me][i % OUTSTANDING];
		r->busy = true;
		r->rq.op = rand_r(&seed) % FL_NR_OPS;
		r->rq.bytes = 512u << (rand_r(&seed) % 8);
		r->rq.arrival_ns = fl_now_ns();
		fl_submit(dev, rand_r(&seed) % HWQS, flows[rand_r(&seed) % FLOWS], &r->rq);
	}
	return NULL;
}

static void finish(struct fl_req *rq)
{
	fl_done(rq);
	atomic64_inc(&done);
	__atomic_store_n(&container_of(rq, struct request, rq)->busy, false, __ATOMIC_RELEASE);
}

/* Two dispatchers serve every hardware queue; each completes what it has some requests later. */
static void *dispatcher(void *arg)
{
	struct fl_req *held[16] = { 0 };
	unsigned int seed = 100 + (long)arg, slot = 0, i;

	while (!atomic_read(&stop)) {
		struct fl_req *rq = fl_next(dev, rand_r(&seed) % HWQS);

		if (rq && rand_r(&seed) % 50 == 0) {
			fl_requeue(rq);
			continue;
		}
		slot = (slot + 1) % ARRAY_SIZE(held);
		if (held[slot])
			finish(held[slot]);
		held[slot] = rq;
		if (!rq)
			let_others_run();
	}
	for (i = 0; i < ARRAY_SIZE(held); i++)
		if (held[i])
			finish(held[i]);
	return NULL;
}

static void *ticker(void *arg)
{
	(void)arg;
	while (!atomic_read(&stop)) {
		fl_tick(dev);
		let_others_run();
	}
	return NULL;
}

/* A tenant of a moment: one request, which whoever serves the hardware queue may take; it waits for it. */
static void visit(struct fl_flow *flow, unsigned int index)
{
	static struct request r;

	r = (struct request){ .busy = true, .rq = { .op = FL_READ, .bytes = 4096 } };
	r.rq.arrival_ns = fl_now_ns();
	fl_submit(dev, index, flow, &r.rq);
	while (__atomic_load_n(&r.busy, __ATOMIC_ACQUIRE))
		let_others_run();
	atomic64_add(-1, &done); /* not one of the submitters' */
}

static void *operator(void *arg)
{
	unsigned int seed = 1000, n = 0;
	u64 value;

	(void)arg;
	while (!atomic_read(&stop_operator)) {
		struct fl_flow *flow = fl_flow_create(dev, flows[0], 1 + rand_r(&seed) % 10000);

		fl_flow_weight(flows[rand_r(&seed) % FLOWS], 1 + rand_r(&seed) % 10000);
		fl_set(dev, "period_nsec", (1 + rand_r(&seed) % 5) * NSEC_PER_MSEC);
		fl_set(dev, "read_lat_nsec", (1 + rand_r(&seed) % 100) * NSEC_PER_USEC);
		fl_set(dev, "prediction", rand_r(&seed) % 3);
		fl_set(dev, "flow", rand_r(&seed) % 2);
		fl_set(dev, "conserve", rand_r(&seed) % 2);
		fl_set(dev, "timeout_nsec", (10 + rand_r(&seed) % 1000) * NSEC_PER_USEC);
		fl_set(dev, "max", rand_r(&seed) % 2);
		fl_set(dev, "depth", 32 + rand_r(&seed) % 64);
		fl_get(dev, "tokens_used", &value);
		if (n++ < VISITS)
			visit(flow, rand_r(&seed) % HWQS);
		fl_flow_destroy(flow);
		let_others_run();
	}
	return NULL;
}

static void run_threads(const struct fl_sched *sched)
{
	struct fl_host host = { .run = run, .kick = kick };
	pthread_t threads[SUBMITTERS + 4];
	long i;

	atomic64_set(&done, 0);
	atomic_set(&stop, 0);
	atomic_set(&stop_operator, 0);
	dev = fl_dev_create(sched, HWQS, &host);
	for (i = 0; i < FLOWS; i++)
		flows[i] = fl_flow_create(dev, i == 4 ? flows[3] : NULL, 100 * (i + 1));

	pthread_create(&threads[SUBMITTERS], NULL, dispatcher, (void *)0);
	pthread_create(&threads[SUBMITTERS + 1], NULL, dispatcher, (void *)1);
	pthread_create(&threads[SUBMITTERS + 2], NULL, ticker, NULL);
	pthread_create(&threads[SUBMITTERS + 3], NULL, operator, NULL);
	for (i = 0; i < SUBMITTERS; i++)
		pthread_create(&threads[i], NULL, submitter, (void *)i);

	for (i = 0; i < SUBMITTERS; i++)
		pthread_join(threads[i], NULL);
	/* All come through: a lost request would hang this, and the test's caller has a limit. */
	while (atomic64_read(&done) < SUBMITTERS * PER_THREAD - 2 * 16)
		let_others_run();
	atomic_set(&stop_operator, 1);
	pthread_join(threads[SUBMITTERS + 3], NULL);
	atomic_set(&stop, 1);
	for (i = 0; i < 3; i++)
		pthread_join(threads[SUBMITTERS + i], NULL);
	while (atomic64_read(&done) < SUBMITTERS * PER_THREAD) {
		struct fl_req *rq;

		for (i = 0; i < HWQS; i++)
			while ((rq = fl_next(dev, i)))
				finish(rq);
		fl_tick(dev);
	}

	CHECK(atomic64_read(&done) == SUBMITTERS * PER_THREAD, "%ld", atomic64_read(&done));
}

static void test_kyber_fairness(void)
{
	u64 granted, used;

	run_threads(&fl_kyber_fairness);
	fl_get(dev, "tokens_granted", &granted);
	fl_get(dev, "tokens_used", &used);
	CHECK(granted > 0 && used > 0, "granted %lu used %lu", granted, used);
	fl_dev_destroy(dev);
}

/* Those of the list of which nothing more is checked. */
static void test_others(void)
{
	const struct fl_sched *const *sched;

	for (sched = fl_schedulers; *sched; sched++) {
		if (!(*sched)->dispatch || *sched == &fl_kyber_fairness || *sched == &fl_flashfq)
			continue;
		run_threads(*sched);
		fl_dev_destroy(dev);
	}
}

static void test_flashfq(void)
{
	u64 in_service;

	run_threads(&fl_flashfq);
	fl_get(dev, "in_service", &in_service);
	CHECK(in_service == 0, "%lu", in_service);
	fl_dev_destroy(dev);
}

/* kyber-fairness asks, once a period, whether they are the default ones. */
static void test_prices_change_while_it_ticks(void)
{
	static const char list[] = "read 1 2 3 4 5 6 7 8 9 10 11 12\nwrite 1 2 3 4 5 6 7 8 9 10 11 12\n";
	struct fl_host host = { .run = run, .kick = kick };
	u64 refills = 0;
	pthread_t thread;

	atomic_set(&stop, 0);
	dev = fl_dev_create(&fl_kyber_fairness, 1, &host);
	fl_set(dev, "period_nsec", NSEC_PER_MSEC);
	pthread_create(&thread, NULL, ticker, NULL);
	while (refills < 100) { /* 16 to a period, if the ticker is not late */
		CHECK(fl_set_prices(dev, list), "refused");
		let_others_run();
		fl_get(dev, "refills_period", &refills);
	}
	atomic_set(&stop, 1);
	pthread_join(thread, NULL);
	fl_dev_destroy(dev);
}

#define STAY (3 * FL_QUEUES_AT_A_TIME / WALK_HWQS + 5)
#define WALK_HWQS 8
#define VISITORS 40
#define WALKS 2000

static struct fl_flow *staying[STAY];
static unsigned int looks[STAY];

static void look(struct fl_flow *flow)
{
	unsigned int i;

	for (i = 0; i < STAY; i++)
		looks[i] += staying[i] == flow;
}

static void *comes_and_goes(void *visitors)
{
	unsigned int seed = 1;

	while (!atomic_read(&stop)) {
		struct fl_flow *flow = ((struct fl_flow **)visitors)[rand_r(&seed) % VISITORS];

		spin_lock(&dev->lock);
		fl_flow_set_busy(flow, rand_r(&seed) % 2);
		spin_unlock(&dev->lock);
		let_others_run();
	}
	return NULL;
}

/* Who stays is looked at once, but where others leave at most once. */
static void test_a_walk_looks_at_nobody_twice(void)
{
	struct fl_host host = { .run = run, .kick = kick };
	struct fl_flow *visitors[VISITORS];
	unsigned int i, n, seen = 0;
	pthread_t thread;

	atomic_set(&stop, 0);
	dev = fl_dev_create(&fl_mqfq, WALK_HWQS, &host);
	for (i = 0; i < VISITORS; i++)
		visitors[i] = fl_flow_create(dev, NULL, 100);
	for (i = 0; i < STAY; i++) {
		staying[i] = fl_flow_create(dev, NULL, 100);
		spin_lock(&dev->lock);
		fl_flow_set_busy(staying[i], true);
		spin_unlock(&dev->lock);
	}
	pthread_create(&thread, NULL, comes_and_goes, visitors);
	for (n = 0; n < WALKS; n++) {
		memset(looks, 0, sizeof(looks));
		fl_flows_walk(dev, look);
		for (i = 0; i < STAY; i++) {
			CHECK(looks[i] <= 1, "flow %u was looked at %u times", i, looks[i]);
			seen += looks[i];
		}
	}
	atomic_set(&stop, 1);
	pthread_join(thread, NULL);
	CHECK(seen > 0.9 * STAY * WALKS, "only %u of %u", seen, STAY * WALKS);
	fl_dev_destroy(dev);
}

static const struct test tests[] = {
	{ "kyber-fairness: threads do everything at once", test_kyber_fairness },
	{ "flashfq: threads do everything at once", test_flashfq },
	{ "kyber-fairness: prices change while it ticks", test_prices_change_while_it_ticks },
	{ "all others that stage: threads do everything at once", test_others },
	{ "a walk looks at nobody twice, whoever comes and goes meanwhile", test_a_walk_looks_at_nobody_twice },
	{}
};

int main(int argc, char **argv)
{
	return run_tests(tests, argc, argv);
}
