// SPDX-License-Identifier: GPL-2.0-only OR MIT
#include "config.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>

struct reader {
	char *error;
	size_t size;
	bool failed;
};

/* Only the first error is kept. Reading goes on with defaults, so that callers need not check. */
__attribute__((format(printf, 2, 3))) static void fail(struct reader *r, const char *format, ...)
{
	va_list args;

	if (r->failed)
		return;
	r->failed = true;
	va_start(args, format);
	vsnprintf(r->error, r->size, format, args);
	va_end(args);
}

/* An object that is read key by key, and has no others. */
struct table {
	struct reader *reader;
	const json_t *json;
	const char *where;
	size_t read; /* keys found */
};

static struct table table(struct reader *r, const json_t *json, const char *where)
{
	if (!json_is_object(json))
		fail(r, "%s: must be an object", where);
	return (struct table){ r, json, where, 0 };
}

static const json_t *get(struct table *t, const char *key)
{
	const json_t *value = json_object_get(t->json, key);

	t->read += value != NULL;
	return value;
}

/* Each key is looked up once, and the parser refuses repeated ones. */
static void no_more(struct table *t, const char *valid)
{
	if (json_object_size(t->json) > t->read)
		fail(t->reader, "%s: has a key that is unknown; valid are %s", t->where, valid);
}

static u64 number(struct table *t, const char *key, u64 min, u64 max)
{
	const json_t *value = get(t, key);
	json_int_t n = json_integer_value(value);

	if (!json_is_integer(value) || n < 0 || (u64)n < min || (u64)n > max) {
		fail(t->reader, "%s: %s must be a whole number from %llu to %llu", t->where, key,
		     (unsigned long long)min, (unsigned long long)max);
		return min;
	}
	return (u64)n;
}

static bool boolean(struct table *t, const char *key)
{
	const json_t *value = get(t, key);

	if (!json_is_boolean(value))
		fail(t->reader, "%s: %s must be true or false", t->where, key);
	return json_is_true(value);
}

static const char *text(struct table *t, const char *key)
{
	const json_t *value = get(t, key);

	if (!json_is_string(value))
		fail(t->reader, "%s: %s must be a text", t->where, key);
	return json_is_string(value) ? json_string_value(value) : "";
}

static const json_t *list(struct table *t, const char *key, size_t max)
{
	const json_t *value = get(t, key);

	if (!json_is_array(value) || json_array_size(value) > max) {
		fail(t->reader, "%s: %s must be a list of at most %zu", t->where, key, max);
		return NULL;
	}
	return value;
}

static void *zalloc(struct reader *r, size_t n, size_t size)
{
	void *p = calloc(n ? n : 1, size);

	if (!p)
		fail(r, "out of memory");
	return p;
}

static struct cpu_time read_cpu(struct reader *r, const json_t *json)
{
	struct table t = table(r, json, "cpu");
	const u64 second = NSEC_PER_SEC;
	struct cpu_time cpu = {
		.submit_ns = number(&t, "submit_ns", 0, second),
		.complete_ns = number(&t, "complete_ns", 0, second),
		.wake_ns = number(&t, "wake_ns", 0, second),
		.insert_ns = number(&t, "insert_ns", 0, second),
		.dispatch_ns = number(&t, "dispatch_ns", 0, second),
		.done_ns = number(&t, "done_ns", 0, second),
		.lock_ns = number(&t, "lock_ns", 0, second),
		.lock_read_ps = number(&t, "lock_read_ps", 0, second),
	};

	no_more(&t, "submit_ns, complete_ns, wake_ns, insert_ns, dispatch_ns, done_ns, lock_ns, "
		    "lock_read_ps");
	return cpu;
}

static void read_prices(struct table *t, const char *key, u32 *prices)
{
	const json_t *all = list(t, key, FL_PRICE_SIZES), *value;
	size_t i;

	if (json_array_size(all) != FL_PRICE_SIZES)
		fail(t->reader, "%s: %s must have %u prices", t->where, key, FL_PRICE_SIZES);
	json_array_foreach (all, i, value) {
		json_int_t price = json_integer_value(value);

		if (!json_is_integer(value) || price < 1 || price > (json_int_t)FL_PRICE_MAX)
			fail(t->reader, "%s: %s must be whole numbers from 1 to %u", t->where, key,
			     FL_PRICE_MAX);
		prices[i] = t->reader->failed ? 1 : (u32)price;
	}
}

static struct fl_prices read_price_list(struct reader *r, const json_t *json)
{
	struct table t = table(r, json, "prices");
	struct fl_prices prices;

	fl_prices_init(&prices);
	read_prices(&t, "read", prices.price[FL_READ]);
	read_prices(&t, "write", prices.price[FL_WRITE]);
	no_more(&t, "read, write");
	return prices;
}

static void read_profile(struct table *t, struct ssd_profile *profile)
{
	const struct ssd_profile_field *field;
	const char *wrong;

	for (field = ssd_profile_fields; field->name; field++)
		*ssd_profile_value(profile, field) = number(t, field->name, field->min, field->max);
	wrong = ssd_profile_check(profile, &field);
	if (wrong)
		fail(t->reader, "%s: %s %s", t->where, field->name, wrong);
}

static struct drive_config read_drive(struct reader *r, const json_t *json, u64 cores)
{
	struct table t = table(r, json, "drive");
	struct drive_config drive = {
		.queues = number(&t, "queues", 1, cores),
		.queue_depth = number(&t, "queue_depth", 1, 65536),
	};
	const char *kind = text(&t, "kind");

	if (!strcmp(kind, "ssd")) {
		read_profile(&t, &drive.profile);
		drive.size = drive.profile.size;
		drive.time_scale = number(&t, "time_scale", 1, 1000000);
		drive.precondition = boolean(&t, "precondition");
		no_more(&t, "kind, queues, queue_depth, time_scale, precondition and those of a "
			    "profile of an SSD");
		return drive;
	}
	if (strcmp(kind, "null"))
		fail(r, "drive: kind must be ssd or null");
	drive.null = true;
	drive.size = number(&t, "size", 1 << 20, 1ull << 60);
	drive.latency_ns = number(&t, "latency_ns", 0, MAX_TIME_NS);
	drive.interval_ps = number(&t, "interval_ps", 0, MAX_TIME_NS);
	no_more(&t, "kind, queues, queue_depth, size, latency_ns, interval_ps");
	return drive;
}

static bool is_name(const char *s)
{
	return *s &&
	       !s[strspn(s, "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789-_")];
}

static struct node_config read_node(struct table *t)
{
	struct node_config node = { .name = text(t, "name"), .parent_index = -1 };
	const json_t *parent;

	if (!is_name(node.name))
		fail(t->reader, "%s: name must be of letters, digits, - and _", t->where);
	t->where = node.name;
	node.weight = number(t, "weight", FL_WEIGHT_MIN, FL_WEIGHT_MAX);
	if (json_object_get(t->json, "latency_ns"))
		node.latency_ns = number(t, "latency_ns", 0, MAX_TIME_NS);
	parent = get(t, "parent");
	if (!json_is_null(parent) && !json_is_string(parent))
		fail(t->reader, "%s: parent must be the name of a cgroup, or null", t->where);
	node.parent = json_string_value(parent);
	return node;
}

static void read_cores(struct table *t, struct tenant_config *tenant, u64 cores)
{
	const json_t *all = list(t, "cores", MAX_CORES), *value;
	size_t i;

	tenant->nr_cores = json_array_size(all);
	tenant->cores = zalloc(t->reader, tenant->nr_cores, sizeof(*tenant->cores));
	if (!tenant->cores)
		return;
	json_array_foreach (all, i, value) {
		json_int_t core = json_integer_value(value);

		if (!json_is_integer(value) || core < 0 || (u64)core >= cores)
			fail(t->reader,
			     "%s: cores must be numbers from 0 to %llu, of the %llu cores",
			     t->where, (unsigned long long)cores - 1, (unsigned long long)cores);
		tenant->cores[i] = t->reader->failed ? 0 : core;
	}
}

static void read_phases(struct table *t, struct tenant_config *tenant)
{
	const json_t *all = list(t, "phases", MAX_PHASES), *value;
	u64 after = 0;
	size_t i;

	tenant->nr_phases = json_array_size(all);
	json_array_foreach (all, i, value) {
		struct table phase = table(t->reader, value, t->where);
		u64 from = number(&phase, "from_ns", after, MAX_TIME_NS);

		after = number(&phase, "to_ns", from, MAX_TIME_NS);
		no_more(&phase, "from_ns, to_ns");
		tenant->phases[i] = (struct phase){ from, after };
	}
}

/* A synthetic load. */
static void read_load(struct table *t, struct tenant_config *tenant)
{
	tenant->bytes = number(t, "bytes", 512, MAX_IO_BYTES);
	tenant->read_percent = number(t, "read_percent", 0, 100);
	tenant->random = boolean(t, "random");
	tenant->think_ns = number(t, "think_ns", 0, MAX_TIME_NS);
	tenant->interval_ps = number(t, "interval_ps", 0, MAX_TIME_NS);
	tenant->poisson = boolean(t, "poisson");
	if (json_object_get(t->json, "metadata_percent"))
		tenant->metadata_percent = number(t, "metadata_percent", 0, 100);
	if (json_object_get(t->json, "discards"))
		tenant->discards = boolean(t, "discards");
	if (tenant->bytes % 512)
		fail(t->reader, "%s: bytes must be a multiple of 512", t->where);
}

static void read_trace(struct table *t, struct tenant_config *tenant)
{
	tenant->trace = text(t, "trace");
	tenant->block = number(t, "block", 512, 1 << 20);
	if (tenant->block % 512)
		fail(t->reader, "%s: block must be a multiple of 512", t->where);
	tenant->full_speed = boolean(t, "full_speed");
}

static void read_tenant(struct reader *r, const json_t *json, u64 cores,
			struct tenant_config *tenant)
{
	struct table t = table(r, json, "a tenant");

	tenant->node = read_node(&t);
	tenant->jobs = number(&t, "jobs", 1, 1024);
	tenant->depth = number(&t, "depth", 1, 65536);
	if (json_object_get(json, "trace"))
		read_trace(&t, tenant);
	else
		read_load(&t, tenant);
	read_cores(&t, tenant, cores);
	read_phases(&t, tenant);
	no_more(&t, "name, weight, latency_ns, parent, jobs, depth, cores, phases, and either trace, block and "
		    "full_speed or bytes, read_percent, random, think_ns, interval_ps, poisson, "
		    "metadata_percent, discards");
}

/* Find the cgroup that @node names as its parent, among the first @nr. */
static void find_parent(struct reader *r, const struct config *config, struct node_config *node,
			unsigned int nr)
{
	unsigned int i;

	if (!node->parent)
		return;
	for (i = 0; i < nr; i++)
		if (!strcmp(config->cgroups[i].name, node->parent))
			node->parent_index = i;
	if (node->parent_index < 0)
		fail(r, "%s: parent %s is none of the cgroups before it", node->name, node->parent);
}

static void read_nodes(struct reader *r, struct table *top, struct config *config)
{
	const json_t *cgroups = list(top, "cgroups", MAX_NODES), *value;
	const json_t *tenants = list(top, "tenants", MAX_NODES);
	u64 jobs = 0;
	size_t i;

	config->cgroups = zalloc(r, json_array_size(cgroups), sizeof(*config->cgroups));
	config->tenants = zalloc(r, json_array_size(tenants), sizeof(*config->tenants));
	if (r->failed)
		return;
	config->nr_cgroups = json_array_size(cgroups);
	config->nr_tenants = json_array_size(tenants);
	json_array_foreach (cgroups, i, value) {
		struct table t = table(r, value, "a cgroup");

		config->cgroups[i] = read_node(&t);
		no_more(&t, "name, weight, latency_ns, parent");
		find_parent(r, config, &config->cgroups[i], i);
	}
	json_array_foreach (tenants, i, value) {
		read_tenant(r, value, config->cores, &config->tenants[i]);
		find_parent(r, config, &config->tenants[i].node, config->nr_cgroups);
		jobs += config->tenants[i].jobs;
	}
	if (!config->nr_tenants)
		fail(r, "tenants: there is none");
	if (jobs > MAX_JOBS)
		fail(r, "tenants: %llu jobs in all are more than %u", (unsigned long long)jobs,
		     MAX_JOBS);
}

static void read_all(struct reader *r, struct config *config)
{
	struct table t = table(r, config->json, "the run");
	const json_t *prices = get(&t, "prices");

	config->scenario = text(&t, "scenario");
	config->version = text(&t, "version");
	config->knob = text(&t, "knob");
	config->label = text(&t, "label");
	config->seed = number(&t, "seed", 0, INT64_MAX);
	config->repeat = number(&t, "repeat", 0, INT32_MAX);
	config->cores = number(&t, "cores", 1, MAX_CORES);
	config->warmup_ns = number(&t, "warmup_ns", 0, MAX_TIME_NS / 2);
	config->run_ns = number(&t, "run_ns", 1, MAX_TIME_NS / 2);
	config->point = get(&t, "point");
	if (config->point && !json_is_object(config->point))
		fail(r, "the run: point must be an object");
	config->cpu = read_cpu(r, get(&t, "cpu"));
	config->priced = prices;
	if (prices)
		config->prices = read_price_list(r, prices);
	config->tunables = get(&t, "tunables");
	if (config->tunables && !json_is_object(config->tunables))
		fail(r, "the run: tunables must be an object");
	config->drive = read_drive(r, get(&t, "drive"), config->cores);
	read_nodes(r, &t, config);
	no_more(&t, "scenario, version, knob, label, seed, repeat, cores, warmup_ns, run_ns, point, "
		    "cpu, prices, tunables, drive, cgroups, tenants");
}

bool config_read(struct config *config, FILE *file, char *error, size_t size)
{
	struct reader r = { error, size, false };
	json_error_t at;

	memset(config, 0, sizeof(*config));
	config->json = json_loadf(file, JSON_REJECT_DUPLICATES, &at);
	if (!config->json) {
		fail(&r, "not JSON: %s in line %d", at.text, at.line);
		return false;
	}
	read_all(&r, config);
	if (r.failed)
		config_free(config);
	return !r.failed;
}

void config_free(struct config *config)
{
	unsigned int i;

	for (i = 0; i < config->nr_tenants; i++)
		free(config->tenants[i].cores);
	free(config->tenants);
	free(config->cgroups);
	json_decref(config->json);
}
