/* SPDX-License-Identifier: GPL-2.0-only OR MIT */
/*
 * An NVMe 1.4 controller with one namespace, whose commands take as long as the
 * model in ssd/ says. It knows nothing of how a virtual machine reaches it: who
 * runs it passes register accesses in, gives it the guest's memory, and says
 * what time it is.
 *
 *	controller.c  registers, queues, the model's clock, completions
 *	admin.c       admin commands
 *	identify.c    what the controller says of itself: Identify, log pages
 *	io.c          I/O commands, and the drive's data
 *	transfer.c    PRPs and SGLs: where in the guest's memory a command's data are
 *
 * A command is read from its submission queue when the doorbell rings, and
 * goes to the model's queue of that number and class. The model arbitrates, and
 * says when it is done. Then its data are moved, as a whole, and its completion
 * is posted: a command that is aborted, or that a reset meets, moves nothing.
 *
 * Whatever a guest writes into its memory or the registers, the controller
 * touches no memory but what the host's dma() gives out, and of the data only
 * what the namespace has.
 *
 * Locking: none; one thread. No call sleeps, other than for the data's file.
 */
#ifndef FAIRLANE_NVME_CONTROLLER_H
#define FAIRLANE_NVME_CONTROLLER_H

#include "../ssd/profile.h"

/* Queues for I/O: up to four submission queues for each of 64 completion queues. */
#define NVME_MAX_SQS 256
#define NVME_MAX_CQS 64
#define NVME_QUEUE_ENTRIES 1024 /* the most in a queue */
#define NVME_VECTORS (NVME_MAX_CQS + 1) /* of interrupts */
#define NVME_BLOCK 512
#define NVME_BAR_BYTES 0x4000 /* registers and doorbells */
#define NVME_PCI_VENDOR 0xf1a0 /* nobody has it */

struct nvme; /* a controller */

/* What the controller asks of who runs it. */
struct nvme_host {
	/*
	 * Where @address of the guest's memory is, and how many bytes follow it
	 * there: *@bytes is what is asked for, and is lowered to what there is. NULL:
	 * there is no such memory, or not to be written if @write. The memory is
	 * used until the call that the controller is in returns. The guest may
	 * change it all the while.
	 */
	void *(*dma)(void *ctx, u64 address, u64 *bytes, bool write);
	/* Signal an interrupt, 0..NVME_VECTORS - 1. */
	void (*interrupt)(void *ctx, unsigned int vector);
	void *ctx;
};

/* For tests of who measures or drives it: what it does not do, though it says so. */
enum nvme_lie {
	NVME_HONEST,
	NVME_LIES_OF_WEIGHTS, /* they are read back as they were set, and all classes are equal */
	NVME_LIES_OF_BURSTS, /* a class that may give anything gives whole bursts of 2^n commands */
	/* CAP.AMS says that it has WRR, and it refuses: */
	NVME_LIES_OF_PRIORITIES, /* a submission queue of class low */
	NVME_LIES_OF_QUEUES, /* to grant unequal numbers of queues */
	NVME_LIES_OF_ARBITRATION, /* to be enabled with it */
	NVME_LIES_LATER, /* to grant more than two submission queues, once it has been enabled with it twice */
};

struct nvme_config {
	struct ssd_profile profile; /* has passed ssd_profile_check() */
	u64 bytes; /* of the namespace: a multiple of NVME_BLOCK, at most what the profile's drive has */
	u64 seed; /* as for ssd_create() */
	bool precondition; /* begin in the profile's steady state */
	enum nvme_lie lie;
	int data; /* a file of that many bytes that is read, written, and has holes punched into it */
	char model[41], serial[21]; /* ASCII */
	u8 uuid[16]; /* of the namespace, and in the subsystem's name */
};

/* A controller as after power-on. The data's file stays the caller's. NULL when memory is short. */
struct nvme *nvme_create(const struct nvme_config *config, const struct nvme_host *host);
void nvme_destroy(struct nvme *nvme);

/*
 * Accesses to the first BAR; all times are ns since nvme_create(), in the
 * model's time, and never go back. An access of any size anywhere in it is
 * allowed. What the specification does not define reads as zeroes and changes
 * nothing.
 */
void nvme_read(struct nvme *nvme, u64 offset, void *data, u32 bytes);
void nvme_write(struct nvme *nvme, u64 offset, const void *data, u32 bytes, u64 now);

/* Complete what is done by @now, and look for what the guest left in shadow doorbells. */
void nvme_run(struct nvme *nvme, u64 now);
/* When nvme_run() has something to do, if nothing else happens; SSD_NEVER: nothing. */
u64 nvme_next_ns(const struct nvme *nvme);

/* As the reset of its PCI function. Nothing is in flight afterwards. */
void nvme_reset(struct nvme *nvme);

#endif
