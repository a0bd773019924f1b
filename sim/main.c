// SPDX-License-Identifier: GPL-2.0-only OR MIT
/*
 * fl-sim [-p] [-o FILE] [FILE]: simulate the run that a JSON text describes
 * (config.h), from a file or standard input, and write results.json.
 *
 *	-p       tell of the progress on standard error: a line of 0..1000 each time
 *	-o FILE  write there, not to standard output
 *
 * Exit status: 0, or 2 with one sentence on standard error.
 */
#include <errno.h>
#include <stdio.h>
#include <unistd.h>

#include "sim.h"

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

static bool write_results(struct sim *sim, const char *name)
{
	FILE *file = name ? fopen(name, "w") : stdout;
	bool ok = file && sim_print(sim, file);

	if (file && name)
		ok = !fclose(file) && ok;
	else if (file)
		ok = !fflush(file) && ok;
	return ok;
}

int main(int argc, char **argv)
{
	static struct sim sim;
	const char *in = NULL, *out = NULL;
	bool progress = false;
	int option, ret = 0;

	while ((option = getopt(argc, argv, "po:")) != -1) {
		if (option == '?')
			return fail("usage", "fl-sim [-p] [-o FILE] [FILE]");
		if (option == 'p')
			progress = true;
		else
			out = optarg;
	}
	if (optind < argc)
		in = argv[optind];
	if (!read_config(&sim.config, in, sim.error, sizeof(sim.error)))
		return fail(in ? in : "standard input", sim.error);
	if (!sim_init(&sim) || !sim_run(&sim, progress ? tell : NULL))
		ret = fail(sim.config.scenario, sim.error);
	else if (!write_results(&sim, out))
		ret = fail(out ? out : "standard output", "cannot be written");
	sim_exit(&sim);
	config_free(&sim.config);
	return ret;
}
