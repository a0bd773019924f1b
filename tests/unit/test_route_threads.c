// SPDX-License-Identifier: GPL-2.0-only OR MIT
/*
 * D2FQ, MQFQ and fairlane with many threads at once: some submit, some complete, one
 * ticks, and one changes weights and tunables and makes, uses and destroys
 * flows. Nothing may race (ThreadSanitizer), leak (AddressSanitizer), get lost
 * or be stuck.
 */
#include <pthread.h>
#include <stdlib.h>
#include <unistd.h>

#include "user.h"
#include "test.h"

#define HWQS 5
#define FLOWS 4
#define SUBMITTERS 3
#define PER_THREAD 20000
#define OUTSTANDING 64 /* per submitter */
#define VISITS 200

enum { FREE, SENT, IN_DRIVE }; /* a request is its submitter's, the scheduler's, the drive's */

struct request {
	struct fl_req rq;
	struct fl_admission admission;
	int state;
};

static struct fl_dev *dev;
static struct fl_flow *flows[FLOWS];
static struct request pool[SUBMITTERS][OUTSTANDING];
static struct request visit;
static atomic64_t done, weights_set;
static atomic_t stop, stop_visits;

static void run(void *ctx, unsigned int hwq)
{
	(void)ctx;
	(void)hwq; /* the drive's threads poll */
}

static void kick(void *ctx)
{
	(void)ctx; /* the ticker ticks anyway */
}

static void weights(void *ctx, unsigned int high, unsigned int medium, unsigned int low)
{
	(void)ctx;
	if (low == 1 && medium >= low && high >= medium && high <= FL_CLASS_WEIGHT_MAX)
		atomic64_inc(&weights_set);
}

static void admitted(void *ctx, struct fl_admission *admission)
{
	struct request *r = container_of(admission, struct request, admission);

	(void)ctx;
	__atomic_store_n(&r->state, IN_DRIVE, __ATOMIC_RELEASE);
}

static void send(struct request *r, unsigned int hwq, struct fl_flow *flow)
{
	r->rq.arrival_ns = fl_now_ns();
	if (dev->sched->admit) {
		r->admission = (struct fl_admission){ .op = r->rq.op, .bytes = r->rq.bytes };
		__atomic_store_n(&r->state, SENT, __ATOMIC_RELEASE);
		if (fl_admit(flow, hwq, &r->admission))
			admitted(NULL, &r->admission);
		return;
	}
	if (!dev->sched->route) {
		__atomic_store_n(&r->state, SENT, __ATOMIC_RELEASE);
		fl_submit(dev, hwq, flow, &r->rq);
		return;
	}
	fl_route(dev, hwq, flow, &r->rq);
	__atomic_store_n(&r->state, IN_DRIVE, __ATOMIC_RELEASE);
}

static void finish(struct request *r)
{
	if (dev->sched->admit) {
		__atomic_store_n(&r->state, SENT, __ATOMIC_RELEASE);
		if (!fl_sent(&r->admission))
			return;
		fl_leave(&r->admission, 1000);
	} else {
		fl_done(&r->rq);
	}
	atomic64_inc(&done);
	__atomic_store_n(&r->state, FREE, __ATOMIC_RELEASE);
}

static void *submitter(void *arg)
{
	long me = (long)arg;
	unsigned int seed = 1 + me, n, i = 0;

	for (n = 0; n < PER_THREAD; n++) {
		struct request *r;

		while (__atomic_load_n(&pool[me][i % OUTSTANDING].state, __ATOMIC_ACQUIRE) != FREE) {
			i++;
			let_others_run();
		}
		r = &pool[me][i % OUTSTANDING];
		r->rq.op = rand_r(&seed) % FL_NR_OPS;
		r->rq.bytes = 512u << (rand_r(&seed) % 8);
		send(r, rand_r(&seed) % HWQS, flows[rand_r(&seed) % FLOWS]);
	}
	return NULL;
}

/* What was routed is in the drive; one thread has half of the requests. */
static void complete_routed(unsigned int half)
{
	unsigned int s, i;

	for (s = 0; s < SUBMITTERS; s++)
		for (i = half; i < OUTSTANDING; i += 2)
			if (__atomic_load_n(&pool[s][i].state, __ATOMIC_ACQUIRE) == IN_DRIVE)
				finish(&pool[s][i]);
	if (!half && __atomic_load_n(&visit.state, __ATOMIC_ACQUIRE) == IN_DRIVE)
		finish(&visit);
}

/* Two threads serve all hardware queues, and complete what they take some requests later. */
static void *drive(void *arg)
{
	struct fl_req *held[16] = { 0 };
	unsigned int seed = 100 + (long)arg, slot = 0, i;

	while (!atomic_read(&stop)) {
		struct fl_req *rq;

		if (!dev->sched->dispatch) {
			complete_routed((long)arg);
			let_others_run();
			continue;
		}
		rq = fl_next(dev, rand_r(&seed) % HWQS);
		if (rq && rand_r(&seed) % 50 == 0) {
			fl_requeue(rq);
			continue;
		}
		slot = (slot + 1) % ARRAY_SIZE(held);
		if (held[slot])
			finish(container_of(held[slot], struct request, rq));
		held[slot] = rq;
		if (!rq)
			let_others_run();
	}
	for (i = 0; i < ARRAY_SIZE(held); i++)
		if (held[i])
			finish(container_of(held[i], struct request, rq));
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

/* Flows come, have one request, and go. */
static void *visitors(void *arg)
{
	unsigned int seed = 1000, n = 0;

	(void)arg;
	while (!atomic_read(&stop_visits)) {
		struct fl_flow *flow = fl_flow_create(dev, flows[0], 1 + rand_r(&seed) % 10000);

		fl_flow_weight(flows[rand_r(&seed) % FLOWS], 1 + rand_r(&seed) % 10000);
		fl_set(dev, "period_nsec", (1 + rand_r(&seed) % 5) * NSEC_PER_MSEC);
		fl_set(dev, "grace_nsec", NSEC_PER_MSEC);
		fl_set(dev, "low_threshold", 4096u << (rand_r(&seed) % 12));
		fl_set(dev, "fixed_ratio", rand_r(&seed) % 8 ? 0 : rand_r(&seed) % 257);
		fl_set(dev, "throttle_bytes", 512u << (rand_r(&seed) % 12));
		fl_set(dev, "depth", 1 + rand_r(&seed) % 64);
		fl_set(dev, "budget", rand_r(&seed) % 8 ? rand_r(&seed) % 16 : 0);
		if (n++ < VISITS) {
			visit.rq.op = FL_READ;
			visit.rq.bytes = 4096;
			send(&visit, rand_r(&seed) % HWQS, flow);
			while (__atomic_load_n(&visit.state, __ATOMIC_ACQUIRE) != FREE)
				let_others_run();
			atomic64_add(-1, &done); /* not one of the submitters' */
		}
		fl_flow_destroy(flow);
		let_others_run();
	}
	return NULL;
}

static void serve_rest(void)
{
	struct fl_req *rq;
	unsigned int i;

	complete_routed(0);
	complete_routed(1);
	for (i = 0; dev->sched->dispatch && i < HWQS; i++)
		while ((rq = fl_next(dev, i)))
			finish(container_of(rq, struct request, rq));
	fl_tick(dev);
}

static void run_threads(const struct fl_sched *sched)
{
	struct fl_host host = { .run = run, .kick = kick, .weights = weights, .admitted = admitted };
	pthread_t threads[SUBMITTERS + 4];
	long i;

	atomic64_set(&done, 0);
	atomic_set(&stop, 0);
	atomic_set(&stop_visits, 0);
	dev = fl_dev_create(sched, HWQS, &host);
	for (i = 0; i < FLOWS; i++)
		flows[i] = fl_flow_create(dev, i == 3 ? flows[2] : NULL, 100 * (i + 1));
	pthread_create(&threads[SUBMITTERS], NULL, drive, (void *)0);
	pthread_create(&threads[SUBMITTERS + 1], NULL, drive, (void *)1);
	pthread_create(&threads[SUBMITTERS + 2], NULL, ticker, NULL);
	pthread_create(&threads[SUBMITTERS + 3], NULL, visitors, NULL);
	for (i = 0; i < SUBMITTERS; i++)
		pthread_create(&threads[i], NULL, submitter, (void *)i);
	for (i = 0; i < SUBMITTERS; i++)
		pthread_join(threads[i], NULL);
	/* All come through: a lost request would hang this, and the test's caller has a limit. */
	while (atomic64_read(&done) < SUBMITTERS * PER_THREAD - 2 * 16)
		let_others_run();
	atomic_set(&stop_visits, 1);
	pthread_join(threads[SUBMITTERS + 3], NULL);
	atomic_set(&stop, 1);
	for (i = 0; i < 3; i++)
		pthread_join(threads[SUBMITTERS + i], NULL);
	while (atomic64_read(&done) < SUBMITTERS * PER_THREAD)
		serve_rest();
	CHECK(atomic64_read(&done) == SUBMITTERS * PER_THREAD, "%ld", atomic64_read(&done));
}

static void test_d2fq(void)
{
	u64 changed, lowered;

	atomic64_set(&weights_set, 0);
	run_threads(&fl_d2fq);
	fl_get(dev, "raised", &changed);
	fl_get(dev, "lowered", &lowered);
	/* Each change reached the drive, as weights that NVMe has; so does what stays, once a period. */
	CHECK(atomic64_read(&weights_set) >= (s64)(changed + lowered) && lowered, "%ld, %lu",
	      atomic64_read(&weights_set), changed + lowered);
	fl_dev_destroy(dev);
}

static void test_mqfq(void)
{
	u64 handed;

	run_threads(&fl_mqfq);
	fl_get(dev, "handed_over", &handed);
	CHECK(handed > 0, "no slot went from one hardware queue to another");
	fl_dev_destroy(dev);
}

static bool is_sent(const struct request *r)
{
	return __atomic_load_n(&r->state, __ATOMIC_ACQUIRE) == IN_DRIVE;
}

/* After that nothing is counted as in the drive: as many go as the budget has, and one more of who is ahead waits. */
static void test_fairlane(void)
{
	struct request r[3] = { 0 };
	unsigned int i;

	run_threads(&fl_fairlane);
	usleep(20000); /* credit that nobody used ends at the next tick */
	fl_tick(dev);
	for (i = 0; i < ARRAY_SIZE(r); i++) {
		fl_set(dev, "budget", i < 2 ? 1000 : 1);
		fl_tick(dev);
		r[i].rq = (struct fl_req){ .op = FL_READ, .bytes = i ? 4096 : 1 << 20 };
		send(&r[i], i, flows[i % 2]);
		CHECK(is_sent(&r[i]) == (i < 2), "%u", i);
	}
	finish(&r[0]);
	finish(&r[1]);
	CHECK(is_sent(&r[2]), "who waits is not let go");
	finish(&r[2]);
	fl_dev_destroy(dev);
}

static const struct test tests[] = {
	{ "d2fq: threads do everything at once", test_d2fq },
	{ "mqfq: threads do everything at once", test_mqfq },
	{ "fairlane: threads do everything at once", test_fairlane },
	{}
};

int main(int argc, char **argv)
{
	return run_tests(tests, argc, argv);
}
