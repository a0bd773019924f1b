/* SPDX-License-Identifier: GPL-2.0-only */
/* What the files of fairlane.ko share with each other; device.h is for all modules. */
#ifndef FAIRLANE_POLICY_H
#define FAIRLANE_POLICY_H

#include "device.h"

/* A cgroup, whatever drives it uses. */
struct fl_blkcg {
	struct blkcg_policy_data cpd;
	u32 defaults[FL_NR_SETTINGS]; /* or FL_NOT_SET; written under blkcg->lock, shown without */
	spinlock_t lock; /* of kept; inside blkcg->lock and the queue's, outside nothing */
	struct list_head kept;
};

/*
 * What a cgroup's files set for one disk. The flow goes with the disk's scheduler; this
 * stays, for the next one, while any of it is set, until the cgroup is gone, or the disk:
 * see fl_forget_gone(). A disk that comes back is another one.
 */
struct fl_kept {
	struct list_head node; /* in fl_blkcg.kept */
	u64 diskseq;
	u32 own[FL_NR_SETTINGS]; /* or FL_NOT_SET */
	bool gone; /* not found yet, by who looks just now for disks that are gone */
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
#ifdef fl_tell_of_flushes
#define fl_told_exit()
#else
void fl_told_exit(void);
#endif
struct fl_kdev *fl_kdev_get(struct request_queue *q);
void fl_kdev_put(struct fl_kdev *kdev);
void fl_rqos_exit(void);

/* policy.c */
void fl_kflow_detach(struct fl_kflow *kflow);
struct fl_queue *fl_kflow_make_queue(struct fl_kflow *kflow, unsigned int index, gfp_t gfp);
u32 fl_setting_of(const struct fl_blkcg *fb, const struct fl_kflow *kflow, enum fl_setting setting);
void fl_kflow_update(struct fl_kflow *kflow);
void fl_keep(struct fl_blkcg *fb, u64 diskseq, enum fl_setting setting, u32 value,
	     struct fl_kept **spare);
void fl_forget_gone(struct fl_blkcg *fb, struct gendisk *disk);

/* cgroup-files.c */
void fl_print_stat(struct seq_file *sf, struct fl_kflow *kflow);
extern struct cftype fl_cftypes[];
extern const struct fl_range fl_ranges[FL_NR_SETTINGS];

/* watchdog.c */
#define FL_WATCHDOG_MSEC 30000 /* longer than a drive's hiccup; the kernel calls a task hung after 120 s */
#define FL_IDLE_LOOKS 4

/* Of one who sleeps. */
struct fl_long_wait {
	u64 since, looked; /* ns */
	unsigned int idle;
};

bool fl_wait_over(struct fl_kdev *kdev, struct fl_long_wait *wait);
void fl_watch_init(struct fl_kdev *kdev);
void fl_watch_begin(struct fl_kdev *kdev);
void fl_watch_end(struct fl_kdev *kdev);
int fl_failures_init(void);
void fl_failures_exit(void);

/* variables.c */
int fl_kdev_init_vars(struct fl_kdev *kdev);

#endif
