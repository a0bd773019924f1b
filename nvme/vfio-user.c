// SPDX-License-Identifier: GPL-2.0-only OR MIT
#include <errno.h>
#include <fcntl.h>
#include <linux/vfio.h>
#include <poll.h>
#include <stdio.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include "vfio-user.h"

#define PAGE 4096u

enum {
	VERSION = 1,
	DMA_MAP = 2,
	DMA_UNMAP = 3,
	DEVICE_GET_INFO = 4,
	DEVICE_GET_REGION_INFO = 5,
	DEVICE_GET_IRQ_INFO = 7,
	DEVICE_SET_IRQS = 8,
	REGION_READ = 9,
	REGION_WRITE = 10,
	DEVICE_RESET = 13,
};

#define TYPE_MASK 0xfu
#define TYPE_REPLY 1u
#define NO_REPLY (1u << 4)
#define ERROR (1u << 5)

struct header {
	u16 id, command;
	u32 size, flags, error;
};
_Static_assert(sizeof(struct header) == VFIO_USER_HEADER, "a message's header");

struct version {
	u16 major, minor;
};

struct dma {
	u32 argsz, flags;
	u64 offset, address, size;
};
#define DMA_WRITEABLE 2u

struct undma {
	u32 argsz, flags;
	u64 address, size;
};
#define UNMAP_ALL 2u

struct device_info {
	u32 argsz, flags, regions, irqs;
};

struct region_info {
	u32 argsz, flags, index, cap_offset;
	u64 size, offset;
};

struct irq_info {
	u32 argsz, flags, index, count;
};

struct irq_set {
	u32 argsz, flags, index, start, count;
};

struct access {
	u64 offset;
	u32 region, count;
};

/* A message that is being answered. */
struct call {
	struct vfio_user *vu;
	const u8 *data; /* after the header */
	u32 size; /* of that */
	int *fds;
	u32 nr_fds;
	u64 now;
	u8 *reply; /* after the header */
	u32 reply_size;
};

static const char capabilities[] =
	"{\"capabilities\":{\"max_msg_fds\":16,\"max_data_xfer_size\":65536,"
	"\"max_dma_maps\":1024,\"pgsizes\":4096}}";
_Static_assert(VFIO_USER_MAX_FDS == 16 && VFIO_USER_MAX_DATA == 65536 && VFIO_USER_MAX_MAPS == 1024,
	       "as capabilities says");

/* ---- The guest's memory --------------------------------------------------- */

static bool inside(const struct vfio_user_map *map, u64 address)
{
	return address >= map->address && address - map->address < map->bytes;
}

static void *dma(void *ctx, u64 address, u64 *bytes, bool write)
{
	struct vfio_user *vu = ctx;
	const struct vfio_user_map *map;
	u32 i = vu->last_map;

	if (i >= vu->nr_maps || !inside(&vu->maps[i], address))
		for (i = 0; i < vu->nr_maps && !inside(&vu->maps[i], address); i++)
			;
	if (i == vu->nr_maps)
		return NULL;
	vu->last_map = i;
	map = &vu->maps[i];
	if (!map->memory || (write && !map->writable))
		return NULL;
	*bytes = min_t(u64, *bytes, map->bytes - (address - map->address));
	return map->memory + (address - map->address);
}

static void interrupt(void *ctx, unsigned int vector)
{
	struct vfio_user *vu = ctx;
	struct pollfd irq = { .fd = vu->irqs[vector], .events = POLLOUT };
	u64 one = 1;

	/* The client may have made it one that blocks, and filled it. Then nobody looks at what is in it anyway. */
	if (irq.fd >= 0 && poll(&irq, 1, 0) == 1 && irq.revents & POLLOUT &&
	    write(irq.fd, &one, sizeof(one)) < 0)
		return;
}

struct nvme_host vfio_user_host(struct vfio_user *vu)
{
	return (struct nvme_host){ .dma = dma, .interrupt = interrupt, .ctx = vu };
}

/* Only what is a file, and as long as is said: a mapping beyond its end would be of no use. */
static int map_file(struct vfio_user_map *map, int fd, u64 offset)
{
	int protection = PROT_READ | (map->writable ? PROT_WRITE : 0);
	struct stat stat;
	void *memory;

	if (fstat(fd, &stat))
		return errno;
	if (!S_ISREG(stat.st_mode) || (u64)stat.st_size < offset ||
	    (u64)stat.st_size - offset < map->bytes)
		return EINVAL;
	memory = mmap(NULL, map->bytes, protection, MAP_SHARED | MAP_NORESERVE, fd, (off_t)offset);
	if (memory == MAP_FAILED)
		return errno;
	map->memory = memory;
	return 0;
}

static int dma_map(struct call *call)
{
	struct vfio_user *vu = call->vu;
	struct vfio_user_map *map;
	struct dma d;
	u32 i;
	int error;

	if (call->size != sizeof(d) || call->nr_fds > 1)
		return EINVAL;
	memcpy(&d, call->data, sizeof(d));
	if (!d.size || d.address + d.size - 1 < d.address ||
	    (d.address | d.size | d.offset) % PAGE || d.size > SIZE_MAX / 2 ||
	    d.offset > INT64_MAX / 2)
		return EINVAL;
	for (i = 0; i < vu->nr_maps; i++) {
		map = &vu->maps[i];
		if (d.address <= map->address + (map->bytes - 1) &&
		    map->address <= d.address + (d.size - 1))
			return EEXIST;
	}
	if (vu->nr_maps == VFIO_USER_MAX_MAPS)
		return ENOSPC;
	map = &vu->maps[vu->nr_maps];
	*map = (struct vfio_user_map){
		.address = d.address,
		.bytes = d.size,
		.writable = d.flags & DMA_WRITEABLE,
	};
	error = call->nr_fds ? map_file(map, call->fds[0], d.offset) : 0;
	if (!error)
		vu->nr_maps++;
	return error;
}

static void unmap(struct vfio_user *vu, u32 i)
{
	struct vfio_user_map *map = &vu->maps[i];

	if (map->memory)
		munmap(map->memory, map->bytes);
	*map = vu->maps[--vu->nr_maps];
}

static int dma_unmap(struct call *call)
{
	struct vfio_user *vu = call->vu;
	struct undma d;
	u32 i;

	if (call->size < sizeof(d))
		return EINVAL;
	memcpy(&d, call->data, sizeof(d));
	if (d.flags & ~UNMAP_ALL)
		return ENOTSUP;
	if (d.flags & UNMAP_ALL) {
		while (vu->nr_maps)
			unmap(vu, 0);
	} else {
		for (i = 0; i < vu->nr_maps; i++)
			if (vu->maps[i].address == d.address && vu->maps[i].bytes == d.size)
				break;
		if (i == vu->nr_maps)
			return ENOENT;
		unmap(vu, i);
	}
	memcpy(call->reply, &d, sizeof(d));
	call->reply_size = sizeof(d);
	return 0;
}

/* ---- The device ----------------------------------------------------------- */

static int get_info(struct call *call)
{
	const struct device_info info = {
		.argsz = sizeof(info),
		.flags = VFIO_DEVICE_FLAGS_PCI | VFIO_DEVICE_FLAGS_RESET,
		.regions = VFIO_PCI_NUM_REGIONS,
		.irqs = VFIO_PCI_NUM_IRQS,
	};

	memcpy(call->reply, &info, sizeof(info));
	call->reply_size = sizeof(info);
	return 0;
}

/* Bytes of a region, 0: there is none of that number. */
static u32 region_bytes(u32 index)
{
	switch (index) {
	case VFIO_PCI_BAR0_REGION_INDEX:
		return NVME_BAR_BYTES;
	case VFIO_PCI_BAR0_REGION_INDEX + PCI_MSIX_BAR:
		return PCI_MSIX_BAR_BYTES;
	case VFIO_PCI_CONFIG_REGION_INDEX:
		return PCI_CONFIG_BYTES;
	default:
		return 0;
	}
}

static int get_region_info(struct call *call)
{
	struct region_info info;

	if (call->size < sizeof(info))
		return EINVAL;
	memcpy(&info, call->data, sizeof(info));
	if (info.index >= VFIO_PCI_NUM_REGIONS)
		return EINVAL;
	info = (struct region_info){
		.argsz = sizeof(info),
		.index = info.index,
		.size = region_bytes(info.index),
	};
	if (info.size)
		info.flags = VFIO_REGION_INFO_FLAG_READ | VFIO_REGION_INFO_FLAG_WRITE;
	memcpy(call->reply, &info, sizeof(info));
	call->reply_size = sizeof(info);
	return 0;
}

static int get_irq_info(struct call *call)
{
	struct irq_info info;

	if (call->size < sizeof(info))
		return EINVAL;
	memcpy(&info, call->data, sizeof(info));
	if (info.index >= VFIO_PCI_NUM_IRQS)
		return EINVAL;
	info = (struct irq_info){ .argsz = sizeof(info), .index = info.index };
	if (info.index == VFIO_PCI_MSIX_IRQ_INDEX) {
		info.flags = VFIO_IRQ_INFO_EVENTFD;
		info.count = NVME_VECTORS;
	}
	memcpy(call->reply, &info, sizeof(info));
	call->reply_size = sizeof(info);
	return 0;
}

static void set_irq(struct vfio_user *vu, u32 vector, int fd)
{
	if (vu->irqs[vector] >= 0)
		close(vu->irqs[vector]);
	vu->irqs[vector] = fd;
}

/* Other files could have us wait, or do what nobody meant. */
static bool make_irq(int fd)
{
	char path[64], target[32];
	ssize_t length;
	int flags;

	snprintf(path, sizeof(path), "/proc/self/fd/%d", fd);
	length = readlink(path, target, sizeof(target) - 1);
	if (length < 0)
		return false;
	target[length] = '\0';
	if (strcmp(target, "anon_inode:[eventfd]"))
		return false;
	flags = fcntl(fd, F_GETFL);
	return flags >= 0 && !fcntl(fd, F_SETFL, flags | O_NONBLOCK);
}

static int set_irqs(struct call *call)
{
	struct vfio_user *vu = call->vu;
	struct irq_set set;
	u32 i;

	if (call->size < sizeof(set))
		return EINVAL;
	memcpy(&set, call->data, sizeof(set));
	if (set.index != VFIO_PCI_MSIX_IRQ_INDEX)
		return set.index < VFIO_PCI_NUM_IRQS && !set.count ? 0 : EINVAL;
	if (set.start > NVME_VECTORS || set.count > NVME_VECTORS - set.start)
		return EINVAL;
	switch (set.flags) {
	case VFIO_IRQ_SET_DATA_NONE | VFIO_IRQ_SET_ACTION_TRIGGER:
		if (!set.count)
			for (i = 0; i < NVME_VECTORS; i++)
				set_irq(vu, i, -1);
		for (i = 0; i < set.count; i++)
			interrupt(vu, set.start + i);
		return 0;
	case VFIO_IRQ_SET_DATA_EVENTFD | VFIO_IRQ_SET_ACTION_TRIGGER:
		if (call->nr_fds && call->nr_fds != set.count)
			return EINVAL;
		for (i = 0; i < call->nr_fds; i++)
			if (!make_irq(call->fds[i]))
				return EINVAL;
		for (i = 0; i < set.count; i++) {
			set_irq(vu, set.start + i, call->nr_fds ? call->fds[i] : -1);
			if (call->nr_fds)
				call->fds[i] = -1;
		}
		return 0;
	default:
		return EINVAL;
	}
}

static void reset(struct vfio_user *vu)
{
	nvme_reset(vu->nvme);
	pci_init(&vu->pci);
	memset(vu->msix_table, 0, sizeof(vu->msix_table));
}

static void read_msix(const struct vfio_user *vu, u64 offset, u8 *data, u32 bytes)
{
	u32 i;

	for (i = 0; i < bytes; i++)
		data[i] = offset + i < sizeof(vu->msix_table) ? vu->msix_table[offset + i] : 0;
}

static void write_msix(struct vfio_user *vu, u64 offset, const u8 *data, u32 bytes)
{
	u32 i;

	for (i = 0; i < bytes && offset + i < sizeof(vu->msix_table); i++)
		vu->msix_table[offset + i] = data[i];
}

/* @has: bytes that came with it. */
static int check_access(const struct access *a, u32 has)
{
	u32 bytes = region_bytes(a->region);

	if (a->count > VFIO_USER_MAX_DATA || has != (u64)a->count || a->offset > bytes ||
	    a->count > bytes - a->offset)
		return EINVAL;
	return 0;
}

static int region_read(struct call *call)
{
	struct vfio_user *vu = call->vu;
	u8 *data = call->reply + sizeof(struct access);
	struct access a;

	if (call->size != sizeof(a))
		return EINVAL;
	memcpy(&a, call->data, sizeof(a));
	if (check_access(&a, a.count))
		return EINVAL;
	if (a.region == VFIO_PCI_CONFIG_REGION_INDEX)
		memcpy(data, vu->pci.config + a.offset, a.count);
	else if (a.region == VFIO_PCI_BAR0_REGION_INDEX)
		nvme_read(vu->nvme, a.offset, data, a.count);
	else
		read_msix(vu, a.offset, data, a.count);
	memcpy(call->reply, &a, sizeof(a));
	call->reply_size = (u32)sizeof(a) + a.count;
	return 0;
}

static int region_write(struct call *call)
{
	struct vfio_user *vu = call->vu;
	const u8 *data = call->data + sizeof(struct access);
	struct access a;

	if (call->size < sizeof(a))
		return EINVAL;
	memcpy(&a, call->data, sizeof(a));
	if (check_access(&a, call->size - (u32)sizeof(a)))
		return EINVAL;
	if (a.region == VFIO_PCI_BAR0_REGION_INDEX)
		nvme_write(vu->nvme, a.offset, data, a.count, call->now);
	else if (a.region != VFIO_PCI_CONFIG_REGION_INDEX)
		write_msix(vu, a.offset, data, a.count);
	else if (pci_write(&vu->pci, (u32)a.offset, data, a.count))
		reset(vu);
	memcpy(call->reply, &a, sizeof(a));
	call->reply_size = sizeof(a);
	return 0;
}

/* ---- Messages ------------------------------------------------------------- */

static int agree(struct call *call)
{
	struct version version;

	if (call->size < sizeof(version))
		return EINVAL;
	memcpy(&version, call->data, sizeof(version));
	if (version.major)
		return ENOTSUP;
	version.minor = min_t(u16, version.minor, 1);
	call->vu->greeted = true;
	memcpy(call->reply, &version, sizeof(version));
	memcpy(call->reply + sizeof(version), capabilities, sizeof(capabilities));
	call->reply_size = sizeof(version) + sizeof(capabilities);
	return 0;
}

static int answer(struct call *call, u16 command)
{
	switch (command) {
	case VERSION:
		return agree(call);
	case DMA_MAP:
		return dma_map(call);
	case DMA_UNMAP:
		return dma_unmap(call);
	case DEVICE_GET_INFO:
		return get_info(call);
	case DEVICE_GET_REGION_INFO:
		return get_region_info(call);
	case DEVICE_GET_IRQ_INFO:
		return get_irq_info(call);
	case DEVICE_SET_IRQS:
		return set_irqs(call);
	case REGION_READ:
		return region_read(call);
	case REGION_WRITE:
		return region_write(call);
	case DEVICE_RESET:
		reset(call->vu);
		return 0;
	default:
		return ENOTSUP;
	}
}

u32 vfio_user_size(const u8 data[VFIO_USER_HEADER])
{
	struct header header;

	memcpy(&header, data, sizeof(header));
	if (header.size < sizeof(header) || header.size > VFIO_USER_MAX_MESSAGE)
		return 0;
	return header.size;
}

int vfio_user_message(struct vfio_user *vu, const u8 *message, u32 size, int *fds, u32 nr_fds,
		      u64 now, u8 *reply)
{
	struct call call = {
		.vu = vu,
		.data = message + sizeof(struct header),
		.size = size - (u32)sizeof(struct header),
		.fds = fds,
		.nr_fds = nr_fds,
		.now = now,
		.reply = reply + sizeof(struct header),
	};
	struct header header;
	int error;

	memcpy(&header, message, sizeof(header));
	/* We ask nothing, so there is nothing to reply to. The version is what comes first, once. */
	if (header.flags & TYPE_MASK || vu->greeted == (header.command == VERSION))
		return -1;
	error = answer(&call, header.command);
	if (!vu->greeted)
		return -1;
	if (header.flags & NO_REPLY)
		return 0;
	header.flags = TYPE_REPLY | (error ? ERROR : 0);
	header.error = (u32)error;
	header.size = (u32)sizeof(header) + (error ? 0 : call.reply_size);
	memcpy(reply, &header, sizeof(header));
	return (int)header.size;
}

void vfio_user_init(struct vfio_user *vu)
{
	u32 i;

	memset(vu, 0, sizeof(*vu));
	for (i = 0; i < NVME_VECTORS; i++)
		vu->irqs[i] = -1;
	pci_init(&vu->pci);
}

void vfio_user_disconnect(struct vfio_user *vu)
{
	u32 i;

	reset(vu);
	while (vu->nr_maps)
		unmap(vu, 0);
	for (i = 0; i < NVME_VECTORS; i++)
		set_irq(vu, i, -1);
	vu->greeted = false;
}
