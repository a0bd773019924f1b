// SPDX-License-Identifier: GPL-2.0-only OR MIT
/*
 * nbdkit-fairlane-filter: share what is below this filter among exports, by weight.
 *
 *	nbdkit --filter=./nbdkit-fairlane-filter.so file dir=/srv/images fairlane-tenants=gold:800,silver:200:5ms
 *
 * nbdkit has a thread for each request that is on its way. It waits here until the library says that
 * its request may go, and then sends it to the plugin.
 *
 * A filter, not a plugin: so it works over any of nbdkit's plugins and filters. The price is that nbdkit
 * loads it only if both are of the same version, since the interface of filters is not a stable one.
 */
#include <errno.h>
#include <semaphore.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <libfairlane.h>
#include <nbdkit-filter.h>

#define TENANTS_MAX 1024
#define TEXT_MAX 65536 /* of a price list */

struct tenant {
	const char *name; /* of an export; "*": all that have no tenant of their own, together */
	unsigned int weight;
	uint64_t latency_ns;
	struct fairlane_tenant *tenant; /* from after_fork() to cleanup() */
};

/* Written while nbdkit reads its command line, with one thread. */
static struct {
	const char *scheduler, *prices, *set, *depth_text; /* NULL: not given */
	char *price_list; /* the text of file @prices */
	unsigned int depth;
	struct tenant tenants[TENANTS_MAX];
	unsigned int nr_tenants;
	char *texts[TENANTS_MAX]; /* what names point into */
	unsigned int nr_texts;
} config;

static struct fairlane_drive *drive;

/* ---- The command line ------------------------------------------------------------------ */

static int parse_latency(const char *text, uint64_t *ns)
{
	static const struct {
		const char *name;
		uint64_t ns;
	} units[] = { { "us", 1000 }, { "ms", 1000000 }, { "s", 1000000000 } };
	unsigned long long value;
	char *unit;
	size_t i;

	errno = 0;
	value = strtoull(text, &unit, 10);
	for (i = 0; i < sizeof(units) / sizeof(units[0]); i++)
		if (unit != text && !errno && *text != '-' && value && value < 1000000000 &&
		    !strcmp(unit, units[i].name)) {
			*ns = value * units[i].ns;
			return 0;
		}
	nbdkit_error("fairlane-tenants: %s is no time; write it as 200us, 5ms or 1s", text);
	return -1;
}

static const struct tenant *find_tenant(const char *name)
{
	unsigned int i;

	for (i = 0; i < config.nr_tenants; i++)
		if (!strcmp(config.tenants[i].name, name))
			return &config.tenants[i];
	return NULL;
}

/* NAME:WEIGHT or NAME:WEIGHT:LATENCY, which is cut into its parts. */
static int parse_tenant(char *text)
{
	char *weight = strchr(text, ':'), *latency = weight ? strchr(weight + 1, ':') : NULL;
	struct tenant *t = &config.tenants[config.nr_tenants];

	if (!weight) {
		nbdkit_error("fairlane-tenants: %s has no weight; write NAME:WEIGHT", text);
		return -1;
	}
	if (config.nr_tenants == TENANTS_MAX) {
		nbdkit_error("fairlane-tenants: more than %d", TENANTS_MAX);
		return -1;
	}
	*weight++ = '\0';
	if (latency)
		*latency++ = '\0';
	if (find_tenant(text)) {
		nbdkit_error("fairlane-tenants: %s is there twice", text);
		return -1;
	}
	if (nbdkit_parse_unsigned("fairlane-tenants", weight, &t->weight))
		return -1;
	if (t->weight < FAIRLANE_WEIGHT_MIN || t->weight > FAIRLANE_WEIGHT_MAX) {
		nbdkit_error("fairlane-tenants: the weight of %s is %u; it must be %d to %d", text,
			     t->weight, FAIRLANE_WEIGHT_MIN, FAIRLANE_WEIGHT_MAX);
		return -1;
	}
	if (latency && parse_latency(latency, &t->latency_ns))
		return -1;
	t->name = text;
	config.nr_tenants++;
	return 0;
}

static int parse_tenants(const char *value)
{
	char *text = strdup(value), *save, *word;

	if (!text || config.nr_texts == TENANTS_MAX) {
		nbdkit_error("fairlane-tenants: %s", text ? "given too often" : "out of memory");
		free(text);
		return -1;
	}
	config.texts[config.nr_texts++] = text;
	for (word = strtok_r(text, ",", &save); word; word = strtok_r(NULL, ",", &save))
		if (parse_tenant(word))
			return -1;
	return 0;
}

/* Keep @value, which nbdkit keeps. Of two, which one counts should not be a matter of order. */
static int once(const char **to, const char *key, const char *value)
{
	if (*to) {
		nbdkit_error("%s is there twice", key);
		return -1;
	}
	*to = value;
	return 0;
}

static int fairlane_config(nbdkit_next_config *next, nbdkit_backend *backend, const char *key,
			   const char *value)
{
	if (!strcmp(key, "fairlane-tenants"))
		return parse_tenants(value);
	if (!strcmp(key, "fairlane-depth"))
		return once(&config.depth_text, key, value) ? -1 : nbdkit_parse_unsigned(key, value, &config.depth);
	if (!strcmp(key, "fairlane-scheduler"))
		return once(&config.scheduler, key, value);
	if (!strcmp(key, "fairlane-prices"))
		return once(&config.prices, key, value);
	if (!strcmp(key, "fairlane-set"))
		return once(&config.set, key, value);
	return next(backend, key, value);
}

/* Now, since after nbdkit has gone into the background it is in another folder, and may be another user. */
static int read_prices(void)
{
	FILE *file = fopen(config.prices, "r");
	int error = -1;

	config.price_list = file ? calloc(1, TEXT_MAX) : NULL;
	if (!file)
		nbdkit_error("fairlane-prices: %s: %m", config.prices);
	else if (!config.price_list)
		nbdkit_error("fairlane-prices: out of memory");
	else if (fread(config.price_list, 1, TEXT_MAX - 1, file) == 0)
		nbdkit_error("fairlane-prices: %s is no price list", config.prices);
	else
		error = 0;
	if (file)
		fclose(file);
	return error;
}

static int fairlane_config_complete(nbdkit_next_config_complete *next, nbdkit_backend *backend)
{
	if (!config.nr_tenants) {
		nbdkit_error("fairlane-tenants is missing: write fairlane-tenants=NAME:WEIGHT,...");
		return -1;
	}
	if (!config.scheduler)
		config.scheduler = "fairlane";
	if (config.prices && read_prices())
		return -1;
	return next(backend);
}

/* ---- The drive ------------------------------------------------------------------------ */

/* The thread that has the request waits for this; it may be gone as soon as it knows. */
static void go(void *ctx, struct fairlane_request *request)
{
	(void)ctx;
	sem_post(request->data);
}

static int set_prices(void)
{
	if (!fairlane_set_prices(drive, config.price_list))
		return 0;
	nbdkit_error("fairlane-prices: %s is no price list", config.prices);
	return -1;
}

/* NAME=VALUE,... */
static int set_variables(void)
{
	char *text = strdup(config.set), *save, *word, *value;
	uint64_t number;
	int error = text ? 0 : -1;

	for (word = text ? strtok_r(text, ",", &save) : NULL; word && !error;
	     word = strtok_r(NULL, ",", &save)) {
		value = strchr(word, '=');
		if (value)
			*value++ = '\0';
		if (!value || nbdkit_parse_uint64_t("fairlane-set", value, &number)) {
			nbdkit_error("fairlane-set: write NAME=NUMBER,...");
			error = -1;
			continue;
		}
		error = fairlane_set(drive, word, number);
		if (error)
			nbdkit_error("fairlane-set: %s %s", config.scheduler,
				     error == -ENOENT ? "has no such variable" : "does not take that value");
	}
	free(text);
	return error ? -1 : 0;
}

static void close_drive(void)
{
	if (drive)
		fairlane_close(drive);
	drive = NULL;
}

/* @wake: see libfairlane.h */
static int open_drive(void (*wake)(void *))
{
	const struct fairlane_engine engine = { .go = go, .wake = wake };
	int error = fairlane_open(&drive, config.scheduler, 1, config.depth, &engine);
	unsigned int i;

	if (error == -ENOENT)
		nbdkit_error("fairlane-scheduler: there is no %s", config.scheduler);
	else if (error == -EOPNOTSUPP || error == -EINVAL)
		nbdkit_error("fairlane-depth: %s does not work with %u", config.scheduler, config.depth);
	for (i = 0; i < config.nr_tenants && !error; i++) {
		struct tenant *t = &config.tenants[i];

		error = fairlane_tenant_create(&t->tenant, drive, NULL, t->weight);
		if (!error)
			error = fairlane_tenant_set_latency(t->tenant, t->latency_ns);
	}
	if (error) {
		errno = -error;
		nbdkit_error("fairlane: %m");
	} else if ((config.set && set_variables()) || (config.prices && set_prices())) {
		error = -1;
	}
	if (error)
		close_drive();
	return error ? -1 : 0;
}

static void no_wake(void *ctx)
{
	(void)ctx;
}

/* What is wrong is said before nbdkit goes into the background. A thread would not survive that. */
static int fairlane_get_ready(int thread_model)
{
	if (thread_model < NBDKIT_THREAD_MODEL_SERIALIZE_REQUESTS) {
		nbdkit_error("fairlane: this plugin has nbdkit serve one request at a time: there is "
			     "nothing to share");
		return -1;
	}
	if (open_drive(no_wake))
		return -1;
	close_drive();
	return 0;
}

static int fairlane_after_fork(nbdkit_backend *backend)
{
	(void)backend;
	return open_drive(NULL);
}

static void fairlane_cleanup(nbdkit_backend *backend)
{
	struct fairlane_stat stat;
	unsigned int i;

	(void)backend;
	for (i = 0; i < config.nr_tenants && drive; i++) {
		fairlane_tenant_stat(config.tenants[i].tenant, &stat);
		nbdkit_debug("fairlane: %s: reads %lu writes %lu read_bytes %lu write_bytes %lu wait_ns %lu "
			     "drive_ns %lu", config.tenants[i].name,
			     (unsigned long)stat.requests[FAIRLANE_READ],
			     (unsigned long)stat.requests[FAIRLANE_WRITE],
			     (unsigned long)stat.bytes[FAIRLANE_READ],
			     (unsigned long)stat.bytes[FAIRLANE_WRITE], (unsigned long)stat.wait_ns,
			     (unsigned long)stat.drive_ns);
	}
	close_drive();
}

static void fairlane_unload(void)
{
	while (config.nr_texts)
		free(config.texts[--config.nr_texts]);
	free(config.price_list);
}

/* ---- Connections: the handle is the export's tenant ---------------------------------------- */

static int fairlane_list_exports(nbdkit_next_list_exports *next, nbdkit_backend *backend,
				 int readonly, int is_tls, struct nbdkit_exports *exports)
{
	unsigned int i;

	(void)next;
	(void)backend;
	(void)readonly;
	(void)is_tls;
	for (i = 0; i < config.nr_tenants; i++)
		if (strcmp(config.tenants[i].name, "*") &&
		    nbdkit_add_export(exports, config.tenants[i].name, NULL))
			return -1;
	return 0;
}

static void *fairlane_open_export(nbdkit_next_open *next, nbdkit_context *context, int readonly,
				  const char *exportname, int is_tls)
{
	const struct tenant *t = find_tenant(exportname);

	(void)is_tls;
	if (!t)
		t = find_tenant("*");
	if (!t) {
		nbdkit_error("fairlane: export \"%s\" has no weight in fairlane-tenants", exportname);
		return NULL;
	}
	return next(context, readonly, exportname) ? NULL : t->tenant;
}

/* ---- Requests ------------------------------------------------------------------------- */

struct io {
	struct fairlane_request request;
	sem_t may_go;
};

/* Wait until it may go. */
static void begin(struct io *io, void *handle, enum fairlane_op op, uint32_t bytes)
{
	sem_init(&io->may_go, 0, 0);
	io->request.data = &io->may_go;
	io->request.op = op;
	io->request.bytes = bytes;
	fairlane_submit(handle, 0, &io->request); /* it refuses only what is out of range */
	while (sem_wait(&io->may_go))
		; /* a signal */
}

static int end(struct io *io, int result)
{
	fairlane_done(&io->request);
	sem_destroy(&io->may_go);
	return result;
}

#define STEP_BYTES (1u << 20)

enum command { PREAD, PWRITE, ZERO, CACHE };

static int forward(nbdkit_next *next, enum command command, char *buf, uint32_t count,
		   uint64_t offset, uint32_t flags, int *err)
{
	switch (command) {
	case PREAD:
		return next->pread(next, buf, count, offset, flags, err);
	case PWRITE:
		return next->pwrite(next, buf, count, offset, flags, err);
	case ZERO:
		return next->zero(next, count, offset, flags, err);
	case CACHE:
		return next->cache(next, count, offset, flags, err);
	}
	abort();
}

/*
 * In steps, each a request of its own, as the kernel splits what is large: one of 4 GiB would be in the
 * drive for seconds. A step ends at a multiple of STEP_BYTES, so that what is aligned stays so. @buf: of
 * PREAD and PWRITE. The first error ends it. Only the first step may fail for lack of a fast way to zero.
 */
static int in_steps(nbdkit_next *next, void *handle, enum command command, const void *buf,
		    uint32_t count, uint64_t offset, uint32_t flags, int *err)
{
	enum fairlane_op op = command == PWRITE || command == ZERO ? FAIRLANE_WRITE : FAIRLANE_READ;
	char *at = (char *)buf;
	int result = 0;
	struct io io;

	while (count && !result) {
		uint32_t bytes = STEP_BYTES - offset % STEP_BYTES;

		if (bytes > count)
			bytes = count;
		begin(&io, handle, op, bytes);
		result = end(&io, forward(next, command, at, bytes, offset, flags, err));
		flags &= ~NBDKIT_FLAG_FAST_ZERO;
		at = at ? at + bytes : NULL;
		offset += bytes;
		count -= bytes;
	}
	return result;
}

static int fairlane_pread(nbdkit_next *next, void *handle, void *buf, uint32_t count,
			  uint64_t offset, uint32_t flags, int *err)
{
	return in_steps(next, handle, PREAD, buf, count, offset, flags, err);
}

static int fairlane_pwrite(nbdkit_next *next, void *handle, const void *buf, uint32_t count,
			   uint64_t offset, uint32_t flags, int *err)
{
	return in_steps(next, handle, PWRITE, buf, count, offset, flags, err);
}

/*
 * Charged, but neither held back nor counted in the drive, as a flush of Linux is not: it takes as long as
 * what was written before it needs, which says nothing about how much the drive has to do.
 */
static int fairlane_flush(nbdkit_next *next, void *handle, uint32_t flags, int *err)
{
	fairlane_charge(handle, 0, FAIRLANE_OTHER, 0);
	return next->flush(next, flags, err);
}

/* One request, however large: a drive discards in one. */
static int fairlane_trim(nbdkit_next *next, void *handle, uint32_t count, uint64_t offset,
			 uint32_t flags, int *err)
{
	struct io io;

	begin(&io, handle, FAIRLANE_DISCARD, count);
	return end(&io, next->trim(next, count, offset, flags, err));
}

static int fairlane_zero(nbdkit_next *next, void *handle, uint32_t count, uint64_t offset,
			 uint32_t flags, int *err)
{
	return in_steps(next, handle, ZERO, NULL, count, offset, flags, err);
}

static int fairlane_cache(nbdkit_next *next, void *handle, uint32_t count, uint64_t offset,
			  uint32_t flags, int *err)
{
	return in_steps(next, handle, CACHE, NULL, count, offset, flags, err);
}

static struct nbdkit_filter filter = {
	.name = "fairlane",
	.longname = "nbdkit fairlane filter",
	.description = "share a drive among exports by weight",
	.config = fairlane_config,
	.config_complete = fairlane_config_complete,
	.config_help =
		"fairlane-tenants=NAME:WEIGHT[:LATENCY],... (required) Exports, and what they get.\n"
		"fairlane-scheduler=NAME         (default: fairlane)\n"
		"fairlane-depth=NUMBER           Requests in the plugin at most; 0: any number.\n"
		"fairlane-prices=FILE            A price list of `fairlane calibrate'.\n"
		"fairlane-set=NAME=NUMBER,...    Variables of the scheduler.",
	.get_ready = fairlane_get_ready,
	.after_fork = fairlane_after_fork,
	.cleanup = fairlane_cleanup,
	.unload = fairlane_unload,
	.list_exports = fairlane_list_exports,
	.open = fairlane_open_export,
	.pread = fairlane_pread,
	.pwrite = fairlane_pwrite,
	.flush = fairlane_flush,
	.trim = fairlane_trim,
	.zero = fairlane_zero,
	.cache = fairlane_cache,
};

NBDKIT_REGISTER_FILTER(filter)
