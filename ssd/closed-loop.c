// SPDX-License-Identifier: GPL-2.0-only OR MIT
/*
 * The drive by itself, without a host: jobs that always have a number of
 * commands under way, and send the next when one is complete. Profiles are
 * fitted with this, and it shows how fast the model runs.
 *
 *	closed-loop SECONDS WARMUP STATE [NAME=VALUE...] [weights=H:M:L] JOB...
 *
 * STATE   fresh: no map; mapped: nothing written yet; steady: preconditioned
 * NAME    a field of the profile (profile.h)
 * weights of the classes high, medium and low, on a drive with wrr=1
 * JOB     rw:bytes:depth or rw:bytes:depth:class, with a core of its own; rw is
 *         read, write, randread, randwrite; class is urgent, high (which it is by
 *         default), medium, low
 *
 * Prints a line for each job - bytes/s, commands/s, and the mean latency in
 * ns - and one for the drive: write amplification, mean commands in the
 * controller, and how long the program took for a command in ns of processor time.
 */
#include <stdio.h>
#include <time.h>

#include "profile.h"
#include "ssd.h"

#define MAX_JOBS 256

struct job {
	enum ssd_op op;
	enum ssd_class class;
	bool random;
	u32 bytes, depth;
	u64 next; /* sequential: offset */
	u64 done, latency; /* in the measured time: commands, and the sum of their ns */
	struct ssd_cmd *cmds;
};

static struct ssd_profile profile;
static unsigned int weights[3] = { 1, 1, 1 }; /* high, medium, low */
static struct job jobs[MAX_JOBS];
static unsigned int nr_jobs;
static u64 random_state = 0x9e3779b97f4a7c15ull;

static u64 random64(void)
{
	random_state ^= random_state << 13;
	random_state ^= random_state >> 7;
	random_state ^= random_state << 17;
	return random_state;
}

static u64 next_offset(struct job *job)
{
	u64 blocks = profile.size / job->bytes, at;

	if (job->random)
		return (u64)((unsigned __int128)random64() * blocks >> 64) * job->bytes;
	at = job->next;
	job->next = at + 2 * job->bytes <= profile.size ? at + job->bytes : 0;
	return at;
}

static void send_next(struct ssd *ssd, struct ssd_cmd *cmd, u64 now)
{
	struct job *job = &jobs[cmd->core];

	cmd->offset = next_offset(job);
	cmd->bytes = job->bytes;
	cmd->op = (u8)job->op;
	cmd->class = (u8)job->class;
	ssd_submit(ssd, cmd, now);
}

static u64 clock_ns(void)
{
	struct timespec t;

	clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &t);
	return (u64)t.tv_sec * NSEC_PER_SEC + (u64)t.tv_nsec;
}

static void finish(const struct ssd_cmd *cmd, u64 warm)
{
	struct job *job = &jobs[cmd->core];

	if (cmd->done_ns < warm)
		return;
	job->done++;
	job->latency += cmd->done_ns - cmd->submitted_ns;
}

/* Returns the time integral of the commands in the controller while measured. */
static u64 run(struct ssd *ssd, u64 warm, u64 end)
{
	struct ssd_cmd *cmd, *next;
	u64 now, held = 0;

	for (now = ssd_next_ns(ssd); now < end; now = ssd_next_ns(ssd)) {
		for (cmd = ssd_advance(ssd, now); cmd; cmd = next) {
			next = cmd->next;
			finish(cmd, warm);
			if (cmd->done_ns >= warm)
				held += cmd->done_ns - cmd->fetched_ns;
			send_next(ssd, cmd, now);
		}
	}
	return held;
}

static bool parse_field(const char *arg)
{
	const struct ssd_profile_field *f;
	size_t length = strcspn(arg, "=");

	for (f = ssd_profile_fields; arg[length] && f->name; f++) {
		if (strlen(f->name) == length && !strncmp(f->name, arg, length)) {
			*ssd_profile_value(&profile, f) = strtoull(arg + length + 1, NULL, 0);
			return true;
		}
	}
	return false;
}

static bool parse_weights(const char *arg)
{
	unsigned int i;

	if (sscanf(arg, "weights=%u:%u:%u", &weights[0], &weights[1], &weights[2]) != 3)
		return false;
	for (i = 0; i < ARRAY_SIZE(weights); i++)
		if (weights[i] < 1 || weights[i] > 256)
			return false;
	return true;
}

static bool parse_class(struct job *job, const char *name)
{
	static const char *const names[] = { "urgent", "high", "medium", "low" };
	unsigned int i;

	for (i = 0; i < ARRAY_SIZE(names); i++)
		if (!strcmp(names[i], name))
			job->class = i;
	return !strcmp(names[job->class], name);
}

static bool parse_job(const char *arg)
{
	static const char *const names[] = { "read", "write", "randread", "randwrite" };
	struct job *job = &jobs[nr_jobs];
	char rw[16], class[16] = "high";
	unsigned int i;

	if (nr_jobs == MAX_JOBS ||
	    sscanf(arg, "%15[a-z]:%u:%u:%15[a-z]", rw, &job->bytes, &job->depth, class) < 3)
		return false;
	if (!parse_class(job, class))
		return false;
	if (!job->depth || !job->bytes || job->bytes % 512 || job->bytes > profile.size)
		return false;
	for (i = 0; i < ARRAY_SIZE(names); i++) {
		if (strcmp(rw, names[i]))
			continue;
		job->op = i % 2 ? SSD_WRITE : SSD_READ;
		job->random = i >= 2;
		nr_jobs++;
		return true;
	}
	return false;
}

static void report(const struct ssd *ssd, double seconds, u64 held, u64 cpu_ns)
{
	struct ssd_stats stats;
	u64 commands = 0;
	unsigned int i;

	ssd_stats(ssd, &stats);
	for (i = 0; i < nr_jobs; i++) {
		double done = (double)jobs[i].done;

		commands += jobs[i].done;
		printf("job %.0f %.0f %.0f\n", done * jobs[i].bytes / seconds, done / seconds,
		       done ? (double)jobs[i].latency / done : 0);
	}
	printf("drive %.4f %.2f %.1f\n",
	       stats.host_bytes ? (double)stats.nand_bytes / (double)stats.host_bytes : 0,
	       (double)held / (seconds * 1e9), commands ? (double)cpu_ns / (double)commands : 0);
}

static int usage(const char *what, const char *why)
{
	fprintf(stderr, "closed-loop: %s %s; see the top of ssd/closed-loop.c\n", what, why);
	return 2;
}

int main(int argc, char **argv)
{
	const struct ssd_profile_field *field;
	const char *why;
	double seconds, warmup;
	struct ssd *ssd;
	u64 start, held;
	unsigned int i, k;
	int arg;

	if (argc < 5)
		return usage("arguments", "are missing");
	seconds = strtod(argv[1], NULL);
	warmup = strtod(argv[2], NULL);
	ssd_profile_init(&profile);
	for (arg = 4; arg < argc; arg++)
		if (!parse_weights(argv[arg]) && !parse_field(argv[arg]) && !parse_job(argv[arg]))
			return usage(argv[arg], "is neither a field of the profile nor a job");
	if (!strcmp(argv[3], "fresh"))
		profile.map = 0;
	why = ssd_profile_check(&profile, &field);
	if (why)
		return usage(field->name, why);
	ssd = ssd_create(&profile, nr_jobs, 1);
	if (!ssd)
		return usage("memory", "is short");
	ssd_set_weights(ssd, weights[0], weights[1], weights[2]);
	if (!strcmp(argv[3], "steady"))
		ssd_precondition(ssd);
	for (i = 0; i < nr_jobs; i++) {
		jobs[i].next = profile.size / nr_jobs / jobs[i].bytes * i * jobs[i].bytes;
		jobs[i].cmds = calloc(jobs[i].depth, sizeof(*jobs[i].cmds));
		if (!jobs[i].cmds)
			return usage("memory", "is short");
		for (k = 0; k < jobs[i].depth; k++) {
			jobs[i].cmds[k].core = i;
			send_next(ssd, &jobs[i].cmds[k], 0);
		}
	}
	start = clock_ns();
	held = run(ssd, (u64)(warmup * 1e9), (u64)((warmup + seconds) * 1e9));
	report(ssd, seconds, held, clock_ns() - start);
	while (ssd_next_ns(ssd) != SSD_NEVER)
		ssd_advance(ssd, ssd_next_ns(ssd));
	ssd_destroy(ssd);
	for (i = 0; i < nr_jobs; i++)
		free(jobs[i].cmds);
	return 0;
}
