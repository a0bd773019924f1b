// SPDX-License-Identifier: GPL-2.0-only OR MIT
/*
 * Any client: the input is a list of messages of vfio-user. A byte says what
 * comes with one: 0, or a file of that many pages, or eventfds; then the
 * message's command and the length and bytes of its data.
 */
#include <sys/eventfd.h>

#include "guest.h"
#include "vfio-user.h"

static struct vfio_user vu;
static u8 message[VFIO_USER_MAX_MESSAGE], reply[VFIO_USER_MAX_MESSAGE];

static u32 descriptors(u8 what, int *fds)
{
	u32 n = what >> 4, i;

	if (what & 8) {
		fds[0] = memfd_create("guest", 0);
		if (fds[0] < 0 || ftruncate(fds[0], (what & 7) * 65536))
			abort();
		return 1;
	}
	for (i = 0; i < n; i++) {
		fds[i] = what & 1 ? dup(0) : eventfd(0, 0);
		if (fds[i] < 0)
			abort();
	}
	return n;
}

/* False: the client is to be sent away. */
static bool one(const u8 **data, size_t *left, u64 now)
{
	struct {
		u16 id, command;
		u32 size, flags, error;
	} header = { .id = 1, .command = (*data)[1], .flags = (*data)[2] };
	int fds[VFIO_USER_MAX_FDS], got;
	u32 nr_fds = descriptors((*data)[0], fds), bytes = (*data)[3], i;

	*data += 4;
	*left -= 4;
	if (bytes > *left)
		bytes = (u32)*left;
	header.size = VFIO_USER_HEADER + bytes;
	memcpy(message, &header, sizeof(header));
	memcpy(message + VFIO_USER_HEADER, *data, bytes);
	*data += bytes;
	*left -= bytes;
	if (vfio_user_size(message) != header.size)
		abort();
	got = vfio_user_message(&vu, message, header.size, fds, nr_fds, now, reply);
	for (i = 0; i < nr_fds; i++)
		if (fds[i] >= 0)
			close(fds[i]);
	if (got < 0)
		return false;
	if (got && (vfio_user_size(reply) != (u32)got || got < VFIO_USER_HEADER))
		abort();
	nvme_run(vu.nvme, now);
	return true;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);
int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	static const u8 version[] = { 0, 1, 0, 4, 0, 0, 1, 0 };
	struct nvme_config config = { .bytes = 1 << 20 };
	struct nvme_host host;
	const u8 *greeting = version;
	size_t left = sizeof(version);
	u64 now = 0;

	ssd_profile_init(&config.profile);
	config.data = memfd_create("data", 0);
	if (config.data < 0 || ftruncate(config.data, 1 << 20))
		abort();
	vfio_user_init(&vu);
	host = vfio_user_host(&vu);
	vu.nvme = nvme_create(&config, &host);
	if (!vu.nvme || (size && data[0] & 0x80 && !one(&greeting, &left, 0)))
		abort();
	while (size >= 4 && one(&data, &size, now))
		now += 10000;
	vfio_user_disconnect(&vu);
	nvme_destroy(vu.nvme);
	close(config.data);
	return 0;
}
