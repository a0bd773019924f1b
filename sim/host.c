// SPDX-License-Identifier: GPL-2.0-only OR MIT
/*
 * The host: cores that do one thing at a time, jobs that submit requests, the
 * block layer's tags, and the events that drive it all.
 *
 * A piece of work begins when its core is free. A submission first takes the
 * time of everything before the scheduler. Then the real scheduler code runs, in
 * no simulated time. What it did says how long it takes: so many ns for the
 * request, for each request dispatched, and for each time that it took the lock
 * that all cores share. For that lock the core waits until those that took it
 * before have released it, and what was dispatched waits with it. When that time
 * is over and, for a completion, the time of everything after the scheduler, the
 * core takes up what came next.
 */
#include "sim.h"

#include "locks.h"

enum event_kind {
	EVENT_CORE, /* a core's work is over */
	EVENT_JOB, /* a job may send its next request */
	EVENT_SLOT, /* a job's pause after a request is over */
	EVENT_TICK, /* the scheduler's timer */
};

struct sim_shared sim_shared;

static const struct sim *running; /* for what the scheduler calls without saying for whom */

/* Schedulers have 0 for "never". */
#define CLOCK_START_NS ((u64)NSEC_PER_SEC)

static u64 clock_ns(void)
{
	return running->now + CLOCK_START_NS;
}

/* Requests that are not done so long after the end are lost. */
#define DRAIN_NS (1000ull * NSEC_PER_SEC)

/* ---- Events and work ---- */

static void push(struct sim *sim, u64 at, enum event_kind kind, void *what)
{
	heap_push(&sim->heap, at, kind, what);
}

/* An idle core takes it up as soon as all that happens now has happened: see start_cores(). */
static void start(struct sim *sim, struct core *core)
{
	if (core->now || core->starting)
		return;
	core->starting = true;
	core->starting_next = NULL;
	*sim->starting_last = core;
	sim->starting_last = &core->starting_next;
}

static void add_work(struct sim *sim, struct core *core, struct work *work)
{
	struct work_list *list = &core->todo[work->kind != WORK_COMPLETE];

	work->next = NULL;
	*list->last = work;
	list->last = &work->next;
	start(sim, core);
}

static struct work *take_work(struct core *core)
{
	struct work_list *list = &core->todo[!core->todo[0].first];
	struct work *work = list->first;

	if (!work)
		return NULL;
	list->first = work->next;
	if (!list->first)
		list->last = &list->first;
	return work;
}

void sim_run_hwq(void *ctx, unsigned int index)
{
	struct sim *sim = ctx;
	struct hwq *hwq = &sim->hwqs[index];

	if (hwq->run_wanted)
		return;
	hwq->run_wanted = true;
	add_work(sim, hwq->core, &hwq->work);
}

static void arm_tick(struct sim *sim, u64 at)
{
	if (at >= sim->tick_ns)
		return;
	sim->tick_ns = at;
	push(sim, at, EVENT_TICK, NULL);
}

void sim_kick(void *ctx)
{
	struct sim *sim = ctx;

	arm_tick(sim, sim->now);
}

/* ---- Requests ---- */

static struct request *get_request(struct sim *sim)
{
	struct request *r = sim->free_requests;
	struct request_chunk *chunk;
	unsigned int i;

	if (!r) {
		chunk = must(calloc(1, sizeof(*chunk)));
		chunk->next = sim->chunks;
		sim->chunks = chunk;
		for (i = 0; i < REQUESTS_IN_CHUNK; i++) {
			chunk->requests[i].work.kind = WORK_COMPLETE;
			chunk->requests[i].next =
				i + 1 < REQUESTS_IN_CHUNK ? &chunk->requests[i + 1] : NULL;
		}
		r = chunk->requests;
	}
	sim->free_requests = r->next;
	return r;
}

static u64 next_offset(struct job *job)
{
	const struct tenant_config *c = job->tenant->config;

	if (c->random)
		return job->first_byte + random_below(&job->random, job->blocks) * c->bytes;
	if (job->next_block == job->blocks)
		job->next_block = 0;
	return job->first_byte + job->next_block++ * c->bytes;
}

static u64 next_interval_ps(struct job *job)
{
	const struct tenant_config *c = job->tenant->config;

	return c->poisson ? random_exponential(&job->random, c->interval_ps) : c->interval_ps;
}

/* Little's law, one side: what is in the system, as time goes by. */
static void count_in_system(struct sim *sim, int change)
{
	sim->area += (unsigned __int128)sim->in_system * (sim->now - sim->changed_ns);
	sim->changed_ns = sim->now;
	sim->in_system += change;
}

static struct io make_up(struct sim *sim, struct job *job)
{
	const struct tenant_config *c = job->tenant->config;
	struct io io = { .arrival_ns = sim->now, .bytes = c->bytes };

	io.read = c->read_percent == 100 ||
		  (c->read_percent && random_below(&job->random, 100) < c->read_percent);
	if (c->interval_ps) {
		io.arrival_ns = job->next_ps / 1000;
		job->next_ps += next_interval_ps(job);
	}
	io.offset = next_offset(job);
	return io;
}

void sim_trace_failed(struct sim *sim, const struct tenant_config *c, const struct trace *trace)
{
	char where[40] = "";

	if (trace->line) /* else the file as a whole is wrong */
		snprintf(where, sizeof(where), "line %llu: ", (unsigned long long)trace->line);
	snprintf(sim->error, sizeof(sim->error), "%s: trace %s: %s%s", c->node.name, c->trace,
		 where, trace->wrong);
}

static struct io play(struct sim *sim, struct job *job)
{
	struct io io = job->trace->next;

	if (job->tenant->config->full_speed)
		io.arrival_ns = sim->now;
	if (!trace_next(job->trace))
		sim_trace_failed(sim, job->tenant->config, job->trace);
	return io;
}

/* The request that @job wants now; it may have been wanted for a while. */
static struct request *make_request(struct sim *sim, struct job *job)
{
	struct io io = job->trace ? play(sim, job) : make_up(sim, job);
	const struct tenant_config *c = job->tenant->config;
	bool metadata = c->metadata_percent && random_below(&job->random, 100) < c->metadata_percent;
	struct request *r = get_request(sim);

	r->job = job;
	r->hwq = job->hwq;
	r->flow = metadata ? fl_root(sim->dev) : job->tenant->flow;
	r->arrival_ns = io.arrival_ns;
	r->rq.op = io.read ? FL_READ : c->discards ? FL_DISCARD : FL_WRITE;
	r->rq.bytes = io.bytes;
	r->rq.arrival_ns = r->arrival_ns + CLOCK_START_NS;
	r->cmd = (struct ssd_cmd){
		.offset = io.offset,
		.bytes = io.bytes,
		.op = io.read ? SSD_READ : c->discards ? SSD_TRIM : SSD_WRITE,
		.class = SSD_HIGH,
		.core = job->hwq->index,
	};
	job->outstanding++;
	count_in_system(sim, 1);
	sim->area += sim->now - r->arrival_ns;
	return r;
}

static void end_request(struct sim *sim, struct request *r)
{
	struct tenant *tenant = r->job->tenant;
	u64 latency_ns = sim->now - r->arrival_ns;

	count_in_system(sim, -1);
	sim->residence += latency_ns;
	sim->requests++;
	if (sim->now >= sim->begin_ns && sim->now < sim->end_ns) {
		while (sim->now >= sim->bin_end_ns) {
			sim->bin++;
			sim->bin_end_ns += sim->bin_ns;
		}
		tenant->ios++;
		if (r->rq.op != FL_DISCARD)
			tenant->bytes[r->rq.op == FL_WRITE] += r->rq.bytes;
		tenant->cost += fl_cost(&sim->config.prices, r->rq.op, r->rq.bytes);
		tenant->bins[sim->bin] += r->rq.bytes;
		histogram_add(&tenant->latency_ns, latency_ns);
	}
	r->next = sim->free_requests;
	sim->free_requests = r;
}

/* ---- Jobs ---- */

/* When @job may send its next request, SSD_NEVER when it is at its end. */
static u64 job_due_ns(struct sim *sim, struct job *job)
{
	const struct tenant_config *c = job->tenant->config;

	for (; job->phase < c->nr_phases; job->phase++) {
		const struct phase *phase = &c->phases[job->phase];
		u64 due = max_t(u64, sim->now, phase->from_ns);

		if (c->interval_ps) {
			/* The first arrival of a phase is anywhere within an interval. */
			if (!job->next_ps || job->next_ps < phase->from_ns * 1000)
				job->next_ps =
					phase->from_ns * 1000 +
					(c->poisson ? next_interval_ps(job)
						    : random_below(&job->random, c->interval_ps));
			due = max_t(u64, due, job->next_ps / 1000);
		}
		if (job->trace) {
			if (job->trace->begun_ns != phase->from_ns &&
			    !trace_begin(job->trace, phase->from_ns)) {
				sim_trace_failed(sim, job->tenant->config, job->trace);
				return SSD_NEVER;
			}
			if (!c->full_speed)
				due = max_t(u64, due, job->trace->next.arrival_ns);
		}
		if (due < phase->to_ns)
			return due;
	}
	return SSD_NEVER;
}

/* Have @job send its next request, now or when it is due. */
static void job_go(struct sim *sim, struct job *job)
{
	u64 due;

	if (job->state != JOB_IDLE || job->outstanding >= job->tenant->config->depth)
		return;
	due = job_due_ns(sim, job);
	if (due == SSD_NEVER)
		return;
	if (due > sim->now) {
		job->state = JOB_SLEEPING;
		push(sim, due, EVENT_JOB, job);
	} else {
		job->state = JOB_READY;
		add_work(sim, job->core, &job->work);
	}
}

static void job_go_on(struct sim *sim, struct job *job)
{
	job->state = JOB_IDLE;
	job_go(sim, job);
}

static void job_slot_free(struct sim *sim, struct job *job)
{
	job->outstanding--;
	job_go(sim, job);
}

/* ---- Tags: see libfairlane/mechanisms/tag-limits.h for how flows share them ---- */

static void wait_add(struct wait_list *list, struct job *job, bool first)
{
	job->state = JOB_BLOCKED;
	job->waiting_next = first ? list->first : NULL;
	if (first || !list->first) {
		list->last = list->first ? list->last : job;
		list->first = job;
	} else {
		list->last->waiting_next = job;
		list->last = job;
	}
}

/* @job, which has waited, may go on. */
static void wake(struct sim *sim, struct job *job)
{
	job->state = JOB_READY;
	add_work(sim, job->core, &job->work);
}

static void wait_wake(struct sim *sim, struct wait_list *list)
{
	struct job *job = list->first;

	list->first = job->waiting_next;
	job->woken = true;
	wake(sim, job);
}

void sim_tag_granted(void *ctx, struct fl_tag_wait *wait)
{
	struct job *job = container_of(wait, struct job, wait);

	job->granted = true;
	wake(ctx, job);
}

void sim_admitted(void *ctx, struct fl_admission *admission)
{
	struct job *job = container_of(admission, struct request, admission)->job;

	job->admitted = true;
	wake(ctx, job);
}

/* Ask the scheduler, or have the job wait until it lets the request go. */
static bool get_admission(struct sim *sim, struct job *job)
{
	struct fl_admission *admission = &job->held->admission;
	bool again = job->admitted;

	if (!sim->sched->admit)
		return true;
	job->admitted = false;
	admission->op = job->held->rq.op;
	admission->bytes = job->held->rq.bytes;
	admission->rank = 0;
	admission->must = job->held->flow == fl_root(sim->dev);
	job->state = JOB_BLOCKED;
	if (again ? !fl_sent(admission) : !fl_admit(job->held->flow, job->hwq->index, admission))
		return false;
	job->state = JOB_READY;
	job->admitted = true;
	return true;
}

/* Does the job's tenant have a tag? If not, the job waits for it. */
static bool get_turn(struct sim *sim, struct job *job)
{
	if (!sim->limit_tags || job->granted)
		return true;
	job->wait.op = job->held->rq.op;
	job->wait.bytes = job->held->rq.bytes;
	job->state = JOB_BLOCKED;
	if (!fl_tag_take(job->held->flow, job->hwq->index, &job->wait))
		return false;
	job->state = JOB_READY;
	job->granted = true;
	return true;
}

/* Take a tag for @job's request, or let the job wait: ahead of the others if it waited before. */
static bool get_tag(struct sim *sim, struct job *job)
{
	struct hwq *hwq = job->hwq;
	bool again = job->woken;

	if (!get_turn(sim, job) || !get_admission(sim, job))
		return false;
	if (hwq->tags_used >= sim->tags || (!again && hwq->waiting.first)) {
		wait_add(&hwq->waiting, job, again);
		return false;
	}
	hwq->tags_used++;
	job->held->tag_of = job->wait.queue;
	job->granted = false;
	job->admitted = false;
	job->woken = false;
	return true;
}

/* After fl_done(). */
static void put_tag(struct sim *sim, struct request *r)
{
	r->hwq->tags_used--;
	if (r->hwq->waiting.first)
		wait_wake(sim, &r->hwq->waiting);
	if (!sim->limit_tags)
		return;
	if (r->cmd.class == SSD_LOW)
		fl_tag_sent(r->tag_of);
	fl_tag_give(r->tag_of);
}

/* ---- The scheduler's part of work; each returns the CPU time that it takes, ns ---- */

static void to_drive(struct sim *sim, struct core *core)
{
	struct request *r, *next;

	for (r = core->out; r; r = next) {
		next = r->next;
		r->sent_ns = sim->now;
		drive_submit(&sim->drive, &r->cmd, sim->now);
	}
	core->out = NULL;
	core->out_last = &core->out;
}

static void send(struct sim *sim, struct core *core, struct request *r)
{
	if (sim->limit_tags && r->cmd.class != SSD_LOW)
		fl_tag_sent(r->tag_of);
	r->next = NULL;
	*core->out_last = r;
	core->out_last = &r->next;
	r->hwq->in_drive++;
}

/* Dispatch what the scheduler lets go to the drive now. Returns how many. */
static unsigned int dispatch(struct sim *sim, struct core *core, struct hwq *hwq)
{
	unsigned int nr = 0;

	while (sim->sched->dispatch && hwq->in_drive < sim->config.drive.queue_depth) {
		struct fl_req *rq = fl_next(sim->dev, hwq->index);

		if (!rq)
			break;
		send(sim, core, container_of(rq, struct request, rq));
		nr++;
	}
	return nr;
}

/* The class that a scheduler with route() chose, in the drive's terms. */
static enum ssd_class route(struct sim *sim, struct request *r)
{
	static const enum ssd_class classes[] = {
		[FL_HIGH] = SSD_HIGH,
		[FL_MEDIUM] = SSD_MEDIUM,
		[FL_LOW] = SSD_LOW,
	};

	return classes[fl_route(sim->dev, r->hwq->index, r->flow, &r->rq)];
}

void sim_set_weights(void *ctx, unsigned int high, unsigned int medium, unsigned int low)
{
	struct sim *sim = ctx;

	ssd_set_weights(sim->drive.ssd, high, medium, low);
}

static u64 submit(struct sim *sim, struct core *core, struct job *job)
{
	struct request *r = job->held;
	unsigned int nr;

	/* Its queue is made at its first use, once: that the shared lock is taken for it does not count. */
	fl_flow_use(job->tenant->flow, job->hwq->index);
	sim_shared.taken = 0;
	sim_shared.reads = 0;
	if (!get_tag(sim, job))
		return 0;
	job->held = NULL;
	if (r->flow != job->tenant->flow)
		fl_charge(job->tenant->flow, r->hwq->index, r->rq.op, r->rq.bytes);
	if (!sim->sched->dispatch) {
		r->cmd.class = sim->sched->route ? route(sim, r) : SSD_HIGH;
		send(sim, core, r);
		return 0;
	}
	fl_submit(sim->dev, job->hwq->index, r->flow, &r->rq);
	nr = dispatch(sim, core, job->hwq);
	/* One was paid for in advance: see time_before(). */
	return nr > 1 ? (nr - 1) * sim->config.cpu.dispatch_ns : 0;
}

static u64 complete(struct sim *sim, struct core *core, struct request *r)
{
	const struct cpu_time *cpu = &sim->config.cpu;

	if (sim->sched->admit)
		fl_leave(&r->admission, sim->now - r->sent_ns);
	else
		fl_done(&r->rq);
	r->hwq->in_drive--;
	put_tag(sim, r);
	return cpu->complete_ns + cpu->done_ns +
	       dispatch(sim, core, r->hwq) * cpu->dispatch_ns;
}

static u64 run_hwq(struct sim *sim, struct core *core, struct hwq *hwq)
{
	hwq->run_wanted = false;
	return dispatch(sim, core, hwq) * sim->config.cpu.dispatch_ns;
}

static u64 tick(struct sim *sim)
{
	u64 next;

	sim->tick_wanted = false;
	next = fl_tick(sim->dev);
	if (next)
		arm_tick(sim, sim->now + next);
	return 0;
}

/* The core waits until it has the lock, and holds it, for what just ran. */
static u64 shared_lock_ns(struct sim *sim)
{
	u64 from, hold;

	if (likely(!sim_shared.taken))
		return 0;
	hold = sim_shared.taken * sim->config.cpu.lock_ns +
	       sim_shared.reads * sim->config.cpu.lock_read_ps / 1000;
	sim_shared.taken = 0;
	sim_shared.reads = 0;
	from = max_t(u64, sim->now, sim->lock_free_ns);
	sim->lock_free_ns = from + hold;
	if (sim->now >= sim->begin_ns && sim->now < sim->end_ns) {
		sim->lock_wait_ns += from - sim->now;
		sim->lock_held_ns += hold;
	}
	return from - sim->now + hold;
}

/* ---- Work, from its begin to its end ---- */

/* The part of @ns from now on that lies within the window. */
static u64 within_window(const struct sim *sim, u64 ns)
{
	u64 from = max_t(u64, sim->now, sim->begin_ns), to = min_t(u64, sim->now + ns, sim->end_ns);

	return to > from ? to - from : 0;
}

/* The core is busy for @ns. */
static void spend(struct sim *sim, struct core *core, u64 ns)
{
	sim->busy_ns += within_window(sim, ns);
	push(sim, sim->now + ns, EVENT_CORE, core);
}

/* Begin what @core is to do now: the part before the scheduler's. */
static u64 time_before(struct sim *sim, struct core *core)
{
	const struct cpu_time *cpu = &sim->config.cpu;
	struct job *job;

	switch (core->now->kind) {
	case WORK_SUBMIT:
		job = container_of(core->now, struct job, work);
		if (job->held) /* it has waited, and goes on where it was */
			return cpu->wake_ns;
		job->held = make_request(sim, job);
		return cpu->submit_ns + cpu->insert_ns + cpu->dispatch_ns;
	case WORK_RUN:
		return cpu->wake_ns;
	case WORK_COMPLETE:
	case WORK_TICK:
		break;
	}
	return 0;
}

static u64 schedule(struct sim *sim, struct core *core)
{
	switch (core->now->kind) {
	case WORK_SUBMIT:
		return submit(sim, core, container_of(core->now, struct job, work));
	case WORK_COMPLETE:
		return complete(sim, core, container_of(core->now, struct request, work));
	case WORK_RUN:
		return run_hwq(sim, core, container_of(core->now, struct hwq, work));
	case WORK_TICK:
		return tick(sim);
	}
	return 0;
}

static void end_complete(struct sim *sim, struct request *r)
{
	struct job *job = r->job;

	end_request(sim, r);
	if (job->tenant->config->think_ns)
		push(sim, sim->now + job->tenant->config->think_ns, EVENT_SLOT, job);
	else
		job_slot_free(sim, job);
}

static void end_work(struct sim *sim, struct core *core)
{
	struct work *work = core->now;

	to_drive(sim, core);
	if (work->kind == WORK_COMPLETE)
		end_complete(sim, container_of(work, struct request, work));
	else if (work->kind == WORK_SUBMIT && !container_of(work, struct job, work)->held)
		job_go_on(sim, container_of(work, struct job, work));
}

/* The scheduler's part of what @core is doing. False when the core is busy with it for a while. */
static bool core_schedule(struct sim *sim, struct core *core)
{
	u64 ns = schedule(sim, core), lock_ns = shared_lock_ns(sim);

	core->scheduled = true;
	if (!lock_ns)
		to_drive(sim, core);
	if (ns + lock_ns) {
		spend(sim, core, ns + lock_ns);
		return false;
	}
	end_work(sim, core);
	return true;
}

/* Take up what comes next, until something takes time. */
static void core_next(struct sim *sim, struct core *core)
{
	while ((core->now = take_work(core))) {
		u64 ns;

		core->scheduled = false;
		ns = time_before(sim, core);
		if (ns) {
			spend(sim, core, ns);
			return;
		}
		if (!core_schedule(sim, core))
			return;
	}
}

static void core_go_on(struct sim *sim, struct core *core)
{
	if (core->scheduled)
		end_work(sim, core);
	else if (!core_schedule(sim, core))
		return;
	core->now = NULL;
	start(sim, core);
}

static void start_cores(struct sim *sim)
{
	struct core *core;

	while ((core = sim->starting)) {
		sim->starting = core->starting_next;
		if (!sim->starting)
			sim->starting_last = &sim->starting;
		core->starting = false;
		core_next(sim, core);
	}
}

/* ---- The run ---- */

static void handle_event(struct sim *sim)
{
	struct event event = heap_pop(&sim->heap);

	switch ((enum event_kind)(event.order % (1 << EVENT_KIND_BITS))) {
	case EVENT_CORE:
		core_go_on(sim, event.what);
		break;
	case EVENT_JOB:
		job_go_on(sim, event.what);
		break;
	case EVENT_SLOT:
		job_slot_free(sim, event.what);
		break;
	case EVENT_TICK:
		if (event.at != sim->tick_ns)
			break; /* it was armed for an earlier time since */
		sim->tick_ns = SSD_NEVER;
		if (!sim->tick_wanted)
			add_work(sim, &sim->cores[0], &sim->tick);
		sim->tick_wanted = true;
		break;
	}
}

static void handle_drive(struct sim *sim)
{
	struct ssd_cmd *cmd, *next;

	for (cmd = drive_advance(&sim->drive, sim->now); cmd; cmd = next) {
		struct request *r = container_of(cmd, struct request, cmd);

		next = cmd->next;
		add_work(sim, r->job->core, &r->work);
	}
}

/* If the window begins or ends at @at, note what was written until then. */
static void note_writes(struct sim *sim, u64 at)
{
	while (unlikely(at >= sim->note_ns)) {
		struct drive_writes now = drive_writes(&sim->drive), *writes = &sim->writes;

		writes->host_bytes = now.host_bytes - writes->host_bytes;
		writes->nand_bytes = now.nand_bytes - writes->nand_bytes;
		writes->erases = now.erases - writes->erases;
		sim->note_ns = sim->note_ns == sim->begin_ns ? sim->end_ns : SSD_NEVER;
	}
}

static void sample(struct sim *sim)
{
	const struct fl_var *var;
	u64 *at = sim->samples + sim->nr_samples;

	for (var = sim->sched->vars; var->name; var++, at += sim->max_samples)
		*at = *fl_var_ptr(sim->dev, var);
	sim->nr_samples++;
	sim->sample_ns += NSEC_PER_SEC;
}

/* Time goes on to @at. */
static void pass_time(struct sim *sim, u64 at)
{
	note_writes(sim, at);
	while (unlikely(at >= sim->sample_ns && sim->nr_samples < sim->max_samples))
		sample(sim);
	sim->now = at;
}

static bool step(struct sim *sim)
{
	u64 event_ns = sim->heap.nr ? sim->heap.events[0].at : SSD_NEVER;
	u64 at = min_t(u64, drive_next_ns(&sim->drive), event_ns);

	if (at == SSD_NEVER || sim->error[0] || (at > sim->end_ns && !sim->in_system))
		return false;
	pass_time(sim, at);
	if (event_ns == at)
		handle_event(sim);
	if (drive_next_ns(&sim->drive) <= at)
		handle_drive(sim);
	start_cores(sim);
	sim->events++;
	return true;
}

/* What went in has come out, and the two sides of Little's law agree. */
static bool check(struct sim *sim)
{
	unsigned __int128 more = max_t(unsigned __int128, sim->area, sim->residence);
	unsigned __int128 less = min_t(unsigned __int128, sim->area, sim->residence);

	if (sim->error[0])
		return false;
	if (sim->in_system)
		snprintf(sim->error, sizeof(sim->error),
			 "%llu requests were not done %llu s after the end of the run",
			 (unsigned long long)sim->in_system,
			 (unsigned long long)((sim->now - sim->end_ns) / NSEC_PER_SEC));
	else if ((more - less) * 1000 > more)
		snprintf(sim->error, sizeof(sim->error),
			 "Little's law is violated: %.0f request-seconds in the system, by their "
			 "latencies %.0f",
			 (double)sim->area / 1e9, (double)sim->residence / 1e9);
	return !sim->error[0];
}

bool sim_run(struct sim *sim, void (*progress)(unsigned int permille))
{
	u64 part = sim->end_ns / 100 + 1, told = 0;
	unsigned int i;

	for (i = 0; i < sim->nr_jobs; i++)
		job_go(sim, &sim->jobs[i]);
	start_cores(sim);
	while (step(sim) && sim->now < sim->end_ns + DRAIN_NS) {
		if (!progress || sim->now / part <= told)
			continue;
		told = sim->now / part;
		progress(min_t(u64, told * 10, 1000));
	}
	note_writes(sim, sim->end_ns);
	return check(sim);
}

void sim_set_clock(const struct sim *sim)
{
	running = sim;
	fl_set_clock(clock_ns);
}
