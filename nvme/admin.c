// SPDX-License-Identifier: GPL-2.0-only OR MIT
/* Admin commands. They take no time, and go before all others. */
#include "internal.h"

/* What is in @address is to be the beginning of a page. */
static bool page_aligned(const struct nvme *nvme, u64 address)
{
	return !(address & ((1ull << nvme->page_shift) - 1));
}

/* ---- Queues --------------------------------------------------------------- */

/* Create: the fields that both kinds have. @max: identifiers that were granted. */
static u16 check_queue(const struct nvme *nvme, const struct nvme_sqe *sqe, u32 max, bool exists,
		       u32 entry_shift, u32 shift)
{
	u32 id = sqe->cdw10 & 0xffff, size = sqe->cdw10 >> 16;

	if (!id || id > max || exists)
		return NVME_INVALID_QUEUE_ID;
	if (!size || size >= NVME_QUEUE_ENTRIES || entry_shift != shift)
		return NVME_INVALID_QUEUE_SIZE;
	if (!(sqe->cdw11 & 1)) /* must be contiguous, says CAP */
		return NVME_INVALID_FIELD;
	if (!page_aligned(nvme, sqe->prp[0]))
		return NVME_PRP_INVALID_OFFSET;
	return NVME_SUCCESS;
}

static u16 create_cq(struct nvme *nvme, const struct nvme_sqe *sqe)
{
	u32 id = sqe->cdw10 & 0xffff, entries = (sqe->cdw10 >> 16) + 1, vector = sqe->cdw11 >> 16;
	u16 status = check_queue(nvme, sqe, nvme->features.cqs,
				 id <= NVME_MAX_CQS && nvme->cqs[id].created,
				 NVME_CC_IOCQES(nvme->cc), NVME_CQ_SHIFT);

	if (status)
		return status;
	if (vector >= NVME_VECTORS)
		return NVME_INVALID_VECTOR;
	nvme_create_cq(nvme, id, sqe->prp[0], entries, (u16)vector, sqe->cdw11 & 2);
	return NVME_SUCCESS;
}

static u16 create_sq(struct nvme *nvme, const struct nvme_sqe *sqe)
{
	u32 id = sqe->cdw10 & 0xffff, entries = (sqe->cdw10 >> 16) + 1, cq = sqe->cdw11 >> 16;
	u16 status = check_queue(nvme, sqe, nvme->features.sqs,
				 id <= NVME_MAX_SQS && nvme->sqs[id].created,
				 NVME_CC_IOSQES(nvme->cc), NVME_SQ_SHIFT);

	if (status)
		return status;
	if (!cq || cq > NVME_MAX_CQS)
		return NVME_INVALID_QUEUE_ID;
	if (!nvme->cqs[cq].created)
		return NVME_CQ_INVALID;
	if (nvme->config.lie == NVME_LIES_OF_PRIORITIES && (sqe->cdw11 >> 1 & 3) == SSD_LOW)
		return NVME_INVALID_FIELD;
	/* Its priorities are in the order of enum ssd_class. */
	if (!nvme_create_sq(nvme, id, sqe->prp[0], entries, cq, sqe->cdw11 >> 1 & 3))
		return NVME_INTERNAL_ERROR;
	return NVME_SUCCESS;
}

static u16 delete_sq(struct nvme *nvme, const struct nvme_sqe *sqe)
{
	u32 id = sqe->cdw10 & 0xffff;

	if (!id || id > NVME_MAX_SQS || !nvme->sqs[id].created)
		return NVME_INVALID_QUEUE_ID;
	nvme_delete_sq(nvme, id);
	return NVME_SUCCESS;
}

static u16 delete_cq(struct nvme *nvme, const struct nvme_sqe *sqe)
{
	u32 id = sqe->cdw10 & 0xffff;

	if (!id || id > NVME_MAX_CQS || !nvme->cqs[id].created)
		return NVME_INVALID_QUEUE_ID;
	if (nvme->cqs[id].sqs)
		return NVME_INVALID_QUEUE_DELETION;
	nvme_delete_cq(nvme, id);
	return NVME_SUCCESS;
}

/* As the guest says it: two doorbells for each queue, in memory of its own. */
static u16 use_shadow_doorbells(struct nvme *nvme, const struct nvme_sqe *sqe)
{
	if (!page_aligned(nvme, sqe->prp[0]) || !page_aligned(nvme, sqe->prp[1]))
		return NVME_INVALID_FIELD;
	nvme->shadow = true;
	nvme->shadow_doorbells = sqe->prp[0];
	nvme->shadow_events = sqe->prp[1];
	return NVME_SUCCESS;
}

/* ---- Features ------------------------------------------------------------- */

#define NOT_HERE 0xffff /* no status: there is no such feature */

static u16 vector_feature(const struct nvme *nvme, u32 cdw11, u32 *value)
{
	u32 vector = cdw11 & 0xffff;

	if (vector >= NVME_VECTORS)
		return NVME_INVALID_FIELD;
	*value = vector | (u32)nvme->features.vector_direct[vector] << 16;
	return NVME_SUCCESS;
}

/* Which of the thresholds: only that of the composite temperature is there. */
static u16 *threshold(struct nvme *nvme, u32 cdw11)
{
	if (cdw11 >> 16 & 15)
		return NULL;
	switch (cdw11 >> 20 & 3) {
	case 0:
		return &nvme->features.over;
	case 1:
		return &nvme->features.under;
	default:
		return NULL;
	}
}

static u16 get_feature(struct nvme *nvme, const struct nvme_sqe *sqe, u32 *value)
{
	const struct features *f = &nvme->features;
	const u16 *limit;

	if (sqe->cdw10 >> 8 & 7) /* none but the current values */
		return NVME_INVALID_FIELD;
	switch (sqe->cdw10 & 0xff) {
	case NVME_FEATURE_ARBITRATION:
		*value = f->arbitration;
		break;
	case NVME_FEATURE_POWER:
		*value = f->power;
		break;
	case NVME_FEATURE_TEMPERATURE:
		limit = threshold(nvme, sqe->cdw11);
		if (!limit)
			return NVME_INVALID_FIELD;
		*value = *limit;
		break;
	case NVME_FEATURE_ERROR_RECOVERY:
		if (sqe->nsid != 1)
			return NVME_INVALID_NAMESPACE;
		*value = f->error_recovery;
		break;
	case NVME_FEATURE_WRITE_CACHE:
		if (!nvme->config.profile.buffer_volatile)
			return NVME_INVALID_FIELD;
		*value = f->write_cache;
		break;
	case NVME_FEATURE_QUEUES:
		*value = (f->sqs - 1) | (f->cqs - 1) << 16;
		break;
	case NVME_FEATURE_COALESCING:
		*value = f->coalescing;
		break;
	case NVME_FEATURE_VECTOR:
		return vector_feature(nvme, sqe->cdw11, value);
	case NVME_FEATURE_ATOMICITY:
		*value = f->atomicity;
		break;
	case NVME_FEATURE_ASYNC_EVENTS:
		*value = f->async_events;
		break;
	default:
		return NVME_INVALID_FIELD;
	}
	return NVME_SUCCESS;
}

static u16 set_queues(struct nvme *nvme, u32 cdw11, u32 *result)
{
	u32 sqs = cdw11 & 0xffff, cqs = cdw11 >> 16, i;

	if (sqs == 0xffff || cqs == 0xffff)
		return NVME_INVALID_FIELD;
	if (nvme->config.lie == NVME_LIES_OF_QUEUES && sqs != cqs)
		return NVME_INVALID_FIELD;
	for (i = 1; i <= NVME_MAX_CQS; i++)
		if (nvme->cqs[i].created)
			return NVME_COMMAND_SEQUENCE;
	nvme->features.sqs = min_t(u32, sqs + 1, NVME_MAX_SQS);
	if (nvme->config.lie == NVME_LIES_LATER && nvme->enabled_wrr > 1)
		nvme->features.sqs = min_t(u32, nvme->features.sqs, 2);
	nvme->features.cqs = min_t(u32, cqs + 1, NVME_MAX_CQS);
	*result = (nvme->features.sqs - 1) | (nvme->features.cqs - 1) << 16;
	return NVME_SUCCESS;
}

/* A temperature beyond a threshold is told of once, until the log has been read. */
static void check_temperature(struct nvme *nvme)
{
	struct features *f = &nvme->features;

	if (f->async_events & 2 && (NVME_TEMPERATURE >= f->over || NVME_TEMPERATURE <= f->under))
		nvme_event(nvme, EVENT_SMART, 1, NVME_LOG_SMART);
}

static u16 set_feature(struct nvme *nvme, const struct nvme_sqe *sqe, u32 *result)
{
	struct features *f = &nvme->features;
	u32 id = sqe->cdw10 & 0xff, value = sqe->cdw11, ignored;
	struct nvme_sqe same = *sqe;
	u16 status, *limit;

	same.cdw10 = id;
	if (same.nsid == 0xffffffff)
		same.nsid = 1; /* all namespaces: here is one */
	/* Only what can be got can be set. */
	status = get_feature(nvme, &same, &ignored);
	if (status)
		return status;
	if (sqe->cdw10 >> 31)
		return NVME_FEATURE_NOT_SAVEABLE;
	if (id != NVME_FEATURE_ERROR_RECOVERY && sqe->nsid && sqe->nsid != 0xffffffff)
		return sqe->nsid == 1 ? NVME_FEATURE_NOT_NAMESPACE : NVME_INVALID_NAMESPACE;
	switch (id) {
	case NVME_FEATURE_ARBITRATION:
		f->arbitration = value & 0xffffff07;
		nvme_arbitrate(nvme);
		break;
	case NVME_FEATURE_POWER:
		if (value & 0x1f) /* there is one state, 0 */
			return NVME_INVALID_FIELD;
		f->power = value & 0xff;
		break;
	case NVME_FEATURE_TEMPERATURE:
		limit = threshold(nvme, value);
		*limit = value & 0xffff;
		check_temperature(nvme);
		break;
	case NVME_FEATURE_ERROR_RECOVERY:
		if (value >> 16 & 1) /* errors when reading what is deallocated: not here */
			return NVME_INVALID_FIELD;
		f->error_recovery = value & 0xffff;
		break;
	case NVME_FEATURE_WRITE_CACHE:
		f->write_cache = value & 1;
		break;
	case NVME_FEATURE_QUEUES:
		return set_queues(nvme, value, result);
	case NVME_FEATURE_COALESCING:
		f->coalescing = value & 0xffff;
		break;
	case NVME_FEATURE_VECTOR:
		f->vector_direct[value & 0xffff] = value >> 16 & 1;
		break;
	case NVME_FEATURE_ATOMICITY:
		f->atomicity = value & 1;
		break;
	case NVME_FEATURE_ASYNC_EVENTS:
		f->async_events = value & 0xff;
		check_temperature(nvme);
		break;
	}
	return NVME_SUCCESS;
}

/* ---- Identify and logs ---------------------------------------------------- */

/* Copy @bytes of @data to where @cmd says. */
static u16 reply(struct nvme *nvme, const struct command *cmd, const void *data, u64 bytes)
{
	u16 status = nvme_map_data(nvme, cmd, bytes, true);

	if (!status)
		nvme_copy_out(nvme, data, bytes);
	return status;
}

static u16 identify(struct nvme *nvme, const struct command *cmd)
{
	u8 data[4096] = { 0 };
	u16 status = nvme_identify(nvme, &cmd->sqe, data);

	return status ? status : reply(nvme, cmd, data, sizeof(data));
}

static u16 get_log_page(struct nvme *nvme, const struct command *cmd)
{
	const struct nvme_sqe *sqe = &cmd->sqe;
	u64 offset = sqe->cdw12 | (u64)sqe->cdw13 << 32;
	u64 wanted = (((u64)(sqe->cdw11 & 0xffff) << 16 | sqe->cdw10 >> 16) + 1) * 4;
	u8 id = (u8)sqe->cdw10, data[NVME_LOG_BYTES] = { 0 };
	u32 bytes = nvme_log_page(nvme, id, data), kind;
	u16 status;

	if (!bytes)
		return NVME_INVALID_LOG_PAGE;
	if (sqe->nsid && sqe->nsid != 0xffffffff)
		return sqe->nsid == 1 ? NVME_INVALID_FIELD : NVME_INVALID_NAMESPACE;
	if (offset & 3 || offset > bytes)
		return NVME_INVALID_FIELD;
	/* Nothing is written beyond the log's end. */
	wanted = min_t(u64, wanted, bytes - offset);
	status = wanted ? reply(nvme, cmd, data + offset, wanted) : NVME_SUCCESS;
	if (!status && !(sqe->cdw10 >> 15 & 1)) {
		for (kind = 0; kind < NR_EVENTS; kind++)
			if (nvme->events[kind].log == id)
				nvme->events[kind].masked = false;
		nvme_send_events(nvme);
	}
	return status;
}

/* ---- Abort and events ----------------------------------------------------- */

static bool drop_async(struct nvme *nvme, const struct command *cmd)
{
	u32 i;

	for (i = 0; i < nvme->nr_async; i++) {
		if (nvme->async[i] != cmd)
			continue;
		nvme->async[i] = nvme->async[--nvme->nr_async];
		return true;
	}
	return false;
}

static u16 abort_command(struct nvme *nvme, const struct command *cmd, u32 *result)
{
	u32 sq_id = cmd->sqe.cdw10 & 0xffff;
	struct command *other = nvme_find(nvme, sq_id, (u16)(cmd->sqe.cdw10 >> 16));

	*result = 1; /* not aborted */
	/* Of the admin commands, only those that wait for an event are not done already. */
	if (!other || (!sq_id && !drop_async(nvme, other)))
		return NVME_SUCCESS;
	nvme_complete(nvme, other, NVME_ABORTED, 0);
	*result = 0;
	return NVME_SUCCESS;
}

/* True: @cmd waits for an event, or has had it. */
static bool await_event(struct nvme *nvme, struct command *cmd)
{
	if (nvme->nr_async == NVME_ASYNC_EVENTS)
		return false;
	nvme->async[nvme->nr_async++] = cmd;
	nvme_send_events(nvme);
	return true;
}

void nvme_admin(struct nvme *nvme, struct command *cmd)
{
	const struct nvme_sqe *sqe = &cmd->sqe;
	u16 status = NVME_INVALID_OPCODE;
	u32 result = 0;

	if (NVME_FUSE(sqe->flags) || NVME_PSDT(sqe->flags)) {
		/* SGLs are for I/O commands only, on PCI Express. */
		nvme_complete(nvme, cmd, NVME_INVALID_FIELD, 0);
		return;
	}
	switch (sqe->opcode) {
	case NVME_ADMIN_DELETE_SQ:
		status = delete_sq(nvme, sqe);
		break;
	case NVME_ADMIN_CREATE_SQ:
		status = create_sq(nvme, sqe);
		break;
	case NVME_ADMIN_GET_LOG_PAGE:
		status = get_log_page(nvme, cmd);
		break;
	case NVME_ADMIN_DELETE_CQ:
		status = delete_cq(nvme, sqe);
		break;
	case NVME_ADMIN_CREATE_CQ:
		status = create_cq(nvme, sqe);
		break;
	case NVME_ADMIN_IDENTIFY:
		status = identify(nvme, cmd);
		break;
	case NVME_ADMIN_ABORT:
		status = abort_command(nvme, cmd, &result);
		break;
	case NVME_ADMIN_SET_FEATURES:
		status = set_feature(nvme, sqe, &result);
		break;
	case NVME_ADMIN_GET_FEATURES:
		status = get_feature(nvme, sqe, &result);
		break;
	case NVME_ADMIN_ASYNC_EVENT:
		if (await_event(nvme, cmd))
			return;
		status = NVME_TOO_MANY_ASYNC_EVENTS;
		break;
	case NVME_ADMIN_DOORBELL_BUFFER:
		status = use_shadow_doorbells(nvme, sqe);
		break;
	}
	nvme_complete(nvme, cmd, status, result);
}
