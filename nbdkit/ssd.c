// SPDX-License-Identifier: GPL-2.0-only OR MIT
/*
 * nbdkit-ssd-plugin: a drive with the timing of the model in ssd/, in real time. It has no data: what
 * is read is zeroes. To try and to measure the filter with, where the drive is the same for everybody.
 *
 *	nbdkit ./nbdkit-ssd-plugin.so size=64M channels=2 dies=2 time_scale=200
 *
 * Parameters are the numbers of a profile (ssd/profile.h), by their names; and time_scale: so many times
 * slower. A slow drive is full before the processor is.
 */
#define NBDKIT_API_VERSION 2
#include <nbdkit-plugin.h>

#include <errno.h>
#include <pthread.h>
#include <semaphore.h>
#include <sys/prctl.h>
#include <time.h>

#include "../ssd/profile.h"
#include "../ssd/ssd.h"

#define THREAD_MODEL NBDKIT_THREAD_MODEL_PARALLEL

struct io {
	struct ssd_cmd cmd;
	sem_t done;
};

static struct ssd_profile profile;
static unsigned int time_scale = 1;
static struct ssd *ssd;
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER; /* for the model, and what follows */
static pthread_cond_t sooner; /* the next event is earlier than next_ns */
static u64 next_ns = SSD_NEVER; /* of the model: when the thread wakes up */
static bool stop;
static pthread_t thread;

/* The model's time. */
static u64 clock_ns(void)
{
	struct timespec ts;

	clock_gettime(CLOCK_MONOTONIC, &ts);
	return ((u64)ts.tv_sec * NSEC_PER_SEC + ts.tv_nsec) / time_scale;
}

static void plugin_load(void)
{
	ssd_profile_init(&profile);
}

static int plugin_config(const char *key, const char *value)
{
	const struct ssd_profile_field *field;
	int64_t number;

	if (!strcmp(key, "time_scale")) {
		if (nbdkit_parse_unsigned(key, value, &time_scale))
			return -1;
		if (time_scale >= 1 && time_scale <= 1000000)
			return 0;
		nbdkit_error("ssd: time_scale must be 1 to 1000000");
		return -1;
	}
	for (field = ssd_profile_fields; field->name; field++) {
		if (strcmp(field->name, key))
			continue;
		number = nbdkit_parse_size(value); /* of bytes, mostly */
		if (number < 0)
			return -1;
		if ((u64)number < field->min || (u64)number > field->max) {
			nbdkit_error("ssd: %s is out of range: %s", key, field->help);
			return -1;
		}
		*ssd_profile_value(&profile, field) = number;
		return 0;
	}
	nbdkit_error("ssd: a drive has no %s; see ssd/profile.h", key);
	return -1;
}

static int plugin_get_ready(void)
{
	const struct ssd_profile_field *field;
	const char *wrong = ssd_profile_check(&profile, &field);

	if (wrong) {
		nbdkit_error("ssd: %s %s", field->name, wrong);
		return -1;
	}
	ssd = ssd_create(&profile, 1, 1);
	if (!ssd) {
		nbdkit_error("ssd: out of memory");
		return -1;
	}
	ssd_precondition(ssd);
	return 0;
}

static void *timer(void *arg)
{
	struct ssd_cmd *cmd, *next;
	struct timespec until;
	u64 until_ns;

	prctl(PR_SET_TIMERSLACK, 1);
	pthread_mutex_lock(&lock);
	while (!stop) {
		for (cmd = ssd_advance(ssd, clock_ns()); cmd; cmd = next) {
			next = cmd->next;
			sem_post(&container_of(cmd, struct io, cmd)->done);
		}
		next_ns = ssd_next_ns(ssd);
		if (next_ns == SSD_NEVER) {
			pthread_cond_wait(&sooner, &lock);
			continue;
		}
		until_ns = next_ns * time_scale;
		until.tv_sec = until_ns / NSEC_PER_SEC;
		until.tv_nsec = until_ns % NSEC_PER_SEC;
		pthread_cond_timedwait(&sooner, &lock, &until);
	}
	pthread_mutex_unlock(&lock);
	return arg;
}

static int plugin_after_fork(void)
{
	pthread_condattr_t attr;
	int error;

	pthread_condattr_init(&attr);
	pthread_condattr_setclock(&attr, CLOCK_MONOTONIC);
	pthread_cond_init(&sooner, &attr);
	pthread_condattr_destroy(&attr);
	error = pthread_create(&thread, NULL, timer, NULL);
	if (!error)
		return 0;
	errno = error;
	nbdkit_error("ssd: %m");
	return -1;
}

static void plugin_cleanup(void)
{
	pthread_mutex_lock(&lock);
	stop = true;
	pthread_cond_signal(&sooner);
	pthread_mutex_unlock(&lock);
	pthread_join(thread, NULL);
	ssd_destroy(ssd);
}

static void *plugin_open(int readonly)
{
	(void)readonly;
	return NBDKIT_HANDLE_NOT_NEEDED;
}

static int64_t plugin_get_size(void *handle)
{
	(void)handle;
	return profile.size;
}

static int yes(void *handle)
{
	(void)handle;
	return 1;
}

static int can_fua(void *handle)
{
	(void)handle;
	return NBDKIT_FUA_NATIVE;
}

static int plugin_block_size(void *handle, uint32_t *minimum, uint32_t *preferred, uint32_t *maximum)
{
	(void)handle;
	*minimum = 512;
	*preferred = 4096;
	*maximum = 1 << 20;
	return 0;
}

static int run(enum ssd_op op, uint32_t count, uint64_t offset, uint32_t flags)
{
	struct io io = { .cmd = { .op = op, .class = SSD_HIGH, .offset = offset & ~511ull,
				  .fua = flags & NBDKIT_FLAG_FUA } };

	io.cmd.bytes = ((offset & 511) + count + 511) & ~511u;
	sem_init(&io.done, 0, 0);
	pthread_mutex_lock(&lock);
	ssd_submit(ssd, &io.cmd, clock_ns());
	if (ssd_next_ns(ssd) < next_ns)
		pthread_cond_signal(&sooner);
	pthread_mutex_unlock(&lock);
	while (sem_wait(&io.done))
		; /* a signal */
	sem_destroy(&io.done);
	return 0;
}

static int plugin_pread(void *handle, void *buf, uint32_t count, uint64_t offset, uint32_t flags)
{
	(void)handle;
	memset(buf, 0, count);
	return run(SSD_READ, count, offset, flags);
}

static int plugin_pwrite(void *handle, const void *buf, uint32_t count, uint64_t offset, uint32_t flags)
{
	(void)handle;
	(void)buf;
	return run(SSD_WRITE, count, offset, flags);
}

static int plugin_trim(void *handle, uint32_t count, uint64_t offset, uint32_t flags)
{
	(void)handle;
	return run(SSD_TRIM, count, offset, flags);
}

static int plugin_flush(void *handle, uint32_t flags)
{
	(void)handle;
	return run(SSD_FLUSH, 0, 0, flags);
}

static struct nbdkit_plugin plugin = {
	.name = "ssd",
	.longname = "nbdkit ssd plugin",
	.description = "a modelled SSD in real time, without data",
	.load = plugin_load,
	.config = plugin_config,
	.config_help = "NAME=NUMBER          Numbers of the drive, see ssd/profile.h.\n"
		       "time_scale=NUMBER    So many times slower (default: 1).",
	.get_ready = plugin_get_ready,
	.after_fork = plugin_after_fork,
	.cleanup = plugin_cleanup,
	.open = plugin_open,
	.get_size = plugin_get_size,
	.block_size = plugin_block_size,
	.can_multi_conn = yes,
	.can_fua = can_fua,
	.pread = plugin_pread,
	.pwrite = plugin_pwrite,
	.trim = plugin_trim,
	.flush = plugin_flush,
};

NBDKIT_REGISTER_PLUGIN(plugin)
