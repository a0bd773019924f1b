/* SPDX-License-Identifier: GPL-2.0-only OR MIT */
/* What the parts of the controller share; see controller.h. */
#ifndef FAIRLANE_NVME_INTERNAL_H
#define FAIRLANE_NVME_INTERNAL_H

#include <sys/uio.h>

#include "../ssd/ssd.h"
#include "controller.h"
#include "spec.h"

#define NVME_COMMANDS 32768 /* in the controller at a time; more wait in their submission queues */
#define NVME_ADMIN_COMMANDS 16 /* of these, which only admin commands may have */
#define NVME_MAX_TRANSFER (1u << 20) /* bytes; MDTS in identify.c says so */
#define NVME_SEGMENTS 1024 /* pieces of memory of one transfer: IOV_MAX */
#define NVME_ERRORS 64 /* in the error log */
#define NVME_ASYNC_EVENTS 4 /* requests at a time */
#define NVME_ABORTS 4
#define NVME_TEMPERATURE 310 /* K: the model has none */
#define NVME_PAGE_SHIFT_MIN 12
#define NVME_PAGE_SHIFT_MAX 16

/*
 * A command, from its doorbell until its completion is posted and the model has
 * returned it, whichever is later: an aborted one is completed while the model
 * still has it. Then its place is free again.
 */
struct command {
	struct ssd_cmd ssd;
	struct nvme_sqe sqe;
	struct list_head node; /* in its queue's commands, until completed */
	struct command *next; /* in the controller's free, or in a completion queue's waiting */
	u16 sq_id, cq_id;
	bool in_model, completed, posted;
	bool listed; /* in its queue's commands, and its identifier among the queue's cids */
	u16 status; /* with NVME_MORE and NVME_DNR */
	u32 result;
	/* Dataset Management: the range that the model has a piece of, and how far it has got. */
	u32 range, done; /* done: blocks of the range, before the piece */
	u32 blocks; /* of the piece */
	u64 lba;
};

struct sq {
	bool created;
	u32 entries, head, tail;
	u32 wrong; /* the tail in memory that was told of as a mistake, + 1; 0: none */
	u64 address;
	u16 cq_id;
	u8 class; /* enum ssd_class */
	u64 *cids; /* a bit for each that is in use; 64 Ki */
	struct list_head commands; /* not completed, oldest first */
};

struct cq {
	bool created, interrupts, posted; /* posted: since the last interrupt */
	bool phase;
	u16 vector;
	u32 entries, head, tail;
	u32 wrong; /* the head in memory, as a submission queue's tail */
	u64 address;
	u32 sqs; /* submission queues that complete here */
	struct command *waiting, *last_waiting; /* completions for which there is no room */
};

/* The kinds of events of which Asynchronous Event Request tells. */
enum { EVENT_ERROR, EVENT_SMART, NR_EVENTS };

struct event {
	bool pending; /* nobody was told yet */
	bool masked; /* the guest was told, and has not read the log since */
	u8 info, log;
};

struct features {
	u32 arbitration, power, error_recovery, write_cache, coalescing, atomicity, async_events;
	u16 over, under; /* temperature thresholds, K */
	u32 sqs, cqs; /* granted */
	u8 vector_direct[NVME_VECTORS]; /* no coalescing for this vector */
};

struct nvme {
	struct nvme_config config;
	struct nvme_host host;
	struct ssd *ssd;
	u64 now; /* the caller's, as of the last call that had it */
	u64 skew; /* the model's clock is ahead by this: see drain() */

	/* Registers. */
	u64 cap;
	u32 cc, csts, aqa, mask;
	u32 enabled_wrr; /* so many times, with WRR */
	bool shuts_down;
	u64 asq, acq;

	u32 page_shift; /* of the guest's pages, from CC */
	struct sq sqs[NVME_MAX_SQS + 1]; /* 0: admin */
	struct cq cqs[NVME_MAX_CQS + 1];
	struct command *commands, *free; /* free: places that were used before */
	u32 used; /* places that have been used since the last reset */
	u32 taken; /* places that are not free now */
	u32 in_model;
	u32 starved_from; /* the I/O queue to look at first when places get free: its number - 1 */
	bool starved; /* commands wait in submission queues for a place */
	struct command *async[NVME_ASYNC_EVENTS]; /* Asynchronous Event Requests */
	u32 nr_async;
	struct event events[NR_EVENTS];
	struct features features;
	bool shadow; /* doorbells in memory, for the I/O queues */
	u64 shadow_doorbells, shadow_events;

	/* Since power-on. */
	u64 read_blocks, written_blocks, reads, writes;
	u64 busy_since, busy_ns;
	u64 nr_errors, media_errors;
	struct nvme_error_entry errors[NVME_ERRORS]; /* error n is at n % NVME_ERRORS; from 1 on */

	struct iovec segments[NVME_SEGMENTS]; /* of the transfer that is going on */
	u32 nr_segments;
};

/* ---- controller.c ---- */

/* @status: of enum NVME_*, without flags. Nothing of @cmd may be used afterwards. */
void nvme_complete(struct nvme *nvme, struct command *cmd, u16 status, u32 result);
/* Give @cmd to the model, with ssd's op, offset, bytes and fua filled in. */
void nvme_to_model(struct nvme *nvme, struct command *cmd);
/* What cannot be recovered from but by a reset. */
void nvme_fatal(struct nvme *nvme);
/* A queue that does not exist yet; its ring is at @address. False: memory is short. */
bool nvme_create_sq(struct nvme *nvme, u32 id, u64 address, u32 entries, u32 cq_id, u8 class);
void nvme_create_cq(struct nvme *nvme, u32 id, u64 address, u32 entries, u16 vector,
		    bool interrupts);
/* Its commands are aborted. */
void nvme_delete_sq(struct nvme *nvme, u32 id);
/* No submission queue uses it. */
void nvme_delete_cq(struct nvme *nvme, u32 id);
/* The command with that identifier that is not completed, or NULL. */
struct command *nvme_find(struct nvme *nvme, u32 sq_id, u16 cid);
void nvme_log_error(struct nvme *nvme, const struct command *cmd, u16 status);
/* An event of that kind (EVENT_*) has happened. */
void nvme_event(struct nvme *nvme, u32 kind, u8 info, u8 log);
void nvme_send_events(struct nvme *nvme);
/* The arbitration feature has been set. */
void nvme_arbitrate(struct nvme *nvme);
void nvme_default_features(struct nvme *nvme);

static inline bool nvme_does_wrr(const struct nvme *nvme)
{
	return NVME_CC_AMS(nvme->cc) == NVME_AMS_WRR;
}

/* ---- admin.c ---- */

void nvme_admin(struct nvme *nvme, struct command *cmd);

/* ---- identify.c ---- */

/* 4096 bytes at @data. Returns a status. */
u16 nvme_identify(struct nvme *nvme, const struct nvme_sqe *sqe, u8 *data);
/* The log page of that number, at @data: at most NVME_LOG_BYTES. Returns its size, 0: there is none. */
#define NVME_LOG_BYTES 4096
u32 nvme_log_page(struct nvme *nvme, u8 id, u8 *data);

/* ---- io.c ---- */

/* Check @cmd, and give it to the model or complete it. */
void nvme_io(struct nvme *nvme, struct command *cmd);
/* The model is done with @cmd: move its data. */
void nvme_io_done(struct nvme *nvme, struct command *cmd);

/* ---- transfer.c ---- */

/*
 * Find where the @bytes of @cmd's data are, into nvme->segments. The guest's
 * memory will be written if @write. Returns a status.
 */
u16 nvme_map_data(struct nvme *nvme, const struct command *cmd, u64 bytes, bool write);
/* Copy from or to what nvme_map_data() found. */
void nvme_copy_out(struct nvme *nvme, const void *data, u64 bytes);
void nvme_copy_in(struct nvme *nvme, void *data, u64 bytes);
/* @bytes at @address of the guest's memory, in one piece, or NULL. */
void *nvme_dma(struct nvme *nvme, u64 address, u64 bytes, bool write);

#endif
