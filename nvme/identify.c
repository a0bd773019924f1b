// SPDX-License-Identifier: GPL-2.0-only OR MIT
/* What the controller says of itself: Identify, and log pages. */
#include <stdio.h>

#include "internal.h"

enum { CNS_NAMESPACE = 0, CNS_CONTROLLER = 1, CNS_ACTIVE_NAMESPACES = 2, CNS_DESCRIPTORS = 3 };

/* Bytes of the structures, by the specification's offsets. */
static void put16(u8 *data, u32 offset, u16 value)
{
	memcpy(data + offset, &value, sizeof(value));
}

static void put32(u8 *data, u32 offset, u32 value)
{
	memcpy(data + offset, &value, sizeof(value));
}

static void put64(u8 *data, u32 offset, u64 value)
{
	memcpy(data + offset, &value, sizeof(value));
}

/* ASCII, filled up with spaces. */
static void put_text(u8 *data, u32 offset, u32 bytes, const char *text)
{
	size_t length = strlen(text);

	memset(data + offset, ' ', bytes);
	memcpy(data + offset, text, length < bytes ? length : bytes);
}

static void subsystem_name(const struct nvme *nvme, char *name, size_t bytes)
{
	const u8 *u = nvme->config.uuid;

	snprintf(name, bytes,
		 "nqn.2014-08.org.nvmexpress:uuid:"
		 "%02x%02x%02x%02x-%02x%02x-%02x%02x-%02x%02x-%02x%02x%02x%02x%02x%02x",
		 u[0], u[1], u[2], u[3], u[4], u[5], u[6], u[7], u[8], u[9], u[10], u[11], u[12],
		 u[13], u[14], u[15]);
}

static void identify_controller(const struct nvme *nvme, u8 *d)
{
	put16(d, 0, NVME_PCI_VENDOR);
	put16(d, 2, NVME_PCI_VENDOR);
	put_text(d, 4, 20, nvme->config.serial);
	put_text(d, 24, 40, nvme->config.model);
	put_text(d, 64, 8, "1");
	d[72] = (u8)min_t(u32, (u32)fls64(nvme->config.profile.burst) - 1, 7); /* RAB */
	d[77] = 8; /* MDTS: NVME_MAX_TRANSFER is 2^8 pages of 4 KiB */
	put16(d, 78, 1); /* CNTLID */
	put32(d, 80, 0x00010400); /* VER */
	d[111] = 1; /* CNTRLTYPE: I/O */
	put16(d, 256, 1 << 8); /* OACS: Doorbell Buffer Config */
	d[258] = NVME_ABORTS - 1;
	d[259] = NVME_ASYNC_EVENTS - 1;
	d[260] = 1 << 1 | 1; /* FRMW: one slot, read only */
	d[261] = 1 << 2 | 1 << 1; /* LPA: offsets; commands supported and effects */
	d[262] = NVME_ERRORS - 1;
	put16(d, 266, 343); /* WCTEMP, K */
	put16(d, 268, 353); /* CCTEMP */
	d[512] = NVME_SQ_SHIFT << 4 | NVME_SQ_SHIFT;
	d[513] = NVME_CQ_SHIFT << 4 | NVME_CQ_SHIFT;
	put32(d, 516, 1); /* NN */
	put16(d, 520, 1 << 3 | 1 << 2); /* ONCS: Write Zeroes, Dataset Management */
	/* VWC: a flush may be for all namespaces. */
	d[525] = 3 << 1 | (nvme->config.profile.buffer_volatile ? 1 : 0);
	put32(d, 536, 1); /* SGLS: any alignment */
	subsystem_name(nvme, (char *)d + 768, 256);
	put16(d, 2048, 2500); /* power state 0: at most 25 W, a guess */
}

static void identify_namespace(const struct nvme *nvme, u8 *d)
{
	u64 blocks = nvme->config.bytes / NVME_BLOCK;

	put64(d, 0, blocks); /* NSZE */
	put64(d, 8, blocks); /* NCAP */
	put64(d, 16, blocks); /* NUSE */
	d[33] = 1 << 3 | 1; /* DLFEAT: what is deallocated reads as zeroes, also by Write Zeroes */
	d[128 + 2] = 9; /* LBAF0: log2 of NVME_BLOCK */
}

static void identify_descriptors(const struct nvme *nvme, u8 *d)
{
	d[0] = 3; /* a UUID, of 16 bytes */
	d[1] = 16;
	memcpy(d + 4, nvme->config.uuid, 16);
}

u16 nvme_identify(struct nvme *nvme, const struct nvme_sqe *sqe, u8 *data)
{
	switch (sqe->cdw10 & 0xff) {
	case CNS_CONTROLLER:
		identify_controller(nvme, data);
		return NVME_SUCCESS;
	case CNS_ACTIVE_NAMESPACES:
		if (sqe->nsid >= 0xfffffffe)
			return NVME_INVALID_NAMESPACE;
		if (!sqe->nsid)
			put32(data, 0, 1);
		return NVME_SUCCESS;
	case CNS_NAMESPACE:
	case CNS_DESCRIPTORS:
		if (sqe->nsid != 1)
			return NVME_INVALID_NAMESPACE;
		if ((sqe->cdw10 & 0xff) == CNS_NAMESPACE)
			identify_namespace(nvme, data);
		else
			identify_descriptors(nvme, data);
		return NVME_SUCCESS;
	default:
		return NVME_INVALID_FIELD;
	}
}

/* ---- Log pages ------------------------------------------------------------ */

static u32 error_log(const struct nvme *nvme, u8 *d)
{
	u64 n = nvme->nr_errors;
	u32 i;

	for (i = 0; i < NVME_ERRORS && n; i++, n--)
		memcpy(d + i * sizeof(nvme->errors[0]), &nvme->errors[n % NVME_ERRORS],
		       sizeof(nvme->errors[0]));
	return sizeof(nvme->errors);
}

static u32 smart_log(const struct nvme *nvme, u8 *d)
{
	const struct features *f = &nvme->features;
	u64 busy = nvme->busy_ns + (nvme->in_model ? nvme->now - nvme->busy_since : 0);
	const u64 minute = 60 * NSEC_PER_SEC, unit = 1000; /* of 512 bytes */

	if (NVME_TEMPERATURE >= f->over || NVME_TEMPERATURE <= f->under)
		d[0] = 1 << 1; /* critical warning: temperature */
	put16(d, 1, NVME_TEMPERATURE);
	d[3] = 100; /* spare left, % */
	d[4] = 10; /* its threshold */
	put64(d, 32, (nvme->read_blocks + unit - 1) / unit);
	put64(d, 48, (nvme->written_blocks + unit - 1) / unit);
	put64(d, 64, nvme->reads);
	put64(d, 80, nvme->writes);
	put64(d, 96, busy / minute);
	put64(d, 112, 1); /* power cycles */
	put64(d, 128, nvme->now / (60 * minute));
	put64(d, 160, nvme->media_errors);
	put64(d, 176, nvme->nr_errors);
	return 512;
}

static u32 firmware_log(u8 *d)
{
	d[0] = 1; /* slot 1 is in use */
	put_text(d, 8, 8, "1");
	return 512;
}

static u32 commands_log(u8 *d)
{
	static const u8 admin[] = {
		NVME_ADMIN_DELETE_SQ,	NVME_ADMIN_CREATE_SQ,	    NVME_ADMIN_GET_LOG_PAGE,
		NVME_ADMIN_DELETE_CQ,	NVME_ADMIN_CREATE_CQ,	    NVME_ADMIN_IDENTIFY,
		NVME_ADMIN_ABORT,	NVME_ADMIN_SET_FEATURES,    NVME_ADMIN_GET_FEATURES,
		NVME_ADMIN_ASYNC_EVENT, NVME_ADMIN_DOORBELL_BUFFER,
	};
	static const u8 io[] = { NVME_FLUSH, NVME_READ };
	static const u8 change_data[] = { NVME_WRITE, NVME_WRITE_ZEROES, NVME_DATASET_MANAGEMENT };
	u32 i;

	for (i = 0; i < sizeof(admin); i++)
		put32(d, 4 * admin[i], 1); /* supported */
	for (i = 0; i < sizeof(io); i++)
		put32(d, 1024 + 4 * io[i], 1);
	for (i = 0; i < sizeof(change_data); i++)
		put32(d, 1024 + 4 * change_data[i], 1 << 1 | 1);
	return 4096;
}

u32 nvme_log_page(struct nvme *nvme, u8 id, u8 *data)
{
	switch (id) {
	case NVME_LOG_ERROR:
		return error_log(nvme, data);
	case NVME_LOG_SMART:
		return smart_log(nvme, data);
	case NVME_LOG_FIRMWARE:
		return firmware_log(data);
	case NVME_LOG_COMMANDS:
		return commands_log(data);
	default:
		return 0;
	}
}
