// SPDX-License-Identifier: GPL-2.0-only OR MIT
/*
 * Registers, queues, the model's clock, and completions.
 *
 * The model's clock is the caller's, plus a skew. A reset and a shutdown do not
 * wait for the model: its clock jumps from event to event until it has nothing
 * left, and stays ahead by as much. That takes only CPU time, however slow the
 * drive is.
 */
#include <stdlib.h>

#include "internal.h"

#define CAP_TIMEOUT 20 /* 500 ms each: enabling and a reset take no longer */

/* Causes of an error event. */
enum { INVALID_DOORBELL = 0, INVALID_DOORBELL_VALUE = 1 };

/* ---- Completions ---------------------------------------------------------- */

void nvme_fatal(struct nvme *nvme)
{
	nvme->csts |= NVME_CSTS_CFS;
}

/* Its place is free when nobody needs it any more. */
static void release(struct nvme *nvme, struct command *cmd)
{
	if (cmd->in_model || !cmd->completed || !cmd->posted)
		return;
	cmd->next = nvme->free;
	nvme->free = cmd;
	nvme->taken--;
}

/* For a command of submission queue @sq_id. */
static bool has_place(const struct nvme *nvme, u32 sq_id)
{
	return nvme->taken < NVME_COMMANDS - (sq_id ? NVME_ADMIN_COMMANDS : 0);
}

/* One that is free, which there is. */
static struct command *take_place(struct nvme *nvme)
{
	struct command *cmd = nvme->free;

	nvme->taken++;
	if (!cmd)
		return &nvme->commands[nvme->used++];
	nvme->free = cmd->next;
	return cmd;
}

static u32 distance(u32 from, u32 to, u32 entries)
{
	return to >= from ? to - from : to + entries - from;
}

/* A doorbell in memory, or where the guest is told from when on to ring the real one; or NULL. */
static u32 *shadow(struct nvme *nvme, u64 buffer, u32 index)
{
	return nvme_dma(nvme, buffer + index * sizeof(u32), sizeof(u32), true);
}

static bool move_head(struct cq *cq, u32 head)
{
	if (head >= cq->entries ||
	    distance(cq->head, head, cq->entries) > distance(cq->head, cq->tail, cq->entries))
		return false;
	cq->head = head;
	return true;
}

/* The guest's mistake with a doorbell: nobody's command, so the log has it without one. */
static void wrong_doorbell(struct nvme *nvme, u8 info)
{
	const struct command none = { .sq_id = 0xffff, .sqe.cid = 0xffff };

	nvme_log_error(nvme, &none,
		       info == INVALID_DOORBELL ? NVME_INVALID_QUEUE_ID : NVME_INVALID_FIELD);
	nvme_event(nvme, EVENT_ERROR, info, NVME_LOG_ERROR);
}

/* The same of one in memory: however often it is looked at, it is one mistake. */
static void wrong_in_memory(struct nvme *nvme, u32 *wrong, u32 value)
{
	if (*wrong != value + 1)
		wrong_doorbell(nvme, INVALID_DOORBELL_VALUE);
	*wrong = value + 1;
}

/* Is there room for a completion? Looks at the shadow doorbell only if there seems to be none. */
static bool has_room(struct nvme *nvme, struct cq *cq)
{
	u32 id = (u32)(cq - nvme->cqs), *head, *event, now, i;

	for (i = 0; i < 2; i++) {
		if ((cq->tail + 1) % cq->entries != cq->head)
			return true;
		if (!nvme->shadow || !id)
			return false;
		head = shadow(nvme, nvme->shadow_doorbells, 2 * id + 1);
		event = shadow(nvme, nvme->shadow_events, 2 * id + 1);
		if (!head || !event)
			return false;
		/* The guest is to ring when it moves on from here; or it has moved already. */
		WRITE_ONCE(*event, cq->head);
		smp_mb();
		now = READ_ONCE(*head) & 0xffff;
		if (move_head(cq, now))
			cq->wrong = 0;
		else
			wrong_in_memory(nvme, &cq->wrong, now);
	}
	return (cq->tail + 1) % cq->entries != cq->head;
}

static void post(struct nvme *nvme, struct cq *cq)
{
	struct nvme_cqe cqe, *at;
	struct command *cmd;
	struct sq *sq;

	while (cq->waiting && has_room(nvme, cq)) {
		at = nvme_dma(nvme, cq->address + cq->tail * sizeof(cqe), sizeof(cqe), true);
		if (!at) {
			nvme_fatal(nvme);
			return;
		}
		cmd = cq->waiting;
		cq->waiting = cmd->next;
		sq = &nvme->sqs[cmd->sq_id];
		cqe = (struct nvme_cqe){
			.result = cmd->result,
			.sq_head = sq->created ? (u16)sq->head : 0,
			.sq_id = cmd->sq_id,
			.cid = cmd->sqe.cid,
			.status = (u16)(cmd->status << 1 | cq->phase),
		};
		/* The phase is what the guest waits for: last. */
		memcpy(at, &cqe, offsetof(struct nvme_cqe, status));
		smp_store_release(&at->status, cqe.status);
		if (++cq->tail == cq->entries) {
			cq->tail = 0;
			cq->phase = !cq->phase;
		}
		cq->posted = true;
		cmd->posted = true;
		release(nvme, cmd);
	}
}

static void signal_posted(struct nvme *nvme)
{
	struct cq *cq;

	for (cq = nvme->cqs; cq < nvme->cqs + ARRAY_SIZE(nvme->cqs); cq++) {
		if (cq->posted && cq->interrupts)
			nvme->host.interrupt(nvme->host.ctx, cq->vector);
		cq->posted = false;
	}
}

/* Trying the same again may help. */
static bool may_retry(u16 status)
{
	switch (status) {
	case NVME_ABORTED:
	case NVME_ABORTED_SQ_DELETED:
	case NVME_DATA_TRANSFER_ERROR:
	case NVME_INTERNAL_ERROR:
		return true;
	default:
		return false;
	}
}

void nvme_complete(struct nvme *nvme, struct command *cmd, u16 status, u32 result)
{
	struct cq *cq = &nvme->cqs[cmd->cq_id];
	struct sq *sq = &nvme->sqs[cmd->sq_id];
	bool logged = status && status != NVME_ABORTED && status != NVME_ABORTED_SQ_DELETED;

	if (cmd->listed) {
		list_del_init(&cmd->node);
		sq->cids[cmd->sqe.cid / 64] &= ~(1ull << cmd->sqe.cid % 64);
		cmd->listed = false;
	}
	cmd->status = status;
	if (status && !may_retry(status))
		cmd->status |= NVME_DNR;
	if (logged) {
		cmd->status |= NVME_MORE;
		nvme_log_error(nvme, cmd, cmd->status);
	}
	cmd->result = result;
	cmd->completed = true;
	cmd->next = NULL;
	if (cq->waiting)
		cq->last_waiting->next = cmd;
	else
		cq->waiting = cmd;
	cq->last_waiting = cmd;
	post(nvme, cq);
}

void nvme_log_error(struct nvme *nvme, const struct command *cmd, u16 status)
{
	u64 n = ++nvme->nr_errors;

	nvme->errors[n % NVME_ERRORS] = (struct nvme_error_entry){
		.count = n,
		.sq_id = cmd->sq_id,
		.cid = cmd->sqe.cid,
		.status = (u16)(status << 1),
		.parameter = 0xffff,
		.lba = cmd->sq_id ? cmd->sqe.cdw10 | (u64)cmd->sqe.cdw11 << 32 : 0,
		.nsid = cmd->sqe.nsid,
	};
}

/* ---- Events --------------------------------------------------------------- */

void nvme_send_events(struct nvme *nvme)
{
	struct event *event;
	struct command *cmd;
	u32 kind;

	for (kind = 0; kind < NR_EVENTS; kind++) {
		event = &nvme->events[kind];
		if (!event->pending || event->masked || !nvme->nr_async)
			continue;
		event->pending = false;
		event->masked = true;
		cmd = nvme->async[--nvme->nr_async];
		nvme_complete(nvme, cmd, NVME_SUCCESS,
			      kind | (u32)event->info << 8 | (u32)event->log << 16);
	}
}

void nvme_event(struct nvme *nvme, u32 kind, u8 info, u8 log)
{
	struct event *event = &nvme->events[kind];

	if (event->masked)
		return;
	*event = (struct event){ .pending = true, .info = info, .log = log };
	nvme_send_events(nvme);
}

/* ---- The model's clock ---------------------------------------------------- */

static u64 model_now(const struct nvme *nvme)
{
	return nvme->now + nvme->skew;
}

static void set_now(struct nvme *nvme, u64 now)
{
	nvme->now = max_t(u64, nvme->now, now);
}

void nvme_to_model(struct nvme *nvme, struct command *cmd)
{
	cmd->ssd.core = cmd->sq_id;
	/* Without weights, all queues are equal: those of one class are. */
	cmd->ssd.class = nvme_does_wrr(nvme) ? nvme->sqs[cmd->sq_id].class : SSD_HIGH;
	cmd->in_model = true;
	if (!nvme->in_model++)
		nvme->busy_since = nvme->now;
	ssd_submit(nvme->ssd, &cmd->ssd, model_now(nvme));
}

/* Move the model to its time @now. What it is done with is completed, or if @drop forgotten. */
static void advance(struct nvme *nvme, u64 now, bool drop)
{
	struct ssd_cmd *ssd, *next;
	struct command *cmd;

	for (ssd = ssd_advance(nvme->ssd, now); ssd; ssd = next) {
		next = ssd->next;
		cmd = container_of(ssd, struct command, ssd);
		cmd->in_model = false;
		if (!--nvme->in_model)
			nvme->busy_ns += nvme->now - nvme->busy_since;
		if (drop)
			continue;
		if (cmd->completed)
			release(nvme, cmd);
		else
			nvme_io_done(nvme, cmd);
	}
}

/* Let the model finish everything at once. */
static void drain(struct nvme *nvme, bool drop)
{
	u64 now;

	while (nvme->in_model) {
		now = max_t(u64, model_now(nvme), ssd_next_ns(nvme->ssd));
		nvme->skew = now - nvme->now;
		advance(nvme, now, drop);
	}
}

u64 nvme_next_ns(const struct nvme *nvme)
{
	const struct sq *admin = &nvme->sqs[0];
	u64 next = ssd_next_ns(nvme->ssd);

	if (nvme->starved && nvme->csts == NVME_CSTS_RDY &&
	    (has_place(nvme, 1) || (has_place(nvme, 0) && admin->head != admin->tail)))
		return nvme->now;
	if (!nvme->in_model || next == SSD_NEVER)
		return SSD_NEVER;
	return next > nvme->skew ? next - nvme->skew : 0;
}

/* ---- Submission queues ---------------------------------------------------- */

static void start(struct nvme *nvme, struct sq *sq, const struct nvme_sqe *sqe)
{
	u64 *cids = &sq->cids[sqe->cid / 64], bit = 1ull << sqe->cid % 64;
	struct command *cmd = take_place(nvme);

	*cmd = (struct command){ .sqe = *sqe, .sq_id = (u16)(sq - nvme->sqs), .cq_id = sq->cq_id };
	if (*cids & bit) {
		nvme_complete(nvme, cmd, NVME_CID_CONFLICT, 0);
		return;
	}
	*cids |= bit;
	cmd->listed = true;
	list_add_tail(&cmd->node, &sq->commands);
	if (cmd->sq_id)
		nvme_io(nvme, cmd);
	else
		nvme_admin(nvme, cmd);
}

/* Has the guest left a new tail in memory? Else have it ring the doorbell from now on. */
static bool look_at_shadow(struct nvme *nvme, struct sq *sq)
{
	u32 id = (u32)(sq - nvme->sqs), *tail, *event, now, i;

	if (!nvme->shadow || !id)
		return false;
	tail = shadow(nvme, nvme->shadow_doorbells, 2 * id);
	event = shadow(nvme, nvme->shadow_events, 2 * id);
	if (!tail || !event)
		return false;
	for (i = 0; i < 2; i++) {
		now = smp_load_acquire(tail) & 0xffff;
		if (now >= sq->entries) {
			wrong_in_memory(nvme, &sq->wrong, now);
			return false;
		}
		sq->wrong = 0;
		if (now != sq->tail) {
			sq->tail = now;
			return true;
		}
		WRITE_ONCE(*event, now);
		smp_mb();
	}
	return false;
}

/* Start what is in @sq: at most as much as it holds, since the guest may go on adding. */
static void fetch(struct nvme *nvme, struct sq *sq)
{
	struct nvme_sqe sqe;
	u32 id = (u32)(sq - nvme->sqs), left = sq->entries;
	const void *at;

	do {
		while (sq->created && sq->head != sq->tail) {
			if (nvme->csts != NVME_CSTS_RDY)
				return;
			if (!left-- || !has_place(nvme, id)) {
				nvme->starved = true;
				return;
			}
			at = nvme_dma(nvme, sq->address + sq->head * sizeof(sqe), sizeof(sqe),
				      false);
			if (!at) {
				nvme_fatal(nvme);
				return;
			}
			memcpy(&sqe, at, sizeof(sqe));
			sq->head = (sq->head + 1) % sq->entries;
			start(nvme, sq, &sqe);
		}
	} while (sq->created && look_at_shadow(nvme, sq));
}

/* Start what waits: admin commands, then those for I/O, from another queue on each time. */
static void fetch_all(struct nvme *nvme)
{
	struct sq *sq;
	u32 i;

	nvme->starved = false;
	nvme->starved_from = (nvme->starved_from + 1) % NVME_MAX_SQS;
	fetch(nvme, &nvme->sqs[0]);
	for (i = 0; i < NVME_MAX_SQS; i++) {
		sq = &nvme->sqs[1 + (nvme->starved_from + i) % NVME_MAX_SQS];
		if (sq->created)
			fetch(nvme, sq);
	}
}

struct command *nvme_find(struct nvme *nvme, u32 sq_id, u16 cid)
{
	struct command *cmd;

	if (sq_id > NVME_MAX_SQS || !nvme->sqs[sq_id].created)
		return NULL;
	list_for_each_entry(cmd, &nvme->sqs[sq_id].commands, node)
		if (cmd->sqe.cid == cid)
			return cmd;
	return NULL;
}

bool nvme_create_sq(struct nvme *nvme, u32 id, u64 address, u32 entries, u32 cq_id, u8 class)
{
	struct sq *sq = &nvme->sqs[id];
	u64 *cids = calloc((1 << 16) / 64, sizeof(*cids));

	if (!cids)
		return false;
	*sq = (struct sq){
		.created = true,
		.entries = entries,
		.address = address,
		.cq_id = (u16)cq_id,
		.class = class,
		.cids = cids,
	};
	INIT_LIST_HEAD(&sq->commands);
	nvme->cqs[cq_id].sqs++;
	return true;
}

static void free_sq(struct sq *sq)
{
	free(sq->cids);
	*sq = (struct sq){ 0 };
}

void nvme_delete_sq(struct nvme *nvme, u32 id)
{
	struct sq *sq = &nvme->sqs[id];

	while (!list_empty(&sq->commands))
		nvme_complete(nvme, list_first_entry(&sq->commands, struct command, node),
			      NVME_ABORTED_SQ_DELETED, 0);
	nvme->cqs[sq->cq_id].sqs--;
	free_sq(sq);
}

void nvme_create_cq(struct nvme *nvme, u32 id, u64 address, u32 entries, u16 vector,
		    bool interrupts)
{
	nvme->cqs[id] = (struct cq){
		.created = true,
		.interrupts = interrupts,
		.phase = true,
		.vector = vector,
		.entries = entries,
		.address = address,
	};
}

void nvme_delete_cq(struct nvme *nvme, u32 id)
{
	struct cq *cq = &nvme->cqs[id];
	struct command *cmd;

	while ((cmd = cq->waiting)) {
		cq->waiting = cmd->next;
		cmd->posted = true;
		release(nvme, cmd);
	}
	*cq = (struct cq){ 0 };
}

/* ---- Enabling, resets, shutdown ------------------------------------------- */

void nvme_arbitrate(struct nvme *nvme)
{
	u32 value = nvme->features.arbitration, burst = value & 7, weights[3], i;

	for (i = 0; i < ARRAY_SIZE(weights); i++) {
		weights[i] = (value >> (24 - 8 * i) & 0xff) + 1;
		if (nvme->config.lie == NVME_LIES_OF_WEIGHTS)
			weights[i] = 1;
		else if (nvme->config.lie == NVME_LIES_OF_BURSTS)
			weights[i] = ((weights[i] - 1) >> burst << burst) + (1u << burst);
	}
	ssd_set_burst(nvme->ssd, burst == 7 ? UINT32_MAX : 1u << burst);
	ssd_set_weights(nvme->ssd, weights[0], weights[1], weights[2]);
}

void nvme_default_features(struct nvme *nvme)
{
	u64 burst = nvme->config.profile.burst;

	nvme->features = (struct features){
		/* The profile's burst, or the next smaller power of two; 7 is no limit. */
		.arbitration = min_t(u32, (u32)fls64(burst) - 1, 7),
		.write_cache = nvme->config.profile.buffer_volatile,
		.over = 343,
		.sqs = NVME_MAX_SQS,
		.cqs = NVME_MAX_CQS,
	};
	nvme_arbitrate(nvme);
}

static void forget_commands(struct nvme *nvme)
{
	nvme->free = NULL;
	nvme->used = nvme->taken = 0;
	nvme->nr_async = 0;
	nvme->starved = false;
}

/* A controller reset: all but the registers of the admin queue. */
static void disable(struct nvme *nvme)
{
	u32 i;

	drain(nvme, true);
	for (i = 0; i <= NVME_MAX_SQS; i++)
		if (nvme->sqs[i].created)
			free_sq(&nvme->sqs[i]);
	memset(nvme->cqs, 0, sizeof(nvme->cqs));
	forget_commands(nvme);
	memset(nvme->events, 0, sizeof(nvme->events));
	nvme_default_features(nvme);
	nvme->shadow = false;
	nvme->csts = 0;
}

static bool can_enable(const struct nvme *nvme)
{
	u32 page = NVME_CC_MPS(nvme->cc) + NVME_PAGE_SHIFT_MIN, ams = NVME_CC_AMS(nvme->cc);
	u64 offset = (1ull << page) - 1;

	if (page > NVME_PAGE_SHIFT_MAX || NVME_CC_CSS(nvme->cc))
		return false;
	if (ams != NVME_AMS_RR && !(ams == NVME_AMS_WRR && nvme->config.profile.wrr))
		return false;
	if (ams != NVME_AMS_RR && nvme->config.lie == NVME_LIES_OF_ARBITRATION)
		return false;
	return !(nvme->asq & offset) && !(nvme->acq & offset) && (nvme->aqa & 0xfff) &&
	       (nvme->aqa >> 16 & 0xfff);
}

/* Is all of a ring in the guest's memory? It may be in several mappings. */
static bool in_memory(struct nvme *nvme, u64 address, u32 entries, u32 shift, bool write)
{
	u32 i;

	for (i = 0; i < entries; i++)
		if (!nvme_dma(nvme, address + ((u64)i << shift), 1ull << shift, write))
			return false;
	return true;
}

static void enable(struct nvme *nvme)
{
	u32 sq_entries = (nvme->aqa & 0xfff) + 1, cq_entries = (nvme->aqa >> 16 & 0xfff) + 1;

	/* A shutdown while disabled ends here; nothing else is there. */
	nvme->csts = 0;
	if (!can_enable(nvme) || !in_memory(nvme, nvme->asq, sq_entries, NVME_SQ_SHIFT, false) ||
	    !in_memory(nvme, nvme->acq, cq_entries, NVME_CQ_SHIFT, true)) {
		nvme_fatal(nvme);
		return;
	}
	nvme->page_shift = NVME_CC_MPS(nvme->cc) + NVME_PAGE_SHIFT_MIN;
	nvme_create_cq(nvme, 0, nvme->acq, cq_entries, 0, true);
	if (!nvme_create_sq(nvme, 0, nvme->asq, sq_entries, 0, SSD_URGENT)) {
		nvme_fatal(nvme);
		return;
	}
	nvme->csts |= NVME_CSTS_RDY;
	nvme->enabled_wrr += NVME_CC_AMS(nvme->cc) == NVME_AMS_WRR;
}

/*
 * Everything that was accepted is done, and its completions are there; nothing more is accepted. A deallocation ends
 * with the part that it is at: all of thousands of them would take hours.
 */
static void shut_down(struct nvme *nvme)
{
	nvme->shuts_down = true;
	drain(nvme, false);
	nvme->shuts_down = false;
	nvme->csts |= NVME_CSTS_SHST_DONE;
}

static void write_cc(struct nvme *nvme, u32 value)
{
	const u32 any_time = 0xffu << 16 | 3u << 14; /* IOCQES, IOSQES, SHN */
	u32 old = nvme->cc;

	value &= 0x00fffff1;
	if (old & value & NVME_CC_EN)
		value = (old & ~any_time) | (value & any_time);
	nvme->cc = value;
	if (~old & value & NVME_CC_EN)
		enable(nvme);
	if (NVME_CC_SHN(value) && !(nvme->csts & NVME_CSTS_SHST))
		shut_down(nvme);
	if (old & ~value & NVME_CC_EN)
		disable(nvme);
}

void nvme_reset(struct nvme *nvme)
{
	disable(nvme);
	nvme->cc = nvme->aqa = nvme->mask = 0;
	nvme->asq = nvme->acq = 0;
}

/* ---- Registers ------------------------------------------------------------ */

static u32 read_register(const struct nvme *nvme, u64 offset)
{
	switch (offset) {
	case NVME_CAP:
		return (u32)nvme->cap;
	case NVME_CAP + 4:
		return (u32)(nvme->cap >> 32);
	case NVME_VS:
		return 0x00010400;
	case NVME_INTMS:
	case NVME_INTMC:
		return nvme->mask;
	case NVME_CC:
		return nvme->cc;
	case NVME_CSTS:
		return nvme->csts;
	case NVME_AQA:
		return nvme->aqa;
	case NVME_ASQ:
		return (u32)nvme->asq;
	case NVME_ASQ + 4:
		return (u32)(nvme->asq >> 32);
	case NVME_ACQ:
		return (u32)nvme->acq;
	case NVME_ACQ + 4:
		return (u32)(nvme->acq >> 32);
	default:
		return 0;
	}
}

static u64 with_low(u64 old, u32 value)
{
	return (old & ~0xffffffffull) | (value & ~0xfffu);
}

static u64 with_high(u64 old, u32 value)
{
	return (u32)old | (u64)value << 32;
}

static void ring(struct nvme *nvme, u32 index, u32 value)
{
	u32 id = index / 2, *in_memory;

	if (nvme->csts != NVME_CSTS_RDY)
		return;
	/* The one in memory may be ahead by the time that this one is heard of: it counts. */
	in_memory = nvme->shadow && id ? shadow(nvme, nvme->shadow_doorbells, index) : NULL;
	if (in_memory)
		value = smp_load_acquire(in_memory);
	value &= 0xffff;
	if (index % 2) {
		if (id > NVME_MAX_CQS || !nvme->cqs[id].created)
			wrong_doorbell(nvme, INVALID_DOORBELL);
		else if (!move_head(&nvme->cqs[id], value))
			wrong_doorbell(nvme, INVALID_DOORBELL_VALUE);
		else
			post(nvme, &nvme->cqs[id]);
		return;
	}
	if (id > NVME_MAX_SQS || !nvme->sqs[id].created) {
		wrong_doorbell(nvme, INVALID_DOORBELL);
	} else if (value >= nvme->sqs[id].entries) {
		wrong_doorbell(nvme, INVALID_DOORBELL_VALUE);
	} else {
		nvme->sqs[id].tail = value;
		fetch(nvme, &nvme->sqs[id]);
	}
}

static void write_register(struct nvme *nvme, u64 offset, u32 value)
{
	bool enabled = nvme->cc & NVME_CC_EN;

	if (offset >= NVME_DOORBELLS) {
		ring(nvme, (u32)(offset - NVME_DOORBELLS) / 4, value);
		return;
	}
	switch (offset) {
	case NVME_INTMS:
		nvme->mask |= value;
		break;
	case NVME_INTMC:
		nvme->mask &= ~value;
		break;
	case NVME_CC:
		write_cc(nvme, value);
		break;
	}
	if (enabled)
		return;
	switch (offset) {
	case NVME_AQA:
		nvme->aqa = value & 0x0fff0fff;
		break;
	case NVME_ASQ:
		nvme->asq = with_low(nvme->asq, value);
		break;
	case NVME_ASQ + 4:
		nvme->asq = with_high(nvme->asq, value);
		break;
	case NVME_ACQ:
		nvme->acq = with_low(nvme->acq, value);
		break;
	case NVME_ACQ + 4:
		nvme->acq = with_high(nvme->acq, value);
		break;
	}
}

void nvme_read(struct nvme *nvme, u64 offset, void *data, u32 bytes)
{
	u8 *to = data;

	for (; bytes; bytes--, offset++)
		*to++ = (u8)(read_register(nvme, offset & ~3ull) >> 8 * (offset & 3));
}

void nvme_write(struct nvme *nvme, u64 offset, const void *data, u32 bytes, u64 now)
{
	u32 value[2];

	if ((bytes != 4 && bytes != 8) || offset % bytes || offset >= NVME_BAR_BYTES)
		return;
	set_now(nvme, now);
	/* What has been done before is completed before: it may make room. */
	advance(nvme, model_now(nvme), false);
	memcpy(value, data, bytes);
	write_register(nvme, offset, value[0]);
	if (bytes == 8)
		write_register(nvme, offset + 4, value[1]);
	signal_posted(nvme);
}

void nvme_run(struct nvme *nvme, u64 now)
{
	set_now(nvme, now);
	advance(nvme, model_now(nvme), false);
	if (nvme->starved || nvme->shadow)
		fetch_all(nvme);
	signal_posted(nvme);
}

/* ---- Life ----------------------------------------------------------------- */

struct nvme *nvme_create(const struct nvme_config *config, const struct nvme_host *host)
{
	struct nvme *nvme = calloc(1, sizeof(*nvme));

	if (!nvme)
		return NULL;
	nvme->config = *config;
	nvme->host = *host;
	nvme->commands = calloc(NVME_COMMANDS, sizeof(*nvme->commands));
	/* A queue of the model for each submission queue; it is of one class at a time. */
	nvme->ssd = ssd_create(&config->profile, NVME_MAX_SQS + 1, config->seed);
	if (!nvme->commands || !nvme->ssd) {
		nvme_destroy(nvme);
		return NULL;
	}
	if (config->precondition)
		ssd_precondition(nvme->ssd);
	nvme->cap = (NVME_QUEUE_ENTRIES - 1) | 1u << 16 /* contiguous queues */ |
		    (u64)config->profile.wrr << 17 | (u64)CAP_TIMEOUT << 24 |
		    1ull << 37 /* NVM command set */ |
		    (u64)(NVME_PAGE_SHIFT_MAX - NVME_PAGE_SHIFT_MIN) << 52;
	nvme->page_shift = NVME_PAGE_SHIFT_MIN;
	nvme_reset(nvme);
	return nvme;
}

void nvme_destroy(struct nvme *nvme)
{
	if (nvme->ssd && nvme->commands)
		disable(nvme);
	if (nvme->ssd)
		ssd_destroy(nvme->ssd);
	free(nvme->commands);
	free(nvme);
}
