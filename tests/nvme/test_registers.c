// SPDX-License-Identifier: GPL-2.0-only OR MIT
/* Registers, enabling, doorbells, resets and shutdown. */
#include "guest.h"

static void test_capabilities(void)
{
	struct guest g;
	u64 cap;

	guest_init(&g);
	guest_power_on(&g);
	cap = get64(&g, NVME_CAP);
	CHECK((cap & 0xffff) == NVME_QUEUE_ENTRIES - 1, "MQES %u", (u32)cap & 0xffff);
	CHECK(cap >> 16 & 1, "queues need not be contiguous");
	CHECK((cap >> 17 & 3) == 1, "AMS is %u, not weighted round robin", (u32)(cap >> 17) & 3);
	CHECK(!(cap >> 32 & 15), "doorbells are not beside each other");
	CHECK((cap >> 37 & 0xff) == 1, "no NVM command set");
	CHECK(get32(&g, NVME_VS) == 0x10400, "version %x", get32(&g, NVME_VS));
	guest_power_off(&g);
	g.config.profile.wrr = 0;
	guest_power_on(&g);
	CHECK(!(get64(&g, NVME_CAP) >> 17 & 3), "WRR on a drive without");
	guest_exit(&g);
}

static void test_enabling(void)
{
	struct guest g;

	guest_init(&g);
	guest_power_on(&g);
	CHECK(!get32(&g, NVME_CSTS), "CSTS %x after power-on", get32(&g, NVME_CSTS));
	guest_enable(&g, CC_ENABLE | CC_WRR);
	CHECK(get32(&g, NVME_CSTS) == NVME_CSTS_RDY, "CSTS %x", get32(&g, NVME_CSTS));
	/* What may be set while disabled only, stays. */
	set32(&g, NVME_AQA, 1 << 16 | 1);
	set64(&g, NVME_ASQ, 0x7000);
	set32(&g, NVME_CC, CC_ENABLE | 1 << 7);
	CHECK(get32(&g, NVME_AQA) == (31 << 16 | 31), "AQA changed while enabled");
	CHECK(get64(&g, NVME_ASQ) == g.sqs[0].address, "ASQ changed while enabled");
	CHECK(get32(&g, NVME_CC) == (CC_ENABLE | CC_WRR), "CC %x", get32(&g, NVME_CC));
	set32(&g, NVME_CC, 0);
	CHECK(!get32(&g, NVME_CSTS), "CSTS %x after a reset", get32(&g, NVME_CSTS));
	CHECK(get64(&g, NVME_ACQ) == g.cqs[0].address, "ACQ did not survive a controller reset");
	nvme_reset(g.nvme);
	CHECK(!get64(&g, NVME_ACQ) && !get32(&g, NVME_CC), "left by the function's reset");
	guest_exit(&g);
}

/* What cannot be enabled ends in a fatal status, from which a reset recovers. */
static void test_bad_configurations(void)
{
	static const struct {
		u32 cc, aqa;
		u64 asq;
	} bad[] = {
		{ CC_ENABLE | 7 << 11, 31 << 16 | 31, MEMORY_BASE }, /* vendor's arbitration */
		{ CC_ENABLE | 5 << 7, 31 << 16 | 31, MEMORY_BASE }, /* pages of 128 KiB */
		{ CC_ENABLE | 1 << 4, 31 << 16 | 31, MEMORY_BASE }, /* another command set */
		{ CC_ENABLE, 31 << 16, MEMORY_BASE }, /* a queue of one entry */
		{ CC_ENABLE, 31, MEMORY_BASE },
		{ CC_ENABLE | 4 << 7, 31 << 16 | 31, MEMORY_BASE + PAGE }, /* no page of 64 KiB */
	};
	struct guest g;
	u32 i;

	guest_init(&g);
	guest_power_on(&g);
	for (i = 0; i < ARRAY_SIZE(bad); i++) {
		set32(&g, NVME_AQA, bad[i].aqa);
		set64(&g, NVME_ASQ, bad[i].asq);
		set64(&g, NVME_ACQ, MEMORY_BASE);
		set32(&g, NVME_CC, bad[i].cc);
		CHECK(get32(&g, NVME_CSTS) == NVME_CSTS_CFS, "%u: CSTS %x", i,
		      get32(&g, NVME_CSTS));
		set32(&g, NVME_CC, 0);
	}
	guest_enable(&g, CC_ENABLE);
	CHECK(get32(&g, NVME_CSTS) == NVME_CSTS_RDY, "not ready after all");
	guest_power_off(&g);
	g.config.profile.wrr = 0;
	guest_power_on(&g);
	guest_enable(&g, CC_ENABLE | CC_WRR);
	CHECK(get32(&g, NVME_CSTS) == NVME_CSTS_CFS, "WRR on a drive without");
	guest_exit(&g);
}

static void test_odd_accesses(void)
{
	struct guest g;
	u64 offset, value = ~0ull;
	u32 bytes;
	u8 data[64];

	guest_init(&g);
	guest_power_on(&g);
	for (offset = 0; offset < NVME_BAR_BYTES; offset += offset < 0x40 ? 1 : 509)
		for (bytes = 0; bytes <= 64 && offset + bytes <= NVME_BAR_BYTES; bytes++)
			nvme_read(g.nvme, offset, data, bytes);
	nvme_read(g.nvme, NVME_VS + 2, data, 1);
	CHECK(data[0] == 1, "one byte of VS is %u", data[0]);
	for (bytes = 1; bytes < 8; bytes++)
		if (bytes != 4)
			nvme_write(g.nvme, NVME_AQA, &value, bytes, 0);
	nvme_write(g.nvme, NVME_AQA + 2, &value, 4, 0);
	CHECK(!get32(&g, NVME_AQA), "an access that is not defined set AQA to %x",
	      get32(&g, NVME_AQA));
	set32(&g, NVME_VS, 0);
	set64(&g, NVME_CAP, 0);
	CHECK(get32(&g, NVME_VS) == 0x10400 && get64(&g, NVME_CAP), "read-only registers changed");
	guest_exit(&g);
}

static u32 pending_event(struct guest *g)
{
	struct nvme_cqe cqe = { 0 };

	if (!guest_reap(g, 0, &cqe, true))
		return 0;
	CHECK(!status_of(&cqe), "status %x", status_of(&cqe));
	return cqe.result;
}

/* The newest entry of the error log. Reading it lets the next event come. */
static struct nvme_error_entry read_errors(struct guest *g)
{
	struct nvme_sqe sqe = { .opcode = NVME_ADMIN_GET_LOG_PAGE,
				.prp = { guest_alloc(g, PAGE) },
				.cdw10 = 15 << 16 | NVME_LOG_ERROR };
	struct nvme_error_entry entry;

	CHECK(!admin_status(g, sqe), "no error log");
	memcpy(&entry, at(g, sqe.prp[0]), sizeof(entry));
	return entry;
}

static void test_doorbells(void)
{
	struct nvme_sqe async = { .opcode = NVME_ADMIN_ASYNC_EVENT };
	struct guest g;

	guest_init(&g);
	guest_start(&g, 16);
	guest_submit(&g, 0, async);
	CHECK(!pending_event(&g), "an event without a cause");
	set32(&g, NVME_DOORBELLS + 8 * 7, 1);
	CHECK(pending_event(&g) == 0x10000, "none of a doorbell without a queue");
	read_errors(&g);
	guest_submit(&g, 0, async);
	set32(&g, NVME_DOORBELLS + 8, 16);
	CHECK(pending_event(&g) == 0x10100, "none of a tail beyond the queue");
	/* Until the log is read, there is no second one. */
	guest_submit(&g, 0, async);
	set32(&g, NVME_DOORBELLS + 8, 16);
	CHECK(!pending_event(&g), "an event, and the log was not read");
	read_errors(&g);
	set32(&g, NVME_DOORBELLS + 12, 1);
	CHECK(pending_event(&g) == 0x10100, "none of a head beyond what was posted");
	set32(&g, NVME_DOORBELLS + 8 * (NVME_MAX_SQS + 1), 1);
	set32(&g, NVME_BAR_BYTES - 4, 1);
	CHECK(get32(&g, NVME_CSTS) == NVME_CSTS_RDY, "CSTS %x", get32(&g, NVME_CSTS));
	guest_exit(&g);
}

static void check_entry(struct guest *g, u32 count, u16 status, const char *what)
{
	struct nvme_error_entry entry = read_errors(g);

	CHECK(entry.count == count, "%s: %u entries, not %u", what, (u32)entry.count, count);
	CHECK(entry.status >> 1 == status, "%s: status %x", what, entry.status >> 1);
	CHECK(entry.sq_id == 0xffff && entry.cid == 0xffff && entry.parameter == 0xffff,
	      "%s: of command %x of queue %x", what, entry.cid, entry.sq_id);
	CHECK(!entry.nsid && !entry.lba, "%s: of a namespace", what);
}

/* Told of by an event or not: each is an entry that is of no command. */
static void test_doorbells_are_logged(void)
{
	struct nvme_sqe sqe = { .opcode = NVME_ADMIN_DOORBELL_BUFFER };
	struct guest g;
	u64 buffer;
	u32 *doorbells, i;

	guest_init(&g);
	guest_start(&g, 16);
	set32(&g, NVME_DOORBELLS + 8 * 7, 1);
	check_entry(&g, 1, NVME_INVALID_QUEUE_ID, "a tail without a queue");
	set32(&g, NVME_DOORBELLS + 8 * 7 + 4, 1);
	check_entry(&g, 2, NVME_INVALID_QUEUE_ID, "a head without a queue");
	set32(&g, NVME_DOORBELLS + 8, 16);
	check_entry(&g, 3, NVME_INVALID_FIELD, "a tail beyond the queue");
	set32(&g, NVME_DOORBELLS + 12, 1);
	check_entry(&g, 4, NVME_INVALID_FIELD, "a head beyond what was posted");
	for (i = 0; i < 70; i++)
		set32(&g, NVME_DOORBELLS + 8, 16);
	check_entry(&g, 74, NVME_INVALID_FIELD, "70 at a time");

	sqe.prp[0] = guest_alloc(&g, PAGE);
	sqe.prp[1] = guest_alloc(&g, PAGE);
	buffer = guest_alloc(&g, PAGE);
	CHECK(!admin_status(&g, sqe), "Doorbell Buffer Config");
	doorbells = at(&g, sqe.prp[0]);
	for (i = 0; i < 3; i++) {
		doorbells[2] = 99;
		nvme_run(g.nvme, g.now);
		nvme_run(g.nvme, g.now);
		check_entry(&g, 75 + i, NVME_INVALID_FIELD, "a tail in memory, looked at twice");
		doorbells[2] = 0;
		nvme_run(g.nvme, g.now);
	}
	/* The queue is full, and the head in memory is where nothing was posted. */
	doorbells[3] = 0;
	for (i = 0; i < 18; i++) {
		guest_put(&g, 1, io(NVME_READ, i, 1, buffer, 0));
		doorbells[2] = g.sqs[1].tail;
		nvme_run(g.nvme, g.now);
		guest_run(&g, SSD_NEVER);
		doorbells[3] = i < 14 ? 0 : 99;
	}
	check_entry(&g, 78, NVME_INVALID_FIELD, "a head in memory");
	guest_exit(&g);
}

static void test_admin_queues_without_memory(void)
{
	const u64 end = MEMORY_BASE + MEMORY_BYTES;
	const struct {
		u64 asq, acq;
		u32 aqa, csts;
	} queues[] = {
		{ 0xdead0000, MEMORY_BASE, 31 << 16 | 31, NVME_CSTS_CFS },
		{ MEMORY_BASE, 0xdead0000, 31 << 16 | 31, NVME_CSTS_CFS },
		{ ~0ull << 12, MEMORY_BASE, 31 << 16 | 127, NVME_CSTS_CFS },
		/* The last page of memory, and one entry more than that. */
		{ end - PAGE, MEMORY_BASE, 31 << 16 | 63, NVME_CSTS_RDY },
		{ end - PAGE, MEMORY_BASE, 31 << 16 | 64, NVME_CSTS_CFS },
		{ MEMORY_BASE, end - PAGE, 255 << 16 | 31, NVME_CSTS_RDY },
		{ MEMORY_BASE, end - PAGE, 256 << 16 | 31, NVME_CSTS_CFS },
		/* In two mappings. */
		{ MEMORY_BASE + PIECE - PAGE, MEMORY_BASE, 31 << 16 | 127, NVME_CSTS_RDY },
	};
	struct guest g;
	u32 i, csts;

	guest_init(&g);
	guest_power_on(&g);
	for (i = 0; i < ARRAY_SIZE(queues); i++) {
		set32(&g, NVME_AQA, queues[i].aqa);
		set64(&g, NVME_ASQ, queues[i].asq);
		set64(&g, NVME_ACQ, queues[i].acq);
		set32(&g, NVME_CC, CC_ENABLE);
		csts = get32(&g, NVME_CSTS);
		CHECK(csts == queues[i].csts, "%u: CSTS %x", i, csts);
		set32(&g, NVME_CC, 0);
	}
	guest_exit(&g);
}

/* A queue in memory that is not there is fatal, and ends with the reset. */
static void test_queue_without_memory(void)
{
	struct guest g;

	guest_init(&g);
	guest_start(&g, 16);
	CHECK(!admin_status(&g, (struct nvme_sqe){ .opcode = NVME_ADMIN_CREATE_SQ,
						   .prp = { 0xdead0000 },
						   .cdw10 = 15 << 16 | 2,
						   .cdw11 = 1 << 16 | 1 }),
	      "no queue");
	set32(&g, NVME_DOORBELLS + 8 * 2, 1);
	CHECK(get32(&g, NVME_CSTS) & NVME_CSTS_CFS, "CSTS %x", get32(&g, NVME_CSTS));
	set32(&g, NVME_CC, 0);
	guest_enable(&g, CC_ENABLE);
	CHECK(get32(&g, NVME_CSTS) == NVME_CSTS_RDY, "CSTS %x", get32(&g, NVME_CSTS));
	guest_exit(&g);
}

static void fill(struct guest *g, u32 n)
{
	u64 buffer = guest_alloc(g, PAGE);
	u32 i;

	for (i = 0; i < n; i++)
		guest_put(g, 1, io(i % 3 ? NVME_READ : NVME_WRITE, i * 8, 8, buffer, 0));
	guest_ring(g, 1);
}

/* Over and over, with commands at every stage. */
static void test_reset_under_load(void)
{
	struct nvme_cqe cqe;
	struct guest g;
	u64 free, touched;
	u32 i;

	guest_init(&g);
	guest_small_drive(&g);
	guest_power_on(&g);
	free = g.free;
	for (i = 0; i < 50; i++) {
		g.free = free;
		guest_enable(&g, CC_ENABLE | (i % 2 ? CC_WRR : 0));
		CHECK(!guest_create_cq(&g, 1, 1024, 1), "no completion queue");
		CHECK(!guest_create_sq(&g, 1, 1024, 1, i % 4), "no submission queue");
		fill(&g, 1000);
		guest_run(&g, g.now + guest_random(&g) % NSEC_PER_MSEC);
		if (i % 3 == 2)
			nvme_reset(g.nvme);
		else
			set32(&g, NVME_CC, 0);
		touched = g.touched;
		guest_run(&g, g.now + NSEC_PER_SEC);
		CHECK(g.touched == touched, "memory was touched after a reset");
		CHECK(nvme_next_ns(g.nvme) == SSD_NEVER, "something is left to do");
	}
	g.free = free;
	guest_enable(&g, CC_ENABLE);
	guest_create_cq(&g, 1, 1024, 1);
	guest_create_sq(&g, 1, 1024, 1, 0);
	fill(&g, 1000);
	guest_run(&g, SSD_NEVER);
	for (i = 0; guest_reap(&g, 1, &cqe, true); i++)
		CHECK(!status_of(&cqe), "status %x", status_of(&cqe));
	CHECK(i == 1000, "%u of 1000 complete after the resets", i);
	guest_exit(&g);
}

static void test_shutdown(void)
{
	struct nvme_cqe cqe;
	struct guest g;
	u32 i;

	guest_init(&g);
	guest_start(&g, 512);
	fill(&g, 500);
	set32(&g, NVME_CC, CC_ENABLE | 1 << 14);
	CHECK(get32(&g, NVME_CSTS) == (NVME_CSTS_RDY | NVME_CSTS_SHST_DONE), "CSTS %x",
	      get32(&g, NVME_CSTS));
	for (i = 0; guest_reap(&g, 1, &cqe, true); i++)
		CHECK(!status_of(&cqe), "status %x", status_of(&cqe));
	CHECK(i == 500, "%u of 500 are complete when the shutdown is", i);
	fill(&g, 1);
	guest_run(&g, g.now + NSEC_PER_SEC);
	CHECK(!guest_reap(&g, 1, &cqe, true), "a command was accepted after the shutdown");
	set32(&g, NVME_CC, 0);
	CHECK(!get32(&g, NVME_CSTS), "CSTS %x", get32(&g, NVME_CSTS));
	guest_exit(&g);
}

/* To do all of these would take hours. */
static void test_shutdown_while_deallocating(void)
{
	struct nvme_sqe sqe = { .opcode = NVME_DATASET_MANAGEMENT, .nsid = 1, .cdw10 = 255, .cdw11 = 4 };
	struct nvme_range *ranges;
	struct nvme_cqe cqe;
	struct guest g;
	u32 i;

	guest_init(&g);
	guest_start(&g, 512);
	sqe.prp[0] = guest_alloc(&g, PAGE);
	ranges = at(&g, sqe.prp[0]);
	for (i = 0; i < 256; i++)
		ranges[i] = (struct nvme_range){ .blocks = (u32)(g.config.bytes / NVME_BLOCK) };
	for (i = 0; i < 500; i++)
		guest_put(&g, 1, sqe);
	guest_ring(&g, 1);
	set32(&g, NVME_CC, CC_ENABLE | 1 << 14);
	for (i = 0; guest_reap(&g, 1, &cqe, true); i++)
		CHECK(status_of(&cqe) == NVME_ABORTED, "status %x", status_of(&cqe));
	CHECK(i == 500, "%u of 500 are complete when the shutdown is", i);
	guest_exit(&g);
}

static void test_shutdown_while_disabled(void)
{
	const struct nvme_sqe get = { .opcode = NVME_ADMIN_GET_FEATURES,
				      .cdw10 = NVME_FEATURE_ARBITRATION };
	struct guest g;

	guest_init(&g);
	guest_power_on(&g);
	set32(&g, NVME_CC, 1 << 14);
	CHECK(get32(&g, NVME_CSTS) == NVME_CSTS_SHST_DONE, "CSTS %x", get32(&g, NVME_CSTS));
	guest_enable(&g, CC_ENABLE);
	CHECK(get32(&g, NVME_CSTS) == NVME_CSTS_RDY, "CSTS %x", get32(&g, NVME_CSTS));
	CHECK(!admin_status(&g, get), "no commands");
	set32(&g, NVME_CC, 0);
	set32(&g, NVME_CC, 2 << 14);
	set32(&g, NVME_CC, CC_ENABLE | 1 << 4);
	CHECK(get32(&g, NVME_CSTS) == NVME_CSTS_CFS, "CSTS %x", get32(&g, NVME_CSTS));
	/* Both in one: it is enabled, and then shut down. */
	set32(&g, NVME_CC, 0);
	set32(&g, NVME_CC, CC_ENABLE | 1 << 14);
	CHECK(get32(&g, NVME_CSTS) == (NVME_CSTS_RDY | NVME_CSTS_SHST_DONE), "CSTS %x",
	      get32(&g, NVME_CSTS));
	guest_exit(&g);
}

int main(int argc, char **argv)
{
	static const struct test tests[] = {
		{ "CAP says what the profile's drive can do", test_capabilities },
		{ "it is ready when enabled, and resets", test_enabling },
		{ "what cannot be enabled is fatal until a reset", test_bad_configurations },
		{ "accesses of any size and place are harmless", test_odd_accesses },
		{ "a wrong doorbell is an event", test_doorbells },
		{ "a wrong doorbell is in the error log, without a command",
		  test_doorbells_are_logged },
		{ "without memory for all of its admin queues it cannot be enabled",
		  test_admin_queues_without_memory },
		{ "a queue without memory is fatal until a reset", test_queue_without_memory },
		{ "a reset ends all commands at once, whatever they wait for",
		  test_reset_under_load },
		{ "a shutdown completes what was accepted", test_shutdown },
		{ "a shutdown does not wait for thousands of deallocations",
		  test_shutdown_while_deallocating },
		{ "a shutdown while disabled lasts until it is enabled",
		  test_shutdown_while_disabled },
		{ NULL, NULL },
	};

	return run_tests(tests, argc, argv);
}
