/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * Everything in which the kernels that we build against differ; docs/kernels.md lists
 * them. FL_HAVE_* are from features.h, which Kbuild makes: see features.sh.
 */
#ifndef FAIRLANE_COMPAT_H
#define FAIRLANE_COMPAT_H

#include <linux/blkdev.h>
#include <linux/blk-mq.h>
#include <linux/hrtimer.h>
#include <linux/sched/mm.h>

#include "elevator.h"
#include "blk.h"
#include "blk-cgroup.h"
#include "blk-mq.h"
#include "blk-mq-sched.h"
#include "blk-rq-qos.h"
#include "blk-wbt.h"
#include "features.h"

#if __has_include("blk-mq-tag.h")
#include "blk-mq-tag.h"
#endif

/* Our own mark of a request: it is counted as one that has a tag (tags.c), for elv.priv[0]. */
#define FL_RQF_COUNTED ((__force req_flags_t)BIT(31))

/* And another: it is staged, from insert() to dispatch() (watchdog.c). Under hwq->lock. */
#define FL_RQF_STAGED ((__force req_flags_t)BIT(30))

/* And: it is counted, and not yet sent to the drive. */
#define FL_RQF_UNSENT ((__force req_flags_t)BIT(29))

#ifndef RQF_USE_SCHED
/* Requests that prepare_request() has seen, and finish_request() will see. */
#define FL_RQF_MANAGED RQF_ELVPRIV

/* One that flushes has no elv: it needs the room for its steps. */
#define fl_has_elv(opf) (!op_is_flush(opf))

void fl_tell_of_flushes(struct request_queue *q); /* device.c */
#else
#define FL_RQF_MANAGED RQF_USE_SCHED
#define fl_has_elv(opf) true
#define fl_tell_of_flushes(q) ((void)(q))
#endif

/*
 * For one that is inserted without prepare_request(), which no finish_request() would
 * follow: a bio may get a request that its plug has kept for a passthrough command. On
 * 6.1 a FUA write, which bypasses us, is inserted when the driver requeues it.
 */
static inline void fl_manage(struct request *rq)
{
	if (likely(rq->rq_flags & FL_RQF_MANAGED))
		return;
	if (!(rq->rq_flags & FL_RQF_COUNTED))
		rq->elv.priv[0] = NULL;
	rq->elv.priv[1] = NULL;
	rq->elv.icq = NULL;
	rq->rq_flags |= FL_RQF_MANAGED;
}

#ifdef FL_HAVE_BLK_INSERT_T
typedef blk_insert_t fl_insert_flags;
#define fl_insert_at_head(flags) ((flags) & BLK_MQ_INSERT_AT_HEAD)
#else
typedef bool fl_insert_flags;
#define fl_insert_at_head(flags) (flags)
#endif

#ifdef FL_HAVE_PD_ALLOC_DISK
#define FL_PD_ALLOC_ARGS struct gendisk *disk, struct blkcg *blkcg, gfp_t gfp
#define fl_pd_alloc_queue disk->queue
#else
#define FL_PD_ALLOC_ARGS gfp_t gfp, struct request_queue *q, struct blkcg *blkcg
#define fl_pd_alloc_queue q
#endif

#ifdef FL_HAVE_POLICY_OF_DISK
#define fl_activate_policy(q, pol) blkcg_activate_policy((q)->disk, pol)
#define fl_deactivate_policy(q, pol) blkcg_deactivate_policy((q)->disk, pol)
#else
#define fl_activate_policy(q, pol) blkcg_activate_policy(q, pol)
#define fl_deactivate_policy(q, pol) blkcg_deactivate_policy(q, pol)
#endif

#if defined(FL_HAVE_CONF_OPEN_BDEV)
#define fl_conf_init(ctx, input) blkg_conf_init(ctx, input)
#define fl_conf_prep(blkcg, pol, input, ctx) fl_conf_open_and_prep(blkcg, pol, ctx)
/* As below, but what there is to finish is in two parts. */
#define fl_conf_exit(ctx, prepared)                 \
	do {                                        \
		if (prepared) {                     \
			blkg_conf_unprep(ctx);      \
			blkg_conf_close_bdev(ctx);  \
		}                                   \
	} while (0)

static inline int fl_conf_open_and_prep(struct blkcg *blkcg, const struct blkcg_policy *pol,
					struct blkg_conf_ctx *ctx)
{
	int ret = blkg_conf_open_bdev(ctx);

	if (ret)
		return ret;
	ret = blkg_conf_prep(blkcg, pol, ctx);
	if (ret)
		blkg_conf_close_bdev(ctx);
	return ret;
}

#elif defined(FL_HAVE_CONF_INIT)
#define fl_conf_init(ctx, input) blkg_conf_init(ctx, input)
#define fl_conf_prep(blkcg, pol, input, ctx) blkg_conf_prep(blkcg, pol, ctx)
#define fl_conf_exit(ctx, prepared) blkg_conf_exit(ctx)
#else
#define fl_conf_init(ctx, input)
#define fl_conf_prep(blkcg, pol, input, ctx) blkg_conf_prep(blkcg, pol, input, ctx)
/* Only after a successful fl_conf_prep() there is something to finish. */
#define fl_conf_exit(ctx, prepared)              \
	do {                                     \
		if (prepared)                    \
			blkg_conf_finish(ctx);   \
	} while (0)

#endif

#ifdef FL_HAVE_CLASS_INTERFACE_ARG
#define FL_CLASS_ARGS struct device *dev, struct class_interface *interface
#else
#define FL_CLASS_ARGS struct device *dev
#endif

/* Freezing for long: allocations meanwhile must not wait for writeback to the queue. */
#ifdef FL_HAVE_FREEZE_FLAGS
#define fl_freeze(q) blk_mq_freeze_queue(q)
#define fl_unfreeze(q, noio) blk_mq_unfreeze_queue(q, noio)
#else
static inline unsigned int fl_freeze(struct request_queue *q)
{
	blk_mq_freeze_queue(q);
	return memalloc_noio_save();
}

static inline void fl_unfreeze(struct request_queue *q, unsigned int noio)
{
	memalloc_noio_restore(noio);
	blk_mq_unfreeze_queue(q);
}
#endif

#ifdef FL_HAVE_MAP_QUEUE_OF_CTX
#define fl_map_queue(q, opf) blk_mq_map_queue(opf, blk_mq_get_ctx(q))
#else
#define fl_map_queue(q, opf) blk_mq_map_queue(q, opf, blk_mq_get_ctx(q))
#endif

static inline void fl_hrtimer_setup(struct hrtimer *timer,
				    enum hrtimer_restart (*function)(struct hrtimer *),
				    enum hrtimer_mode mode)
{
#ifdef FL_HAVE_HRTIMER_SETUP
	hrtimer_setup(timer, function, CLOCK_MONOTONIC, mode);
#else
	hrtimer_init(timer, CLOCK_MONOTONIC, mode);
	timer->function = function;
#endif
}

/* An elevator's struct elevator_queue: made by init_sched(), or by its caller. */
#ifdef FL_HAVE_INIT_SCHED_ALLOCATED
#define FL_INIT_SCHED_ARGS struct request_queue *q, struct elevator_queue *eq
#define fl_elevator_queue(q) eq
#define fl_elevator_queue_put(eq)
#else
#define FL_INIT_SCHED_ARGS struct request_queue *q, struct elevator_type *type
#define fl_elevator_queue(q) elevator_alloc(q, type)
#define fl_elevator_queue_put(eq) kobject_put(&(eq)->kobj)
#endif

/* Any disk, which is never added. */
#ifdef FL_HAVE_DISK_WITH_LIMITS
#define fl_alloc_disk() blk_alloc_disk(NULL, NUMA_NO_NODE)
#else
#define fl_alloc_disk() blk_alloc_disk(NUMA_NO_NODE)
#endif

#ifdef FL_HAVE_RQOS_CONST_OPS
typedef const struct rq_qos_ops fl_rqos_ops;
#else
typedef struct rq_qos_ops fl_rqos_ops;
#endif

#ifdef FL_HAVE_RQOS_DISK
#define fl_rqos_init(rqos, queue) ((rqos)->disk = (queue)->disk)
#else
#define fl_rqos_init(rqos, queue) ((rqos)->q = (queue))
#endif

/* What protects q->rq_qos besides freezing. Where there is no mutex, rq_qos_add() takes queue_lock. */
#ifdef FL_HAVE_RQOS_MUTEX
#define fl_rqos_lock(q) mutex_lock(&(q)->rq_qos_mutex)
#define fl_rqos_unlock(q) mutex_unlock(&(q)->rq_qos_mutex)
#define fl_rqos_change(q) lockdep_assert_held(&(q)->rq_qos_mutex)
#define fl_rqos_changed(q)
#else
#define fl_rqos_lock(q)
#define fl_rqos_unlock(q)
#define fl_rqos_change(q) spin_lock_irq(&(q)->queue_lock)
#define fl_rqos_changed(q) spin_unlock_irq(&(q)->queue_lock)
#endif

/*
 * For whoever comes and goes beside the elevator: no other elevator is chosen meanwhile,
 * and the list of rq_qos is ours. In the order in which the block layer takes these
 * when it switches elevators.
 */
#ifdef FL_HAVE_ELEVATOR_LOCK
static inline unsigned int fl_freeze_and_lock(struct request_queue *q)
{
	unsigned int noio = fl_freeze(q);

	mutex_lock(&q->elevator_lock);
	fl_rqos_lock(q);
	return noio;
}

static inline void fl_unlock_and_unfreeze(struct request_queue *q, unsigned int noio)
{
	fl_rqos_unlock(q);
	mutex_unlock(&q->elevator_lock);
	fl_unfreeze(q, noio);
}
#else
static inline unsigned int fl_freeze_and_lock(struct request_queue *q)
{
	mutex_lock(&q->sysfs_lock);
	fl_rqos_lock(q);
	return fl_freeze(q);
}

static inline void fl_unlock_and_unfreeze(struct request_queue *q, unsigned int noio)
{
	fl_unfreeze(q, noio);
	fl_rqos_unlock(q);
	mutex_unlock(&q->sysfs_lock);
}
#endif

/*
 * Around fl_freeze_and_lock(), for whoever counts hardware queues: their number stays. Where
 * that has a lock of its own, it is only tried, as Linux does: who removes a disk has it, and
 * waits for who is in one of the disk's files. False: the number is being changed.
 */
static inline bool fl_hwqs_trylock(struct request_queue *q)
{
#ifdef FL_HAVE_HWQS_LOCK
	return down_read_trylock(&q->tag_set->update_nr_hwq_lock);
#else
	return true;
#endif
}

static inline void fl_hwqs_unlock(struct request_queue *q)
{
#ifdef FL_HAVE_HWQS_LOCK
	up_read(&q->tag_set->update_nr_hwq_lock);
#endif
}

/* Where there is this flag, a rq_qos is called only while it is set. */
#ifdef FL_HAVE_RQOS_FLAG
#define fl_rqos_flag(q)                                                    \
	do {                                                               \
		if ((q)->rq_qos)                                           \
			blk_queue_flag_set(QUEUE_FLAG_QOS_ENABLED, q);     \
		else                                                       \
			blk_queue_flag_clear(QUEUE_FLAG_QOS_ENABLED, q);   \
	} while (0)
#else
#define fl_rqos_flag(q)
#endif

/*
 * Stand-ins for rq_qos_add() and rq_qos_del(), which are not exported. Nobody looks for
 * ours by its id. Under fl_rqos_lock(), with the queue frozen: who is in a hook holds a reference to
 * the queue, and so cannot be there meanwhile. Who only walks the list may be: struct fl_rqos.
 */
static inline void fl_rqos_add(struct rq_qos *rqos, struct request_queue *q, fl_rqos_ops *ops)
{
	fl_rqos_change(q);
	fl_rqos_init(rqos, q);
	rqos->id = RQ_QOS_COST + 1;
	rqos->ops = ops;
	rqos->next = q->rq_qos;
	q->rq_qos = rqos;
	fl_rqos_flag(q);
	fl_rqos_changed(q);
}

static inline void fl_rqos_del(struct rq_qos *rqos, struct request_queue *q)
{
	struct rq_qos **at = &q->rq_qos;

	fl_rqos_change(q);
	while (*at && *at != rqos)
		at = &(*at)->next;
	if (*at)
		*at = rqos->next;
	fl_rqos_flag(q);
	fl_rqos_changed(q);
}

#ifdef FL_HAVE_WBT_DISK
#define fl_wbt_of(q) ((q)->disk)
#else
#define fl_wbt_of(q) (q)
#endif

/* Keeps it off when the disk is registered again. */
static inline void fl_wbt_keep_off(struct elevator_queue *eq, struct request_queue *q, bool off)
{
#if defined(FL_HAVE_WBT_FLAG_OF_QUEUE)
	if (off)
		blk_queue_flag_set(QUEUE_FLAG_DISABLE_WBT_DEF, q);
	else
		blk_queue_flag_clear(QUEUE_FLAG_DISABLE_WBT_DEF, q);
#elif defined(ELEVATOR_FLAG_DISABLE_WBT)
	assign_bit(ELEVATOR_FLAG_DISABLE_WBT, &eq->flags, off);
#endif
}

/*
 * Writeback throttling, off while a scheduler of ours is chosen, as with BFQ: what
 * is held back for a cgroup's share looks to it like a slow drive, and it would
 * hold back everybody's writeback. One that was set by hand stays. The queue is
 * frozen: of what passes wbt meanwhile, it would never count that it is done.
 * @eq: our elevator, NULL: there is none.
 */
static inline void fl_wbt_off(struct request_queue *q, struct elevator_queue *eq)
{
	if (eq)
		fl_wbt_keep_off(eq, q, true);
	wbt_disable_default(fl_wbt_of(q));
}

/* Somebody else's elevator wants it off; later kernels look themselves. */
static inline bool fl_wbt_unwanted(struct request_queue *q)
{
#if defined(FL_HAVE_WBT_FLAG_OF_QUEUE) || defined(ELEVATOR_FLAG_DISABLE_WBT)
	return false;
#else
	return q->elevator && !strcmp(q->elevator->type->elevator_name, "bfq");
#endif
}

static inline void fl_wbt_on(struct request_queue *q, struct elevator_queue *eq)
{
	if (eq)
		fl_wbt_keep_off(eq, q, false);
	/* Without one it was not on before, and would be made now. */
	if (wbt_rq_qos(q) && !fl_wbt_unwanted(q))
		wbt_enable_default(fl_wbt_of(q));
}

/* ---- vssd.ko -------------------------------------------------------------- */

#ifdef FL_HAVE_F_SHOULD_MERGE
#define VSSD_TAG_FLAGS BLK_MQ_F_SHOULD_MERGE
#else
#define VSSD_TAG_FLAGS 0
#endif

struct vssd_limits {
	unsigned int block_size, max_bytes, max_discard_bytes; /* bytes */
	bool volatile_cache; /* flushes and FUA mean something */
};

#ifndef FL_HAVE_DISK_WITH_LIMITS

static inline struct gendisk *vssd_alloc_disk(struct blk_mq_tag_set *tags,
					      const struct vssd_limits *limits, void *data)
{
	struct gendisk *disk = blk_mq_alloc_disk(tags, data);
	struct request_queue *q;

	if (IS_ERR(disk))
		return disk;
	q = disk->queue;
	blk_queue_logical_block_size(q, limits->block_size);
	blk_queue_physical_block_size(q, max(limits->block_size, 4096U));
	blk_queue_max_hw_sectors(q, limits->max_bytes >> SECTOR_SHIFT);
	blk_queue_max_segments(q, limits->max_bytes >> PAGE_SHIFT);
	blk_queue_max_discard_sectors(q, limits->max_discard_bytes >> SECTOR_SHIFT);
	q->limits.discard_granularity = PAGE_SIZE;
	blk_queue_write_cache(q, limits->volatile_cache, limits->volatile_cache);
	blk_queue_flag_set(QUEUE_FLAG_NONROT, q);
	blk_queue_flag_clear(QUEUE_FLAG_ADD_RANDOM, q);
	return disk;
}

#else

static inline struct gendisk *vssd_alloc_disk(struct blk_mq_tag_set *tags,
					      const struct vssd_limits *limits, void *data)
{
	struct queue_limits lim = {
		.logical_block_size = limits->block_size,
		.physical_block_size = max(limits->block_size, 4096U),
		.max_hw_sectors = limits->max_bytes >> SECTOR_SHIFT,
		.max_segments = limits->max_bytes >> PAGE_SHIFT,
		.max_hw_discard_sectors = limits->max_discard_bytes >> SECTOR_SHIFT,
		.discard_granularity = PAGE_SIZE,
		.features = limits->volatile_cache ? BLK_FEAT_WRITE_CACHE | BLK_FEAT_FUA : 0,
	};

	return blk_mq_alloc_disk(tags, &lim, data);
}

#endif

#endif
