// SPDX-License-Identifier: GPL-2.0-only
/* fairlane.ko: the files of a cgroup, io.fairlane.weight and io.fairlane.stat. */
#include <linux/backing-dev.h>
#include <linux/ctype.h>
#include <linux/seq_file.h>

#include "policy.h"

/* ---- io.fairlane.weight -------------------------------------------------- */

static int fl_set_default_weight(struct blkcg *blkcg, u64 weight)
{
	struct blkcg_gq *blkg;

	if (weight < FL_WEIGHT_MIN || weight > FL_WEIGHT_MAX)
		return -ERANGE;
	spin_lock_irq(&blkcg->lock);
	WRITE_ONCE(fl_blkcg_of(blkcg)->weight, weight);
	hlist_for_each_entry(blkg, &blkcg->blkg_list, blkcg_node) {
		struct fl_kflow *kflow = fl_kflow_of(blkg_to_pd(blkg, &fl_policy));

		if (kflow && kflow->kdev && !kflow->weight)
			fl_kflow_set_weight(kflow, weight);
	}
	spin_unlock_irq(&blkcg->lock);
	return 0;
}

/* "MAJ:MIN N" and "MAJ:MIN default" */
static int fl_set_device_weight(struct blkcg *blkcg, char *buf)
{
	struct blkg_conf_ctx ctx;
	struct fl_kflow *kflow;
	bool prepared;
	u64 weight;
	int ret;

	fl_conf_init(&ctx, buf);
	ret = fl_conf_prep(blkcg, &fl_policy, buf, &ctx);
	prepared = !ret;
	if (ret)
		goto out;
	if (!strcmp(strim(ctx.body), "default")) {
		weight = 0;
	} else {
		ret = kstrtou64(strim(ctx.body), 10, &weight);
		if (ret)
			goto out;
		ret = -ERANGE;
		if (weight < FL_WEIGHT_MIN || weight > FL_WEIGHT_MAX)
			goto out;
	}
	ret = -ENODEV;
	kflow = fl_kflow_of(blkg_to_pd(ctx.blkg, &fl_policy));
	if (!kflow || !kflow->kdev)
		goto out;
	/* conf_prep holds the queue's lock, with interrupts off. */
	spin_lock(&blkcg->lock);
	WRITE_ONCE(kflow->weight, weight);
	fl_kflow_set_weight(kflow, weight ? weight : fl_blkcg_of(blkcg)->weight);
	spin_unlock(&blkcg->lock);
	ret = 0;
out:
	fl_conf_exit(&ctx, prepared);
	return ret;
}

static ssize_t fl_weight_write(struct kernfs_open_file *of, char *buf, size_t nbytes, loff_t off)
{
	struct blkcg *blkcg = css_to_blkcg(of_css(of));
	u64 weight;
	char *p;
	int ret;

	buf = strim(buf);
	p = buf;
	if (!strncmp(p, "default", 7) && isspace(p[7]))
		p = skip_spaces(p + 7);
	if (p != buf || !strchr(p, ':')) {
		ret = kstrtou64(p, 10, &weight);
		if (!ret)
			ret = fl_set_default_weight(blkcg, weight);
	} else {
		ret = fl_set_device_weight(blkcg, buf);
	}
	return ret ?: nbytes;
}

static const char *fl_dev_name(struct blkcg_gq *blkg)
{
	return blkg->q->disk ? bdi_dev_name(blkg->q->disk->bdi) : NULL;
}

static u64 fl_prfill_weight(struct seq_file *sf, struct blkg_policy_data *pd, int off)
{
	struct fl_kflow *kflow = fl_kflow_of(pd);
	const char *name = fl_dev_name(pd_to_blkg(pd));
	u32 weight = READ_ONCE(kflow->weight);

	if (name && weight)
		seq_printf(sf, "%s %u\n", name, weight);
	return 0;
}

static int fl_weight_show(struct seq_file *sf, void *v)
{
	struct blkcg *blkcg = css_to_blkcg(seq_css(sf));

	seq_printf(sf, "default %u\n", READ_ONCE(fl_blkcg_of(blkcg)->weight));
	blkcg_print_blkgs(sf, blkcg, fl_prfill_weight, &fl_policy, 0, false);
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
		if (kflow->attached)
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

static u64 fl_prfill_stat(struct seq_file *sf, struct blkg_policy_data *pd, int off)
{
	static const char *const ops[FL_NR_OPS] = { "r", "w", "d", "o" };
	struct fl_kflow *kflow = fl_kflow_of(pd);
	const char *name = fl_dev_name(pd_to_blkg(pd));
	u64 ios[FL_NR_OPS] = {}, bytes[FL_NR_OPS] = {}, cost = 0, throttled = 0, ahead = 0;
	unsigned int i;
	int op;

	if (!name || !kflow->attached)
		return 0;
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
	}
	seq_printf(sf, "%s", name);
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
	seq_printf(sf, " cost=%llu throttled_usec=%llu metabytes=%llu", cost,
		   div_u64(throttled, NSEC_PER_USEC), ahead);
	fl_print_routed(sf, kflow);
	seq_putc(sf, '\n');
	return 0;
}

static int fl_stat_show(struct seq_file *sf, void *v)
{
	blkcg_print_blkgs(sf, css_to_blkcg(seq_css(sf)), fl_prfill_stat, &fl_policy, 0, false);
	return 0;
}

struct cftype fl_cftypes[] = {
	{
		.name = "fairlane.weight",
		.flags = CFTYPE_NOT_ON_ROOT,
		.seq_show = fl_weight_show,
		.write = fl_weight_write,
	},
	{
		.name = "fairlane.stat",
		.seq_show = fl_stat_show,
	},
	{}
};
