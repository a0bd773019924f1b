// SPDX-License-Identifier: GPL-2.0-only OR MIT
/* The table of a drive's numbers, and what must hold between them. */
#include "profile.h"
#include "ftl.h"

const struct ssd_profile_field ssd_profile_fields[] = {
#define SSD_PROFILE_ROW(n, u, lo, hi, d, h)                                                        \
	{ .name = #n,                                                                              \
	  .unit = u,                                                                               \
	  .help = h,                                                                               \
	  .offset = offsetof(struct ssd_profile, n),                                               \
	  .min = lo,                                                                               \
	  .max = hi,                                                                               \
	  .def = d },
	SSD_PROFILE(SSD_PROFILE_ROW)
#undef SSD_PROFILE_ROW
	{ .name = NULL },
};

void ssd_profile_init(struct ssd_profile *p)
{
	const struct ssd_profile_field *f;

	for (f = ssd_profile_fields; f->name; f++)
		*ssd_profile_value(p, f) = f->def;
}

static const struct ssd_profile_field *field_at(size_t offset)
{
	const struct ssd_profile_field *f = ssd_profile_fields;

	while (f->offset != offset)
		f++;
	return f;
}

static bool power_of_two(u64 x)
{
	return x && !(x & (x - 1));
}

const char *ssd_profile_check(const struct ssd_profile *p, const struct ssd_profile_field **field)
{
	const struct ssd_profile_field *f;

	for (f = ssd_profile_fields; f->name; f++) {
		u64 value = *ssd_profile_value((struct ssd_profile *)p, f);

		*field = f;
		if (value < f->min || value > f->max)
			return "is out of its range";
	}
#define REQUIRE(name, cond, why)                                                                   \
	do {                                                                                       \
		*field = field_at(offsetof(struct ssd_profile, name));                             \
		if (!(cond))                                                                       \
			return why;                                                                \
	} while (0)
	REQUIRE(planes, power_of_two(p->planes), "must be a power of two");
	REQUIRE(page, power_of_two(p->page), "must be a power of two");
	REQUIRE(unit, power_of_two(p->unit), "must be a power of two");
	REQUIRE(unit, p->unit <= p->planes * p->page, "must not be larger than planes pages");
	REQUIRE(block_pages, power_of_two(p->block_pages), "must be a power of two");
	REQUIRE(buffer, p->buffer >= 2 * p->planes * p->page,
		"must hold at least two pages for each plane of a die");
	if (!p->map)
		return NULL;
	REQUIRE(map, power_of_two(p->map), "must be a power of two, or 0");
	REQUIRE(map, p->map <= p->size, "must not be larger than the drive");
	REQUIRE(map, ftl_fits(p),
		"leaves a die too few spare blocks (enlarge map or spare, or make blocks smaller), has more "
		"than 65536 blocks on a die, 2^20 units in a block, or 2^31 units in all");
#undef REQUIRE
	return NULL;
}
