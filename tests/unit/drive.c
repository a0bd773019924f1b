// SPDX-License-Identifier: GPL-2.0-only OR MIT
#include "drive.h"
#include "test.h"

#include <stdlib.h>

enum kind { DONE, ARRIVE, SEND, TICK, RUN };

struct event {
	u64 at, seq; /* seq: ties go in order of creation */
	enum kind kind;
	unsigned int hwq;
	struct fl_req *rq; /* DONE, ARRIVE, SEND */
};

struct heap {
	struct event *e;
	unsigned int nr, size;
	u64 seq;
};

struct request {
	struct fl_req rq;
	struct fl_admission admission;
	struct tenant *tenant;
	unsigned int hwq, requeued;
};

static u64 now_ns;

u64 drive_now(void)
{
	return now_ns;
}

static bool before(const struct event *a, const struct event *b)
{
	return a->at != b->at ? a->at < b->at : a->seq < b->seq;
}

static void push(struct drive *d, struct event ev)
{
	struct heap *h = d->events;
	unsigned int i;

	if (h->nr == h->size) {
		h->size = h->size ? 2 * h->size : 1024;
		h->e = realloc(h->e, h->size * sizeof(*h->e));
	}
	ev.seq = h->seq++;
	for (i = h->nr++; i && before(&ev, &h->e[(i - 1) / 2]); i = (i - 1) / 2)
		h->e[i] = h->e[(i - 1) / 2];
	h->e[i] = ev;
}

static struct event pop(struct heap *h)
{
	struct event top = h->e[0], last = h->e[--h->nr];
	unsigned int i = 0, child;

	while ((child = 2 * i + 1) < h->nr) {
		if (child + 1 < h->nr && before(&h->e[child + 1], &h->e[child]))
			child++;
		if (!before(&h->e[child], &last))
			break;
		h->e[i] = h->e[child];
		i = child;
	}
	h->e[i] = last;
	return top;
}

static void run_later(void *ctx, unsigned int hwq)
{
	push(ctx, (struct event){ .at = now_ns, .kind = RUN, .hwq = hwq });
}

/* There is one tick to come, at most: an earlier one takes the place of a later one. */
static void arm_tick(struct drive *d, u64 at)
{
	if (d->tick_ns && d->tick_ns <= at)
		return;
	d->tick_ns = at;
	push(d, (struct event){ .at = at, .kind = TICK });
}

static void kick(void *ctx)
{
	arm_tick(ctx, now_ns);
}

static void set_weights(void *ctx, unsigned int high, unsigned int medium, unsigned int low)
{
	struct drive *d = ctx;

	d->weight[FL_HIGH] = high;
	d->weight[FL_MEDIUM] = medium;
	d->weight[FL_LOW] = low;
}

static void go(struct drive *d, struct request *r)
{
	list_add_tail(fl_req_node(&r->rq), &d->classes[FL_HIGH][r->hwq]);
}

static void admitted(void *ctx, struct fl_admission *admission)
{
	struct request *r = container_of(admission, struct request, admission);

	if (!r->tenant->wakes_ns)
		go(ctx, r);
	else
		push(ctx, (struct event){ .at = now_ns + r->tenant->wakes_ns,
					  .kind = SEND,
					  .hwq = r->hwq,
					  .rq = &r->rq });
}

void drive_init(struct drive *d, const struct fl_sched *sched, unsigned int nr_hwqs,
		unsigned int slots, u64 service_ns)
{
	struct fl_host host = {
		.run = run_later, .kick = kick, .weights = set_weights, .admitted = admitted, .ctx = d
	};
	unsigned int c, q;

	memset(d, 0, sizeof(*d));
	now_ns = NSEC_PER_SEC;
	fl_set_clock(drive_now);
	d->events = calloc(1, sizeof(struct heap));
	for (c = 0; c < FL_NR_CLASSES; c++)
		for (q = 0; q < MAX_HWQS; q++)
			INIT_LIST_HEAD(&d->classes[c][q]);
	d->nr_hwqs = nr_hwqs;
	d->slots = slots;
	d->weight[FL_HIGH] = 1; /* until the scheduler says otherwise */
	d->chips = 1;
	d->which = 88172645463325252ull;
	d->read_ns = service_ns;
	d->write_ns = service_ns;
	d->dev = fl_dev_create(sched, nr_hwqs, &host);
}

struct tenant *drive_tenant(struct drive *d, struct fl_flow *parent, u32 weight, unsigned int depth)
{
	struct tenant *t = &d->tenants[d->nr_tenants++];
	unsigned int i;

	t->flow = fl_flow_create(d->dev, parent, weight);
	t->bytes = 4096;
	t->rng = 88172645463325252ull + d->nr_tenants;
	for (i = 0; i < d->nr_hwqs; i++)
		t->depth[i] = depth;
	return t;
}

void drive_families(struct drive *d, struct tenant **t, unsigned int depth)
{
	struct fl_flow *a = fl_flow_create(d->dev, NULL, 300), *b = fl_flow_create(d->dev, NULL, 100);

	t[0] = drive_tenant(d, a, 100, depth);
	t[1] = drive_tenant(d, a, 200, depth);
	t[2] = drive_tenant(d, b, 7, depth);
}

static unsigned int percent(struct tenant *t)
{
	return next_random(&t->rng) % 100;
}

void drive_start(struct drive *d)
{
	unsigned int i, q, n;

	for (i = 0; i < d->nr_tenants; i++)
		for (q = 0; q < d->nr_hwqs; q++)
			for (n = 0; n < d->tenants[i].depth[q]; n++) {
				struct request *r = calloc(1, sizeof(*r));

				r->tenant = &d->tenants[i];
				r->hwq = q;
				push(d, (struct event){ .at = now_ns + r->tenant->start_ns,
							.kind = ARRIVE,
							.hwq = q,
							.rq = &r->rq });
			}
}

static u64 service_ns(struct drive *d, struct fl_req *rq)
{
	u64 ns = rq->op == FL_WRITE ? d->write_ns : d->read_ns;

	if (d->varies)
		ns = ns / 2 + next_random(&d->varies) % ns;
	if (d->per_page)
		ns *= rq->bytes / 4096;
	if (d->serial) {
		u64 *free_ns = &d->free_ns[next_random(&d->which) % d->chips];

		*free_ns = (*free_ns > now_ns ? *free_ns : now_ns) + ns;
		return *free_ns - now_ns;
	}
	return ns;
}

static void start(struct drive *d, struct fl_req *rq, unsigned int q)
{
	d->in_flight[q]++;
	push(d, (struct event){
			.at = now_ns + service_ns(d, rq), .kind = DONE, .hwq = q, .rq = rq });
}

/* The next of class @c, its hardware queues in turn; NULL: none. */
static struct request *class_next(struct drive *d, unsigned int c)
{
	unsigned int n;

	for (n = 0; n < d->nr_hwqs; n++) {
		struct list_head *list = &d->classes[c][d->turn[c]];

		d->turn[c] = (d->turn[c] + 1) % d->nr_hwqs;
		if (!list_empty(list))
			return container_of(fl_req_of(list->next), struct request, rq);
	}
	return NULL;
}

/* Weighted round robin. */
static struct request *fetch(struct drive *d)
{
	struct request *r;
	unsigned int c, round;

	for (round = 0; round < 2; round++) {
		for (c = 0; c < FL_NR_CLASSES; c++) {
			if (!d->credits[c] || !(r = class_next(d, c)))
				continue;
			d->credits[c]--;
			list_del_init(fl_req_node(&r->rq));
			return r;
		}
		memcpy(d->credits, d->weight, sizeof(d->credits));
	}
	return NULL;
}

static void fetch_all(struct drive *d)
{
	unsigned int i, all = 0;
	struct request *r;

	for (i = 0; i < d->nr_hwqs; i++)
		all += d->in_flight[i];
	while (all < d->nr_hwqs * d->slots && (r = fetch(d))) {
		if (d->dev->sched->admit && !fl_sent(&r->admission))
			continue;
		start(d, &r->rq, r->hwq);
		all++;
	}
}

static bool gives_back(struct fl_req *rq)
{
	struct request *r = container_of(rq, struct request, rq);

	if (r->requeued == r->tenant->requeues)
		return false;
	r->requeued++;
	fl_requeue(rq);
	return true;
}

static void dispatch(struct drive *d, unsigned int q)
{
	struct fl_req *rq;
	unsigned int i, all = 0;

	if (!d->dev->sched->dispatch) {
		fetch_all(d);
		return;
	}
	while (d->in_flight[q] < d->slots && (rq = fl_next(d->dev, q)))
		if (!gives_back(rq))
			start(d, rq, q);
	for (i = 0; i < d->nr_hwqs; i++)
		all += d->in_flight[i];
	if (all > d->most_in_flight)
		d->most_in_flight = all;
}

static void admit(struct drive *d, struct request *r, struct fl_flow *flow)
{
	r->admission = (struct fl_admission){ .op = r->rq.op, .bytes = r->rq.bytes, .rank = r->tenant->rank };
	if (fl_admit(flow, r->hwq, &r->admission))
		go(d, r);
}

static void arrive(struct drive *d, struct fl_req *rq)
{
	struct request *r = container_of(rq, struct request, rq);
	struct tenant *t = r->tenant;
	struct fl_flow *flow = t->flow;

	if (t->stop_ns && now_ns >= t->stop_ns) {
		free(r);
		return;
	}
	rq->op = percent(t) < t->writes_pct ? FL_WRITE : FL_READ;
	rq->bytes = t->bytes;
	rq->arrival_ns = now_ns;
	r->requeued = 0;
	if (t->ahead_pct && percent(t) < t->ahead_pct) {
		flow = fl_root(d->dev);
		fl_charge(t->flow, r->hwq, rq->op, rq->bytes);
	}
	if (d->dev->sched->admit)
		admit(d, r, flow);
	else if (d->dev->sched->route)
		list_add_tail(fl_req_node(rq),
			      &d->classes[fl_route(d->dev, r->hwq, flow, rq)][r->hwq]);
	else
		fl_submit(d->dev, r->hwq, flow, rq);
}

static void done(struct drive *d, struct event *ev)
{
	struct request *r = container_of(ev->rq, struct request, rq);

	d->in_flight[ev->hwq]--;
	if (d->dev->sched->admit)
		fl_leave(&r->admission, 0);
	else
		fl_done(ev->rq);
	if (r->tenant->below) {
		fl_flow_destroy(r->tenant->flow);
		r->tenant->flow = fl_flow_create(d->dev, r->tenant->below, 100);
	}
	if (r->tenant->pool)
		r->tenant->flow = r->tenant->pool[r->tenant->done % r->tenant->pooled];
	r->tenant->done++;
	r->tenant->done_bytes += ev->rq->bytes;
	push(d, (struct event){ .at = now_ns + r->tenant->think_ns,
				.kind = ARRIVE,
				.hwq = ev->hwq,
				.rq = ev->rq });
}

void drive_run(struct drive *d, u64 ns)
{
	struct heap *h = d->events;
	u64 until = now_ns + ns, next;

	while (h->nr && h->e[0].at <= until) {
		struct event ev = pop(h);

		now_ns = ev.at;
		switch (ev.kind) {
		case TICK:
			if (ev.at != d->tick_ns)
				continue;
			d->tick_ns = 0;
			next = fl_tick(d->dev);
			if (next)
				arm_tick(d, now_ns + next);
			if (d->dev->sched->admit) /* some may have been let go */
				fetch_all(d);
			continue;
		case ARRIVE:
			arrive(d, ev.rq);
			break;
		case SEND:
			go(d, container_of(ev.rq, struct request, rq));
			break;
		case DONE:
			done(d, &ev);
			break;
		case RUN:
			break;
		}
		dispatch(d, ev.hwq);
	}
	now_ns = until;
}

void drive_mark(struct drive *d)
{
	unsigned int i;

	d->mark_ns = now_ns;
	for (i = 0; i < d->nr_tenants; i++) {
		d->tenants[i].mark = d->tenants[i].done;
		d->tenants[i].mark_bytes = d->tenants[i].done_bytes;
	}
}

static u64 total(struct drive *d)
{
	u64 sum = 0;
	unsigned int i;

	for (i = 0; i < d->nr_tenants; i++)
		sum += d->tenants[i].done - d->tenants[i].mark;
	return sum;
}

double drive_share(struct drive *d, struct tenant *t)
{
	return (double)(t->done - t->mark) / total(d);
}

double drive_iops(struct drive *d)
{
	return total(d) * 1e9 / (now_ns - d->mark_ns);
}

double drive_capacity(struct drive *d)
{
	return (d->serial ? d->chips : d->nr_hwqs * d->slots) * 1e9 / d->read_ns;
}

u64 drive_var(struct drive *d, const char *name)
{
	u64 value = 0;

	fl_get(d->dev, name, &value);
	return value;
}

/* Stop everybody, let the drive run dry, and take it apart. */
void drive_exit(struct drive *d)
{
	struct heap *h = d->events;
	unsigned int i;

	for (i = 0; i < d->nr_tenants; i++)
		d->tenants[i].stop_ns = now_ns;
	drive_run(d, 100 * NSEC_PER_SEC);
	fl_dev_destroy(d->dev);
	free(h->e);
	free(h);
	fl_set_clock(NULL);
}
