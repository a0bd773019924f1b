/* SPDX-License-Identifier: GPL-2.0-only */
/* What the files of fairlane.ko share with each other; device.h is for all modules. */
#ifndef FAIRLANE_POLICY_H
#define FAIRLANE_POLICY_H

#include "device.h"

/* A cgroup, whatever drives it uses. */
struct fl_blkcg {
	struct blkcg_policy_data cpd;
	u32 weight; /* the cgroup's default; written under blkcg->lock, shown without */
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

/* device.c */
struct fl_kdev *fl_kdev_get(struct request_queue *q);
void fl_kdev_put(struct fl_kdev *kdev);

/* policy.c */
void fl_kflow_detach(struct fl_kflow *kflow);
struct fl_queue *fl_kflow_make_queue(struct fl_kflow *kflow, unsigned int index, gfp_t gfp);
void fl_kflow_set_weight(struct fl_kflow *kflow, u32 weight);

/* cgroup-files.c */
extern struct cftype fl_cftypes[];

/* variables.c */
int fl_kdev_init_vars(struct fl_kdev *kdev);

#endif
