/* SPDX-License-Identifier: GPL-2.0-only OR MIT */
/*
 * Every number of a drive. SSD_PROFILE is the one list of them: the struct,
 * the table that readers of text use, and the kernel module's parameters are
 * made from it.
 *
 * F(name, unit, min, max, default, help): the value is a whole number of
 * units; the default is that of a small drive without a name, for tests and
 * as the starting point of a new profile. MB is 10^6 bytes.
 */
#ifndef FAIRLANE_SSD_PROFILE_H
#define FAIRLANE_SSD_PROFILE_H

#include "../libfairlane/env.h"

#define SSD_PROFILE(F)                                                                             \
	F(size, "bytes", 1 << 20, 1ull << 50, 64ull << 30,                                         \
	  "size of the drive")                                                                     \
	/* The front: submission queues, controller, link. */                                      \
	F(wrr, "", 0, 1, 1,                                                                        \
	  "1: weighted round robin with urgent class; 0: round robin among all queues")            \
	F(burst, "commands", 1, 65536, 1,                                                          \
	  "arbitration burst: most commands fetched from a queue at a time")                       \
	F(commands, "commands", 1, 65536, 128,                                                     \
	  "most commands that the controller holds, fetched and not completed")                    \
	F(read_command_ns, "ns", 0, 1000000000, 1000,                                              \
	  "time that the controller spends on a read before it can fetch another command")         \
	F(write_command_ns, "ns", 0, 1000000000, 1000,                                             \
	  "the same for a write, a trim or a flush")                                               \
	F(overhead_ns, "ns", 0, 1000000000, 5000,                                                  \
	  "delay of every command by what takes no capacity: firmware, bus, completion")           \
	F(link_read_mbps, "MB/s", 1, 1000000, 3200,                                                \
	  "link, drive to host")                                                                   \
	F(link_write_mbps, "MB/s", 1, 1000000, 3200,                                               \
	  "link, host to drive")                                                                   \
	/* The back: NAND. */                                                                      \
	F(channels, "", 1, 256, 8,                                                                 \
	  "channels")                                                                              \
	F(dies, "dies/channel", 1, 256, 4,                                                         \
	  "dies on each channel")                                                                  \
	F(planes, "pages/die", 1, 16, 2,                                                           \
	  "pages that a die programs together and reads together if it can; a power of two")       \
	F(page, "bytes", 512, 1 << 20, 16384,                                                      \
	  "page of one plane; a power of two")                                                     \
	F(read_ns, "ns", 1, 1000000000, 60000,                                                     \
	  "sensing a page of each plane")                                                          \
	F(program_ns, "ns", 1, 1000000000, 700000,                                                 \
	  "programming a page of each plane")                                                      \
	F(erase_ns, "ns", 1, 10000000000, 3000000,                                                 \
	  "erasing a block of each plane")                                                         \
	F(channel_mbps, "MB/s", 1, 1000000, 400,                                                   \
	  "transfers on one channel")                                                              \
	F(page_reads, "pages", 1, 1 << 20, 1024,                                                   \
	  "most page reads that wait for or use the dies; further ones wait in the controller")    \
	F(reads_per_program, "reads", 1, 1 << 20, 4,                                               \
	  "reads that a die does in a row while a program waits")                                  \
	/* The write buffer. */                                                                    \
	F(buffer, "bytes", 4096, 1ull << 34, 16 << 20,                                             \
	  "write buffer: a write is complete when it is here")                                     \
	F(buffer_volatile, "", 0, 1, 1,                                                            \
	  "1: FUA and flush wait for NAND; 0: capacitors keep the buffer when the power fails")    \
	/* The flash translation layer. */                                                         \
	F(map, "bytes", 0, 1ull << 40, 0,                                                          \
	  "capacity that the map models, a power of two; 0: no map, ever fresh")                   \
	F(unit, "bytes", 512, 1 << 20, 4096,                                                       \
	  "what the map maps: a power of two, at most what a die programs at once")                \
	F(spare, "1/1000", 1, 4000, 70,                                                            \
	  "over-provisioning, of the capacity that the map models")                                \
	F(block_pages, "pages", 2, 65536, 64,                                                      \
	  "pages in a block of one plane; a power of two")                                         \
	F(rewrite, "percent", 0, 10000, 200,                                                       \
	  "preconditioning: random overwrites after the sequential fill, of the map's capacity")

struct ssd_profile {
#define SSD_PROFILE_MEMBER(name, unit, min, max, def, help) u64 name;
	SSD_PROFILE(SSD_PROFILE_MEMBER)
#undef SSD_PROFILE_MEMBER
};

struct ssd_profile_field {
	const char *name, *unit, *help;
	size_t offset; /* of a u64 in struct ssd_profile */
	u64 min, max, def;
};

extern const struct ssd_profile_field ssd_profile_fields[]; /* ends with a NULL name */

static inline u64 *ssd_profile_value(struct ssd_profile *p, const struct ssd_profile_field *f)
{
	return (u64 *)((char *)p + f->offset);
}

/* Set every field to its default. */
void ssd_profile_init(struct ssd_profile *p);

/*
 * NULL when a drive can be made of @p, else a sentence for the user that
 * says what does not fit; *@field is the field at fault.
 */
const char *ssd_profile_check(const struct ssd_profile *p, const struct ssd_profile_field **field);

#endif
