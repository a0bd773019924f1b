#!/bin/sh
# SPDX-License-Identifier: GPL-2.0-only
#
# features.sh CC FLAGS...: print #defines for compat.h, which say what the kernel's headers have.
# Each test is C code that compiles only with it. The kernel's version would not tell: stable
# releases and distributions bring interfaces from later versions, and leave some out.
headers=$(mktemp) || exit 1
trap 'rm -f "$headers"' EXIT
compiles() { "$@" -Wno-error -Werror=implicit-function-declaration -Werror=incompatible-pointer-types \
	-Werror=discarded-qualifiers -fsyntax-only -x cpp-output -; }

if ! "$@" -E -P -x c -o "$headers" - <<'END' || ! compiles "$@" <"$headers"; then
#include <linux/blkdev.h>
#include <linux/blk-mq.h>
#include <linux/hrtimer.h>
#include "elevator.h"
#include "blk.h"
#include "blk-cgroup.h"
#include "blk-mq.h"
#include "blk-rq-qos.h"
#include "blk-wbt.h"
END
	echo "fairlane: the block headers in BLOCK are not those of the kernel in KDIR: take them from its source" >&2
	exit 1
fi

echo '/* Made by Kbuild: features.sh. */'
while IFS='|' read -r name code; do
	if { cat "$headers"; echo "$code"; } | compiles "$@" 2>/dev/null; then
		echo "#define FL_HAVE_$name"
	fi
done <<'END'
BLK_INSERT_T|blk_insert_t fl;
PD_ALLOC_DISK|struct blkg_policy_data *fl(struct gendisk *, struct blkcg *, gfp_t); blkcg_pol_alloc_pd_fn *fl_fn = fl;
POLICY_OF_DISK|int fl(struct gendisk *disk, struct blkcg_policy *pol) { return blkcg_activate_policy(disk, pol); }
CONF_INIT|void fl(struct blkg_conf_ctx *ctx, char *input) { blkg_conf_init(ctx, input); }
RQOS_CONST_OPS|void fl(struct rq_qos *rqos, const struct rq_qos_ops *ops) { rqos->ops = ops; }
RQOS_DISK|struct gendisk *fl(struct rq_qos *rqos) { return rqos->disk; }
RQOS_MUTEX|struct mutex *fl(struct request_queue *q) { return &q->rq_qos_mutex; }
WBT_DISK|void fl(struct gendisk *disk) { wbt_disable_default(disk); }
CLASS_INTERFACE_ARG|int fl(struct device *, struct class_interface *); struct class_interface fl_interface = { .add_dev = fl };
CONF_OPEN_BDEV|void fl(struct blkg_conf_ctx *ctx) { blkg_conf_close_bdev(ctx); }
RQOS_FLAG|int fl(void) { return QUEUE_FLAG_QOS_ENABLED; }
WBT_FLAG_OF_QUEUE|int fl(void) { return QUEUE_FLAG_DISABLE_WBT_DEF; }
ELEVATOR_LOCK|struct mutex *fl(struct request_queue *q) { return &q->elevator_lock; }
HWQS_LOCK|struct rw_semaphore *fl(struct blk_mq_tag_set *set) { return &set->update_nr_hwq_lock; }
INIT_SCHED_ALLOCATED|int fl(struct request_queue *, struct elevator_queue *); struct elevator_mq_ops fl_ops = { .init_sched = fl };
MAP_QUEUE_OF_CTX|struct blk_mq_hw_ctx *fl(blk_opf_t opf, struct blk_mq_ctx *ctx) { return blk_mq_map_queue(opf, ctx); }
FREEZE_FLAGS|unsigned int fl(struct request_queue *q) { return blk_mq_freeze_queue(q); }
HRTIMER_SETUP|void fl(struct hrtimer *t, enum hrtimer_restart (*fn)(struct hrtimer *)) { hrtimer_setup(t, fn, 0, HRTIMER_MODE_ABS); }
F_SHOULD_MERGE|int fl(void) { return BLK_MQ_F_SHOULD_MERGE; }
DISK_WITH_LIMITS|struct gendisk *fl(struct blk_mq_tag_set *set, struct queue_limits *lim, struct lock_class_key *key) { return __blk_mq_alloc_disk(set, lim, 0, key); }
END
