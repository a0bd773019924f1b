// SPDX-License-Identifier: GPL-2.0-only OR MIT
/*
 * A toy engine with one thread: two tenants, 3:1, and a drive that takes 8 requests at a time.
 *
 *	cc example.c $(pkg-config --cflags --libs libfairlane) && ./a.out
 */
#include <libfairlane.h>
#include <stdio.h>
#include <string.h>

#define OUTSTANDING 64 /* of each tenant */
#define PLACES 8
#define REQUESTS 100000

static struct fairlane_request requests[2][OUTSTANDING], *in_drive[PLACES];
static unsigned int sent, done;

static void go(void *ctx, struct fairlane_request *request)
{
	in_drive[sent++ % PLACES] = request;
}

static void wake(void *ctx)
{
	/* main() calls fairlane_tick() all the time. Without wake(), the library has a thread that does. */
}

static struct fairlane_drive *drive;
static struct fairlane_tenant *tenants[2];

static int set_up(void)
{
	const struct fairlane_engine engine = { .go = go, .wake = wake };
	int error = fairlane_open(&drive, "mqflashfq", 1, PLACES, &engine);

	if (!error)
		error = fairlane_tenant_create(&tenants[0], drive, NULL, 300);
	if (!error)
		error = fairlane_tenant_create(&tenants[1], drive, NULL, 100);
	if (error)
		fprintf(stderr, "example: %s\n", strerror(-error));
	return error;
}

int main(void)
{
	unsigned int left = 2 * OUTSTANDING, i, t;
	struct fairlane_stat stats[2];

	if (set_up())
		return 1;
	for (t = 0; t < 2; t++)
		for (i = 0; i < OUTSTANDING; i++) {
			requests[t][i].data = tenants[t];
			requests[t][i].op = FAIRLANE_READ;
			requests[t][i].bytes = 4096;
			fairlane_submit(tenants[t], 0, &requests[t][i]);
		}
	while (left) {
		fairlane_tick(drive);
		if (done == sent)
			continue; /* the drive has nothing to do */
		struct fairlane_request *request = in_drive[done++ % PLACES];
		fairlane_done(request);
		if (done < REQUESTS)
			fairlane_submit(request->data, 0, request);
		else
			left--;
		if (done == REQUESTS)
			for (t = 0; t < 2; t++)
				fairlane_tenant_stat(tenants[t], &stats[t]);
	}
	for (t = 0; t < 2; t++)
		printf("tenant %u: %lu requests\n", t, (unsigned long)stats[t].requests[FAIRLANE_READ]);
	return fairlane_close(drive) ? 1 : 0;
}
