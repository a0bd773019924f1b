// SPDX-License-Identifier: GPL-2.0-only OR MIT
/*
 * libfairlane.h, as an engine uses it, in virtual time: a drive that takes a number of requests at
 * once, and engines that tick when they are asked to.
 */
#include <errno.h>
#include <stdlib.h>

#include "libfairlane.h"
#include "test.h"
#include "user.h"

#define DEPTH 16
#define SERVICE_NS (100 * NSEC_PER_USEC)
#define OUTSTANDING 32 /* of each tenant */
#define MOST_OUTSTANDING 128
#define TENANTS 3

struct io {
	struct fairlane_request request;
	unsigned int tenant, queue;
	u64 end_ns;
	struct io *next;
};

static u64 now_ns, tick_ns; /* 0: no tick is due */
static struct fairlane_drive *drive;
static struct fairlane_tenant *tenants[TENANTS];
static struct io ios[TENANTS][MOST_OUTSTANDING];
static unsigned int depth[TENANTS]; /* outstanding, of each queue */
static u32 bytes[TENANTS]; /* of each request */
static struct {
	struct io *first, **last;
	unsigned int nr, most; /* in the drive, with those that wait in it for one of DEPTH places */
	u64 free_ns[DEPTH]; /* when each place is free */
} sent;
static u64 done[TENANTS];
static u64 service_ns = SERVICE_NS;
static bool synchronous; /* an engine that has done a request as soon as it may go */
static unsigned int nested, deepest;

static u64 clock_ns(void)
{
	return now_ns;
}

static void finish(struct io *io)
{
	unsigned int tenant = io->tenant;

	done[tenant]++;
	fairlane_done(&io->request);
}

/* To the place that is free first: the drive serves in the order of arrival. */
static void go(void *ctx, struct fairlane_request *request)
{
	struct io *io = request->data;
	unsigned int i, place = 0;

	(void)ctx;
	nested++;
	deepest = max_t(unsigned int, deepest, nested);
	if (synchronous) {
		finish(io);
		nested--;
		return;
	}
	for (i = 1; i < DEPTH; i++)
		if (sent.free_ns[i] < sent.free_ns[place])
			place = i;
	io->end_ns = max_t(u64, sent.free_ns[place], now_ns) + service_ns;
	sent.free_ns[place] = io->end_ns;
	io->next = NULL;
	*sent.last = io;
	sent.last = &io->next;
	sent.nr++;
	sent.most = max_t(unsigned int, sent.most, sent.nr);
	nested--;
}

static void wake(void *ctx)
{
	(void)ctx;
	tick_ns = now_ns;
}

static const struct fairlane_engine engine = { .go = go, .wake = wake };

static void open_drive(const char *scheduler, unsigned int queues, unsigned int places)
{
	unsigned int i;
	int error;

	memset(&sent, 0, sizeof(sent));
	sent.last = &sent.first;
	memset(done, 0, sizeof(done));
	memset(tenants, 0, sizeof(tenants));
	memset(depth, 0, sizeof(depth));
	for (i = 0; i < TENANTS; i++)
		bytes[i] = 4096;
	now_ns = NSEC_PER_SEC;
	tick_ns = 0;
	synchronous = false;
	deepest = 0;
	fl_set_clock(clock_ns);
	error = fairlane_open(&drive, scheduler, queues, places, &engine);
	CHECK(!error, "%s: %d", scheduler, error);
}

static void add_tenant(unsigned int i, unsigned int weight, unsigned int outstanding)
{
	CHECK(!fairlane_tenant_create(&tenants[i], drive, NULL, weight), "weight %u", weight);
	depth[i] = outstanding;
}

static void submit(struct io *io)
{
	io->request.data = io;
	io->request.op = FAIRLANE_READ;
	io->request.bytes = bytes[io->tenant];
	CHECK(!fairlane_submit(tenants[io->tenant], io->queue, &io->request), "submit");
}

static void start(unsigned int queues)
{
	unsigned int t, i;

	for (t = 0; t < TENANTS; t++)
		for (i = 0; i < depth[t]; i++) {
			ios[t][i] = (struct io){ .tenant = t, .queue = i % queues };
			submit(&ios[t][i]);
		}
}

static void complete_first(bool again)
{
	struct io *io = sent.first;

	now_ns = io->end_ns;
	sent.first = io->next;
	if (!sent.first)
		sent.last = &sent.first;
	sent.nr--;
	finish(io);
	if (again)
		submit(io);
}

/* Until @end_ns, or, at 0, until all are done; who is done submits again, or not. */
static void run(u64 end_ns, bool again)
{
	unsigned int ticks = 0;
	u64 ns;

	while (end_ns ? now_ns < end_ns : (sent.first || ticks < 100)) {
		if (tick_ns && (!sent.first || tick_ns <= sent.first->end_ns)) {
			now_ns = max_t(u64, now_ns, tick_ns);
			tick_ns = 0;
			ns = fairlane_tick(drive);
			if (!tick_ns && ns)
				tick_ns = now_ns + ns;
			ticks += !sent.first;
		} else if (sent.first) {
			complete_first(again);
			ticks = 0;
		} else {
			break;
		}
	}
}

static void close_drive(void)
{
	run(0, false);
	CHECK(!fairlane_close(drive), "requests are left");
	fl_set_clock(NULL);
}

static const char *name_of(unsigned int i)
{
	return fairlane_scheduler(i, NULL);
}

/* ---- Tests ----------------------------------------------------------------------- */

/* Requests of @first and of @second bytes, which cost the same. */
static void check_shares(u32 first, u32 second)
{
	const double due = NSEC_PER_SEC / SERVICE_NS * DEPTH; /* of the whole drive, in a second */
	unsigned int i;

	for (i = 0; name_of(i); i++) {
		bool weighs = strcmp(name_of(i), "round-robin");

		open_drive(name_of(i), 1, DEPTH);
		add_tenant(0, 300, OUTSTANDING);
		add_tenant(1, 100, OUTSTANDING);
		bytes[0] = first;
		bytes[1] = second;
		start(1);
		run(now_ns + NSEC_PER_SEC, true);
		memset(done, 0, sizeof(done));
		run(now_ns + NSEC_PER_SEC, true);
		printf("    %-16s %5.3f of the drive, %5.3f : 1\n", name_of(i), (done[0] + done[1]) / due,
		       (double)done[0] / done[1]);
		CHECK_NEAR((double)done[0] / done[1], weighs ? 3 : 1, 0.02);
		CHECK((double)(done[0] + done[1]) >= 0.95 * due, "%s: %g of the drive", name_of(i),
		      (done[0] + done[1]) / due);
		CHECK(sent.most <= DEPTH, "%s: %u in the drive", name_of(i), sent.most);
		close_drive();
	}
}

static void test_shares(void)
{
	check_shares(4096, 4096);
}

static void test_single_bytes(void)
{
	check_shares(512, 1);
}

/* The drive itself holds all that comes; what is of use in it has to be found. */
static void test_without_depth(void)
{
	open_drive("fairlane", 2, 0);
	add_tenant(0, 300, OUTSTANDING);
	add_tenant(1, 100, OUTSTANDING);
	start(2);
	run(now_ns + NSEC_PER_SEC, true);
	memset(done, 0, sizeof(done));
	run(now_ns + NSEC_PER_SEC, true);
	printf("    %5.3f : 1\n", (double)done[0] / done[1]);
	CHECK_NEAR((double)done[0] / done[1], 3, 0.02);
	close_drive();
}

/* More than the drive can use is in it, because somebody said so: nobody waits for nothing, and shares hold. */
static void test_large_budget(void)
{
	service_ns = 20 * NSEC_PER_MSEC; /* all in all as many in a second as a disk */
	open_drive("fairlane", 1, 0);
	CHECK(!fairlane_set(drive, "budget", 64), "budget");
	add_tenant(0, 800, MOST_OUTSTANDING);
	add_tenant(1, 200, MOST_OUTSTANDING);
	start(1);
	run(now_ns + NSEC_PER_SEC, true);
	memset(done, 0, sizeof(done));
	run(now_ns + 4 * NSEC_PER_SEC, true);
	printf("    %5.3f : 1\n", (double)done[0] / done[1]);
	CHECK_NEAR((double)done[0] / done[1], 4, 0.08);
	close_drive();
	service_ns = SERVICE_NS;
}

/* What a request of the second tenant, which has one at a time, takes in the drive: beside many of the first. */
static double drive_us(u64 target_ns)
{
	struct fairlane_stat before, after;

	open_drive("fairlane", 1, 0);
	add_tenant(0, 10000, OUTSTANDING);
	add_tenant(1, 1, 1); /* so little is due to it that it is never behind */
	CHECK(!fairlane_tenant_set_latency(tenants[1], target_ns), "target");
	start(1);
	run(now_ns + NSEC_PER_SEC, true);
	CHECK(!fairlane_tenant_stat(tenants[1], &before), "stat");
	run(now_ns + NSEC_PER_SEC, true);
	CHECK(!fairlane_tenant_stat(tenants[1], &after), "stat");
	close_drive();
	return (double)(after.drive_ns - before.drive_ns) / 1000 /
	       (after.requests[FAIRLANE_READ] - before.requests[FAIRLANE_READ]);
}

static void test_latency(void)
{
	double without = drive_us(0), with = drive_us(SERVICE_NS * 11 / 10);

	printf("    %g us without a target, %g us with one\n", without, with);
	CHECK(with < 0.75 * without, "%g us, without %g", with, without);
}

static void test_tree(void)
{
	struct fairlane_tenant *a, *b;

	open_drive("fairlane", 1, DEPTH);
	CHECK(!fairlane_tenant_create(&a, drive, NULL, 300), "a");
	CHECK(!fairlane_tenant_create(&b, drive, NULL, 100), "b");
	CHECK(!fairlane_tenant_create(&tenants[0], drive, a, 100), "below a");
	CHECK(!fairlane_tenant_create(&tenants[1], drive, a, 200), "below a");
	CHECK(!fairlane_tenant_create(&tenants[2], drive, b, 7), "below b");
	depth[0] = depth[1] = depth[2] = OUTSTANDING;
	start(1);
	run(now_ns + NSEC_PER_SEC, true);
	memset(done, 0, sizeof(done));
	run(now_ns + NSEC_PER_SEC, true);
	CHECK_NEAR((double)done[0] / done[2], 1, 0.02);
	CHECK_NEAR((double)done[1] / done[2], 2, 0.02);
	CHECK(fairlane_tenant_destroy(a) == -EBUSY, "it has tenants below it");
	close_drive(); /* and the tenants */
}

static void test_weight_changes(void)
{
	open_drive("fairlane", 1, DEPTH);
	add_tenant(0, 300, OUTSTANDING);
	add_tenant(1, 100, OUTSTANDING);
	start(1);
	run(now_ns + NSEC_PER_SEC, true);
	CHECK(!fairlane_tenant_set_weight(tenants[1], 600), "weight");
	memset(done, 0, sizeof(done));
	run(now_ns + NSEC_PER_SEC, true);
	CHECK_NEAR((double)done[1] / done[0], 2, 0.02);
	close_drive();
}

/* go() that calls fairlane_done(), and so lets others go, is not called from within itself. */
static void test_synchronous(void)
{
	unsigned int i, t, n;

	for (i = 0; name_of(i); i++) {
		open_drive(name_of(i), 1, 1);
		synchronous = true;
		add_tenant(0, 300, OUTSTANDING);
		add_tenant(1, 100, OUTSTANDING);
		for (n = 1; n <= 200; n++) {
			start(1);
			for (t = 0; t < 1000 && done[0] + done[1] < n * 2 * OUTSTANDING; t++) {
				now_ns += NSEC_PER_MSEC; /* those that are throttled wait for ticks */
				fairlane_tick(drive);
			}
		}
		CHECK(done[0] == done[1] && done[0] == 200 * OUTSTANDING, "%s: %lu and %lu", name_of(i),
		      done[0], done[1]);
		CHECK(deepest == 1, "%s: %u", name_of(i), deepest);
		close_drive();
	}
}

/* An engine that has other uses for a request while that is in the drive. */
static void go_and_write(void *ctx, struct fairlane_request *request)
{
	go(ctx, request);
	request->data = NULL;
	request->bytes = ~0u;
	request->op = 255;
	request->queue_class = 255;
	request->queue = UINT16_MAX;
}

static void test_members_are_the_engines(void)
{
	const struct fairlane_engine writes = { .go = go_and_write, .wake = wake };
	struct fairlane_stat stat;
	unsigned int i;

	for (i = 0; name_of(i); i++) {
		if (!strcmp(name_of(i), "d2fq"))
			continue; /* it wants one queue */
		open_drive(name_of(i), 2, DEPTH);
		CHECK(!fairlane_close(drive), "close");
		fl_set_clock(clock_ns);
		CHECK(!fairlane_open(&drive, name_of(i), 2, DEPTH, &writes), "%s", name_of(i));
		add_tenant(0, 100, 8);
		start(2);
		run(0, false);
		CHECK(!fairlane_tenant_stat(tenants[0], &stat), "stat");
		CHECK(stat.requests[FAIRLANE_READ] == 8 && stat.bytes[FAIRLANE_READ] == 8 * 4096 &&
			      !stat.outstanding, "%s: %lu done", name_of(i), stat.requests[FAIRLANE_READ]);
		close_drive();
	}
}

/* Others wait for it: under a scheduler that admits, it goes at once. */
static void test_root(void)
{
	struct io io = { .tenant = 2 };
	struct fairlane_stat stat;

	open_drive("fairlane", 1, 0);
	add_tenant(0, 300, OUTSTANDING);
	add_tenant(1, 100, OUTSTANDING);
	tenants[2] = fairlane_root(drive);
	start(1);
	run(now_ns + NSEC_PER_SEC, true);
	fairlane_set(drive, "budget", 1); /* most of the others wait */
	run(now_ns + NSEC_PER_SEC / 10, true);
	submit(&io);
	run(now_ns + NSEC_PER_SEC / 10, false);
	CHECK(!fairlane_tenant_stat(tenants[2], &stat), "stat");
	CHECK(stat.requests[FAIRLANE_READ] == 1 && stat.wait_ns == 0, "waited %lu ns", stat.wait_ns);
	CHECK(fairlane_tenant_destroy(tenants[2]) == -EBUSY, "the root stays");
	CHECK(fairlane_tenant_set_weight(tenants[2], 5) == -EINVAL, "the root has no weight");
	CHECK(fairlane_tenant_set_latency(tenants[2], 1000) == -EINVAL, "and no target");
	close_drive();
}

/* Who is charged for what the root sent gets that much less. */
static void test_charge(void)
{
	u64 before;

	open_drive("fairlane", 1, DEPTH);
	CHECK(!fairlane_set(drive, "budget", DEPTH), "budget"); /* or there may be nothing to share */
	add_tenant(0, 100, OUTSTANDING);
	add_tenant(1, 100, OUTSTANDING);
	start(1);
	while (done[0] + done[1] < 40000) {
		before = done[0];
		run(now_ns + NSEC_PER_MSEC, true); /* as much again, each millisecond */
		CHECK(!fairlane_charge(tenants[0], 0, FAIRLANE_WRITE, (done[0] - before) * 4096), "charge");
	}
	CHECK_NEAR((double)done[1] / done[0], 2, 0.02);
	close_drive();
}

static void test_counts(void)
{
	struct fairlane_stat stat;

	open_drive("mqfq", 2, 1);
	add_tenant(0, 100, 8);
	start(2);
	CHECK(sent.nr == 2, "%u in the drive", sent.nr);
	CHECK(!fairlane_tenant_stat(tenants[0], &stat), "stat");
	CHECK(stat.outstanding == 8 && !stat.requests[FAIRLANE_READ], "%lu outstanding", stat.outstanding);
	CHECK(fairlane_close(drive) == -EBUSY, "it has requests");
	CHECK(fairlane_tenant_destroy(tenants[0]) == -EBUSY, "it has requests");
	CHECK(fairlane_set_prices(drive, "") == -EBUSY, "it has requests");
	run(0, false);
	CHECK(!fairlane_tenant_stat(tenants[0], &stat), "stat");
	CHECK(stat.outstanding == 0 && stat.requests[FAIRLANE_READ] == 8 &&
		      stat.bytes[FAIRLANE_READ] == 8 * 4096, "%lu done", stat.requests[FAIRLANE_READ]);
	/* four on each queue, one after the other */
	CHECK(stat.drive_ns == 8 * SERVICE_NS, "%lu ns in the drive", stat.drive_ns);
	CHECK(stat.wait_ns == 2 * (0 + 1 + 2 + 3) * SERVICE_NS, "%lu ns waited", stat.wait_ns);
	CHECK(!fairlane_tenant_destroy(tenants[0]), "it has none left");
	close_drive();
}

static void test_prices(void)
{
	static const char list[] = "read 8 8 8 8 8 8 8 8 8 8 8 8 write 9 9 9 9 9 9 9 9 9 9 9 9";

	open_drive("fairlane", 1, 1);
	CHECK(!fairlane_set_prices(drive, list), "prices");
	CHECK(fairlane_set_prices(drive, "read 8") == -EINVAL, "no price list");
	close_drive();
}

static void test_variables(void)
{
	struct fairlane_variable variable;
	unsigned int i, n;
	uint64_t value;

	for (i = 0; name_of(i); i++) {
		open_drive(name_of(i), 1, DEPTH);
		for (n = 0; !fairlane_variable(drive, n, &variable); n++) {
			bool tunable = variable.min < variable.max;

			CHECK(!fairlane_get(drive, variable.name, &value), "%s", variable.name);
			CHECK(!tunable || value == variable.def, "%s is %lu", variable.name, value);
			CHECK(fairlane_set(drive, variable.name, variable.max) == (tunable ? 0 : -EINVAL),
			      "%s", variable.name);
			CHECK(variable.max == UINT64_MAX ||
				      fairlane_set(drive, variable.name, variable.max + 1) == -EINVAL,
			      "%s", variable.name);
		}
		CHECK(fairlane_variable(drive, n, &variable) == -ENOENT, "%u", n);
		CHECK(fairlane_get(drive, "nothing", &value) == -ENOENT, "get");
		CHECK(fairlane_set(drive, "nothing", 1) == -ENOENT, "set");
		close_drive();
	}
}

static void test_what_is_refused(void)
{
	const struct fairlane_engine no_go = { .wake = wake };
	const struct fairlane_engine newer = { .go = go, .wake = wake, .reserved = { &drive } };
	struct fairlane_request request = { .op = FAIRLANE_OPS };
	struct fairlane_drive *other, *none = NULL;
	struct fairlane_tenant *tenant, *of_other;

	CHECK(fairlane_open(&none, "cfq", 1, 1, &engine) == -ENOENT, "no such scheduler");
	CHECK(fairlane_open(&none, "fairlane", 0, 1, &engine) == -EINVAL, "no queue");
	CHECK(fairlane_open(&none, "fairlane", 65536, 1, &engine) == -EINVAL, "too many queues");
	CHECK(fairlane_open(&none, "fairlane", 1, 1, &no_go) == -EINVAL, "no go()");
	CHECK(fairlane_open(&none, "fairlane", 1, 1, &newer) == -EINVAL, "a newer header's");
	CHECK(fairlane_open(&none, "d2fq", 1, 0, &engine) == -EOPNOTSUPP, "no classes");
	CHECK(fairlane_open(&none, "d2fq", 2, 8, &engine) == -EOPNOTSUPP, "no classes for all queues");
	CHECK(!none, "nothing was opened");

	open_drive("fairlane", 2, 1);
	other = drive;
	CHECK(!fairlane_tenant_create(&of_other, other, NULL, 100), "tenant");
	open_drive("fairlane", 2, 1);
	CHECK(fairlane_tenant_create(&tenant, drive, NULL, 0) == -EINVAL, "weight 0");
	CHECK(fairlane_tenant_create(&tenant, drive, NULL, 10001) == -EINVAL, "weight 10001");
	CHECK(fairlane_tenant_create(&tenant, drive, of_other, 100) == -EINVAL, "of another drive");
	CHECK(!fairlane_tenant_create(&tenant, drive, NULL, 10000), "tenant");
	CHECK(fairlane_tenant_set_weight(tenant, 10001) == -EINVAL, "weight 10001");
	CHECK(fairlane_submit(tenant, 0, &request) == -EINVAL, "no such operation");
	request.op = FAIRLANE_READ;
	CHECK(fairlane_submit(tenant, 2, &request) == -EINVAL, "no such queue");
	CHECK(fairlane_charge(tenant, 2, FAIRLANE_READ, 1) == -EINVAL, "no such queue");
	CHECK(fairlane_charge(tenant, 0, (enum fairlane_op)FAIRLANE_OPS, 1) == -EINVAL, "no such operation");
	close_drive();
	CHECK(!fairlane_close(other), "other");
}

/* A drive with classes of its own: it is told their weights, and to which one a request goes. */
static unsigned int told[3], classes_seen;

static void class_weights(void *ctx, unsigned int high, unsigned int medium, unsigned int low)
{
	(void)ctx;
	told[FAIRLANE_HIGH] = high;
	told[FAIRLANE_MEDIUM] = medium;
	told[FAIRLANE_LOW] = low;
}

static void go_to_class(void *ctx, struct fairlane_request *request)
{
	classes_seen |= 1u << request->queue_class;
	go(ctx, request);
}

static void test_classes(void)
{
	const struct fairlane_engine wrr = { .go = go_to_class, .wake = wake,
					     .class_weights = class_weights };

	open_drive("fairlane", 1, 0);
	CHECK(!fairlane_close(drive), "close");
	fl_set_clock(clock_ns);
	CHECK(!fairlane_open(&drive, "d2fq", 2, 0, &wrr), "open");
	classes_seen = 0;
	add_tenant(0, 300, OUTSTANDING);
	add_tenant(1, 100, OUTSTANDING);
	start(2);
	run(now_ns + 3 * NSEC_PER_SEC, true);
	CHECK(told[FAIRLANE_HIGH] > told[FAIRLANE_MEDIUM] && told[FAIRLANE_MEDIUM] >= told[FAIRLANE_LOW] &&
		      told[FAIRLANE_LOW] >= 1, "%u:%u:%u", told[0], told[1], told[2]);
	CHECK(classes_seen & (1u << FAIRLANE_LOW), "classes %x", classes_seen);
	close_drive();
}

/* A tick that comes early does nothing, and says how long it still is. */
static void test_early_ticks(void)
{
	u64 ns, left;

	open_drive("fairlane", 1, DEPTH);
	add_tenant(0, 100, 1);
	start(1);
	CHECK(tick_ns == now_ns, "a tick was asked for");
	ns = fairlane_tick(drive);
	CHECK(ns > 1000, "%lu ns", ns);
	now_ns += 1000;
	left = fairlane_tick(drive);
	CHECK(left == ns - 1000, "%lu ns left of %lu", left, ns);
	tick_ns = now_ns + left;
	close_drive();
}

static const struct test tests[] = {
	{ "each scheduler shares a drive by weight, and keeps it busy", test_shares },
	{ "who asks for single bytes pays for sectors, under each scheduler", test_single_bytes },
	{ "fairlane shares a drive that takes all it is sent", test_without_depth },
	{ "fairlane keeps shares with a budget that is larger than a slow drive's need", test_large_budget },
	{ "fairlane shares level by level", test_tree },
	{ "a weight that changes counts from then on", test_weight_changes },
	{ "with a latency target a request finds less in the drive", test_latency },
	{ "an engine that is done at once is not called from within itself", test_synchronous },
	{ "from go() to fairlane_done() an engine may write all that is not reserved", test_members_are_the_engines },
	{ "the root does not wait", test_root },
	{ "who is charged for what the root sends gets less", test_charge },
	{ "what tenants did is counted, and nothing goes that has requests", test_counts },
	{ "price lists", test_prices },
	{ "each variable has the value and the range that are said", test_variables },
	{ "what is wrong is refused, and changes nothing", test_what_is_refused },
	{ "a drive with classes is told their weights", test_classes },
	{ "a tick that comes early does nothing", test_early_ticks },
	{}
};

int main(int argc, char **argv)
{
	return run_tests(tests, argc, argv);
}
