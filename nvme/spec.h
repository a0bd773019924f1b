/* SPDX-License-Identifier: GPL-2.0-only OR MIT */
/*
 * What the NVM Express specification 1.4 fixes: registers, opcodes, status
 * codes, and the layout of what lies in the host's memory. Little-endian, as
 * the machines are that this is built for.
 */
#ifndef FAIRLANE_NVME_SPEC_H
#define FAIRLANE_NVME_SPEC_H

#include "../libfairlane/env.h"

_Static_assert(__BYTE_ORDER__ == __ORDER_LITTLE_ENDIAN__, "all layouts here are little-endian");

/* Registers: offsets in the first BAR. */
enum {
	NVME_CAP = 0x00,
	NVME_VS = 0x08,
	NVME_INTMS = 0x0c,
	NVME_INTMC = 0x10,
	NVME_CC = 0x14,
	NVME_CSTS = 0x1c,
	NVME_NSSR = 0x20,
	NVME_AQA = 0x24,
	NVME_ASQ = 0x28,
	NVME_ACQ = 0x30,
	NVME_DOORBELLS =
		0x1000, /* 4 bytes each: tail of submission queue y, head of completion queue y */
};

#define NVME_CC_EN (1u << 0)
#define NVME_CC_CSS(cc) ((cc) >> 4 & 7)
#define NVME_CC_MPS(cc) ((cc) >> 7 & 15)
#define NVME_CC_AMS(cc) ((cc) >> 11 & 7)
#define NVME_CC_SHN(cc) ((cc) >> 14 & 3)
#define NVME_CC_IOSQES(cc) ((cc) >> 16 & 15)
#define NVME_CC_IOCQES(cc) ((cc) >> 20 & 15)
#define NVME_AMS_RR 0
#define NVME_AMS_WRR 1

#define NVME_CSTS_RDY (1u << 0)
#define NVME_CSTS_CFS (1u << 1)
#define NVME_CSTS_SHST_DONE (2u << 2)
#define NVME_CSTS_SHST (3u << 2)

#define NVME_SQ_SHIFT 6 /* log2 of the bytes of an entry */
#define NVME_CQ_SHIFT 4

enum {
	NVME_ADMIN_DELETE_SQ = 0x00,
	NVME_ADMIN_CREATE_SQ = 0x01,
	NVME_ADMIN_GET_LOG_PAGE = 0x02,
	NVME_ADMIN_DELETE_CQ = 0x04,
	NVME_ADMIN_CREATE_CQ = 0x05,
	NVME_ADMIN_IDENTIFY = 0x06,
	NVME_ADMIN_ABORT = 0x08,
	NVME_ADMIN_SET_FEATURES = 0x09,
	NVME_ADMIN_GET_FEATURES = 0x0a,
	NVME_ADMIN_ASYNC_EVENT = 0x0c,
	NVME_ADMIN_DOORBELL_BUFFER = 0x7c,
};

enum {
	NVME_FLUSH = 0x00,
	NVME_WRITE = 0x01,
	NVME_READ = 0x02,
	NVME_WRITE_ZEROES = 0x08,
	NVME_DATASET_MANAGEMENT = 0x09,
};

/* Status: the type in bits 10:8, the code in bits 7:0, as in bits 27:17 of a completion's last word. */
enum {
	NVME_SUCCESS = 0x000,
	NVME_INVALID_OPCODE = 0x001,
	NVME_INVALID_FIELD = 0x002,
	NVME_CID_CONFLICT = 0x003,
	NVME_DATA_TRANSFER_ERROR = 0x004,
	NVME_INTERNAL_ERROR = 0x006,
	NVME_ABORTED = 0x007,
	NVME_ABORTED_SQ_DELETED = 0x008,
	NVME_INVALID_NAMESPACE = 0x00b,
	NVME_COMMAND_SEQUENCE = 0x00c,
	NVME_SGL_INVALID_SEGMENT = 0x00d,
	NVME_SGL_INVALID_COUNT = 0x00e,
	NVME_SGL_INVALID_LENGTH = 0x00f,
	NVME_SGL_INVALID_TYPE = 0x011,
	NVME_PRP_INVALID_OFFSET = 0x013,
	NVME_LBA_OUT_OF_RANGE = 0x080,
	NVME_CQ_INVALID = 0x100,
	NVME_INVALID_QUEUE_ID = 0x101,
	NVME_INVALID_QUEUE_SIZE = 0x102,
	NVME_TOO_MANY_ASYNC_EVENTS = 0x105,
	NVME_INVALID_VECTOR = 0x108,
	NVME_INVALID_LOG_PAGE = 0x109,
	NVME_INVALID_QUEUE_DELETION = 0x10c,
	NVME_FEATURE_NOT_SAVEABLE = 0x10d,
	NVME_FEATURE_NOT_NAMESPACE = 0x10f,
	NVME_WRITE_FAULT = 0x280,
	NVME_READ_ERROR = 0x281,
};
#define NVME_MORE (1u << 13) /* the error log has an entry; as in bit 30 of the last word */
#define NVME_DNR (1u << 14) /* do not retry */

struct nvme_sqe {
	u8 opcode;
	u8 flags; /* 1:0 fused, 7:6 PSDT */
	u16 cid;
	u32 nsid;
	u32 cdw2, cdw3;
	u64 mptr;
	union {
		u64 prp[2];
		u8 sgl[16];
	};
	u32 cdw10, cdw11, cdw12, cdw13, cdw14, cdw15;
};
_Static_assert(sizeof(struct nvme_sqe) == 1 << NVME_SQ_SHIFT, "a submission queue entry");
#define NVME_FUSE(flags) ((flags) & 3)
#define NVME_PSDT(flags) ((flags) >> 6)

struct nvme_cqe {
	u32 result, reserved;
	u16 sq_head, sq_id;
	u16 cid;
	u16 status; /* bit 0: phase; the rest: status << 1 */
};
_Static_assert(sizeof(struct nvme_cqe) == 1 << NVME_CQ_SHIFT, "a completion queue entry");

struct nvme_sgl_descriptor {
	u64 address;
	u32 length;
	u8 reserved[3];
	u8 type; /* 7:4 type, 3:0 subtype */
};
_Static_assert(sizeof(struct nvme_sgl_descriptor) == 16, "an SGL descriptor");
enum { NVME_SGL_DATA = 0, NVME_SGL_SEGMENT = 2, NVME_SGL_LAST_SEGMENT = 3 };

/* A range of Dataset Management. */
struct nvme_range {
	u32 attributes;
	u32 blocks;
	u64 lba;
};

enum {
	NVME_FEATURE_ARBITRATION = 0x01,
	NVME_FEATURE_POWER = 0x02,
	NVME_FEATURE_TEMPERATURE = 0x04,
	NVME_FEATURE_ERROR_RECOVERY = 0x05,
	NVME_FEATURE_WRITE_CACHE = 0x06,
	NVME_FEATURE_QUEUES = 0x07,
	NVME_FEATURE_COALESCING = 0x08,
	NVME_FEATURE_VECTOR = 0x09,
	NVME_FEATURE_ATOMICITY = 0x0a,
	NVME_FEATURE_ASYNC_EVENTS = 0x0b,
};

enum { NVME_LOG_ERROR = 1, NVME_LOG_SMART = 2, NVME_LOG_FIRMWARE = 3, NVME_LOG_COMMANDS = 5 };

struct nvme_error_entry {
	u64 count;
	u16 sq_id, cid;
	u16 status; /* with the phase */
	u16 parameter; /* byte and bit of the command at fault; 0xffff: not known */
	u64 lba;
	u32 nsid;
	u8 vendor, trtype, reserved[2];
	u64 specific;
	u8 reserved2[24];
};
_Static_assert(sizeof(struct nvme_error_entry) == 64, "an entry of the error log");

#endif
