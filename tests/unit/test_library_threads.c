// SPDX-License-Identifier: GPL-2.0-only OR MIT
/*
 * libfairlane.h from many threads, with the library's own thread for ticks: some submit and wait
 * until they may go, as a server with a thread for each request does; some are a drive; one is an
 * operator. Nothing may race, leak, get lost or be stuck.
 */
#include <errno.h>
#include <pthread.h>
#include <stdlib.h>

#include "libfairlane.h"
#include "test.h"
#include "user.h"

#define SUBMITTERS 4
#define TENANTS 3
#define PER_THREAD 1500
#define DEPTH 3
#define VISITS 20

struct io {
	struct fairlane_request request;
	struct io *next;
	pthread_mutex_t lock;
	pthread_cond_t changed;
	bool may_go, done;
	bool by_drive; /* the drive completes it, not its submitter */
};

static struct fairlane_drive *drive;
static struct fairlane_tenant *tenants[TENANTS];
static unsigned int queues;
static atomic_t in_drive, most_in_drive, stop;
static struct {
	pthread_mutex_t lock;
	pthread_cond_t changed;
	struct io *first;
	bool stop;
} sent = { PTHREAD_MUTEX_INITIALIZER, PTHREAD_COND_INITIALIZER, NULL, false };

static void mark(struct io *io, bool *what)
{
	pthread_mutex_lock(&io->lock);
	*what = true;
	pthread_cond_signal(&io->changed);
	pthread_mutex_unlock(&io->lock);
}

static void wait_for(struct io *io, const bool *what)
{
	pthread_mutex_lock(&io->lock);
	while (!*what)
		pthread_cond_wait(&io->changed, &io->lock);
	pthread_mutex_unlock(&io->lock);
}

static void go(void *ctx, struct fairlane_request *request)
{
	struct io *io = request->data;
	int now = atomic_add_return(1, &in_drive), most = atomic_read(&most_in_drive);

	(void)ctx;
	while (now > most && !atomic_try_cmpxchg(&most_in_drive, &most, now))
		;
	if (!io->by_drive) {
		mark(io, &io->may_go);
		return;
	}
	pthread_mutex_lock(&sent.lock);
	io->next = sent.first;
	sent.first = io;
	pthread_cond_signal(&sent.changed);
	pthread_mutex_unlock(&sent.lock);
}

static void *complete(void *arg)
{
	(void)arg;
	pthread_mutex_lock(&sent.lock);
	while (!sent.stop || sent.first) {
		struct io *io = sent.first;

		if (!io) {
			pthread_cond_wait(&sent.changed, &sent.lock);
			continue;
		}
		sent.first = io->next;
		pthread_mutex_unlock(&sent.lock);
		atomic_dec(&in_drive);
		fairlane_done(&io->request);
		mark(io, &io->done);
		pthread_mutex_lock(&sent.lock);
	}
	pthread_mutex_unlock(&sent.lock);
	return NULL;
}

static void do_io(struct io *io, struct fairlane_tenant *tenant, unsigned int *seed)
{
	io->request = (struct fairlane_request){ .data = io, .op = rand_r(seed) % FAIRLANE_OPS,
						 .bytes = 512u << (rand_r(seed) % 8) };
	io->may_go = io->done = false;
	io->by_drive = rand_r(seed) % 2;
	if (fairlane_submit(tenant, rand_r(seed) % queues, &io->request))
		abort();
	if (io->by_drive) {
		wait_for(io, &io->done);
		return;
	}
	wait_for(io, &io->may_go);
	atomic_dec(&in_drive);
	fairlane_done(&io->request);
}

static void *submitter(void *arg)
{
	struct io io = { .lock = PTHREAD_MUTEX_INITIALIZER, .changed = PTHREAD_COND_INITIALIZER };
	unsigned int seed = 1 + (long)arg, n;

	for (n = 0; n < PER_THREAD; n++)
		do_io(&io, tenants[rand_r(&seed) % TENANTS], &seed);
	return NULL;
}

static void *operator(void *arg)
{
	struct io io = { .lock = PTHREAD_MUTEX_INITIALIZER, .changed = PTHREAD_COND_INITIALIZER };
	struct fairlane_stat stat;
	struct fairlane_tenant *t;
	unsigned int seed = 1000, n;
	uint64_t value;

	(void)arg;
	for (n = 0; !atomic_read(&stop); n++) {
		if (fairlane_tenant_create(&t, drive, tenants[0], 1 + rand_r(&seed) % 10000))
			abort();
		if (n < VISITS)
			do_io(&io, t, &seed);
		fairlane_tenant_set_weight(tenants[rand_r(&seed) % TENANTS], 1 + rand_r(&seed) % 10000);
		fairlane_tenant_set_latency(tenants[rand_r(&seed) % TENANTS], rand_r(&seed) % 1000000);
		fairlane_tenant_stat(tenants[rand_r(&seed) % TENANTS], &stat);
		fairlane_set(drive, "budget", rand_r(&seed) % 8);
		fairlane_get(drive, "waits", &value);
		fairlane_charge(t, rand_r(&seed) % queues, FAIRLANE_WRITE, 4096);
		fairlane_tick(drive);
		while (fairlane_tenant_destroy(t)) /* the drive's thread is about to count it */
			let_others_run();
		let_others_run();
	}
	return NULL;
}

static void run_threads(const char *scheduler, unsigned int nr_queues)
{
	const struct fairlane_engine engine = { .go = go };
	pthread_t threads[SUBMITTERS], drives[2], op;
	struct fairlane_stat stat;
	uint64_t done = 0;
	long i, k;

	queues = nr_queues;
	atomic_set(&stop, 0);
	atomic_set(&most_in_drive, 0);
	sent.stop = false;
	CHECK(!fairlane_open(&drive, scheduler, queues, DEPTH, &engine), "%s", scheduler);
	for (i = 0; i < TENANTS; i++)
		CHECK(!fairlane_tenant_create(&tenants[i], drive, i == 2 ? tenants[1] : NULL, 100 * (i + 1)),
		      "tenant %ld", i);
	for (i = 0; i < 2; i++)
		pthread_create(&drives[i], NULL, complete, NULL);
	pthread_create(&op, NULL, operator, NULL);
	for (i = 0; i < SUBMITTERS; i++)
		pthread_create(&threads[i], NULL, submitter, (void *)i);

	/* All come through: a lost request would hang this, and the test's caller has a limit. */
	for (i = 0; i < SUBMITTERS; i++)
		pthread_join(threads[i], NULL);
	atomic_set(&stop, 1);
	pthread_join(op, NULL);
	pthread_mutex_lock(&sent.lock);
	sent.stop = true;
	pthread_cond_broadcast(&sent.changed);
	pthread_mutex_unlock(&sent.lock);
	for (i = 0; i < 2; i++)
		pthread_join(drives[i], NULL);
	for (i = 0; i < TENANTS; i++) {
		fairlane_tenant_stat(tenants[i], &stat);
		CHECK(!stat.outstanding, "%lu outstanding", stat.outstanding);
		for (k = 0; k < FAIRLANE_OPS; k++)
			done += stat.requests[k];
	}
	CHECK(done == SUBMITTERS * PER_THREAD, "%s: %lu done", scheduler, done);
	CHECK(atomic_read(&most_in_drive) <= (int)queues * DEPTH, "%s: %d in the drive", scheduler,
	      atomic_read(&most_in_drive));
	CHECK(!fairlane_close(drive), "close");
}

static void test_threads(void)
{
	const char *name;
	unsigned int i;

	for (i = 0; (name = fairlane_scheduler(i, NULL)); i++)
		run_threads(name, strcmp(name, "d2fq") ? 2 : 1);
}

static const struct test tests[] = {
	{ "each scheduler: threads do everything at once", test_threads },
	{}
};

int main(int argc, char **argv)
{
	return run_tests(tests, argc, argv);
}
