// SPDX-License-Identifier: GPL-2.0-only OR MIT
/* From a configuration to a host, a scheduler and a drive that are ready to run. */
#include <errno.h>

#include "locks.h"
#include "none.h"
#include "sim.h"

#define BIN_NS (10ull * NSEC_PER_MSEC)
#define MAX_BINS 8192 /* a run longer than 82 s has wider ones */
#define MAX_SAMPLES 4096
#define SAMPLE_NS ((u64)NSEC_PER_SEC)
#define MAX_BYTES (1ull << 30)

/* As blk-mq: an elevator gets twice the drive's tags, counting at most 128 of those. */
#define ELEVATOR_TAGS 128

static bool fail(struct sim *sim, const char *what)
{
	snprintf(sim->error, sizeof(sim->error), "%s", what);
	return false;
}

static bool find_scheduler(struct sim *sim)
{
	sim->sched = !strcmp(sim->config.knob, sim_none.name) ? &sim_none :
								fl_sched_find(sim->config.knob);
	if (!sim->sched)
		return fail(sim, "knob: the simulator has none such");
	if (!sim->sched->route)
		sim->config.drive.profile.wrr = 0;
	else if (!sim->config.drive.profile.wrr)
		return fail(sim, "drive: it has no weighted round robin arbitration (wrr), which "
				 "this knob needs");
	sim->limit_tags = sim->sched != &sim_none;
	sim->tags = sim->config.drive.queue_depth;
	if (sim->limit_tags && sim->sched->dispatch)
		sim->tags = 2 * min_t(u64, sim->tags, ELEVATOR_TAGS);
	return true;
}

/* What cannot be simulated, or not within the memory that a run may have. */
static bool check_size(struct sim *sim)
{
	const struct config *c = &sim->config;
	u64 flows = 1 + c->nr_cgroups + c->nr_tenants, bytes, requests = 0;
	unsigned int i;

	for (i = 0; i < c->nr_tenants; i++)
		requests += c->tenants[i].jobs * c->tenants[i].depth;
	bytes = requests * sizeof(struct request) + c->nr_tenants * sizeof(struct tenant) +
		flows * (sim->sched->flow_size + c->drive.queues * sim->sched->queue_size) +
		c->nr_tenants * sim->nr_bins * sizeof(u64);
	if (bytes > MAX_BYTES)
		return fail(sim, "tenants, their requests and the drive's queues would take more "
				 "than 1 GiB");
	if (!c->drive.null && ssd_memory(&c->drive.profile) > MAX_BYTES)
		return fail(sim, "drive: the tables of its map would take more than 1 GiB; make map "
				 "smaller, or unit larger");
	if (c->drive.null && !c->drive.latency_ns && !c->drive.interval_ps &&
	    (!c->cpu.submit_ns || !c->cpu.complete_ns))
		return fail(
			sim,
			"neither the drive nor the host takes any time, so time would stand still");
	return true;
}

/* How much of the drive each job has, bytes. */
static u64 part_of_job(const struct sim *sim)
{
	u64 part = sim->config.drive.size / sim->nr_jobs;

	return part - part % (part < 1 << 20 ? 512 : 1 << 16);
}

/* As the @nth job of @c plays it. */
static struct trace *find_trace(struct sim *sim, const struct tenant_config *c, u64 nth)
{
	struct trace *trace =
		trace_open(c->trace, sim->config.drive.size, c->block, nth, c->jobs);

	if (!trace)
		snprintf(sim->error, sizeof(sim->error), "%s: trace %s: %s%s", c->node.name,
			 c->trace, errno ? "cannot be read: " : "is no regular file",
			 errno ? strerror(errno) : "");
	return trace;
}

static bool check_trace(struct sim *sim, const struct tenant_config *c)
{
	struct trace *trace = find_trace(sim, c, 0);
	bool ok = trace && trace_check(trace);

	if (trace && !ok)
		sim_trace_failed(sim, c, trace);
	if (trace)
		trace_close(trace);
	return ok;
}

static bool check_loads(struct sim *sim)
{
	const struct config *c = &sim->config;
	unsigned int i;

	for (i = 0; i < c->nr_tenants; i++) {
		const struct tenant_config *t = &c->tenants[i];

		if (t->trace && !check_trace(sim, t))
			return false;
		if (!t->trace && part_of_job(sim) < t->bytes)
			return fail(sim, "drive: size is too small for a block of each job");
	}
	return true;
}

static const struct fl_var *find_tunable(const struct fl_sched *sched, const char *name)
{
	const struct fl_var *var;

	for (var = sched->vars; var->name; var++)
		if (fl_var_tunable(var) && !strcmp(var->name, name))
			return var;
	return NULL;
}

static bool fail_unknown(struct sim *sim, const char *name)
{
	const struct fl_var *var;
	size_t at = snprintf(sim->error, sizeof(sim->error),
			     "tunables: %s has no tunable %.40s; it has%s", sim->sched->name, name,
			     sim->sched->vars->name ? "" : " none");

	for (var = sim->sched->vars; var->name; var++)
		if (fl_var_tunable(var))
			at += snprintf(sim->error + at, sizeof(sim->error) - at, " %s", var->name);
	return false;
}

static bool check_tunables(struct sim *sim)
{
	const json_t *value;
	const char *name;

	json_object_foreach ((json_t *)sim->config.tunables, name, value) {
		const struct fl_var *var = find_tunable(sim->sched, name);
		json_int_t n = json_integer_value(value);

		if (!var)
			return fail_unknown(sim, name);
		if (json_is_integer(value) && n >= 0 && (u64)n >= var->min && (u64)n <= var->max)
			continue;
		snprintf(sim->error, sizeof(sim->error),
			 "tunables: %s of %s must be a whole number from %llu to %llu", name,
			 sim->sched->name, (unsigned long long)var->min, (unsigned long long)var->max);
		return false;
	}
	return true;
}

static bool make_samples(struct sim *sim)
{
	const struct fl_var *var;
	unsigned int nr = 0;

	for (var = sim->sched->vars; var->name; var++)
		nr++;
	sim->max_samples = min_t(u64, sim->config.run_ns / SAMPLE_NS, MAX_SAMPLES);
	sim->samples = calloc((size_t)nr * sim->max_samples + 1, sizeof(*sim->samples));
	return sim->samples;
}

bool sim_check(struct sim *sim)
{
	const struct config *c = &sim->config;
	unsigned int i;

	for (sim->bin_ns = BIN_NS; c->run_ns / sim->bin_ns >= MAX_BINS;)
		sim->bin_ns *= 2;
	sim->nr_bins = (c->run_ns + sim->bin_ns - 1) / sim->bin_ns;
	for (i = 0; i < c->nr_tenants; i++)
		sim->nr_jobs += c->tenants[i].jobs;
	return find_scheduler(sim) && check_size(sim) && check_loads(sim) && check_tunables(sim);
}

static bool make_flows(struct sim *sim)
{
	const struct config *c = &sim->config;
	unsigned int i;

	for (i = 0; i < c->nr_cgroups; i++) {
		int parent = c->cgroups[i].parent_index;

		sim->cgroups[i] = fl_flow_create(sim->dev, parent < 0 ? NULL : sim->cgroups[parent],
						 c->cgroups[i].weight);
		if (!sim->cgroups[i])
			return false;
		fl_flow_latency(sim->cgroups[i], c->cgroups[i].latency_ns);
	}
	for (i = 0; i < c->nr_tenants; i++) {
		const struct tenant_config *t = &c->tenants[i];
		struct tenant *tenant = &sim->tenants[i];
		int parent = t->node.parent_index;

		tenant->config = t;
		tenant->flow = fl_flow_create(sim->dev, parent < 0 ? NULL : sim->cgroups[parent],
					      t->node.weight);
		tenant->bins = calloc(sim->nr_bins, sizeof(*tenant->bins));
		if (!tenant->flow || !tenant->bins)
			return false;
		fl_flow_latency(tenant->flow, t->node.latency_ns);
	}
	return true;
}

static void set_up_cores(struct sim *sim)
{
	u64 cores = sim->config.cores, queues = sim->config.drive.queues, i;

	for (i = 0; i < cores; i++) {
		sim->cores[i].todo[0].last = &sim->cores[i].todo[0].first;
		sim->cores[i].todo[1].last = &sim->cores[i].todo[1].first;
		sim->cores[i].out_last = &sim->cores[i].out;
	}
	for (i = 0; i < queues; i++) {
		sim->hwqs[i].work.kind = WORK_RUN;
		sim->hwqs[i].index = i;
		sim->hwqs[i].core = &sim->cores[i * cores / queues];
	}
	sim->starting_last = &sim->starting;
	sim->tick.kind = WORK_TICK;
	sim->tick_ns = SSD_NEVER;
}

/* Each job has a part of the drive to itself. */
static void place_job(struct sim *sim, struct job *job, unsigned int index)
{
	u64 part = part_of_job(sim);

	job->first_byte = index * part;
	job->blocks = part / job->tenant->config->bytes;
}

/* The whole drive is its: a trace says where. */
static bool open_trace(struct sim *sim, struct job *job, u64 nth)
{
	job->trace = find_trace(sim, job->tenant->config, nth);
	return job->trace;
}

/* @index counts the jobs of all tenants, @nth those of its own. */
static bool make_job(struct sim *sim, struct job *job, unsigned int index, u64 nth,
		     unsigned int core)
{
	u64 queues = sim->config.drive.queues;

	job->work.kind = WORK_SUBMIT;
	job->core = &sim->cores[core];
	job->hwq = &sim->hwqs[core * queues / sim->config.cores];
	job->random = random_seed(sim->config.seed, index);
	if (job->tenant->config->trace)
		return open_trace(sim, job, nth);
	place_job(sim, job, index);
	return true;
}

/*
 * Jobs that may run anywhere are put on cores in steps of about the golden
 * section, so that those of a tenant, and of any few tenants, are far apart;
 * without a common factor, so that all cores get as many.
 */
static unsigned int step_of(unsigned int cores)
{
	unsigned int step = max_t(unsigned int, cores * 5 / 8, 1), a, b, rest;

	for (;; step--) {
		for (a = cores, b = step; b; a = b, b = rest)
			rest = a % b;
		if (a == 1)
			return step;
	}
}

static bool make_jobs(struct sim *sim)
{
	const struct config *c = &sim->config;
	unsigned int i, nr = 0, core = 0, step = step_of(c->cores);
	u64 j;

	for (i = 0; i < c->nr_tenants; i++) {
		const struct tenant_config *t = &c->tenants[i];

		for (j = 0; j < t->jobs; j++, nr++) {
			sim->jobs[nr].tenant = &sim->tenants[i];
			if (!make_job(sim, &sim->jobs[nr], nr, j,
				      t->nr_cores ? t->cores[j % t->nr_cores] : core))
				return false;
			if (!t->nr_cores)
				core = (core + step) % c->cores;
		}
	}
	return true;
}

static void end_phases(struct sim *sim)
{
	unsigned int i, p;

	for (i = 0; i < sim->config.nr_tenants; i++) {
		struct tenant_config *t = &sim->config.tenants[i];

		for (p = 0; p < t->nr_phases; p++)
			t->phases[p].to_ns = min_t(u64, t->phases[p].to_ns, sim->end_ns);
	}
}

static bool allocate(struct sim *sim)
{
	const struct config *c = &sim->config;
	struct fl_host host = {
		.run = sim_run_hwq,
		.kick = sim_kick,
		.weights = sim_set_weights,
		.granted = sim_tag_granted,
		.admitted = sim_admitted,
		.ctx = sim,
	};

	sim->cores = calloc(c->cores, sizeof(*sim->cores));
	sim->hwqs = calloc(c->drive.queues, sizeof(*sim->hwqs));
	sim->cgroups = calloc(c->nr_cgroups + 1, sizeof(struct fl_flow *));
	sim->tenants = calloc(c->nr_tenants, sizeof(*sim->tenants));
	sim->jobs = calloc(sim->nr_jobs, sizeof(*sim->jobs));
	sim_set_clock(sim);
	if (!drive_init(&sim->drive, &c->drive, random_seed(c->seed, ~0ull)))
		return false;
	sim->dev = fl_dev_create(sim->sched, c->drive.queues, &host);
	if (sim->dev)
		fl_set_tags(sim->dev, sim->tags);
	if (sim->dev && c->priced)
		sim->dev->prices = c->prices;
	return sim->cores && sim->hwqs && sim->cgroups && sim->tenants && sim->jobs && sim->dev &&
	       make_flows(sim) && make_samples(sim);
}

/* They have passed check_tunables(). */
static void set_tunables(struct sim *sim)
{
	const json_t *value;
	const char *name;

	json_object_foreach ((json_t *)sim->config.tunables, name, value)
		fl_set(sim->dev, name, json_integer_value(value));
}

bool sim_init(struct sim *sim)
{
	const struct config *c = &sim->config;

	if (!sim_check(sim))
		return false;
	sim->begin_ns = c->warmup_ns;
	sim->end_ns = c->warmup_ns + c->run_ns;
	sim->note_ns = sim->begin_ns;
	sim->bin_end_ns = sim->begin_ns + sim->bin_ns;
	sim->sample_ns = sim->begin_ns + SAMPLE_NS;
	if (!allocate(sim))
		return fail(sim, "out of memory");
	set_tunables(sim);
	end_phases(sim);
	set_up_cores(sim);
	sim_shared = (struct sim_shared){ .lock = &sim->dev->lock };
	return make_jobs(sim);
}

void sim_exit(struct sim *sim)
{
	struct request_chunk *chunk, *next;
	unsigned int i;

	for (i = 0; sim->tenants && i < sim->config.nr_tenants; i++) {
		free(sim->tenants[i].bins);
	}
	for (i = 0; sim->jobs && i < sim->nr_jobs; i++)
		if (sim->jobs[i].trace)
			trace_close(sim->jobs[i].trace);
	if (sim->dev)
		fl_dev_destroy(sim->dev);
	drive_exit(&sim->drive);
	for (chunk = sim->chunks; chunk; chunk = next) {
		next = chunk->next;
		free(chunk);
	}
	free(sim->samples);
	free(sim->heap.events);
	free(sim->cores);
	free(sim->hwqs);
	free(sim->cgroups);
	free(sim->tenants);
	free(sim->jobs);
}
