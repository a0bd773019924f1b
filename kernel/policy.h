/* SPDX-License-Identifier: GPL-2.0-only */
/* What the files of fairlane.ko share with each other; device.h is for all modules. */
#ifndef FAIRLANE_POLICY_H
#define FAIRLANE_POLICY_H

#include "device.h"

/* A cgroup, whatever drives it uses. */
struct fl_blkcg {
	struct blkcg_policy_data cpd;
	u32 defaults[FL_NR_SETTINGS]; /* written under blkcg->lock, shown without */
};

static inline struct fl_blkcg *fl_blkcg_of(struct blkcg *blkcg)
{
	struct blkcg_policy_data *cpd = blkcg_to_cpd(blkcg, &fl_policy);

	return cpd ? container_of(cpd, struct fl_blkcg, cpd) : NULL;
}

static inline struct fl_kflow *fl_kflow_of(struct blkg_policy_data *pd)
{
	return pd ? container_of(pd, struct fl_kflow, pd) : NULL;
}

/* What the file of a setting takes. */
struct fl_range {
	u32 min, max, def;
};

/* device.c */
struct fl_kdev *fl_kdev_get(struct request_queue *q);
void fl_kdev_put(struct fl_kdev *kdev);

/* policy.c */
void fl_kflow_detach(struct fl_kflow *kflow);
struct fl_queue *fl_kflow_make_queue(struct fl_kflow *kflow, unsigned int index, gfp_t gfp);
void fl_kflow_set(struct fl_kflow *kflow, enum fl_setting setting, u32 value);

/* cgroup-files.c */
extern struct cftype fl_cftypes[];
extern const struct fl_range fl_ranges[FL_NR_SETTINGS];

/* variables.c */
int fl_kdev_init_vars(struct fl_kdev *kdev);

#endif
