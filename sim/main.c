// SPDX-License-Identifier: GPL-2.0-only OR MIT
/*
 * fl-sim: simulate the run that a JSON text describes (config.h), and write
 * results.json. USAGE has its options.
 *
 * Exit status: 0, or 2 with one sentence on standard error.
 */
#include <errno.h>
#include <getopt.h>
#include <stdio.h>
#include <unistd.h>

#include "sim.h"

#define USAGE "fl-sim [-n] [-p] [-o FILE] [FILE]"

static const char help[] =
	USAGE "\n"
	"fl-sim -t SCHEDULER\n"
	"Simulate the run that FILE, or standard input, describes in JSON (sim/config.h).\n"
	"\n"
	"  -n       only check that it can be run, traces included\n"
	"  -p       tell of the progress on standard error: a line of 0..1000 each time\n"
	"  -o FILE  write results.json there, not to standard output\n"
	"  -t       instead, print that scheduler's tunables: a line of name, least and most for each\n"
	"  -h       print this\n";

static int fail(const char *where, const char *what)
{
	fprintf(stderr, "fl-sim: %s: %s\n", where, what);
	return 2;
}

static void tell(unsigned int permille)
{
	fprintf(stderr, "%u\n", permille);
}

static bool read_config(struct config *config, const char *name, char *error, size_t size)
{
	FILE *file = name ? fopen(name, "r") : stdin;
	bool ok;

	if (!file) {
		snprintf(error, size, "cannot be read: %s", strerror(errno));
		return false;
	}
	ok = config_read(config, file, error, size);
	if (name)
		fclose(file);
	return ok;
}

static bool write_results(struct sim *sim, const char *name, char *error, size_t size)
{
	FILE *file = name ? fopen(name, "w") : stdout;
	bool ok = file && sim_print(sim, file);
	int why = errno; /* of the first that failed */

	if (file && (name ? fclose(file) : fflush(file)) && ok) {
		why = errno;
		ok = false;
	}
	if (!ok)
		snprintf(error, size, "cannot be written: %s", strerror(why));
	return ok;
}

static int print_tunables(const char *name)
{
	const struct fl_sched *sched = fl_sched_find(name);
	const struct fl_var *var;

	if (!sched)
		return fail(name, "is no scheduler");
	for (var = sched->vars; var->name; var++)
		if (fl_var_tunable(var))
			printf("%s %llu %llu\n", var->name, (unsigned long long)var->min,
			       (unsigned long long)var->max);
	return fflush(stdout) ? fail("standard output", strerror(errno)) : 0;
}

int main(int argc, char **argv)
{
	static const struct option longs[] = { { "help", no_argument, NULL, 'h' }, { 0 } };
	static struct sim sim;
	const char *in = NULL, *out = NULL;
	bool progress = false, only_check = false;
	int option, ret = 0;

	while ((option = getopt_long(argc, argv, "hnpo:t:", longs, NULL)) != -1) {
		if (option == '?')
			return fail("usage", USAGE);
		if (option == 'h')
			return fputs(help, stdout) < 0 || fflush(stdout) ? 2 : 0;
		if (option == 't')
			return print_tunables(optarg);
		if (option == 'n')
			only_check = true;
		else if (option == 'p')
			progress = true;
		else
			out = optarg;
	}
	if (optind < argc)
		in = argv[optind];
	if (!read_config(&sim.config, in, sim.error, sizeof(sim.error)))
		return fail(in ? in : "standard input", sim.error);
	if (only_check)
		ret = sim_check(&sim) ? 0 : fail(sim.config.scenario, sim.error);
	else if (!sim_init(&sim) || !sim_run(&sim, progress ? tell : NULL))
		ret = fail(sim.config.scenario, sim.error);
	else if (!write_results(&sim, out, sim.error, sizeof(sim.error)))
		ret = fail(out ? out : "standard output", sim.error);
	sim_exit(&sim);
	config_free(&sim.config);
	return ret;
}
