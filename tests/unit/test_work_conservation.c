// SPDX-License-Identifier: GPL-2.0-only OR MIT
/*
 * Work conservation (work-conservation.h): the floor finds what a drive needs at once, and
 * nobody waits for room that is there (room.h).
 */
#include <pthread.h>
#include <sched.h>

#include "test.h"
#include "user.h"
#include "mechanisms/work-conservation.h"

#define NR_HWQS 4
#define LOOK_NS (200 * NSEC_PER_USEC)

/* Cost in units of a reference request. */
#define ONE ((s64)FL_COST_ONE)

struct hwq {
	struct fl_hwq hwq;
	struct fl_room room;
	int runs; /* by fl_hwq_run() that have not been obeyed */
};

static void run(void *ctx, unsigned int index)
{
	struct fl_dev **dev = ctx;

	__atomic_store_n(&container_of((*dev)->hwqs[index], struct hwq, hwq)->runs, 1, __ATOMIC_SEQ_CST);
}

static void nothing(void *ctx)
{
	(void)ctx;
}

static struct fl_req *no_dispatch(struct fl_hwq *hwq)
{
	(void)hwq;
	return NULL;
}

static const struct fl_var no_vars[] = { {} };
static const struct fl_sched fake = {
	.name = "fake",
	.dev_size = sizeof(struct fl_dev),
	.hwq_size = sizeof(struct hwq),
	.flow_size = sizeof(struct fl_flow),
	.queue_size = sizeof(struct fl_queue),
	.dispatch = no_dispatch,
	.vars = no_vars,
};

static struct fl_dev *dev;
static const struct fl_host host = { .run = run, .kick = nothing, .ctx = &dev };

static struct hwq *hwq_of(unsigned int i)
{
	return container_of(dev->hwqs[i], struct hwq, hwq);
}

/* ---- How high the floor is: a drive whose rate follows from what is in it ---- */

struct model {
	double knee, capacity; /* it needs so much at once to do so many requests a second */
	bool soft; /* half of the capacity at the knee, and slowly more */
	double noise;
};

static struct fl_floor fl;
static u64 rng = 88172645463325252ull, now_ns, done[2], requests;
static double part_done;

static double noise(double most)
{
	rng ^= rng << 13;
	rng ^= rng >> 7;
	rng ^= rng << 17;
	return most * ((double)(rng % 2001) / 1000 - 1);
}

static double rate_of(const struct model *m, double in_drive)
{
	if (m->soft)
		return m->capacity * in_drive / (in_drive + m->knee);
	return m->capacity * (in_drive < m->knee ? in_drive / m->knee : 1);
}

static void begin(void)
{
	memset(&fl, 0, sizeof(fl));
	now_ns = requests = done[0] = done[1] = 0;
	part_done = 0;
	dev = fl_dev_create(&fake, NR_HWQS, &host);
	fl_floor_init(&fl, dev, offsetof(struct hwq, room), 0);
}

/* @kept requests are in the drive anyway; those that are held fill it up to the floor. Returns the rate. */
static double let_go_for(u64 ns, const struct model *m, double kept)
{
	u64 end = now_ns + ns, before = requests;
	double window = 0;

	for (; now_ns < end; now_ns += LOOK_NS) {
		double level = (double)fl.limit.level / ONE;
		double in_drive = level > kept ? level : kept;

		if (now_ns % (20 * NSEC_PER_MSEC) == 0)
			window = noise(m->noise);
		part_done += rate_of(m, in_drive) * (1 + window) * LOOK_NS / NSEC_PER_SEC;
		requests += (u64)part_done;
		done[0] += (u64)part_done * ONE;
		atomic64_add(level > kept ? (s64)part_done : 0, &fl.released);
		part_done -= (u64)part_done;
		fl_floor_look(&fl, now_ns, done, requests);
	}
	return (double)(requests - before) * NSEC_PER_SEC / ns;
}

static double middle(void)
{
	return (double)fl.middle / ONE;
}

static void test_the_floor_finds_a_sharp_knee(void)
{
	static const double knees[] = { 16, 64, 300, 2000 };
	unsigned int i;

	for (i = 0; i < ARRAY_SIZE(knees); i++) {
		struct model m = { knees[i], 100000, false, 0 };

		begin();
		let_go_for(5 * NSEC_PER_SEC, &m, 1);
		CHECK_NEAR(middle(), knees[i] * 1.1, 0.15);
		CHECK(let_go_for(NSEC_PER_SEC, &m, 1) > 0.97 * m.capacity, "knee %g", knees[i]);
		fl_dev_destroy(dev);
	}
}

/* A soft one has no knee: nearly all of the capacity, and not without bound. */
static void test_the_floor_settles_on_a_soft_curve(void)
{
	struct model m = { 16, 100000, true, 0 };
	double rate;

	begin();
	let_go_for(10 * NSEC_PER_SEC, &m, 1);
	rate = let_go_for(NSEC_PER_SEC, &m, 1);
	CHECK(rate > 0.93 * m.capacity, "%g", rate);
	CHECK(middle() < 1000, "%g", middle());
	fl_dev_destroy(dev);
}

static void test_it_follows_the_drive(void)
{
	struct model m = { 64, 100000, false, 0 };
	unsigned int i;

	begin();
	let_go_for(3 * NSEC_PER_SEC, &m, 1);
	for (i = 0; i < 4; i++) {
		m.knee = i % 2 ? 64 : 128;
		m.capacity = i % 2 ? 50000 : 100000;
		let_go_for(2 * NSEC_PER_SEC, &m, 1);
		CHECK_NEAR(middle(), m.knee * 1.15, 0.2);
		CHECK(let_go_for(NSEC_PER_SEC, &m, 1) > 0.96 * m.capacity, "knee %g", m.knee);
	}
	fl_dev_destroy(dev);
}

static void test_noise_does_not_lead_it_astray(void)
{
	struct model m = { 64, 100000, false, 0.05 };

	begin();
	let_go_for(5 * NSEC_PER_SEC, &m, 1);
	CHECK(let_go_for(30 * NSEC_PER_SEC, &m, 1) > 0.93 * m.capacity, "the drive runs dry");
	CHECK(middle() < 64 * 4, "%g", middle());
	fl_dev_destroy(dev);
}

/* ---- Room ---- */

static void test_nobody_is_let_go_while_the_drive_has_more_than_the_floor(void)
{
	unsigned int i, sent = 0;

	begin();
	for (i = 0; fl_limit_has_room(&fl.limit, &hwq_of(i % NR_HWQS)->room) && i < 1000; i++)
		fl_limit_sent(&fl.limit, &hwq_of(i % NR_HWQS)->room, ONE);
	CHECK(i >= 32 && i <= 32 + NR_HWQS, "%u", i);
	fl_dev_destroy(dev);

	/* One in, one out at a hardware queue: a lower floor holds there, too. */
	begin();
	fl_limit_set(&fl.limit, 64 * ONE);
	for (i = 0; i < 64; i++)
		fl_limit_sent(&fl.limit, &hwq_of(0)->room, ONE);
	fl_limit_set(&fl.limit, 32 * ONE);
	for (i = 0; i < 31; i++) {
		fl_limit_done(&fl.limit, &hwq_of(0)->room, ONE);
		if (fl_limit_has_room(&fl.limit, &hwq_of(0)->room)) {
			fl_limit_sent(&fl.limit, &hwq_of(0)->room, ONE);
			sent++;
		}
	}
	CHECK(sent <= NR_HWQS, "%u of 31", sent);
	fl_dev_destroy(dev);
}

static void test_what_is_given_back_wakes_one_that_waits(void)
{
	unsigned int i;

	begin();
	for (i = 0; fl_limit_has_room(&fl.limit, &hwq_of(0)->room) && i < 1000; i++)
		fl_limit_sent(&fl.limit, &hwq_of(0)->room, ONE);
	for (i = 1; i < NR_HWQS; i++)
		CHECK(!fl_limit_has_room(&fl.limit, &hwq_of(i)->room), "room on %u", i);
	for (i = 0; i < NR_HWQS; i++)
		hwq_of(i)->runs = 0;
	fl_limit_done(&fl.limit, &hwq_of(0)->room, 2 * ONE);
	CHECK(hwq_of(0)->runs + hwq_of(1)->runs + hwq_of(2)->runs + hwq_of(3)->runs >= 1, "nobody was run");
	CHECK(hwq_of(0)->runs, "the one that has waited longest was not");
	fl_dev_destroy(dev);
}

/* ---- Threads: each sends and completes; whoever has no room sleeps until it is run ---- */

#define ROUNDS 20000

static struct fl_limit few;

static void *sender(void *arg)
{
	struct hwq *mine = arg;
	unsigned int n = 0, in_drive = 0, idle = 0;

	while (n < ROUNDS && idle < 50000000) {
		spin_lock(&mine->hwq.lock);
		while (n < ROUNDS && fl_limit_has_room(&few, &mine->room)) {
			fl_limit_sent(&few, &mine->room, ONE);
			in_drive++;
			n++;
			if (in_drive == 3)
				break;
		}
		fl_limit_pass_on(&few, &mine->room);
		spin_unlock(&mine->hwq.lock);
		idle = 0;
		if (in_drive) {
			for (; in_drive; in_drive--)
				fl_limit_done(&few, &mine->room, ONE);
			continue;
		}
		/* Nothing of its own is in the drive: only a run wakes it. */
		while (!__atomic_exchange_n(&mine->runs, 0, __ATOMIC_SEQ_CST) && idle < 50000000)
			if (++idle % 64 == 0)
				sched_yield();
	}
	return (void *)(uintptr_t)n;
}

static void test_nobody_sleeps_for_ever(void)
{
	pthread_t thread[NR_HWQS];
	unsigned int i;

	dev = fl_dev_create(&fake, NR_HWQS, &host);
	memset(&few, 0, sizeof(few));
	fl_limit_init(&few, dev, offsetof(struct hwq, room), 2 * ONE);
	for (i = 0; i < NR_HWQS; i++)
		pthread_create(&thread[i], NULL, sender, hwq_of(i));
	for (i = 0; i < NR_HWQS; i++) {
		void *sent;

		pthread_join(thread[i], &sent);
		CHECK((uintptr_t)sent == ROUNDS, "%lu sent on %u", (unsigned long)(uintptr_t)sent, i);
	}
	fl_dev_destroy(dev);
}

static const struct test tests[] = {
	{ "the floor finds a sharp knee", test_the_floor_finds_a_sharp_knee },
	{ "the floor settles on a soft curve", test_the_floor_settles_on_a_soft_curve },
	{ "it follows a drive that halves and doubles", test_it_follows_the_drive },
	{ "noise does not lead it astray", test_noise_does_not_lead_it_astray },
	{ "nobody is let go while the drive has more than the floor",
	  test_nobody_is_let_go_while_the_drive_has_more_than_the_floor },
	{ "what is given back wakes the one that has waited longest",
	  test_what_is_given_back_wakes_one_that_waits },
	{ "nobody sleeps for ever", test_nobody_sleeps_for_ever },
	{}
};

int main(int argc, char **argv)
{
	return run_tests(tests, argc, argv);
}
