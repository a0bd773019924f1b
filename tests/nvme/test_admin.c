// SPDX-License-Identifier: GPL-2.0-only OR MIT
/* Admin commands: what each returns, and the status that each mistake gets. */
#include "guest.h"

static u16 word16(struct guest *g, u64 address)
{
	u16 value;

	memcpy(&value, at(g, address), sizeof(value));
	return value;
}

static u32 word32(struct guest *g, u64 address)
{
	u32 value;

	memcpy(&value, at(g, address), sizeof(value));
	return value;
}

static u64 word64(struct guest *g, u64 address)
{
	u64 value;

	memcpy(&value, at(g, address), sizeof(value));
	return value;
}

static u8 byte(struct guest *g, u64 address)
{
	return *(u8 *)at(g, address);
}

static u16 identify(struct guest *g, u32 cns, u32 nsid, u64 page)
{
	return admin_status(g, (struct nvme_sqe){ .opcode = NVME_ADMIN_IDENTIFY,
						  .nsid = nsid,
						  .prp = { page },
						  .cdw10 = cns });
}

static void test_identify(void)
{
	struct guest g;
	u64 page;

	guest_init(&g);
	guest_start(&g, 16);
	page = guest_alloc(&g, PAGE);
	CHECK(!identify(&g, 1, 0, page), "no controller");
	CHECK(!memcmp(at(&g, page + 4), "1                   ", 20), "serial number");
	CHECK(!memcmp(at(&g, page + 24), "test      ", 10), "model number");
	CHECK(word32(&g, page + 80) == 0x10400, "version %x", word32(&g, page + 80));
	CHECK(1u << byte(&g, page + 77) << 12 == 1 << 20, "MDTS %u", byte(&g, page + 77));
	CHECK(word16(&g, page + 256) == 0x100, "OACS %x", word16(&g, page + 256));
	CHECK(byte(&g, page + 512) == 0x66 && byte(&g, page + 513) == 0x44, "entry sizes");
	CHECK(word32(&g, page + 516) == 1, "%u namespaces", word32(&g, page + 516));
	CHECK(word16(&g, page + 520) == 0xc, "ONCS %x", word16(&g, page + 520));
	CHECK(byte(&g, page + 525) == 7, "VWC %x", byte(&g, page + 525));
	CHECK(word32(&g, page + 536) == 1, "SGLS %x", word32(&g, page + 536));
	CHECK(!strncmp(at(&g, page + 768), "nqn.2014-08.org.nvmexpress:uuid:30313233-", 41), "NQN");

	CHECK(!identify(&g, 0, 1, page), "no namespace");
	CHECK(word64(&g, page) == DRIVE_BYTES / 512 && word64(&g, page + 8) == DRIVE_BYTES / 512,
	      "size %.0f", (double)word64(&g, page));
	CHECK(byte(&g, page + 130) == 9, "blocks of 2^%u", byte(&g, page + 130));
	CHECK(byte(&g, page + 33) == 9, "DLFEAT %x", byte(&g, page + 33));

	CHECK(!identify(&g, 2, 0, page), "no list");
	CHECK(word32(&g, page) == 1 && !word32(&g, page + 4), "list %u %u", word32(&g, page),
	      word32(&g, page + 4));
	CHECK(!identify(&g, 2, 1, page) && !word32(&g, page), "namespaces after the only one");

	CHECK(!identify(&g, 3, 1, page), "no descriptors");
	CHECK(byte(&g, page) == 3 && byte(&g, page + 1) == 16, "no UUID");
	CHECK(!memcmp(at(&g, page + 4), "0123456789abcdef", 16), "another UUID");

	CHECK(identify(&g, 0, 2, page) == NVME_INVALID_NAMESPACE, "namespace 2");
	CHECK(identify(&g, 0, 0, page) == NVME_INVALID_NAMESPACE, "namespace 0");
	CHECK(identify(&g, 3, ~0u, page) == NVME_INVALID_NAMESPACE, "all namespaces");
	CHECK(identify(&g, 2, ~0u, page) == NVME_INVALID_NAMESPACE, "a list after all");
	CHECK(identify(&g, 0x16, 1, page) == NVME_INVALID_FIELD, "CNS 16h");
	CHECK(identify(&g, 1, 0, 0xdead000) == NVME_DATA_TRANSFER_ERROR,
	      "memory that is not there");
	CHECK(identify(&g, 1, 0, page + 1) == NVME_PRP_INVALID_OFFSET, "an odd address");
	guest_exit(&g);
}

static u16 create_cq(struct guest *g, u32 id, u32 entries, u64 address, u32 cdw11)
{
	return admin_status(g, (struct nvme_sqe){ .opcode = NVME_ADMIN_CREATE_CQ,
						  .prp = { address },
						  .cdw10 = (entries - 1) << 16 | id,
						  .cdw11 = cdw11 });
}

static u16 create_sq(struct guest *g, u32 id, u32 entries, u64 address, u32 cdw11)
{
	return admin_status(g, (struct nvme_sqe){ .opcode = NVME_ADMIN_CREATE_SQ,
						  .prp = { address },
						  .cdw10 = (entries - 1) << 16 | id,
						  .cdw11 = cdw11 });
}

static u16 delete(struct guest *g, u8 opcode, u32 id)
{
	return admin_status(g, (struct nvme_sqe){ .opcode = opcode, .cdw10 = id });
}

static void test_queues(void)
{
	struct guest g;
	u64 page;

	guest_init(&g);
	guest_power_on(&g);
	guest_enable(&g, CC_ENABLE);
	page = guest_alloc(&g, PAGE);
	CHECK(create_cq(&g, 0, 2, page, 3) == NVME_INVALID_QUEUE_ID, "CQ 0");
	CHECK(create_cq(&g, 65, 2, page, 3) == NVME_INVALID_QUEUE_ID, "CQ 65");
	CHECK(create_cq(&g, 0xffff, 2, page, 3) == NVME_INVALID_QUEUE_ID, "CQ ffffh");
	CHECK(create_cq(&g, 1, 1, page, 3) == NVME_INVALID_QUEUE_SIZE, "one entry");
	CHECK(create_cq(&g, 1, 1025, page, 3) == NVME_INVALID_QUEUE_SIZE, "more than MQES");
	CHECK(create_cq(&g, 1, 2, page, 2) == NVME_INVALID_FIELD, "not contiguous");
	CHECK(create_cq(&g, 1, 2, page + 64, 3) == NVME_PRP_INVALID_OFFSET, "not a page");
	CHECK(create_cq(&g, 1, 2, page, 65 << 16 | 3) == NVME_INVALID_VECTOR, "vector 65");
	CHECK(create_sq(&g, 1, 2, page, 1 << 16 | 1) == NVME_CQ_INVALID, "without a CQ");
	CHECK(!create_cq(&g, 1, 2, page, 64 << 16 | 3), "CQ 1");
	CHECK(create_cq(&g, 1, 2, page, 3) == NVME_INVALID_QUEUE_ID, "CQ 1 twice");
	CHECK(create_sq(&g, 0, 2, page, 1 << 16 | 1) == NVME_INVALID_QUEUE_ID, "SQ 0");
	CHECK(create_sq(&g, 257, 2, page, 1 << 16 | 1) == NVME_INVALID_QUEUE_ID, "SQ 257");
	CHECK(create_sq(&g, 1, 2, page, 0 << 16 | 1) == NVME_INVALID_QUEUE_ID, "for CQ 0");
	CHECK(create_sq(&g, 1, 2, page, 65 << 16 | 1) == NVME_INVALID_QUEUE_ID, "for CQ 65");
	CHECK(create_sq(&g, 1, 2, page, 2 << 16 | 1) == NVME_CQ_INVALID, "for CQ 2");
	CHECK(!create_sq(&g, 1, 2, page, 1 << 16 | 1), "SQ 1");
	CHECK(!create_sq(&g, 256, 1024, page, 1 << 16 | 3 << 1 | 1), "SQ 256");
	CHECK(create_sq(&g, 1, 2, page, 1 << 16 | 1) == NVME_INVALID_QUEUE_ID, "SQ 1 twice");
	CHECK(delete (&g, NVME_ADMIN_DELETE_CQ, 1) == NVME_INVALID_QUEUE_DELETION, "still in use");
	CHECK(delete (&g, NVME_ADMIN_DELETE_SQ, 2) == NVME_INVALID_QUEUE_ID, "SQ 2");
	CHECK(delete (&g, NVME_ADMIN_DELETE_SQ, 0) == NVME_INVALID_QUEUE_ID, "the admin queue");
	CHECK(delete (&g, NVME_ADMIN_DELETE_CQ, 0) == NVME_INVALID_QUEUE_ID, "the admin queue");
	CHECK(delete (&g, NVME_ADMIN_DELETE_SQ, 0xffff) == NVME_INVALID_QUEUE_ID, "SQ ffffh");
	CHECK(!delete (&g, NVME_ADMIN_DELETE_SQ, 1), "SQ 1");
	CHECK(!delete (&g, NVME_ADMIN_DELETE_SQ, 256), "SQ 256");
	CHECK(!delete (&g, NVME_ADMIN_DELETE_CQ, 1), "CQ 1");
	CHECK(delete (&g, NVME_ADMIN_DELETE_CQ, 1) == NVME_INVALID_QUEUE_ID, "CQ 1 twice");
	/* Entries of a size that the guest has not set. */
	set32(&g, NVME_CC, 0);
	guest_enable(&g, NVME_CC_EN);
	CHECK(create_cq(&g, 1, 2, page, 3) == NVME_INVALID_QUEUE_SIZE, "entries of one byte");
	guest_exit(&g);
}

static struct nvme_cqe feature(struct guest *g, u8 opcode, u32 cdw10, u32 nsid, u32 cdw11)
{
	return guest_admin(
		g, (struct nvme_sqe){
			   .opcode = opcode, .nsid = nsid, .cdw10 = cdw10, .cdw11 = cdw11 });
}

static u16 set(struct guest *g, u32 id, u32 value)
{
	struct nvme_cqe cqe =
		feature(g, NVME_ADMIN_SET_FEATURES, id, id == NVME_FEATURE_ERROR_RECOVERY, value);

	return status_of(&cqe);
}

static u32 get(struct guest *g, u32 id, u32 cdw11)
{
	struct nvme_cqe cqe =
		feature(g, NVME_ADMIN_GET_FEATURES, id, id == NVME_FEATURE_ERROR_RECOVERY, cdw11);

	CHECK(!status_of(&cqe), "feature %x: status %x", id, status_of(&cqe));
	return cqe.result;
}

static void test_features(void)
{
	static const struct {
		u32 id, cdw11, value, first;
	} features[] = {
		{ NVME_FEATURE_ARBITRATION, 0, 0x07050303, 0 },
		{ NVME_FEATURE_TEMPERATURE, 0, 330, 343 },
		{ NVME_FEATURE_TEMPERATURE, 1 << 20, 1 << 20 | 200, 0 },
		{ NVME_FEATURE_ERROR_RECOVERY, 0, 100, 0 },
		{ NVME_FEATURE_WRITE_CACHE, 0, 0, 1 },
		{ NVME_FEATURE_COALESCING, 0, 0x0a05, 0 },
		{ NVME_FEATURE_VECTOR, 3, 1 << 16 | 3, 3 },
		{ NVME_FEATURE_ATOMICITY, 0, 1, 0 },
		{ NVME_FEATURE_ASYNC_EVENTS, 0, 0x1f, 0 },
	};
	struct nvme_cqe cqe;
	struct guest g;
	u32 i, got;

	guest_init(&g);
	guest_start(&g, 16);
	for (i = 0; i < ARRAY_SIZE(features); i++) {
		got = get(&g, features[i].id, features[i].cdw11);
		CHECK(got == features[i].first, "feature %x is %x at first", features[i].id, got);
		CHECK(!set(&g, features[i].id, features[i].value), "feature %x", features[i].id);
		got = get(&g, features[i].id, features[i].cdw11);
		CHECK(got == (features[i].value & ~(1u << 20)), "feature %x is %x, was set to %x",
		      features[i].id, got, features[i].value);
	}
	CHECK(get(&g, NVME_FEATURE_QUEUES, 0) == (63 << 16 | 255), "queues");
	CHECK(set(&g, NVME_FEATURE_QUEUES, 1 << 16 | 3) == NVME_COMMAND_SEQUENCE,
	      "numbers of queues when there are some");
	CHECK(set(&g, NVME_FEATURE_POWER, 1) == NVME_INVALID_FIELD, "power state 1");
	CHECK(set(&g, NVME_FEATURE_ERROR_RECOVERY, 1 << 16) == NVME_INVALID_FIELD, "DULBE");
	CHECK(set(&g, NVME_FEATURE_VECTOR, 65) == NVME_INVALID_FIELD, "vector 65");
	CHECK(set(&g, NVME_FEATURE_TEMPERATURE, 1 << 16) == NVME_INVALID_FIELD, "sensor 1");
	CHECK(set(&g, 0x7f, 0) == NVME_INVALID_FIELD, "feature 7fh");
	CHECK(set(&g, 0, 0) == NVME_INVALID_FIELD, "feature 0");
	cqe = feature(&g, NVME_ADMIN_GET_FEATURES, 1 << 8 | NVME_FEATURE_ARBITRATION, 0, 0);
	CHECK(status_of(&cqe) == NVME_INVALID_FIELD, "default values");
	cqe = feature(&g, NVME_ADMIN_SET_FEATURES, 1u << 31 | NVME_FEATURE_ARBITRATION, 0, 0);
	CHECK(status_of(&cqe) == NVME_FEATURE_NOT_SAVEABLE, "saved");
	cqe = feature(&g, NVME_ADMIN_SET_FEATURES, NVME_FEATURE_ARBITRATION, 1, 0);
	CHECK(status_of(&cqe) == NVME_FEATURE_NOT_NAMESPACE, "of a namespace");
	cqe = feature(&g, NVME_ADMIN_SET_FEATURES, NVME_FEATURE_ARBITRATION, 5, 0);
	CHECK(status_of(&cqe) == NVME_INVALID_NAMESPACE, "of a namespace that is not there");
	set32(&g, NVME_CC, 0);
	guest_enable(&g, CC_ENABLE);
	CHECK(!get(&g, NVME_FEATURE_ARBITRATION, 0), "weights survived a reset");
	cqe = feature(&g, NVME_ADMIN_SET_FEATURES, NVME_FEATURE_QUEUES, 0, 1 << 16 | 5);
	CHECK(cqe.result == (1 << 16 | 5), "granted %x", cqe.result);
	CHECK(create_cq(&g, 3, 2, MEMORY_BASE, 3) == NVME_INVALID_QUEUE_ID, "CQ 3 of 2");
	CHECK(!create_cq(&g, 2, 2, MEMORY_BASE, 3), "CQ 2 of 2");
	CHECK(create_sq(&g, 7, 2, MEMORY_BASE, 2 << 16 | 1) == NVME_INVALID_QUEUE_ID, "SQ 7 of 6");
	set32(&g, NVME_CC, 0);
	guest_enable(&g, CC_ENABLE);
	cqe = feature(&g, NVME_ADMIN_SET_FEATURES, NVME_FEATURE_QUEUES, 0, 999 << 16 | 999);
	CHECK(cqe.result == (63 << 16 | 255), "granted %x", cqe.result);
	CHECK(set(&g, NVME_FEATURE_QUEUES, 0xffff) == NVME_INVALID_FIELD, "65536 queues");
	guest_exit(&g);

	guest_init(&g);
	g.config.profile.buffer_volatile = 0;
	guest_start(&g, 16);
	CHECK(set(&g, NVME_FEATURE_WRITE_CACHE, 1) == NVME_INVALID_FIELD,
	      "a cache where none is volatile");
	guest_exit(&g);
}

static void test_all_namespaces(void)
{
	struct nvme_cqe cqe;
	struct guest g;

	guest_init(&g);
	guest_start(&g, 16);
	cqe = feature(&g, NVME_ADMIN_SET_FEATURES, NVME_FEATURE_ERROR_RECOVERY, 0xffffffff, 77);
	CHECK(!status_of(&cqe), "status %x", status_of(&cqe));
	CHECK(get(&g, NVME_FEATURE_ERROR_RECOVERY, 0) == 77, "not that of namespace 1");
	cqe = feature(&g, NVME_ADMIN_GET_FEATURES, NVME_FEATURE_ERROR_RECOVERY, 0xffffffff, 0);
	CHECK(status_of(&cqe) == NVME_INVALID_NAMESPACE, "that of all is read");
	cqe = feature(&g, NVME_ADMIN_SET_FEATURES, NVME_FEATURE_ERROR_RECOVERY, 0, 5);
	CHECK(status_of(&cqe) == NVME_INVALID_NAMESPACE, "that of none is set");
	cqe = feature(&g, NVME_ADMIN_SET_FEATURES, NVME_FEATURE_ERROR_RECOVERY, 2, 5);
	CHECK(status_of(&cqe) == NVME_INVALID_NAMESPACE, "that of namespace 2 is set");
	guest_exit(&g);
}

static u16 get_log(struct guest *g, u32 id, u32 nsid, u32 bytes, u64 offset, u64 page)
{
	return admin_status(g, (struct nvme_sqe){ .opcode = NVME_ADMIN_GET_LOG_PAGE,
						  .nsid = nsid,
						  .prp = { page, page + PAGE },
						  .cdw10 = (bytes / 4 - 1) << 16 | id,
						  .cdw11 = (bytes / 4 - 1) >> 16,
						  .cdw12 = (u32)offset,
						  .cdw13 = (u32)(offset >> 32) });
}

static void test_logs(void)
{
	struct nvme_error_entry error;
	struct guest g;
	u64 page;
	u32 i;

	guest_init(&g);
	guest_start(&g, 16);
	page = guest_alloc(&g, 2 * PAGE);
	for (i = 0; i < 70; i++)
		CHECK(io_status(&g, io(NVME_READ, ~0ull - i, 1, page, 0)) == NVME_LBA_OUT_OF_RANGE,
		      "a block beyond the end");
	CHECK(!get_log(&g, NVME_LOG_ERROR, 0, 4096, 0, page), "no error log");
	memcpy(&error, at(&g, page), sizeof(error));
	CHECK(error.count == 70 && error.lba == ~0ull - 69 && error.sq_id == 1 && error.nsid == 1,
	      "the newest is %u of block -%u", (u32)error.count, (u32)-error.lba);
	CHECK((error.status >> 1 & 0x7ff) == NVME_LBA_OUT_OF_RANGE, "status %x", error.status);
	memcpy(&error, at(&g, page + 63 * 64), sizeof(error));
	CHECK(error.count == 7, "the oldest is %u", (u32)error.count);
	CHECK(!get_log(&g, NVME_LOG_ERROR, 0, 64, 64, page), "no part of the error log");
	memcpy(&error, at(&g, page), sizeof(error));
	CHECK(error.count == 69, "the second is %u", (u32)error.count);

	for (i = 0; i < 1001; i++)
		CHECK(!io_status(&g, io(NVME_WRITE, i, 1, page, 0)), "write");
	CHECK(!io_status(&g, io(NVME_READ, 0, 8, page, 0)), "read");
	CHECK(!get_log(&g, NVME_LOG_SMART, ~0u, 512, 0, page), "no SMART log");
	CHECK(word64(&g, page + 32) == 1 && word64(&g, page + 48) == 2, "units %u, %u",
	      (u32)word64(&g, page + 32), (u32)word64(&g, page + 48));
	CHECK(word64(&g, page + 64) == 1 && word64(&g, page + 80) == 1001, "commands %u, %u",
	      (u32)word64(&g, page + 64), (u32)word64(&g, page + 80));
	CHECK(word64(&g, page + 176) == 70, "%u errors", (u32)word64(&g, page + 176));
	CHECK(!byte(&g, page), "warning %x", byte(&g, page));

	CHECK(!get_log(&g, NVME_LOG_FIRMWARE, 0, 512, 0, page) && byte(&g, page) == 1, "firmware");
	CHECK(!get_log(&g, NVME_LOG_COMMANDS, 0, 4096, 0, page), "no commands");
	CHECK(word32(&g, page + 4 * NVME_ADMIN_ABORT) == 1, "Abort");
	CHECK(!word32(&g, page + 4 * 0x80), "Format");
	CHECK(word32(&g, page + 1024 + 4 * NVME_WRITE) == 3, "Write");
	CHECK(!word32(&g, page + 1024 + 4 * 5), "Compare");

	CHECK(get_log(&g, 0x7f, 0, 512, 0, page) == NVME_INVALID_LOG_PAGE, "log 7fh");
	CHECK(get_log(&g, NVME_LOG_SMART, 1, 512, 0, page) == NVME_INVALID_FIELD,
	      "of one namespace");
	CHECK(get_log(&g, NVME_LOG_SMART, 2, 512, 0, page) == NVME_INVALID_NAMESPACE, "of none");
	CHECK(get_log(&g, NVME_LOG_SMART, 0, 512, 2, page) == NVME_INVALID_FIELD, "offset 2");
	CHECK(get_log(&g, NVME_LOG_SMART, 0, 512, 516, page) == NVME_INVALID_FIELD,
	      "beyond its end");
	CHECK(get_log(&g, NVME_LOG_SMART, 0, 512, 1ull << 40, page) == NVME_INVALID_FIELD,
	      "far beyond its end");
	/* More is asked for than there is: what is behind it stays. */
	memset(at(&g, page), 0xaa, PAGE);
	CHECK(!get_log(&g, NVME_LOG_SMART, 0, 4096, 0, page), "more than there is");
	CHECK(byte(&g, page + 512) == 0xaa, "written beyond the log's end");
	guest_exit(&g);
}

static void test_events(void)
{
	const struct nvme_sqe async = { .opcode = NVME_ADMIN_ASYNC_EVENT };
	struct nvme_cqe cqe = { 0 };
	struct guest g;
	u64 page;
	u32 i;
	u16 cid;

	guest_init(&g);
	guest_start(&g, 16);
	page = guest_alloc(&g, 2 * PAGE);
	for (i = 0; i < 4; i++)
		cid = guest_submit(&g, 0, async);
	CHECK(admin_status(&g, async) == NVME_TOO_MANY_ASYNC_EVENTS, "a fifth");
	guest_submit(&g, 0,
		     (struct nvme_sqe){ .opcode = NVME_ADMIN_ABORT, .cdw10 = (u32)cid << 16 });
	CHECK(guest_reap(&g, 0, &cqe, true) && cqe.cid == cid && status_of(&cqe) == NVME_ABORTED,
	      "it was not aborted");
	CHECK(guest_reap(&g, 0, &cqe, true) && !cqe.result, "Abort says no");
	CHECK(!set(&g, NVME_FEATURE_ASYNC_EVENTS, 2), "events for SMART");
	CHECK(!guest_reap(&g, 0, &cqe, true), "an event without a cause");
	guest_submit(&g, 0,
		     (struct nvme_sqe){ .opcode = NVME_ADMIN_SET_FEATURES,
					.cdw10 = NVME_FEATURE_TEMPERATURE,
					.cdw11 = 300 });
	CHECK(guest_reap(&g, 0, &cqe, true) && cqe.result == (2 << 16 | 1 << 8 | 1),
	      "no event of the temperature: %x", cqe.result);
	CHECK(guest_reap(&g, 0, &cqe, true) && !status_of(&cqe), "Set Features");
	CHECK(!get_log(&g, NVME_LOG_SMART, 0, 512, 0, page) && byte(&g, page) == 2, "no warning");
	guest_exit(&g);
}

static void test_abort(void)
{
	struct nvme_cqe cqe, first = { 0 };
	struct guest g;
	u64 page;
	u16 cid;
	u32 zero = 0;

	guest_init(&g);
	guest_start(&g, 16);
	page = guest_alloc(&g, PAGE);
	memset(at(&g, page), 0x55, PAGE);
	cid = guest_submit(&g, 1, io(NVME_WRITE, 8, 8, page, 0));
	cqe = guest_admin(&g, (struct nvme_sqe){ .opcode = NVME_ADMIN_ABORT,
						 .cdw10 = (u32)cid << 16 | 1 });
	CHECK(!status_of(&cqe) && !cqe.result, "it was not aborted: %x", cqe.result);
	CHECK(guest_reap(&g, 1, &first, true) && first.cid == cid, "no completion");
	CHECK(status_of(&first) == NVME_ABORTED, "status %x", status_of(&first));
	guest_run(&g, SSD_NEVER);
	CHECK(!guest_reap(&g, 1, &first, true), "it is completed twice");
	CHECK(pread(g.config.data, &zero, 4, 8 * 512) == 4 && !zero, "it was written all the same");
	cqe = guest_admin(&g, (struct nvme_sqe){ .opcode = NVME_ADMIN_ABORT,
						 .cdw10 = (u32)cid << 16 | 1 });
	CHECK(!status_of(&cqe) && cqe.result == 1, "aborted again");
	cqe = guest_admin(&g, (struct nvme_sqe){ .opcode = NVME_ADMIN_ABORT, .cdw10 = 0xffffffff });
	CHECK(!status_of(&cqe) && cqe.result == 1, "aborted in a queue that is not there");
	guest_exit(&g);
}

static void test_mistakes(void)
{
	static const u8 unknown[] = { 0x03, 0x07, 0x0d, 0x10, 0x11, 0x14, 0x15, 0x18,
				      0x19, 0x1a, 0x80, 0x81, 0x82, 0x84, 0xc0, 0xff };
	struct guest g;
	u32 i;

	guest_init(&g);
	guest_start(&g, 16);
	for (i = 0; i < ARRAY_SIZE(unknown); i++)
		CHECK(admin_status(&g, (struct nvme_sqe){ .opcode = unknown[i] }) ==
			      NVME_INVALID_OPCODE,
		      "opcode %x", unknown[i]);
	for (i = 1; i < 4; i++)
		CHECK(admin_status(&g, (struct nvme_sqe){ .opcode = NVME_ADMIN_IDENTIFY,
							  .flags = (u8)(i << 6),
							  .prp = { MEMORY_BASE } }) ==
			      NVME_INVALID_FIELD,
		      "PSDT %u", i);
	CHECK(admin_status(&g, (struct nvme_sqe){ .opcode = NVME_ADMIN_ABORT, .flags = 1 }) ==
		      NVME_INVALID_FIELD,
	      "fused");
	guest_exit(&g);
}

int main(int argc, char **argv)
{
	static const struct test tests[] = {
		{ "Identify: controller, namespace, list, descriptors", test_identify },
		{ "queues are created and deleted, and no others", test_queues },
		{ "features are set, got, and back at their defaults after a reset",
		  test_features },
		{ "a namespace's feature is set for all at once", test_all_namespaces },
		{ "logs: errors, SMART, firmware, commands", test_logs },
		{ "events wait for a request, and requests for events", test_events },
		{ "an aborted command is completed once and moves nothing", test_abort },
		{ "what it does not know is an invalid opcode or field", test_mistakes },
		{ NULL, NULL },
	};

	return run_tests(tests, argc, argv);
}
