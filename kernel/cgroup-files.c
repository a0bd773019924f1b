// SPDX-License-Identifier: GPL-2.0-only
/* fairlane.ko: the files of a cgroup, io.fairlane.weight, its fallback, .latency, .stat and .histogram. */
#include <linux/backing-dev.h>
#include <linux/ctype.h>
#include <linux/seq_file.h>

#include "policy.h"

/* ---- io.fairlane.weight, io.fairlane.weight.fallback, io.fairlane.latency --- */

const struct fl_range fl_ranges[FL_NR_SETTINGS] = {
	[FL_WEIGHT] = { FL_WEIGHT_MIN, FL_WEIGHT_MAX, FL_WEIGHT_DEFAULT },
	[FL_LATENCY] = { 0, 10 * USEC_PER_SEC, 0 }, /* 0: none */
	[FL_FALLBACK] = { FL_WEIGHT_MIN, FL_WEIGHT_MAX, FL_WEIGHT_DEFAULT },
	[FL_IO_WEIGHT] = { FL_WEIGHT_MIN, FL_WEIGHT_MAX, FL_WEIGHT_DEFAULT },
};

static int fl_parse(enum fl_setting setting, const char *text, u32 *value)
{
	u64 number;
	int ret;

	if (!strcmp(text, "default")) {
		*value = FL_NOT_SET;
		return 0;
	}
	ret = kstrtou64(text, 10, &number);
	if (ret)
		return ret;
	if (number < fl_ranges[setting].min || number > fl_ranges[setting].max)
		return -ERANGE;
	*value = number;
	return 0;
}

static int fl_set_default(struct blkcg *blkcg, enum fl_setting setting, const char *text)
{
	struct blkcg_gq *blkg;
	u32 value;
	int ret = fl_parse(setting, text, &value);

	if (ret)
		return ret;
	spin_lock_irq(&blkcg->lock);
	WRITE_ONCE(fl_blkcg_of(blkcg)->defaults[setting], value);
	hlist_for_each_entry(blkg, &blkcg->blkg_list, blkcg_node) {
		struct fl_kflow *kflow = fl_kflow_of(blkg_to_pd(blkg, &fl_policy));

		if (kflow && kflow->kdev)
			fl_kflow_update(kflow);
	}
	spin_unlock_irq(&blkcg->lock);
	return 0;
}

/* "MAJ:MIN N" and "MAJ:MIN default" */
static int fl_set_device(struct blkcg *blkcg, enum fl_setting setting, char *buf)
{
	struct fl_kept *spare = kmalloc(sizeof(*spare), GFP_KERNEL_ACCOUNT);
	struct gendisk *first = NULL; /* the disk, if this is the first that is set for it */
	struct blkg_conf_ctx ctx;
	struct fl_kflow *kflow;
	bool prepared;
	u32 value;
	int ret;

	if (!spare)
		return -ENOMEM;
	fl_conf_init(&ctx, buf);
	ret = fl_conf_prep(blkcg, &fl_policy, buf, &ctx);
	prepared = !ret;
	if (ret)
		goto out;
	ret = fl_parse(setting, strim(ctx.body), &value);
	if (ret)
		goto out;
	ret = -ENODEV;
	kflow = fl_kflow_of(blkg_to_pd(ctx.blkg, &fl_policy));
	if (!kflow || !kflow->kdev)
		goto out;
	/* conf_prep holds the queue's lock, with interrupts off. */
	spin_lock(&blkcg->lock);
	WRITE_ONCE(kflow->own[setting], value);
	fl_keep(fl_blkcg_of(blkcg), ctx.blkg->q->disk->diskseq, setting, value, &spare);
	fl_kflow_update(kflow);
	spin_unlock(&blkcg->lock);
	if (!spare) {
		first = ctx.blkg->q->disk;
		get_device(disk_to_dev(first));
	}
	ret = 0;
out:
	fl_conf_exit(&ctx, prepared);
	kfree(spare);
	if (first) {
		fl_forget_gone(fl_blkcg_of(blkcg), first);
		put_device(disk_to_dev(first));
	}
	return ret;
}

static ssize_t fl_setting_write(struct kernfs_open_file *of, char *buf, size_t nbytes, loff_t off)
{
	struct blkcg *blkcg = css_to_blkcg(of_css(of));
	enum fl_setting setting = of_cft(of)->private;
	char *p;
	int ret;

	buf = strim(buf);
	p = buf;
	if (!strncmp(p, "default", 7) && isspace(p[7]))
		p = skip_spaces(p + 7);
	if (p != buf || !strchr(p, ':'))
		ret = fl_set_default(blkcg, setting, p);
	else
		ret = fl_set_device(blkcg, setting, buf);
	return ret ?: nbytes;
}

/* NULL: it has no name (any more), or @blkg is NULL: that of a cgroup which came while we were being set up. */
static const char *fl_dev_name(struct blkcg_gq *blkg)
{
	return blkg && blkg->q->disk ? bdi_dev_name(blkg->q->disk->bdi) : NULL;
}

static u64 fl_prfill_setting(struct seq_file *sf, struct blkg_policy_data *pd, int setting)
{
	const char *name = fl_dev_name(pd_to_blkg(pd));
	u32 value = name ? READ_ONCE(fl_kflow_of(pd)->own[setting]) : FL_NOT_SET;

	if (value != FL_NOT_SET)
		seq_printf(sf, "%s %u\n", name, value);
	return 0;
}

static int fl_setting_show(struct seq_file *sf, void *v)
{
	struct blkcg *blkcg = css_to_blkcg(seq_css(sf));
	const struct fl_blkcg *fb = fl_blkcg_of(blkcg);
	enum fl_setting setting = seq_cft(sf)->private;

	seq_printf(sf, "default %u\n", fl_setting_of(fb, NULL, setting));
	if (setting == FL_FALLBACK) /* whether it counts, and so whether there is another */
		seq_printf(sf, "used %u\n", READ_ONCE(fb->defaults[FL_WEIGHT]) == FL_NOT_SET);
	blkcg_print_blkgs(sf, blkcg, fl_prfill_setting, &fl_policy, setting, false);
	return 0;
}

/* ---- io.fairlane.stat ---------------------------------------------------- */

static void fl_print_share(struct seq_file *sf, const char *name, u64 share)
{
	u64 percent = (share * 10000 + FL_SHARE_ONE / 2) / FL_SHARE_ONE;

	seq_printf(sf, " %s=%llu.%02llu", name, percent / 100, percent % 100);
}

/* Only if the scheduler routes: the flow's virtual time, and its requests by class. */
static void fl_print_routed(struct seq_file *sf, struct fl_kflow *kflow)
{
	static const char *const classes[FL_NR_CLASSES] = { "high", "medium", "low" };
	struct fl_dev *dev = &kflow->kdev->dev;
	unsigned long flags;
	u64 vt = 0, routed;
	unsigned int i;
	s64 gap = 0;
	int c;

	if (!kflow->kdev->route)
		return;
	if (dev->sched->virtual_time) {
		spin_lock_irqsave(&dev->lock, flags);
		if (kflow->attached && fl_asks(kflow->kdev))
			dev->sched->virtual_time(&kflow->flow, &vt, &gap);
		spin_unlock_irqrestore(&dev->lock, flags);
		seq_printf(sf, " vtime=%llu gap=%lld", vt, gap);
	}
	for (c = 0; c < FL_NR_CLASSES; c++) {
		for (routed = 0, i = 0; i < dev->nr_hwqs; i++) {
			struct fl_queue *q = fl_flow_queue(&kflow->flow, i);

			routed += q ? READ_ONCE(q->routed[c]) : 0;
		}
		seq_printf(sf, " %sios=%llu", classes[c], routed);
	}
}

/* What of io.fairlane.stat all schedulers have, after the drive's number. @kflow is attached. */
void fl_print_stat(struct seq_file *sf, struct fl_kflow *kflow)
{
	static const char *const ops[FL_NR_OPS] = { "r", "w", "d", "o" };
	u64 ios[FL_NR_OPS] = {}, bytes[FL_NR_OPS] = {}, cost = 0, throttled = 0, ahead = 0;
	u64 waited = 0, took = 0;
	unsigned int i;
	int op;

	for (i = 0; i < kflow->kdev->dev.nr_hwqs; i++) {
		struct fl_queue *q = fl_flow_queue(&kflow->flow, i);

		if (!q)
			continue;
		for (op = 0; op < FL_NR_OPS; op++) {
			ios[op] += READ_ONCE(q->requests[op]);
			bytes[op] += READ_ONCE(q->bytes[op]);
		}
		cost += READ_ONCE(q->cost);
		ahead += atomic64_read(&q->ahead_bytes);
		throttled += READ_ONCE(q->throttled_ns);
		waited += atomic64_read(&q->times.waited_ns);
		took += atomic64_read(&q->times.took_ns);
	}
	fl_print_share(sf, "wanted_pct", READ_ONCE(kflow->flow.share));
	/* Only computed while some flow is active; afterwards nobody gets anything. */
	fl_print_share(sf, "got_pct",
		       time_before(jiffies, READ_ONCE(kflow->kdev->got_jiffies) + 2 * HZ) ?
			       READ_ONCE(kflow->got) :
			       0);
	for (op = 0; op < FL_NR_OPS; op++)
		seq_printf(sf, " %sios=%llu", ops[op], ios[op]);
	for (op = 0; op < FL_OTHER; op++)
		seq_printf(sf, " %sbytes=%llu", ops[op], bytes[op]);
	seq_printf(sf, " cost=%llu throttled_usec=%llu metabytes=%llu waited_usec=%llu took_usec=%llu",
		   cost, div_u64(throttled, NSEC_PER_USEC), ahead, div_u64(waited, NSEC_PER_USEC),
		   div_u64(took, NSEC_PER_USEC));
}

static u64 fl_prfill_stat(struct seq_file *sf, struct blkg_policy_data *pd, int off)
{
	struct fl_kflow *kflow = fl_kflow_of(pd);
	const char *name = fl_dev_name(pd_to_blkg(pd));

	if (!name || !READ_ONCE(kflow->attached))
		return 0;
	seq_puts(sf, name);
	fl_print_stat(sf, kflow);
	fl_print_routed(sf, kflow);
	seq_putc(sf, '\n');
	return 0;
}

static int fl_stat_show(struct seq_file *sf, void *v)
{
	blkcg_print_blkgs(sf, css_to_blkcg(seq_css(sf)), fl_prfill_stat, &fl_policy, 0, false);
	return 0;
}

/* ---- io.fairlane.histogram ------------------------------------------------ */

/* Only counts that are not 0, each as FROM=N: so many requests took FROM us or more. */
static u64 fl_prfill_histogram(struct seq_file *sf, struct blkg_policy_data *pd, int off)
{
	struct fl_kflow *kflow = fl_kflow_of(pd);
	const char *name = fl_dev_name(pd_to_blkg(pd));
	unsigned int index, i;

	if (!name || !READ_ONCE(kflow->attached))
		return 0;
	seq_puts(sf, name);
	for (index = 0; index < FL_NR_TIMES; index++) {
		u64 nr = 0;

		for (i = 0; i < kflow->kdev->dev.nr_hwqs; i++) {
			struct fl_queue *q = fl_flow_queue(&kflow->flow, i);

			nr += q ? atomic64_read(&q->times.requests[index]) : 0;
		}
		if (nr)
			seq_printf(sf, " %llu=%llu", fl_times_from_us(index), nr);
	}
	seq_putc(sf, '\n');
	return 0;
}

static int fl_histogram_show(struct seq_file *sf, void *v)
{
	blkcg_print_blkgs(sf, css_to_blkcg(seq_css(sf)), fl_prfill_histogram, &fl_policy, 0, false);
	return 0;
}

struct cftype fl_cftypes[] = {
	{
		.name = "fairlane.weight",
		.private = FL_WEIGHT,
		.flags = CFTYPE_NOT_ON_ROOT,
		.seq_show = fl_setting_show,
		.write = fl_setting_write,
	},
	{
		.name = "fairlane.weight.fallback",
		.private = FL_FALLBACK,
		.flags = CFTYPE_NOT_ON_ROOT,
		.seq_show = fl_setting_show,
		.write = fl_setting_write,
	},
#ifndef CONFIG_BLK_CGROUP_IOCOST /* io.cost has it, and whoever writes weights looks for it */
	{
		.name = "weight",
		.private = FL_IO_WEIGHT,
		.flags = CFTYPE_NOT_ON_ROOT,
		.seq_show = fl_setting_show,
		.write = fl_setting_write,
	},
#endif
	{
		.name = "fairlane.latency",
		.private = FL_LATENCY,
		.flags = CFTYPE_NOT_ON_ROOT,
		.seq_show = fl_setting_show,
		.write = fl_setting_write,
	},
	{
		.name = "fairlane.stat",
		.seq_show = fl_stat_show,
	},
	{
		.name = "fairlane.histogram",
		.seq_show = fl_histogram_show,
	},
	{}
};
