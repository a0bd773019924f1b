// SPDX-License-Identifier: GPL-2.0-only OR MIT
/* results.json, as fairlane/experiment/results.py reads it. Fractions are only here, and only printed. */
#include "sim.h"

static double per_s(const struct sim *sim, u64 n)
{
	return (double)n * 1e9 / (double)sim->config.run_ns;
}

/* Add up the weights of each node's active children. */
static void add_weights(const struct config *c, u64 *children)
{
	bool *busy = calloc(c->nr_cgroups + 1, sizeof(*busy)); /* counted already */
	unsigned int i;

	for (i = 0; busy && i < c->nr_tenants; i++) {
		const struct node_config *node = &c->tenants[i].node;

		for (;;) {
			children[node->parent_index + 1] += node->weight;
			if (node->parent_index < 0 || busy[node->parent_index])
				break;
			busy[node->parent_index] = true;
			node = &c->cgroups[node->parent_index];
		}
	}
	free(busy);
}

/* What part of the drive is @node's by weight, 0..1. @children: from add_weights(). */
static double share_of(const struct config *c, const struct node_config *node, const u64 *children)
{
	double share = 1;

	for (;; node = &c->cgroups[node->parent_index]) {
		share *= (double)node->weight / (double)children[node->parent_index + 1];
		if (node->parent_index < 0)
			return share;
	}
}

static void print_text(FILE *file, const char *key, const char *text)
{
	json_t *json = json_string(text);

	fprintf(file, "\"%s\": ", key);
	json_dumpf(json, file, JSON_ENCODE_ANY);
	fprintf(file, ", ");
	json_decref(json);
}

static void print_latency(FILE *file, const struct histogram *h)
{
	static const struct {
		const char *name;
		unsigned int permille;
	} percentiles[] = { { "p50", 500 }, { "p95", 950 }, { "p99", 990 }, { "p99.9", 999 } };
	unsigned int i;

	if (!h->samples) {
		fprintf(file, "{\"mean\": null, \"p50\": null, \"p95\": null, \"p99\": null, "
			      "\"p99.9\": null, "
			      "\"max\": null}");
		return;
	}
	fprintf(file, "{\"mean\": %.3f", (double)h->sum / (double)h->samples / 1e3);
	for (i = 0; i < ARRAY_SIZE(percentiles); i++)
		fprintf(file, ", \"%s\": %.3f", percentiles[i].name,
			(double)histogram_at(h, percentiles[i].permille) / 1e3);
	fprintf(file, ", \"max\": %.3f}", (double)h->max / 1e3);
}

static void print_tenant(const struct sim *sim, FILE *file, const struct tenant *tenant,
			 double share)
{
	unsigned int i;

	fprintf(file, "  {\"name\": \"%s\", \"weight\": %llu, \"share\": %.12g, ",
		tenant->config->node.name, (unsigned long long)tenant->config->node.weight, share);
	fprintf(file, "\"bytes_per_s\": %.3f, \"iops\": %.3f, ",
		per_s(sim, tenant->bytes[0] + tenant->bytes[1]), per_s(sim, tenant->ios));
	fprintf(file, "\"read_bytes_per_s\": %.3f, \"write_bytes_per_s\": %.3f, ",
		per_s(sim, tenant->bytes[0]), per_s(sim, tenant->bytes[1]));
	if (sim->config.priced)
		fprintf(file, "\"cost_per_s\": %.3f, ", per_s(sim, tenant->cost) / FL_COST_ONE);
	else
		fprintf(file, "\"cost_per_s\": null, ");
	fprintf(file, "\"lat_us\": ");
	print_latency(file, &tenant->latency_ns);
	fprintf(file, ",\n   \"series\": {\"bin_ms\": %llu, \"bytes\": [",
		(unsigned long long)(sim->bin_ns / NSEC_PER_MSEC));
	for (i = 0; i < sim->nr_bins; i++)
		fprintf(file, "%s%llu", i ? ", " : "", (unsigned long long)tenant->bins[i]);
	fprintf(file, "]}}");
}

/* Jain's index over what each got, relative to its share; see fairlane/experiment/results.py. */
static void print_fairness(const struct sim *sim, FILE *file, const u64 *children)
{
	double sum = 0, squares = 0;
	unsigned int i;

	for (i = 0; i < sim->config.nr_tenants; i++) {
		const struct tenant *t = &sim->tenants[i];
		double x = per_s(sim, t->bytes[0] + t->bytes[1]) /
			   share_of(&sim->config, &t->config->node, children);

		sum += x;
		squares += x * x;
	}
	if (squares > 0)
		fprintf(file, "%.9f", sum * sum / (sim->config.nr_tenants * squares));
	else
		fprintf(file, "null");
}

static void print_drive(const struct sim *sim, FILE *file)
{
	const struct drive_writes *writes = &sim->writes;

	if (!sim->drive.ssd)
		return;
	fprintf(file,
		", \"drive_host_bytes\": %llu, \"drive_nand_bytes\": %llu, \"drive_erases\": %llu",
		(unsigned long long)writes->host_bytes, (unsigned long long)writes->nand_bytes,
		(unsigned long long)writes->erases);
	if (writes->host_bytes)
		fprintf(file, ", \"write_amplification\": %.6f",
			(double)writes->nand_bytes / (double)writes->host_bytes);
	else
		fprintf(file, ", \"write_amplification\": null");
}

/* What it sent to each class since the start. */
static void print_routed(const struct sim *sim, FILE *file, const struct tenant *t,
			 const char *before)
{
	u64 sum[FL_NR_CLASSES] = { 0 }, i;
	int c;

	for (i = 0; i < sim->config.drive.queues; i++) {
		const struct fl_queue *queue = fl_flow_queue(t->flow, i);

		for (c = 0; queue && c < FL_NR_CLASSES; c++)
			sum[c] += queue->routed[c];
	}
	fprintf(file, "%s\"%s\": {\"high\": %llu, \"medium\": %llu, \"low\": %llu}", before,
		t->config->node.name, (unsigned long long)sum[FL_HIGH],
		(unsigned long long)sum[FL_MEDIUM], (unsigned long long)sum[FL_LOW]);
}

/* The scheduler's variables at the end of each second of the window. */
static void print_samples(const struct sim *sim, FILE *file)
{
	const u64 *at = sim->samples;
	const struct fl_var *var;
	unsigned int i;

	fprintf(file, ", \"each_second\": {");
	for (var = sim->sched->vars; var->name; var++, at += sim->max_samples) {
		fprintf(file, "%s\"%s\": [", var == sim->sched->vars ? "" : ", ", var->name);
		for (i = 0; i < sim->nr_samples; i++)
			fprintf(file, "%s%llu", i ? ", " : "", (unsigned long long)at[i]);
		fprintf(file, "]");
	}
	fprintf(file, "}");
}

static void print_counters(const struct sim *sim, FILE *file)
{
	const struct fl_var *var;
	unsigned int i;

	fprintf(file,
		"{\"device\": {\"events\": %llu, \"requests\": %llu, \"lock_held_ns\": %llu, "
		"\"lock_wait_ns\": %llu",
		(unsigned long long)sim->events, (unsigned long long)sim->requests,
		(unsigned long long)sim->lock_held_ns, (unsigned long long)sim->lock_wait_ns);
	/* Little's law over the whole run: requests in the system, counted and by latency. */
	fprintf(file, ", \"mean_in_system\": %.6f, \"rate_times_latency\": %.6f",
		(double)sim->area / (double)max_t(u64, sim->now, 1),
		(double)sim->residence / (double)max_t(u64, sim->now, 1));
	print_drive(sim, file);
	for (var = sim->sched->vars; var->name; var++)
		fprintf(file, ", \"%s\": %llu", var->name,
			(unsigned long long)*fl_var_ptr(sim->dev, var));
	fprintf(file, "}, \"tenants\": {");
	for (i = 0; sim->sched->route && i < sim->config.nr_tenants; i++)
		print_routed(sim, file, &sim->tenants[i], i ? ", " : "");
	fprintf(file, "}");
	print_samples(sim, file);
	fprintf(file, "}");
}

static void print_run(const struct sim *sim, FILE *file, const u64 *children)
{
	const struct config *c = &sim->config;
	u64 bytes = 0, ios = 0;
	unsigned int i;

	fprintf(file, " {");
	print_text(file, "knob", c->label);
	fprintf(file, "\"repeat\": %llu, \"seconds\": %.9f, ", (unsigned long long)c->repeat,
		(double)c->run_ns / 1e9);
	if (c->point) {
		fprintf(file, "\"point\": ");
		json_dumpf(c->point, file, JSON_COMPACT);
		fprintf(file, ", ");
	}
	fprintf(file, "\"tenants\": [\n");
	for (i = 0; i < c->nr_tenants; i++) {
		const struct tenant *t = &sim->tenants[i];

		print_tenant(sim, file, t, share_of(c, &t->config->node, children));
		fprintf(file, "%s\n", i + 1 < c->nr_tenants ? "," : "");
		bytes += t->bytes[0] + t->bytes[1];
		ios += t->ios;
	}
	fprintf(file,
		"  ], \"total_bytes_per_s\": %.3f, \"total_iops\": %.3f, \"fairness_index\": ",
		per_s(sim, bytes), per_s(sim, ios));
	print_fairness(sim, file, children);
	if (ios)
		fprintf(file, ", \"cpu_ns_per_io\": %.3f", (double)sim->busy_ns / (double)ios);
	else
		fprintf(file, ", \"cpu_ns_per_io\": null");
	fprintf(file, ", \"counters\": ");
	print_counters(sim, file);
	fprintf(file, "}");
}

bool sim_print(const struct sim *sim, FILE *file)
{
	const struct config *c = &sim->config;
	u64 *children = calloc(c->nr_cgroups + 1,
			       sizeof(*children)); /* weights below each, the root first */

	if (!children)
		return false;
	add_weights(c, children);
	fprintf(file, "{\"schema\": 1, ");
	print_text(file, "scenario", c->scenario);
	fprintf(file, "\"backend\": \"sim\", \"kernel\": null, \"accel\": null, \"seed\": %llu, ",
		(unsigned long long)c->seed);
	print_text(file, "version", c->version);
	fprintf(file, "\"runs\": [\n");
	print_run(sim, file, children);
	fprintf(file, "]}\n");
	free(children);
	return !ferror(file);
}
