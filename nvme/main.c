// SPDX-License-Identifier: GPL-2.0-only OR MIT
/*
 * fl-nvme: an NVMe drive with the timing of the model in ssd/, for a virtual
 * machine monitor that speaks vfio-user. See docs/nvme.md.
 *
 * One thread: it waits for the client's messages, and for the model's next
 * event, by a timer. The model's clock is real time since the start, divided
 * by the time scale.
 */
#include <errno.h>
#include <fcntl.h>
#include <getopt.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <sys/epoll.h>
#include <sys/file.h>
#include <sys/mman.h>
#include <sys/signalfd.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/timerfd.h>
#include <sys/un.h>
#include <time.h>
#include <unistd.h>

#include "../ssd/ssd.h"
#include "vfio-user.h"

#define MAX_TIME_SCALE 1000000
#define MESSAGES 64 /* at a time, before the model's turn */

struct options {
	const char *socket, *file, *serial, *name;
	u64 size; /* 0: the profile's */
	u64 time_scale, seed;
	bool fresh;
	enum nvme_lie lie;
	struct ssd_profile profile;
};

struct server {
	struct nvme *nvme;
	struct vfio_user vu;
	u64 time_scale, epoch_ns;
	u64 armed; /* what the timer is set to, model time */
	int epoll, listener, timer, signals;
	int client; /* -1: none */
	/* The message that is coming in, and what came with it. */
	u8 message[VFIO_USER_MAX_MESSAGE];
	u32 got;
	int fds[VFIO_USER_MAX_FDS];
	u32 nr_fds;
	/* The reply that the client has not taken yet: nothing more is read meanwhile. */
	u8 reply[VFIO_USER_MAX_MESSAGE];
	u32 sent, to_send;
};

static const char usage[] =
	"usage: fl-nvme --socket PATH [option...] [NAME=NUMBER...]\n"
	"\n"
	"An NVMe drive for a virtual machine, by vfio-user. Its timing is that of a model, whose\n"
	"numbers are NAME=NUMBER, as in ssd/profile.h; `fairlane nvme` takes them from a profile.\n"
	"\n"
	"  --socket PATH     where the machine connects\n"
	"  --file PATH       the data are kept there, sparsely; default: in memory, until the end\n"
	"  --size BYTES      of the drive (K, M, G, T are 2^10 ...); default: that of the model\n"
	"  --time-scale N    the drive is N times slower than real; default: 1\n"
	"  --name TEXT       the drive's model number; default: fairlane\n"
	"  --serial TEXT     its serial number; default: made from the socket's path\n"
	"  --seed N          decides what is random in the model; default: 1\n"
	"  --fresh           begin without the writes that lead to the model's steady state\n"
	"  --lie WHAT        for tests of who measures or drives it. weights: all priorities are\n"
	"                    equal; bursts: of each priority, whole bursts of 2^n commands are\n"
	"                    fetched; what it says it has, and refuses: priorities, of submission\n"
	"                    queues, queues, more for submission than for completion, or arbitration;\n"
	"                    later, when enabled with WRR again: more than two submission queues\n";

static char socket_path[sizeof(((struct sockaddr_un *)0)->sun_path)]; /* once it is there */

__attribute__((format(printf, 1, 2), noreturn)) static void die(const char *format, ...)
{
	va_list args;

	fputs("fl-nvme: ", stderr);
	va_start(args, format);
	vfprintf(stderr, format, args);
	va_end(args);
	fputc('\n', stderr);
	if (*socket_path)
		unlink(socket_path);
	exit(2);
}

/* ---- Options -------------------------------------------------------------- */

static u64 number(const char *what, const char *text, u64 min, u64 max, bool size)
{
	static const char suffixes[] = "KMGT";
	const char *suffix;
	u64 value, shift = 0;
	char *end;

	errno = 0;
	value = strtoull(text, &end, 10);
	suffix = size && *end ? strchr(suffixes, *end) : NULL;
	if (suffix) {
		shift = 10 * (u64)(suffix - suffixes + 1);
		end += strcmp(end + 1, "iB") ? 1 : 3;
	}
	if (errno || *text < '0' || *text > '9' || *end || value > ~0ull >> shift ||
	    value << shift < min || value << shift > max)
		die("%s: must be a whole number%s from %llu to %llu, not %s", what,
		    size ? ", or one with K, M, G or T, such as 4G," : "", (unsigned long long)min,
		    (unsigned long long)max, text);
	return value << shift;
}

static void profile_value(struct ssd_profile *profile, const char *argument)
{
	const struct ssd_profile_field *field;
	const char *equals = strchr(argument, '=');
	size_t length = equals ? (size_t)(equals - argument) : 0;

	for (field = ssd_profile_fields; equals && field->name; field++) {
		if (strlen(field->name) != length || strncmp(field->name, argument, length))
			continue;
		*ssd_profile_value(profile, field) =
			number(field->name, equals + 1, field->min, field->max, false);
		return;
	}
	die("%s: no NAME=NUMBER of a drive; ssd/profile.h has them all", argument);
}

static void ascii(const char *what, const char *text, size_t max)
{
	const char *c;

	for (c = text; *c; c++)
		if (*c < ' ' || *c > '~')
			die("%s: must be printable ASCII", what);
	if (!*text || (size_t)(c - text) > max)
		die("%s: must be of 1 to %zu characters", what, max);
}

static enum nvme_lie lie(const char *about)
{
	static const char *const lies[] = {
		[NVME_LIES_OF_WEIGHTS] = "weights",
		[NVME_LIES_OF_BURSTS] = "bursts",
		[NVME_LIES_OF_PRIORITIES] = "priorities",
		[NVME_LIES_OF_QUEUES] = "queues",
		[NVME_LIES_OF_ARBITRATION] = "arbitration",
		[NVME_LIES_LATER] = "later",
	};
	u32 i;

	for (i = NVME_HONEST + 1; i < sizeof(lies) / sizeof(*lies); i++)
		if (!strcmp(about, lies[i]))
			return (enum nvme_lie)i;
	die("--lie: must be weights, bursts, priorities, queues, arbitration or later, not %s", about);
}

static void parse(struct options *o, int argc, char **argv)
{
	static const struct option names[] = {
		{ "socket", required_argument, NULL, 's' },
		{ "file", required_argument, NULL, 'f' },
		{ "size", required_argument, NULL, 'b' },
		{ "time-scale", required_argument, NULL, 't' },
		{ "name", required_argument, NULL, 'n' },
		{ "serial", required_argument, NULL, 'i' },
		{ "seed", required_argument, NULL, 'r' },
		{ "fresh", no_argument, NULL, 'e' },
		{ "lie", required_argument, NULL, 'l' },
		{ "help", no_argument, NULL, 'h' },
		{ NULL, 0, NULL, 0 },
	};
	const struct ssd_profile_field *field;
	const char *wrong;
	int c;

	*o = (struct options){ .time_scale = 1, .seed = 1, .name = "fairlane" };
	ssd_profile_init(&o->profile);
	while ((c = getopt_long(argc, argv, "", names, NULL)) != -1) {
		switch (c) {
		case 's':
			o->socket = optarg;
			break;
		case 'f':
			o->file = optarg;
			break;
		case 'b':
			o->size = number("--size", optarg, 1 << 20, 1ull << 50, true);
			break;
		case 't':
			o->time_scale = number("--time-scale", optarg, 1, MAX_TIME_SCALE, false);
			break;
		case 'n':
			o->name = optarg;
			break;
		case 'i':
			o->serial = optarg;
			break;
		case 'r':
			o->seed = number("--seed", optarg, 0, 1ull << 62, false);
			break;
		case 'e':
			o->fresh = true;
			break;
		case 'l':
			o->lie = lie(optarg);
			break;
		case 'h':
			fputs(usage, stdout);
			exit(0);
		default:
			fputs(usage, stderr);
			exit(2);
		}
	}
	for (; optind < argc; optind++)
		profile_value(&o->profile, argv[optind]);
	wrong = ssd_profile_check(&o->profile, &field);
	if (wrong)
		die("%s %s", field->name, wrong);
	if (!o->socket)
		die("--socket is missing: where the virtual machine connects");
	ascii("--name", o->name, 40);
	if (o->serial)
		ascii("--serial", o->serial, 20);
	if (!o->size)
		o->size = o->profile.size / NVME_BLOCK * NVME_BLOCK;
	if (o->size > o->profile.size || o->size % NVME_BLOCK)
		die("--size: must be a multiple of %u, and at most the %llu bytes of the model",
		    NVME_BLOCK, (unsigned long long)o->profile.size);
}

static u64 hash(const char *text, u64 h)
{
	for (; *text; text++)
		h = (h ^ (u8)*text) * 0x100000001b3ull; /* FNV-1a */
	return h;
}

/* The same again for the same socket, or the same serial number. */
static void name_drive(const struct options *o, struct nvme_config *config)
{
	char *here = *o->socket == '/' ? NULL : getcwd(NULL, 0);
	u64 low = hash(here ? here : "", 0xcbf29ce484222325ull), high;

	if (here)
		low = hash("/", low);
	free(here);
	snprintf(config->serial, sizeof(config->serial), "FL%016llX",
		 (unsigned long long)hash(o->socket, low));
	if (o->serial)
		snprintf(config->serial, sizeof(config->serial), "%s", o->serial);
	low = hash(config->serial, 0xcbf29ce484222325ull);
	high = hash(config->serial, low);
	memcpy(config->uuid, &low, 8);
	memcpy(config->uuid + 8, &high, 8);
	config->uuid[6] = (config->uuid[6] & 0x0f) | 0x80; /* version 8: as its maker likes */
	config->uuid[8] = (config->uuid[8] & 0x3f) | 0x80;
	snprintf(config->model, sizeof(config->model), "%s", o->name);
}

/* ---- The data ------------------------------------------------------------- */

static int open_file(const char *path, u64 bytes)
{
	int fd = open(path, O_RDWR | O_CREAT | O_CLOEXEC, 0600);
	struct stat stat;

	if (fd < 0 || fstat(fd, &stat))
		die("%s: cannot be opened: %m", path);
	if (!S_ISREG(stat.st_mode))
		die("%s: is no file; the data of a drive are kept in one", path);
	if (flock(fd, LOCK_EX | LOCK_NB))
		die("%s: is in use by another fl-nvme", path);
	if (!stat.st_size && ftruncate(fd, (off_t)bytes))
		die("%s: cannot be made %llu bytes long: %m", path, (unsigned long long)bytes);
	if (stat.st_size && (u64)stat.st_size != bytes)
		die("%s: has %llu bytes, and the drive %llu; give --size, or another file", path,
		    (unsigned long long)stat.st_size, (unsigned long long)bytes);
	if (fallocate(fd, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, (off_t)bytes, 4096))
		die("%s: its file system has no holes in files: %m", path);
	return fd;
}

static int open_memory(u64 bytes)
{
	int fd = memfd_create("fl-nvme", MFD_CLOEXEC);

	if (fd < 0 || ftruncate(fd, (off_t)bytes))
		die("cannot keep %llu bytes in memory: %m", (unsigned long long)bytes);
	return fd;
}

/* ---- Time ----------------------------------------------------------------- */

static u64 real_ns(void)
{
	struct timespec ts;

	clock_gettime(CLOCK_MONOTONIC, &ts);
	return (u64)ts.tv_sec * NSEC_PER_SEC + (u64)ts.tv_nsec;
}

static u64 model_ns(const struct server *s)
{
	return (real_ns() - s->epoch_ns) / s->time_scale;
}

/* Have the timer wake us up for the model's next event. */
static void arm(struct server *s)
{
	u64 next = nvme_next_ns(s->nvme), at;
	struct itimerspec timer = { 0 };

	if (next == s->armed)
		return;
	s->armed = next;
	if (next != SSD_NEVER) {
		at = s->epoch_ns + next * s->time_scale;
		timer.it_value.tv_sec = (time_t)(at / NSEC_PER_SEC);
		timer.it_value.tv_nsec = (long)(at % NSEC_PER_SEC);
	}
	timerfd_settime(s->timer, TFD_TIMER_ABSTIME, &timer, NULL);
}

/* ---- The client ----------------------------------------------------------- */

static void watch(struct server *s, int fd, u32 events, int operation)
{
	struct epoll_event event = { .events = events, .data.fd = fd };

	if (epoll_ctl(s->epoll, operation, fd, &event))
		die("epoll_ctl: %m");
}

static void close_fds(struct server *s)
{
	u32 i;

	for (i = 0; i < s->nr_fds; i++)
		if (s->fds[i] >= 0)
			close(s->fds[i]);
	s->nr_fds = 0;
}

static void disconnect(struct server *s)
{
	close_fds(s);
	vfio_user_disconnect(&s->vu);
	close(s->client);
	s->client = -1;
	s->got = s->sent = s->to_send = 0;
}

/* One at a time; others are sent away. */
static void accept_client(struct server *s)
{
	int fd = accept4(s->listener, NULL, NULL, SOCK_NONBLOCK | SOCK_CLOEXEC);

	if (fd < 0)
		return;
	if (s->client >= 0) {
		close(fd);
		return;
	}
	s->client = fd;
	watch(s, fd, EPOLLIN, EPOLL_CTL_ADD);
}

/* False: the client has gone. */
static bool flush_reply(struct server *s)
{
	ssize_t n;

	while (s->sent < s->to_send) {
		n = send(s->client, s->reply + s->sent, s->to_send - s->sent,
			 MSG_NOSIGNAL | MSG_DONTWAIT);
		if (n < 0 && errno == EINTR)
			continue;
		if (n < 0 && errno == EAGAIN) {
			watch(s, s->client, EPOLLOUT, EPOLL_CTL_MOD);
			return true;
		}
		if (n < 0)
			return false;
		s->sent += (u32)n;
	}
	s->sent = s->to_send = 0;
	return true;
}

static void take_fds(struct server *s, struct msghdr *m)
{
	struct cmsghdr *c;
	u32 n, i;
	int fd;

	for (c = CMSG_FIRSTHDR(m); c; c = CMSG_NXTHDR(m, c)) {
		if (c->cmsg_level != SOL_SOCKET || c->cmsg_type != SCM_RIGHTS)
			continue;
		n = (u32)((c->cmsg_len - CMSG_LEN(0)) / sizeof(int));
		for (i = 0; i < n; i++) {
			memcpy(&fd, CMSG_DATA(c) + i * sizeof(fd), sizeof(fd));
			if (s->nr_fds < VFIO_USER_MAX_FDS)
				s->fds[s->nr_fds++] = fd;
			else
				close(fd);
		}
	}
}

/* As much as there is of @bytes. Returns how much, 0: nothing now; -1: the client has gone. */
static ssize_t receive(struct server *s, u32 bytes)
{
	union {
		char data[CMSG_SPACE(sizeof(int) * VFIO_USER_MAX_FDS)];
		struct cmsghdr align;
	} control;
	struct iovec iov = { s->message + s->got, bytes };
	struct msghdr m = {
		.msg_iov = &iov,
		.msg_iovlen = 1,
		.msg_control = control.data,
		.msg_controllen = sizeof(control.data),
	};
	ssize_t n = recvmsg(s->client, &m, MSG_DONTWAIT | MSG_CMSG_CLOEXEC);

	if (n < 0)
		return errno == EAGAIN || errno == EINTR ? 0 : -1;
	take_fds(s, &m);
	return n ? n : -1;
}

/* Read what there is of a message, and answer it when it is whole. 1: it was; 0: not yet; -1: gone. */
static int serve_one(struct server *s)
{
	u32 size = VFIO_USER_HEADER;
	ssize_t n;
	int reply;

	for (;;) {
		if (s->got >= VFIO_USER_HEADER) {
			size = vfio_user_size(s->message);
			if (!size)
				return -1;
		}
		if (s->got == size)
			break;
		n = receive(s, size - s->got);
		if (n <= 0)
			return (int)n;
		s->got += (u32)n;
	}
	reply = vfio_user_message(&s->vu, s->message, size, s->fds, s->nr_fds, model_ns(s),
				  s->reply);
	close_fds(s);
	s->got = 0;
	if (reply < 0)
		return -1;
	s->to_send = (u32)reply;
	return flush_reply(s) ? 1 : -1;
}

static void serve(struct server *s, u32 events)
{
	u32 i;
	int more = 1;

	if (s->to_send) {
		if (!flush_reply(s)) {
			disconnect(s);
			return;
		}
		if (s->to_send)
			return;
		watch(s, s->client, EPOLLIN, EPOLL_CTL_MOD);
	}
	if (!(events & (EPOLLIN | EPOLLHUP | EPOLLERR)))
		return;
	for (i = 0; i < MESSAGES && more > 0 && !s->to_send; i++)
		more = serve_one(s);
	if (more < 0)
		disconnect(s);
}

/* ---- Life ----------------------------------------------------------------- */

/*
 * The guest's memory is a file of the client's, which may make it shorter. The
 * data are as they were acknowledged; nothing can be said for a client like that.
 */
static void lost_memory(int number)
{
	static const char why[] =
		"fl-nvme: the virtual machine took away memory that it had shared\n";

	(void)number;
	if (write(STDERR_FILENO, why, sizeof(why) - 1) < 0)
		_exit(1);
	unlink(socket_path);
	_exit(1);
}

static int new_socket(const char *path, struct sockaddr_un *address)
{
	int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);

	if (fd < 0)
		die("socket: %m");
	*address = (struct sockaddr_un){ .sun_family = AF_UNIX };
	if (strlen(path) >= sizeof(address->sun_path))
		die("%s: a socket's path may have %zu characters", path,
		    sizeof(address->sun_path) - 1);
	strcpy(address->sun_path, path);
	return fd;
}

/* A socket at which nobody listens any more was left by one that was killed. */
static void clear_place(const char *path)
{
	struct sockaddr_un address;
	int fd = new_socket(path, &address);
	struct stat stat;

	if (!lstat(path, &stat)) {
		if (!S_ISSOCK(stat.st_mode))
			die("%s: is there already, and is no socket", path);
		if (!connect(fd, (struct sockaddr *)&address, sizeof(address)) ||
		    errno != ECONNREFUSED)
			die("%s: is in use by another program", path);
		unlink(path);
	}
	close(fd);
}

static int listen_at(const char *path)
{
	struct sockaddr_un address;
	int fd = new_socket(path, &address);
	/* Whoever may write to it can be the drive's machine: nobody else's processes. */
	mode_t mask = umask(0177);

	if (bind(fd, (struct sockaddr *)&address, sizeof(address)))
		die("%s: %m", path);
	strcpy(socket_path, path);
	umask(mask);
	if (listen(fd, 4))
		die("%s: %m", path);
	return fd;
}

static void init_events(struct server *s)
{
	sigset_t signals;

	sigemptyset(&signals);
	sigaddset(&signals, SIGTERM);
	sigaddset(&signals, SIGINT);
	sigprocmask(SIG_BLOCK, &signals, NULL);
	signal(SIGPIPE, SIG_IGN);
	signal(SIGBUS, lost_memory);
	s->epoll = epoll_create1(EPOLL_CLOEXEC);
	s->timer = timerfd_create(CLOCK_MONOTONIC, TFD_NONBLOCK | TFD_CLOEXEC);
	s->signals = signalfd(-1, &signals, SFD_CLOEXEC);
	if (s->epoll < 0 || s->timer < 0 || s->signals < 0)
		die("cannot wait for events: %m");
	s->armed = SSD_NEVER;
	watch(s, s->listener, EPOLLIN, EPOLL_CTL_ADD);
	watch(s, s->timer, EPOLLIN, EPOLL_CTL_ADD);
	watch(s, s->signals, EPOLLIN, EPOLL_CTL_ADD);
}

/* Until a signal ends it. */
static void run(struct server *s)
{
	struct epoll_event events[4];
	u64 expired;
	int n, i;

	for (;;) {
		arm(s);
		n = epoll_wait(s->epoll, events, ARRAY_SIZE(events), -1);
		if (n < 0 && errno != EINTR)
			die("epoll_wait: %m");
		for (i = 0; i < n; i++) {
			if (events[i].data.fd == s->signals)
				return;
			if (events[i].data.fd == s->listener)
				accept_client(s);
			else if (events[i].data.fd == s->client)
				serve(s, events[i].events);
			else if (events[i].data.fd == s->timer &&
				 read(s->timer, &expired, sizeof(expired)) > 0)
				s->armed = SSD_NEVER;
		}
		nvme_run(s->nvme, model_ns(s));
	}
}

int main(int argc, char **argv)
{
	static struct server server = { .client = -1 };
	struct nvme_config config = { 0 };
	struct nvme_host host;
	struct options o;

	parse(&o, argc, argv);
	clear_place(o.socket);
	name_drive(&o, &config);
	config.profile = o.profile;
	config.bytes = o.size;
	config.seed = o.seed;
	config.precondition = !o.fresh;
	config.lie = o.lie;
	config.data = o.file ? open_file(o.file, o.size) : open_memory(o.size);
	vfio_user_init(&server.vu);
	host = vfio_user_host(&server.vu);
	server.time_scale = o.time_scale;
	server.nvme = nvme_create(&config, &host);
	if (!server.nvme)
		die("out of memory: the model's map takes %llu bytes",
		    (unsigned long long)ssd_memory(&o.profile));
	server.vu.nvme = server.nvme;
	/* A client that finds the socket is answered at once: QEMU waits 5 s. */
	server.listener = listen_at(o.socket);
	server.epoch_ns = real_ns();
	init_events(&server);
	printf("fl-nvme: %s, %llu bytes, at %s\n", config.model, (unsigned long long)config.bytes,
	       o.socket);
	fflush(stdout);
	run(&server);
	if (server.client >= 0)
		disconnect(&server);
	nvme_destroy(server.nvme);
	unlink(o.socket);
	return 0;
}
