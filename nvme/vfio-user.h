/* SPDX-License-Identifier: GPL-2.0-only OR MIT */
/*
 * The server's side of vfio-user, for one NVMe controller: each message of the
 * client is a call, and its reply what that returns. The socket is main.c's.
 *
 * The protocol: docs/interop/vfio-user.rst of QEMU. The client shares its
 * memory as descriptors of files, which are mapped here. Memory that it does
 * not share is memory that the controller cannot reach.
 *
 * The client is not trusted: all that it says is checked. What it can do is
 * what a guest can do with a drive.
 */
#ifndef FAIRLANE_NVME_VFIO_USER_H
#define FAIRLANE_NVME_VFIO_USER_H

#include "controller.h"
#include "pci.h"

#define VFIO_USER_HEADER 16
#define VFIO_USER_MAX_DATA 65536 /* of a read or write of a region */
#define VFIO_USER_MAX_MESSAGE (VFIO_USER_HEADER + 16 + VFIO_USER_MAX_DATA)
#define VFIO_USER_MAX_FDS 16 /* with a message */
#define VFIO_USER_MAX_MAPS 1024

struct vfio_user_map {
	u64 address, bytes; /* in the guest */
	u8 *memory; /* NULL: is not shared */
	bool writable;
};

struct vfio_user {
	struct nvme *nvme; /* the owner's */
	struct pci pci;
	u8 msix_table[NVME_VECTORS * 16]; /* of no use here: clients keep their own */
	bool greeted; /* the version is agreed on */
	struct vfio_user_map maps[VFIO_USER_MAX_MAPS];
	u32 nr_maps, last_map; /* last: where the address was that was looked for last */
	int irqs[NVME_VECTORS]; /* eventfds, or -1 */
};

/* Without a client. The controller is to be made with vfio_user_host(), and then set. */
void vfio_user_init(struct vfio_user *vu);
struct nvme_host vfio_user_host(struct vfio_user *vu);

/* The size of the message that this header begins, 0: it is none that can be. */
u32 vfio_user_size(const u8 header[VFIO_USER_HEADER]);
/*
 * A whole message, and the descriptors that came with it; those that are kept are
 * set to -1. The reply, of at most VFIO_USER_MAX_MESSAGE bytes, is put at @reply.
 * Returns its size, 0: there is none; or -1: the client does not speak the protocol.
 */
int vfio_user_message(struct vfio_user *vu, const u8 *message, u32 size, int *fds, u32 nr_fds,
		      u64 now, u8 *reply);
/* The client has gone: the controller is reset, and everything of the client's is given back. */
void vfio_user_disconnect(struct vfio_user *vu);

#endif
