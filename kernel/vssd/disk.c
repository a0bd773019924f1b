// SPDX-License-Identifier: GPL-2.0-only
/*
 * A virtual SSD as a blk-mq disk: one hardware queue per CPU, whose commands go
 * to that core's submission queues in the model.
 *
 * A command's data are moved when it is submitted; the model then says how long
 * the command takes. So a write beyond the bound on memory fails at once, with
 * BLK_STS_NOSPC, and changes nothing. Submission must not sleep (as on an NVMe
 * drive). When memory is short just then, the block layer tries the command
 * again; it fails only if there is none for VSSD_MEMORY_WAIT.
 *
 * Time. The model has a clock of its own: real time since the drive was made,
 * divided by time_scale. One hrtimer is set to the model's next event. A
 * completion goes to the CPU that the command's queue belongs to, as that
 * queue's interrupt would: commands that are done are put on the queue's list,
 * and whoever finds the list empty calls that CPU. Under PREEMPT_RT, where no request
 * may be ended in an interrupt, whoever finds them done ends them: a thread, always.
 *
 * Removing a drive does not wait for its model: the clock then jumps from event
 * to event ("rush"), and every command ends well. That takes only CPU time,
 * however slow the drive is.
 *
 * Locking. vssd->lock guards the model and the fields after it in struct vssd.
 * It is taken with interrupts off, by submission (process context), the timer
 * (hard interrupt; under PREEMPT_RT, a thread) and sysfs. Requests are completed without it. One lock for
 * all CPUs: the model is one machine with one order of events.
 */
#include <linux/hrtimer.h>
#include <linux/idr.h>
#include <linux/llist.h>
#include <linux/module.h>
#include <linux/slab.h>
#include <linux/smp.h>

#include "compat.h"
#include "route.h"
#include "vssd.h"

/* How long a write waits for the kernel to have a page to give. */
#define VSSD_MEMORY_WAIT (5 * HZ)
/* The largest command: what common NVMe drives take. */
#define VSSD_MAX_BYTES (1U << 20)
/* Pages are given back with preemption off: so many at a time. */
#define VSSD_MAX_DISCARD_BYTES (16U << 20)

struct vssd_cmd {
	struct ssd_cmd ssd;
	struct fl_route_rq route;
	struct llist_node node; /* in vssd_queue.done */
	unsigned long give_up; /* jiffies; set when RQF_DONTPREP is */
};

/* The completion queue and the interrupt of one hardware queue. */
struct vssd_queue {
	struct llist_head done; /* added to anywhere, emptied on the queue's CPU */
	call_single_data_t csd; /* used by whoever adds to an empty list */
} ____cacheline_aligned_in_smp;

struct vssd {
	/* Set when the drive is made. */
	struct vssd_params params;
	struct vssd_store store; /* has its own rules */
	struct blk_mq_tag_set tags;
	struct gendisk *disk;
	struct fl_route_offer route; /* has its own rules */
	struct vssd_queue *queues;
	int number;
	u64 epoch_ns; /* ktime_get_ns() at the model's time 0 */

	spinlock_t lock ____cacheline_aligned_in_smp; /* for all that follows */
	struct ssd *ssd;
	struct hrtimer timer;
	u64 now; /* the model's clock: never goes back; sysfs may show an old one */
	u64 armed; /* the time of the event that the timer was last set to */
	unsigned int in_model; /* commands submitted and not returned */
	/* Of WRR; that of SSD_URGENT is not used; sysfs may show an old one. */
	unsigned int weights[SSD_NR_CLASSES];
	unsigned int weights_before[SSD_NR_CLASSES]; /* a scheduler's first; of SSD_HIGH 0: there is none */
	bool rush; /* the drive is going: see above */
};

static DEFINE_IDA(vssd_numbers);

/* ---- Completion ----------------------------------------------------------- */

static struct vssd_cmd *to_vssd_cmd(struct ssd_cmd *ssd)
{
	return container_of(ssd, struct vssd_cmd, ssd);
}

/* In a hard interrupt or with interrupts off, on the queue's CPU unless that is offline. */
static void vssd_interrupt(void *data)
{
	struct vssd_queue *queue = data;
	struct llist_node *done = llist_reverse_order(llist_del_all(&queue->done));
	struct vssd_cmd *cmd, *next;

	llist_for_each_entry_safe(cmd, next, done, node)
		blk_mq_complete_request(blk_mq_rq_from_pdu(cmd));
}

/* @done: from ssd_advance(). Any context; the lock is not held. */
static void vssd_complete(struct vssd *vssd, struct ssd_cmd *done)
{
	struct vssd_queue *queue;
	struct ssd_cmd *next;
	unsigned long flags;

	for (; done; done = next) {
		next = done->next;
		if (IS_ENABLED(CONFIG_PREEMPT_RT)) {
			blk_mq_complete_request(blk_mq_rq_from_pdu(to_vssd_cmd(done)));
			continue;
		}
		queue = &vssd->queues[done->core];
		if (!llist_add(&to_vssd_cmd(done)->node, &queue->done))
			continue;
		if (smp_call_function_single_async(done->core, &queue->csd)) {
			local_irq_save(flags);
			vssd_interrupt(queue);
			local_irq_restore(flags);
		}
	}
}

static void vssd_complete_rq(struct request *rq)
{
	struct vssd_cmd *cmd = blk_mq_rq_to_pdu(rq);

	fl_route_done(&cmd->route);
	blk_mq_end_request(rq, BLK_STS_OK);
}

/* ---- The model's clock ---------------------------------------------------- */

/* Under the lock. */
static u64 vssd_now(struct vssd *vssd)
{
	u64 real = ktime_get_ns() - vssd->epoch_ns, next;

	WRITE_ONCE(vssd->now, max(vssd->now, div_u64(real, vssd->params.time_scale)));
	if (vssd->rush) {
		next = ssd_next_ns(vssd->ssd);
		if (next != SSD_NEVER)
			WRITE_ONCE(vssd->now, max(vssd->now, next));
	}
	return vssd->now;
}

/* Have the timer fire at the model's next event. Under the lock. */
static void vssd_arm(struct vssd *vssd)
{
	u64 next = ssd_next_ns(vssd->ssd);

	/* A timer set to the past has fired, or is moved on here before it fires in vain. */
	if (next == SSD_NEVER || (vssd->armed > vssd->now && vssd->armed <= next))
		return;
	vssd->armed = next;
	hrtimer_start(&vssd->timer,
		      ns_to_ktime(vssd->epoch_ns + next * vssd->params.time_scale),
		      HRTIMER_MODE_ABS);
}

/*
 * Whoever takes commands from the model should complete them without being preempted, or they
 * wait with it. Under PREEMPT_RT the lock may sleep, and priorities say who is preempted.
 */
static void vssd_begin(void)
{
	if (!IS_ENABLED(CONFIG_PREEMPT_RT))
		preempt_disable();
}

static void vssd_end(void)
{
	if (!IS_ENABLED(CONFIG_PREEMPT_RT))
		preempt_enable();
}

/* Give @cmd, unless NULL, to the model, move that to now, complete what is done. Any context. */
static void vssd_run(struct vssd *vssd, struct ssd_cmd *cmd)
{
	struct ssd_cmd *done, *last;
	unsigned long flags;
	bool again;
	u64 now;

	do {
		vssd_begin();
		spin_lock_irqsave(&vssd->lock, flags);
		now = vssd_now(vssd);
		if (cmd) {
			ssd_submit(vssd->ssd, cmd, now);
			vssd->in_model++;
			cmd = NULL;
		}
		done = ssd_advance(vssd->ssd, now);
		for (last = done; last; last = last->next)
			vssd->in_model--;
		again = vssd->rush && vssd->in_model && ssd_next_ns(vssd->ssd) != SSD_NEVER;
		if (!vssd->rush)
			vssd_arm(vssd);
		spin_unlock_irqrestore(&vssd->lock, flags);
		vssd_complete(vssd, done);
		vssd_end();
	} while (again);
}

static enum hrtimer_restart vssd_timer(struct hrtimer *timer)
{
	vssd_run(container_of(timer, struct vssd, timer), NULL);
	return HRTIMER_NORESTART;
}

/* ---- Submission ----------------------------------------------------------- */

/* Describe @rq to the model; false: the drive does not know this kind of request. */
static bool vssd_describe(struct ssd_cmd *cmd, struct request *rq, u32 core)
{
	*cmd = (struct ssd_cmd){
		.offset = (u64)blk_rq_pos(rq) << SECTOR_SHIFT,
		.bytes = blk_rq_bytes(rq),
		.fua = rq->cmd_flags & REQ_FUA,
		.core = core,
	};
	switch (req_op(rq)) {
	case REQ_OP_READ:
		cmd->op = SSD_READ;
		return true;
	case REQ_OP_WRITE:
		cmd->op = SSD_WRITE;
		return true;
	case REQ_OP_DISCARD:
		cmd->op = SSD_TRIM;
		return true;
	case REQ_OP_FLUSH:
		cmd->op = SSD_FLUSH;
		cmd->offset = 0; /* a flush has no place */
		return true;
	default:
		return false;
	}
}

static int vssd_move_data(struct vssd_store *store, const struct ssd_cmd *cmd, struct request *rq)
{
	int ret = 0;

	if (cmd->op == SSD_WRITE)
		ret = vssd_store_reserve(store, cmd->offset, cmd->bytes);
	if (!ret && (cmd->op == SSD_READ || cmd->op == SSD_WRITE))
		vssd_store_copy(store, rq);
	if (cmd->op == SSD_TRIM)
		vssd_store_discard(store, cmd->offset, cmd->bytes);
	return ret;
}

/* The kernel has no page now: let the block layer try again in a moment, but not for too long. */
static blk_status_t vssd_no_memory(struct request *rq, struct vssd_cmd *cmd)
{
	if (!(rq->rq_flags & RQF_DONTPREP)) {
		rq->rq_flags |= RQF_DONTPREP;
		cmd->give_up = jiffies + VSSD_MEMORY_WAIT;
	}
	return time_before(jiffies, cmd->give_up) ? BLK_STS_RESOURCE : BLK_STS_IOERR;
}

static blk_status_t vssd_queue_rq(struct blk_mq_hw_ctx *hctx, const struct blk_mq_queue_data *bd)
{
	struct vssd *vssd = hctx->queue->queuedata;
	struct vssd_cmd *cmd = blk_mq_rq_to_pdu(bd->rq);
	int ret;

	if (!vssd_describe(&cmd->ssd, bd->rq, hctx->queue_num))
		return BLK_STS_NOTSUPP;
	ret = vssd_move_data(&vssd->store, &cmd->ssd, bd->rq);
	if (ret)
		return ret == -ENOMEM ? vssd_no_memory(bd->rq, cmd) : errno_to_blk_status(ret);
	cmd->ssd.class = SSD_HIGH + fl_route_start(&vssd->route, bd->rq, &cmd->route);
	blk_mq_start_request(bd->rq);
	vssd_run(vssd, &cmd->ssd);
	return BLK_STS_OK;
}

/* Queue N is CPU N's; with holes between the CPUs' numbers, some queues have no user. */
static void vssd_map_queues(struct blk_mq_tag_set *set)
{
	unsigned int cpu;

	for_each_possible_cpu(cpu)
		set->map[HCTX_TYPE_DEFAULT].mq_map[cpu] = cpu;
}

static const struct blk_mq_ops vssd_mq_ops = {
	.queue_rq = vssd_queue_rq,
	.complete = vssd_complete_rq,
	.map_queues = vssd_map_queues,
};

static const struct block_device_operations vssd_fops = {
	.owner = THIS_MODULE,
};

/* ---- /sys/block/vssdN/vssd/ ----------------------------------------------- */

struct vssd_stat {
	struct device_attribute attr;
	unsigned short offset, bytes; /* of a u32 or u64 in struct ssd_stats */
};

static struct vssd *vssd_of(struct device *dev)
{
	return dev_to_disk(dev)->private_data;
}

static ssize_t vssd_stat_show(struct device *dev, struct device_attribute *attr, char *page)
{
	struct vssd_stat *stat = container_of(attr, struct vssd_stat, attr);
	struct vssd *vssd = vssd_of(dev);
	struct ssd_stats stats;
	const void *value = (char *)&stats + stat->offset;

	spin_lock_irq(&vssd->lock);
	ssd_stats(vssd->ssd, &stats);
	spin_unlock_irq(&vssd->lock);
	return sysfs_emit(page, "%llu\n",
			  stat->bytes == sizeof(u64) ? *(const u64 *)value : *(const u32 *)value);
}

#define VSSD_OP_STATS(X, class_name, op_name, class, op)                     \
	X(class_name##_##op_name##_commands, commands[class][op])            \
	X(class_name##_##op_name##_bytes, bytes[class][op])
#define VSSD_CLASS_STATS(X, class_name, class)                               \
	VSSD_OP_STATS(X, class_name, read, class, SSD_READ)                  \
	VSSD_OP_STATS(X, class_name, write, class, SSD_WRITE)                \
	VSSD_OP_STATS(X, class_name, discard, class, SSD_TRIM)               \
	X(class_name##_flush_commands, commands[class][SSD_FLUSH])           \
	X(class_name##_queued, queued[class])
#define VSSD_STATS(X)                                                        \
	VSSD_CLASS_STATS(X, urgent, SSD_URGENT)                              \
	VSSD_CLASS_STATS(X, high, SSD_HIGH)                                  \
	VSSD_CLASS_STATS(X, medium, SSD_MEDIUM)                              \
	VSSD_CLASS_STATS(X, low, SSD_LOW)                                    \
	X(in_controller, in_controller)                                      \
	X(die_busy_ns, die_busy_ns)                                          \
	X(channel_busy_ns, channel_busy_ns)                                  \
	X(link_read_busy_ns, link_busy_ns[0])                                \
	X(link_write_busy_ns, link_busy_ns[1])                               \
	X(host_bytes, host_bytes)                                            \
	X(nand_bytes, nand_bytes)                                            \
	X(erases, erases)

#define VSSD_STAT(name, field)                                               \
	static struct vssd_stat vssd_stat_##name = {                         \
		.attr = __ATTR(name, 0444, vssd_stat_show, NULL),            \
		.offset = offsetof(struct ssd_stats, field),                 \
		.bytes = sizeof_field(struct ssd_stats, field),              \
	};
VSSD_STATS(VSSD_STAT)

#define VSSD_SHOW(name, format, value)                                                            \
	static ssize_t name##_show(struct device *dev, struct device_attribute *attr, char *page) \
	{                                                                                         \
		struct vssd *vssd = vssd_of(dev);                                                 \
                                                                                                  \
		return sysfs_emit(page, format "\n", value);                                      \
	}                                                                                         \
	static DEVICE_ATTR_RO(name)

VSSD_SHOW(now_ns, "%llu", READ_ONCE(vssd->now));
VSSD_SHOW(time_scale, "%llu", vssd->params.time_scale);
VSSD_SHOW(memory_bytes, "%llu", vssd->params.memory);
VSSD_SHOW(memory_used_bytes, "%llu", (u64)READ_ONCE(vssd->store.nr_pages) << PAGE_SHIFT);

static void vssd_set_weights(struct vssd *vssd, const unsigned int weights[SSD_NR_CLASSES])
{
	int class;

	lockdep_assert_held(&vssd->lock);
	for (class = 0; class < SSD_NR_CLASSES; class++)
		WRITE_ONCE(vssd->weights[class], weights[class]);
	ssd_set_weights(vssd->ssd, weights[SSD_HIGH], weights[SSD_MEDIUM], weights[SSD_LOW]);
}

/* Any context. */
static void vssd_route_weights(struct fl_route_offer *offer, unsigned int high,
			       unsigned int medium, unsigned int low)
{
	const unsigned int weights[SSD_NR_CLASSES] = {
		[SSD_HIGH] = high, [SSD_MEDIUM] = medium, [SSD_LOW] = low
	};
	struct vssd *vssd = container_of(offer, struct vssd, route);
	unsigned long flags;

	spin_lock_irqsave(&vssd->lock, flags);
	if (!vssd->weights_before[SSD_HIGH])
		memcpy(vssd->weights_before, vssd->weights, sizeof(vssd->weights));
	vssd_set_weights(vssd, weights);
	spin_unlock_irqrestore(&vssd->lock, flags);
}

static void vssd_route_no_weights(struct fl_route_offer *offer)
{
	struct vssd *vssd = container_of(offer, struct vssd, route);

	spin_lock_irq(&vssd->lock);
	if (vssd->weights_before[SSD_HIGH])
		vssd_set_weights(vssd, vssd->weights_before);
	vssd->weights_before[SSD_HIGH] = 0;
	spin_unlock_irq(&vssd->lock);
}

/* FL_HIGH, FL_MEDIUM and FL_LOW are the model's classes from SSD_HIGH on. */
static_assert(SSD_HIGH + FL_MEDIUM == SSD_MEDIUM && SSD_HIGH + FL_LOW == SSD_LOW);

static ssize_t vssd_weight_store(struct vssd *vssd, enum ssd_class class, const char *page,
				 size_t count)
{
	unsigned int weight, weights[SSD_NR_CLASSES];
	int ret = kstrtouint(page, 10, &weight);

	if (ret)
		return ret;
	if (weight < 1 || weight > 256)
		return -ERANGE;
	spin_lock_irq(&vssd->lock);
	if (vssd->weights_before[SSD_HIGH]) { /* they are the scheduler's now */
		ret = -EBUSY;
	} else {
		memcpy(weights, vssd->weights, sizeof(weights));
		weights[class] = weight;
		vssd_set_weights(vssd, weights);
	}
	spin_unlock_irq(&vssd->lock);
	return ret ?: count;
}

#define VSSD_WEIGHT(name, class)                                                                  \
	static ssize_t name##_show(struct device *dev, struct device_attribute *attr, char *page) \
	{                                                                                         \
		return sysfs_emit(page, "%u\n", READ_ONCE(vssd_of(dev)->weights[class]));         \
	}                                                                                         \
	static ssize_t name##_store(struct device *dev, struct device_attribute *attr,            \
				    const char *page, size_t count)                               \
	{                                                                                         \
		return vssd_weight_store(vssd_of(dev), class, page, count);                       \
	}                                                                                         \
	static DEVICE_ATTR_RW(name)

VSSD_WEIGHT(high_weight, SSD_HIGH);
VSSD_WEIGHT(medium_weight, SSD_MEDIUM);
VSSD_WEIGHT(low_weight, SSD_LOW);

#define VSSD_STAT_ENTRY(name, field) &vssd_stat_##name.attr.attr,
static struct attribute *vssd_attrs[] = {
	VSSD_STATS(VSSD_STAT_ENTRY)
	&dev_attr_now_ns.attr,
	&dev_attr_time_scale.attr,
	&dev_attr_memory_bytes.attr,
	&dev_attr_memory_used_bytes.attr,
	&dev_attr_high_weight.attr,
	&dev_attr_medium_weight.attr,
	&dev_attr_low_weight.attr,
	NULL,
};

static const struct attribute_group vssd_group = { .name = "vssd", .attrs = vssd_attrs };
static const struct attribute_group *vssd_groups[] = { &vssd_group, NULL };

/* ---- Life ----------------------------------------------------------------- */

static int vssd_init_model(struct vssd *vssd)
{
	vssd->ssd = ssd_create(&vssd->params.profile, nr_cpu_ids, vssd->params.seed);
	if (!vssd->ssd)
		return -ENOMEM;
	if (vssd->params.precondition)
		ssd_precondition(vssd->ssd);
	vssd->weights[SSD_HIGH] = vssd->weights[SSD_MEDIUM] = vssd->weights[SSD_LOW] = 1;
	spin_lock_init(&vssd->lock);
	fl_hrtimer_setup(&vssd->timer, vssd_timer, HRTIMER_MODE_ABS);
	vssd->epoch_ns = ktime_get_ns();
	return 0;
}

static int vssd_init_queues(struct vssd *vssd)
{
	unsigned int i;

	vssd->queues = kcalloc(nr_cpu_ids, sizeof(*vssd->queues), GFP_KERNEL);
	if (!vssd->queues)
		return -ENOMEM;
	for (i = 0; i < nr_cpu_ids; i++) {
		init_llist_head(&vssd->queues[i].done);
		INIT_CSD(&vssd->queues[i].csd, vssd_interrupt, &vssd->queues[i]);
	}
	vssd->tags = (struct blk_mq_tag_set){
		.ops = &vssd_mq_ops,
		.nr_hw_queues = nr_cpu_ids,
		.nr_maps = 1,
		.queue_depth = vssd->params.queue_depth,
		.numa_node = NUMA_NO_NODE,
		.cmd_size = sizeof(struct vssd_cmd),
		.flags = VSSD_TAG_FLAGS,
	};
	return 0;
}

static int vssd_init_disk(struct vssd *vssd)
{
	struct vssd_limits limits = {
		.block_size = vssd->params.block_size,
		.max_bytes = VSSD_MAX_BYTES,
		.max_discard_bytes = VSSD_MAX_DISCARD_BYTES,
		.volatile_cache = vssd->params.profile.buffer_volatile,
	};
	u64 size = round_down(vssd->params.profile.size, vssd->params.block_size);
	struct gendisk *disk = vssd_alloc_disk(&vssd->tags, &limits, vssd);

	if (IS_ERR(disk))
		return PTR_ERR(disk);
	vssd->disk = disk;
	disk->fops = &vssd_fops;
	disk->private_data = vssd;
	snprintf(disk->disk_name, sizeof(disk->disk_name), "vssd%d", vssd->number);
	set_capacity(disk, size >> SECTOR_SHIFT);
	return 0;
}

/* A drive of these values, which have passed ssd_profile_check(). May sleep. Or an ERR_PTR. */
struct vssd *vssd_create(const struct vssd_params *params)
{
	struct vssd *vssd = kzalloc(sizeof(*vssd), GFP_KERNEL);
	int ret;

	if (!vssd)
		return ERR_PTR(-ENOMEM);
	vssd->params = *params;
	vssd_store_init(&vssd->store, params->memory);
	vssd->number = ida_alloc(&vssd_numbers, GFP_KERNEL);
	if (vssd->number < 0) {
		ret = vssd->number;
		goto free;
	}
	ret = vssd_init_queues(vssd);
	if (ret)
		goto free_number;
	ret = vssd_init_model(vssd);
	if (ret)
		goto free_queues;
	ret = blk_mq_alloc_tag_set(&vssd->tags);
	if (ret)
		goto free_model;
	ret = vssd_init_disk(vssd);
	if (ret)
		goto free_tags;
	/* It is all zeroes. A scan for partitions could take long: the drive may be very slow. */
	set_bit(GD_SUPPRESS_PART_SCAN, &vssd->disk->state);
	vssd->route = (struct fl_route_offer){ .tags = &vssd->tags,
					       .set_weights = vssd_route_weights,
					       .clear_weights = vssd_route_no_weights };
	if (params->profile.wrr)
		fl_route_offer(&vssd->route);
	ret = device_add_disk(NULL, vssd->disk, vssd_groups);
	if (ret)
		goto withdraw;
	clear_bit(GD_SUPPRESS_PART_SCAN, &vssd->disk->state);
	return vssd;

withdraw:
	fl_route_withdraw(&vssd->route);
	put_disk(vssd->disk);
free_tags:
	blk_mq_free_tag_set(&vssd->tags);
free_model:
	hrtimer_cancel(&vssd->timer);
	ssd_destroy(vssd->ssd);
free_queues:
	kfree(vssd->queues);
free_number:
	ida_free(&vssd_numbers, vssd->number);
free:
	kfree(vssd);
	return ERR_PTR(ret);
}

/* Take the drive away, whatever is in flight; its data are gone. May sleep. */
void vssd_destroy(struct vssd *vssd)
{
	spin_lock_irq(&vssd->lock);
	vssd->rush = true;
	spin_unlock_irq(&vssd->lock);
	hrtimer_cancel(&vssd->timer);
	vssd_run(vssd, NULL);
	/*
	 * Waits for every request, and so for the calls to other CPUs, which
	 * touch nothing of ours once they have completed their last one.
	 */
	del_gendisk(vssd->disk);
	fl_route_withdraw(&vssd->route);
	put_disk(vssd->disk);
	blk_mq_free_tag_set(&vssd->tags);
	ssd_destroy(vssd->ssd);
	vssd_store_free(&vssd->store);
	kfree(vssd->queues);
	ida_free(&vssd_numbers, vssd->number);
	kfree(vssd);
}

/* As in /sys/block; lives as long as the drive. */
const char *vssd_name(const struct vssd *vssd)
{
	return vssd->disk->disk_name;
}
