// SPDX-License-Identifier: GPL-2.0-only OR MIT
/*
 * libfairlane.h, on top of user.h: one way to submit for all kinds of schedulers, and who calls
 * what from where.
 *
 *	fairlane_submit()   stages      fl_submit() ... fl_next() --.
 *	                    routes      fl_route() --> ready --------+--> go() while there is a place
 *	                    admits      fl_admit() --> ready --------'
 *
 * The host callbacks of user.h come with locks of a scheduler held. They only note what is to be
 * done; whoever was in a function of the library does it at its end, in leave().
 */
#include <errno.h>
#include <pthread.h>
#include <signal.h>

#include "libfairlane.h"
#include "user.h"

_Static_assert(FAIRLANE_OPS == FL_NR_OPS && FAIRLANE_OTHER == (int)FL_OTHER &&
		       FAIRLANE_DISCARD == (int)FL_DISCARD && FAIRLANE_WRITE == (int)FL_WRITE,
	       "operations");
_Static_assert(FAIRLANE_HIGH == (int)FL_HIGH && FAIRLANE_LOW == (int)FL_LOW, "classes");
_Static_assert(FAIRLANE_WEIGHT_MIN == FL_WEIGHT_MIN && FAIRLANE_WEIGHT_MAX == FL_WEIGHT_MAX &&
		       FAIRLANE_WEIGHT_DEFAULT == FL_WEIGHT_DEFAULT,
	       "weights");

/* In fairlane_request.reserved. Written by whoever has the request: its submitter, then serve(), then fairlane_done(). */
struct request {
	union {
		struct fl_req rq;
		struct fl_admission admission;
	};
	struct list_head ready; /* in queue.ready; under queue.lock */
	struct fairlane_tenant *tenant;
	u64 submitted_ns, went_ns;
	u32 bytes;
	u16 queue;
	u8 op;
};
_Static_assert(sizeof(struct request) <= sizeof(((struct fairlane_request *)0)->reserved),
	       "reserved is too small");

/* AGAIN: somebody serves, and is to look again when done with that; however many have asked. */
enum { IDLE, SERVING, AGAIN };

struct queue {
	struct fairlane_drive *drive;
	unsigned int index;
	bool run; /* it is to be served: set by anybody, taken by leave() */
	atomic_t serving; /* IDLE, SERVING or AGAIN: see serve() */
	atomic_t in_drive; /* raised by who serves, lowered by fairlane_done() */
	spinlock_t lock; /* for what follows; no other is taken under it */
	struct list_head let_go; /* struct request.ready, of which the scheduler is to hear that they wake up */
	struct list_head ready[FL_NR_CLASSES]; /* admitted or routed, without a place in the drive */
	unsigned int credits[FL_NR_CLASSES]; /* of this round of the library's own arbitration */
} ____cacheline_aligned_in_smp;

struct fairlane_drive {
	struct fairlane_engine engine;
	struct fl_dev *dev;
	unsigned int depth;
	struct queue *queues; /* dev->nr_hwqs of them */
	bool pending; /* some queue.run is set */
	bool told_wake; /* wake() is to be called: set by anybody, taken by leave() */
	bool kicked; /* a tick is due: set by anybody, taken by fairlane_tick() */
	bool reweighted; /* class_weights() is to be called: the same */
	unsigned int weights[FL_NR_CLASSES]; /* by the scheduler; a stale read: of the round, or tick, before */
	spinlock_t tick_lock; /* one tick at a time */
	u64 tick_ns; /* when the next is due, 0: none is; under tick_lock */
	spinlock_t tenants_lock;
	struct list_head tenants; /* fairlane_tenant.node; under tenants_lock */
	struct fairlane_tenant *root;
	/* The library's own thread, without engine.wake. */
	bool threaded;
	pthread_t thread;
	pthread_mutex_t thread_lock; /* for what follows */
	pthread_cond_t thread_woken;
	bool woken, stop;
};

/* What a tenant did on one queue: added to by any thread, read by anyone. */
struct counts {
	atomic64_t submitted;
	atomic64_t requests[FL_NR_OPS], bytes[FL_NR_OPS]; /* done */
	atomic64_t wait_ns, drive_ns;
} ____cacheline_aligned_in_smp;

struct fairlane_tenant {
	struct fairlane_drive *drive;
	struct fairlane_tenant *parent; /* NULL for the root, and at the top */
	struct fl_flow *flow;
	struct list_head node; /* in drive.tenants */
	struct counts *counts; /* one for each queue */
};

static struct request *to_request(struct fairlane_request *request)
{
	return (struct request *)request->reserved;
}

static struct fairlane_request *to_public(struct request *r)
{
	return container_of((uint64_t(*)[22])r, struct fairlane_request, reserved);
}

static void *zalloc(size_t nr, size_t size)
{
	void *p = NULL;

	if (posix_memalign(&p, 64, nr * size))
		return NULL;
	return memset(p, 0, nr * size);
}

/* ---- From ready to go() -------------------------------------------------------- */

/*
 * The next that is ready on @q. Under a scheduler that admits, all are of one class; under one
 * that routes, without a drive that arbitrates, this is weighted round robin.
 */
static struct request *next_ready(struct queue *q)
{
	struct request *r = NULL;
	unsigned int round, c;

	spin_lock(&q->lock);
	for (round = 0; round < 2 && !r; round++) {
		for (c = 0; c < FL_NR_CLASSES && !r; c++) {
			if (!q->credits[c] || list_empty(&q->ready[c]))
				continue;
			q->credits[c]--;
			r = list_first_entry(&q->ready[c], struct request, ready);
			list_del_init(&r->ready);
		}
		for (c = 0; c < FL_NR_CLASSES && !r; c++)
			q->credits[c] = READ_ONCE(q->drive->weights[c]);
	}
	spin_unlock(&q->lock);
	return r;
}

static void make_ready(struct queue *q, struct request *r, enum fl_class class)
{
	spin_lock(&q->lock);
	list_add_tail(&r->ready, &q->ready[class]);
	spin_unlock(&q->lock);
}

/* Those on @q that were let go wake up: here, at once. By who serves @q, so nobody else takes one off. */
static void wake_up(struct queue *q)
{
	struct request *r;

	while (!list_empty(&q->let_go)) {
		spin_lock(&q->lock);
		r = list_first_entry(&q->let_go, struct request, ready);
		list_del_init(&r->ready);
		spin_unlock(&q->lock);
		if (fl_sent(&r->admission))
			make_ready(q, r, FL_HIGH);
	}
}

static struct request *next_staged(struct queue *q)
{
	struct fl_req *rq = fl_next(q->drive->dev, q->index);

	return rq ? container_of(rq, struct request, rq) : NULL;
}

/* By who serves @q: a place in the drive, and who has it now; NULL if there is none of either. */
static struct request *take(struct queue *q)
{
	struct fairlane_drive *drive = q->drive;
	struct request *r;

	if (drive->depth && atomic_read(&q->in_drive) >= (int)drive->depth)
		return NULL;
	r = drive->dev->sched->dispatch ? next_staged(q) : next_ready(q);
	if (r)
		atomic_inc(&q->in_drive);
	return r;
}

/*
 * Let go what may go on @q. Whoever comes while another thread does that leaves it to that one,
 * which then looks again; so it is when go() comes back here. That thread sees what they did before:
 * who comes sets AGAIN after it, who serves lowers that before it looks, and both are full barriers.
 * Nothing is counted: an engine whose go() comes back may go on for any number of requests.
 */
static void serve(struct queue *q)
{
	struct fairlane_engine *engine = &q->drive->engine;
	struct request *r;
	int idle = IDLE;

	if (!atomic_try_cmpxchg(&q->serving, &idle, SERVING) &&
	    atomic_xchg(&q->serving, AGAIN) != IDLE)
		return;
	do {
		wake_up(q);
		while ((r = take(q))) {
			r->went_ns = fl_now_ns();
			engine->go(engine->ctx, to_public(r));
		}
	} while (atomic_add_return(-1, &q->serving) != IDLE);
}

/* Have fairlane_tick() called soon: by the library's own thread, or the engine. */
static void wake(struct fairlane_drive *drive)
{
	if (!drive->threaded) {
		drive->engine.wake(drive->engine.ctx);
		return;
	}
	pthread_mutex_lock(&drive->thread_lock);
	drive->woken = true;
	pthread_cond_signal(&drive->thread_woken);
	pthread_mutex_unlock(&drive->thread_lock);
}

/* At the end of each function that calls user.h: what the scheduler has asked for meanwhile. */
static void leave(struct fairlane_drive *drive)
{
	unsigned int i;

	while (READ_ONCE(drive->pending) && xchg(&drive->pending, false))
		for (i = 0; i < drive->dev->nr_hwqs; i++)
			if (READ_ONCE(drive->queues[i].run) && xchg(&drive->queues[i].run, false))
				serve(&drive->queues[i]);
	if (READ_ONCE(drive->told_wake) && xchg(&drive->told_wake, false))
		wake(drive);
}

/* ---- What schedulers ask for; with their locks held ------------------------------------ */

static void run_later(struct queue *q)
{
	smp_store_release(&q->run, true);
	smp_store_release(&q->drive->pending, true);
}

static void host_run(void *ctx, unsigned int index)
{
	struct fairlane_drive *drive = ctx;

	run_later(&drive->queues[index]);
}

static void host_kick(void *ctx)
{
	struct fairlane_drive *drive = ctx;

	smp_store_release(&drive->kicked, true);
	smp_store_release(&drive->told_wake, true);
}

static void host_weights(void *ctx, unsigned int high, unsigned int medium, unsigned int low)
{
	struct fairlane_drive *drive = ctx;

	WRITE_ONCE(drive->weights[FL_HIGH], high);
	WRITE_ONCE(drive->weights[FL_MEDIUM], medium);
	WRITE_ONCE(drive->weights[FL_LOW], low);
	if (!drive->engine.class_weights)
		return;
	smp_store_release(&drive->reweighted, true);
	smp_store_release(&drive->told_wake, true);
}

static void host_admitted(void *ctx, struct fl_admission *admission)
{
	struct fairlane_drive *drive = ctx;
	struct queue *q = &drive->queues[admission->queue->hwq->index];

	spin_lock(&q->lock);
	list_add_tail(&container_of(admission, struct request, admission)->ready, &q->let_go);
	spin_unlock(&q->lock);
	run_later(q);
}

/* ---- Requests ------------------------------------------------------------------- */

/* The class of queues that the library keeps @r in, until it may go. */
static enum fl_class route(struct fairlane_tenant *tenant, struct queue *q, struct request *r)
{
	enum fl_class class = fl_route(q->drive->dev, q->index, tenant->flow, &r->rq);

	to_public(r)->queue_class = class;
	return q->drive->engine.class_weights ? FL_HIGH : class;
}

int fairlane_submit(struct fairlane_tenant *tenant, unsigned int queue,
		    struct fairlane_request *request)
{
	struct fairlane_drive *drive = tenant->drive;
	const struct fl_sched *sched = drive->dev->sched;
	struct request *r = to_request(request);
	struct queue *q;

	if (queue >= drive->dev->nr_hwqs || request->op >= FL_NR_OPS)
		return -EINVAL;
	q = &drive->queues[queue];
	request->queue = queue;
	request->queue_class = FL_HIGH;
	r->tenant = tenant;
	r->queue = queue;
	r->op = request->op;
	r->bytes = request->bytes;
	r->submitted_ns = fl_now_ns();
	atomic64_inc(&tenant->counts[queue].submitted);
	if (sched->admit) {
		r->admission = (struct fl_admission){ .op = r->op, .bytes = r->bytes };
		/* If not, it may be gone already. */
		if (fl_admit(tenant->flow, queue, &r->admission))
			make_ready(q, r, FL_HIGH);
	} else {
		r->rq = (struct fl_req){ .op = r->op, .bytes = r->bytes,
					 .arrival_ns = r->submitted_ns };
		if (sched->route)
			make_ready(q, r, route(tenant, q, r));
		else
			fl_submit(drive->dev, queue, tenant->flow, &r->rq);
	}
	serve(q);
	leave(drive);
	return 0;
}

/* The last that touches the tenant: a tenant without requests may go. */
static void count(struct fairlane_tenant *tenant, unsigned int queue, const struct request *r,
		  u64 now_ns)
{
	struct counts *counts = &tenant->counts[queue];
	u8 op = r->op;

	atomic64_add(r->went_ns - r->submitted_ns, &counts->wait_ns);
	atomic64_add(now_ns - r->went_ns, &counts->drive_ns);
	atomic64_add(r->bytes, &counts->bytes[op]);
	atomic64_inc(&counts->requests[op]);
}

void fairlane_done(struct fairlane_request *request)
{
	struct request *r = to_request(request);
	struct fairlane_tenant *tenant = r->tenant;
	struct fairlane_drive *drive = tenant->drive;
	struct queue *q = &drive->queues[r->queue];
	u64 now_ns = fl_now_ns();

	if (drive->dev->sched->admit)
		fl_leave(&r->admission, max_t(u64, now_ns - r->went_ns, 1));
	else
		fl_done(&r->rq);
	count(tenant, q->index, r, now_ns);
	atomic_dec(&q->in_drive);
	serve(q);
	leave(drive);
}

/* ---- Ticks ------------------------------------------------------------------------ */

uint64_t fairlane_tick(struct fairlane_drive *drive)
{
	u64 now_ns = fl_now_ns(), ns = 0;

	spin_lock(&drive->tick_lock);
	if (xchg(&drive->reweighted, false))
		drive->engine.class_weights(drive->engine.ctx, READ_ONCE(drive->weights[FL_HIGH]),
					    READ_ONCE(drive->weights[FL_MEDIUM]),
					    READ_ONCE(drive->weights[FL_LOW]));
	if (xchg(&drive->kicked, false) || (drive->tick_ns && now_ns >= drive->tick_ns)) {
		ns = fl_tick(drive->dev);
		drive->tick_ns = ns ? now_ns + ns : 0;
	} else if (drive->tick_ns) {
		ns = drive->tick_ns - now_ns;
	}
	spin_unlock(&drive->tick_lock);
	leave(drive);
	return ns;
}

/* Until it is woken, or for @ns, 0: any time. Under thread_lock. */
static void sleep_ns(struct fairlane_drive *drive, u64 ns)
{
	struct timespec until;
	int error = 0;

	clock_gettime(CLOCK_MONOTONIC, &until);
	ns += until.tv_nsec;
	until.tv_sec += ns / NSEC_PER_SEC;
	until.tv_nsec = ns % NSEC_PER_SEC;
	while (!drive->woken && !drive->stop && !error)
		error = pthread_cond_timedwait(&drive->thread_woken, &drive->thread_lock, &until);
}

static void *tick_thread(void *arg)
{
	struct fairlane_drive *drive = arg;
	u64 ns;

	pthread_mutex_lock(&drive->thread_lock);
	while (!drive->stop) {
		drive->woken = false;
		pthread_mutex_unlock(&drive->thread_lock);
		ns = fairlane_tick(drive);
		pthread_mutex_lock(&drive->thread_lock);
		if (ns)
			sleep_ns(drive, ns);
		while (!ns && !drive->woken && !drive->stop)
			pthread_cond_wait(&drive->thread_woken, &drive->thread_lock);
	}
	pthread_mutex_unlock(&drive->thread_lock);
	return NULL;
}

/* Signals are for the engine's threads. */
static int start_thread(struct fairlane_drive *drive)
{
	sigset_t all, old;
	int error;

	sigfillset(&all);
	pthread_sigmask(SIG_SETMASK, &all, &old);
	error = pthread_create(&drive->thread, NULL, tick_thread, drive);
	pthread_sigmask(SIG_SETMASK, &old, NULL);
	return -error;
}

static void init_thread(struct fairlane_drive *drive)
{
	pthread_condattr_t attr;

	drive->threaded = true;
	pthread_mutex_init(&drive->thread_lock, NULL);
	pthread_condattr_init(&attr);
	pthread_condattr_setclock(&attr, CLOCK_MONOTONIC);
	pthread_cond_init(&drive->thread_woken, &attr);
	pthread_condattr_destroy(&attr);
}

static void stop_thread(struct fairlane_drive *drive)
{
	pthread_mutex_lock(&drive->thread_lock);
	drive->stop = true;
	pthread_cond_signal(&drive->thread_woken);
	pthread_mutex_unlock(&drive->thread_lock);
	pthread_join(drive->thread, NULL);
	pthread_cond_destroy(&drive->thread_woken);
	pthread_mutex_destroy(&drive->thread_lock);
}

/* ---- Tenants ------------------------------------------------------------------------ */

static void free_tenant(struct fairlane_tenant *tenant)
{
	free(tenant->counts);
	free(tenant);
}

/* With the flow of user.h's @flow, or one of its own below @parent. */
static struct fairlane_tenant *new_tenant(struct fairlane_drive *drive,
					  struct fairlane_tenant *parent, struct fl_flow *flow,
					  unsigned int weight)
{
	struct fairlane_tenant *tenant = calloc(1, sizeof(*tenant));

	if (!tenant)
		return NULL;
	tenant->drive = drive;
	tenant->parent = parent;
	tenant->counts = zalloc(drive->dev->nr_hwqs, sizeof(*tenant->counts));
	if (tenant->counts && !flow)
		flow = fl_flow_create(drive->dev, parent ? parent->flow : NULL, weight);
	tenant->flow = flow;
	if (tenant->counts && flow)
		return tenant;
	free_tenant(tenant);
	return NULL;
}

int fairlane_tenant_create(struct fairlane_tenant **tenant, struct fairlane_drive *drive,
			   struct fairlane_tenant *parent, unsigned int weight)
{
	struct fairlane_tenant *new;

	if (weight < FL_WEIGHT_MIN || weight > FL_WEIGHT_MAX || (parent && parent->drive != drive))
		return -EINVAL;
	if (parent == drive->root)
		parent = NULL;
	new = new_tenant(drive, parent, NULL, weight);
	if (!new)
		return -ENOMEM;
	spin_lock(&drive->tenants_lock);
	list_add_tail(&new->node, &drive->tenants);
	spin_unlock(&drive->tenants_lock);
	*tenant = new;
	leave(drive);
	return 0;
}

static u64 outstanding(const struct fairlane_tenant *tenant)
{
	u64 done = 0, submitted = 0;
	unsigned int i, op;

	for (i = 0; i < tenant->drive->dev->nr_hwqs; i++) {
		const struct counts *counts = &tenant->counts[i];

		for (op = 0; op < FL_NR_OPS; op++)
			done += atomic64_read(&counts->requests[op]);
		submitted += atomic64_read(&counts->submitted);
	}
	return max_t(s64, submitted - done, 0);
}

/* Has it requests, or tenants below it? Under tenants_lock. */
static bool is_busy(const struct fairlane_tenant *tenant)
{
	const struct fairlane_tenant *other;

	list_for_each_entry(other, &tenant->drive->tenants, node)
		if (other->parent == tenant)
			return true;
	return outstanding(tenant);
}

int fairlane_tenant_destroy(struct fairlane_tenant *tenant)
{
	struct fairlane_drive *drive = tenant->drive;
	bool busy;

	spin_lock(&drive->tenants_lock);
	busy = tenant == drive->root || is_busy(tenant);
	if (!busy)
		list_del_init(&tenant->node);
	spin_unlock(&drive->tenants_lock);
	if (busy)
		return -EBUSY;
	fl_flow_destroy(tenant->flow);
	free_tenant(tenant);
	leave(drive);
	return 0;
}

int fairlane_tenant_set_weight(struct fairlane_tenant *tenant, unsigned int weight)
{
	bool ok = tenant != tenant->drive->root && fl_flow_weight(tenant->flow, weight);

	leave(tenant->drive);
	return ok ? 0 : -EINVAL;
}

int fairlane_tenant_set_latency(struct fairlane_tenant *tenant, uint64_t ns)
{
	if (tenant == tenant->drive->root)
		return -EINVAL;
	fl_flow_latency(tenant->flow, ns);
	return 0;
}

int fairlane_tenant_stat(struct fairlane_tenant *tenant, struct fairlane_stat *stat)
{
	unsigned int i, op;

	memset(stat, 0, sizeof(*stat));
	for (i = 0; i < tenant->drive->dev->nr_hwqs; i++) {
		const struct counts *counts = &tenant->counts[i];

		for (op = 0; op < FL_NR_OPS; op++) {
			stat->requests[op] += atomic64_read(&counts->requests[op]);
			stat->bytes[op] += atomic64_read(&counts->bytes[op]);
		}
		stat->wait_ns += atomic64_read(&counts->wait_ns);
		stat->drive_ns += atomic64_read(&counts->drive_ns);
	}
	stat->outstanding = outstanding(tenant);
	return 0;
}

struct fairlane_tenant *fairlane_root(struct fairlane_drive *drive)
{
	return drive->root;
}

int fairlane_charge(struct fairlane_tenant *tenant, unsigned int queue, enum fairlane_op op,
		    uint32_t bytes)
{
	if (queue >= tenant->drive->dev->nr_hwqs || (unsigned int)op >= FL_NR_OPS)
		return -EINVAL;
	fl_charge(tenant->flow, queue, (enum fl_op)op, bytes);
	leave(tenant->drive);
	return 0;
}

/* ---- Drives ------------------------------------------------------------------------ */

const char *fairlane_version(void)
{
	return FAIRLANE_VERSION;
}

static const struct {
	const char *name, *about;
} descriptions[] = {
#define DESCRIPTION(id, name, host, role, about) { name, about },
	FL_SCHEDULERS(DESCRIPTION)
};

const char *fairlane_scheduler(unsigned int index, const char **about)
{
	if (index >= ARRAY_SIZE(descriptions))
		return NULL;
	if (about)
		*about = descriptions[index].about;
	return descriptions[index].name;
}

static void init_queues(struct fairlane_drive *drive, unsigned int nr)
{
	unsigned int i, c;

	for (i = 0; i < nr; i++) {
		struct queue *q = &drive->queues[i];

		q->drive = drive;
		q->index = i;
		spin_lock_init(&q->lock);
		INIT_LIST_HEAD(&q->let_go);
		for (c = 0; c < FL_NR_CLASSES; c++)
			INIT_LIST_HEAD(&q->ready[c]);
	}
}

static int open_device(struct fairlane_drive *drive, const struct fl_sched *sched, unsigned int nr)
{
	const struct fl_host host = { .run = host_run, .kick = host_kick, .weights = host_weights,
				      .admitted = host_admitted, .ctx = drive };
	unsigned int i;

	drive->dev = fl_dev_create(sched, nr, &host);
	if (!drive->dev)
		return -ENOMEM;
	for (i = 0; i < nr; i++)
		drive->dev->hwqs[i]->depth = drive->depth;
	drive->root = new_tenant(drive, NULL, fl_root(drive->dev), 0);
	return drive->root ? 0 : -ENOMEM;
}

/* Without requests, and without the thread. */
static void free_drive(struct fairlane_drive *drive)
{
	struct fairlane_tenant *tenant, *next;

	list_for_each_entry_safe(tenant, next, &drive->tenants, node)
		free_tenant(tenant);
	if (drive->root)
		free_tenant(drive->root);
	if (drive->dev)
		fl_dev_destroy(drive->dev); /* and the flows */
	free(drive->queues);
	free(drive);
}

int fairlane_open(struct fairlane_drive **opened, const char *scheduler, unsigned int queues,
		  unsigned int depth, const struct fairlane_engine *engine)
{
	const struct fl_sched *sched = fl_sched_find(scheduler);
	struct fairlane_drive *drive;
	int error = -ENOMEM;

	if (!sched)
		return -ENOENT;
	if (!queues || queues > UINT16_MAX || depth > INT32_MAX || !engine->go ||
	    engine->reserved[0] || engine->reserved[1] || engine->reserved[2] || engine->reserved[3])
		return -EINVAL;
	if (sched->route && !engine->class_weights && (queues > 1 || !depth))
		return -EOPNOTSUPP;
	drive = zalloc(1, sizeof(*drive));
	if (!drive)
		return -ENOMEM;
	drive->engine = *engine;
	drive->depth = depth;
	/* until the scheduler says otherwise */
	drive->weights[FL_HIGH] = drive->weights[FL_MEDIUM] = drive->weights[FL_LOW] = 1;
	spin_lock_init(&drive->tick_lock);
	spin_lock_init(&drive->tenants_lock);
	INIT_LIST_HEAD(&drive->tenants);
	if (!engine->wake)
		init_thread(drive);
	drive->queues = zalloc(queues, sizeof(*drive->queues));
	if (drive->queues) {
		init_queues(drive, queues);
		error = open_device(drive, sched, queues);
	}
	if (!error && drive->threaded)
		error = start_thread(drive);
	if (error) {
		free_drive(drive);
		return error;
	}
	*opened = drive; /* before wake() is called */
	leave(drive);
	return 0;
}

int fairlane_close(struct fairlane_drive *drive)
{
	struct fairlane_tenant *tenant;
	bool busy = outstanding(drive->root);

	list_for_each_entry(tenant, &drive->tenants, node)
		busy = busy || outstanding(tenant);
	if (busy)
		return -EBUSY;
	if (drive->threaded)
		stop_thread(drive);
	free_drive(drive);
	return 0;
}

/* ---- Variables ----------------------------------------------------------------------- */

int fairlane_variable(struct fairlane_drive *drive, unsigned int index,
		      struct fairlane_variable *variable)
{
	const struct fl_var *var = drive->dev->sched->vars;

	for (; var->name && index; index--)
		var++;
	if (!var->name)
		return -ENOENT;
	*variable = (struct fairlane_variable){ .name = var->name, .unit = var->unit,
						.help = var->help, .min = var->min,
						.max = var->max, .def = var->def };
	return 0;
}

int fairlane_get(struct fairlane_drive *drive, const char *name, uint64_t *value)
{
	return fl_get(drive->dev, name, value) ? 0 : -ENOENT;
}

int fairlane_set(struct fairlane_drive *drive, const char *name, uint64_t value)
{
	uint64_t old;

	if (!fl_get(drive->dev, name, &old))
		return -ENOENT;
	return fl_set(drive->dev, name, value) ? 0 : -EINVAL;
}

int fairlane_set_prices(struct fairlane_drive *drive, const char *text)
{
	struct fairlane_tenant *tenant;
	bool busy = outstanding(drive->root);

	spin_lock(&drive->tenants_lock);
	list_for_each_entry(tenant, &drive->tenants, node)
		busy = busy || outstanding(tenant);
	spin_unlock(&drive->tenants_lock);
	if (busy)
		return -EBUSY;
	return fl_set_prices(drive->dev, text) ? 0 : -EINVAL;
}
