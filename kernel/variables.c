// SPDX-License-Identifier: GPL-2.0-only
/*
 * fairlane.ko: a scheduler's variables and price list as sysfs files, in
 * queue/iosched/ for an elevator, in fairlane/ for a scheduler that routes.
 */
#include <linux/kernel.h>
#include <linux/slab.h>

#include "policy.h"

/* The host's own: see watchdog.c. */
static const struct fl_var fl_watchdog_msec = {
	.name = "watchdog_msec",
	.max = 10 * 60 * MSEC_PER_SEC,
};

static u64 *fl_kvar_ptr(struct fl_kdev *kdev, const struct fl_var *var)
{
	return var == &fl_watchdog_msec ? &kdev->watchdog_msec : fl_var_ptr(&kdev->dev, var);
}

/* Counters are written under dev->lock, some in several steps; others, and tunables, with WRITE_ONCE(). */
static ssize_t fl_var_show(struct fl_kdev *kdev, const struct fl_var *var, char *page)
{
	u64 value;

	spin_lock_irq(&kdev->dev.lock);
	value = READ_ONCE(*fl_kvar_ptr(kdev, var));
	spin_unlock_irq(&kdev->dev.lock);
	return sysfs_emit(page, "%llu\n", value);
}

static ssize_t fl_var_store(struct fl_kdev *kdev, const struct fl_var *var, const char *page,
			    size_t count)
{
	u64 value;
	int ret;

	ret = kstrtou64(page, 10, &value);
	if (ret)
		return ret;
	if (value < var->min || value > var->max)
		return -ERANGE;
	WRITE_ONCE(*fl_kvar_ptr(kdev, var), value);
	return count;
}

/*
 * prices: the price list, as fl_prices_parse() takes it. Replaced while the
 * queue is frozen, with no request in flight, so that each is charged and given
 * back at the same prices. Under dev->lock: two may have the queue frozen at once, and
 * a tick or a reader need not.
 */
static ssize_t fl_prices_show(struct fl_kdev *kdev, char *page)
{
	struct fl_prices prices;
	int op, i, len = 0;

	spin_lock_irq(&kdev->dev.lock);
	prices = kdev->dev.prices;
	spin_unlock_irq(&kdev->dev.lock);
	for (op = FL_READ; op <= FL_WRITE; op++) {
		len += sysfs_emit_at(page, len, "%s", op == FL_READ ? "read" : "write");
		for (i = 0; i < FL_PRICE_SIZES; i++)
			len += sysfs_emit_at(page, len, " %u", prices.price[op][i]);
		len += sysfs_emit_at(page, len, "\n");
	}
	return len;
}

static ssize_t fl_prices_store(struct fl_kdev *kdev, const char *page, size_t count)
{
	struct fl_prices prices;
	unsigned int noio;

	if (!fl_prices_parse(&prices, page))
		return -EINVAL;
	noio = fl_freeze(kdev->q);
	spin_lock_irq(&kdev->dev.lock);
	kdev->dev.prices = prices;
	spin_unlock_irq(&kdev->dev.lock);
	fl_unfreeze(kdev->q, noio);
	return count;
}

static ssize_t fl_kvar_show(struct device *dev, struct device_attribute *attr, char *page)
{
	struct fl_kvar *kvar = container_of(attr, struct fl_kvar, attr);

	return kvar->var ? fl_var_show(kvar->kdev, kvar->var, page) :
			   fl_prices_show(kvar->kdev, page);
}

static ssize_t fl_kvar_store(struct device *dev, struct device_attribute *attr, const char *page,
			     size_t count)
{
	struct fl_kvar *kvar = container_of(attr, struct fl_kvar, attr);

	return kvar->var ? fl_var_store(kvar->kdev, kvar->var, page, count) :
			   fl_prices_store(kvar->kdev, page, count);
}

/* For a scheduler that routes: its variables, the host's, and prices, as files of the fairlane folder. */
int fl_kdev_init_vars(struct fl_kdev *kdev)
{
	const struct fl_var *var;
	unsigned int nr = 2, i;

	for (var = kdev->dev.sched->vars; var->name; var++)
		nr++;
	kdev->vars = kcalloc(nr, sizeof(kdev->vars[0]), GFP_KERNEL);
	kdev->files.attrs = kcalloc(nr + 1, sizeof(kdev->files.attrs[0]), GFP_KERNEL);
	if (!kdev->vars || !kdev->files.attrs)
		return -ENOMEM;
	kdev->files.name = FL_ROUTE_FOLDER;
	for (i = 0; i < nr; i++) {
		struct fl_kvar *kvar = &kdev->vars[i];

		kvar->kdev = kdev;
		kvar->var = i < nr - 2 ? &kdev->dev.sched->vars[i] :
			    i < nr - 1 ? &fl_watchdog_msec :
					 NULL;
		sysfs_attr_init(&kvar->attr.attr);
		kvar->attr.attr.name = kvar->var ? kvar->var->name : "prices";
		kvar->attr.attr.mode = !kvar->var || fl_var_tunable(kvar->var) ? 0644 : 0444;
		kvar->attr.show = fl_kvar_show;
		kvar->attr.store = fl_kvar_store;
		kdev->files.attrs[i] = &kvar->attr.attr;
	}
	return 0;
}

/* ---- queue/iosched/ ------------------------------------------------------ */

static ssize_t fl_elv_prices_show(struct elevator_queue *e, char *page)
{
	return fl_prices_show(e->elevator_data, page);
}

static ssize_t fl_elv_prices_store(struct elevator_queue *e, const char *page, size_t count)
{
	return fl_prices_store(e->elevator_data, page, count);
}

static ssize_t fl_elv_watchdog_show(struct elevator_queue *e, char *page)
{
	return fl_var_show(e->elevator_data, &fl_watchdog_msec, page);
}

static ssize_t fl_elv_watchdog_store(struct elevator_queue *e, const char *page, size_t count)
{
	return fl_var_store(e->elevator_data, &fl_watchdog_msec, page, count);
}

static ssize_t fl_elv_var_show(struct elevator_queue *e, unsigned int i, char *page)
{
	struct fl_kdev *kdev = e->elevator_data;

	return fl_var_show(kdev, &kdev->dev.sched->vars[i], page);
}

static ssize_t fl_elv_var_store(struct elevator_queue *e, unsigned int i, const char *page,
				size_t count)
{
	struct fl_kdev *kdev = e->elevator_data;

	return fl_var_store(kdev, &kdev->dev.sched->vars[i], page, count);
}

/* An elevator attribute's functions are not told which attribute it is: so one pair for each. */
#define FL_VAR(i)                                                                                 \
	static ssize_t fl_show_##i(struct elevator_queue *e, char *page)                          \
	{                                                                                         \
		return fl_elv_var_show(e, i, page);                                               \
	}                                                                                         \
	static ssize_t fl_store_##i(struct elevator_queue *e, const char *page, size_t count)     \
	{                                                                                         \
		return fl_elv_var_store(e, i, page, count);                                       \
	}
#define FL_VARS(X)                                                                                \
	X(0) X(1) X(2) X(3) X(4) X(5) X(6) X(7) X(8) X(9) X(10) X(11) X(12) X(13) X(14) X(15)     \
	X(16) X(17) X(18) X(19) X(20) X(21) X(22) X(23)
FL_VARS(FL_VAR)

#define FL_VAR_OPS(i) { .show = fl_show_##i, .store = fl_store_##i },
static const struct elv_fs_entry fl_var_ops[FL_MAX_VARS] = { FL_VARS(FL_VAR_OPS) };

/* Fill @attrs, which has FL_NR_ATTRS entries, with the variables of @sched, the host's, and prices. */
int fl_attrs_init(struct elv_fs_entry *attrs, const struct fl_sched *sched)
{
	const struct fl_var *var;
	unsigned int i = 0;

	for (var = sched->vars; var->name; var++, i++) {
		if (WARN_ON_ONCE(i == FL_MAX_VARS))
			return -E2BIG;
		attrs[i] = fl_var_ops[i];
		attrs[i].attr.name = var->name;
		attrs[i].attr.mode = fl_var_tunable(var) ? 0644 : 0444;
	}
	attrs[i++] = (struct elv_fs_entry)__ATTR(watchdog_msec, 0644, fl_elv_watchdog_show,
						  fl_elv_watchdog_store);
	attrs[i] = (struct elv_fs_entry)__ATTR(prices, 0644, fl_elv_prices_show,
						fl_elv_prices_store);
	return 0;
}
EXPORT_SYMBOL_GPL(fl_attrs_init);
