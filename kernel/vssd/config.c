// SPDX-License-Identifier: GPL-2.0-only
/*
 * Virtual SSDs are made and taken away in configfs:
 *
 *	modprobe configfs; insmod vssd.ko
 *	mount -t configfs none /sys/kernel/config
 *	cd /sys/kernel/config/vssd; mkdir d; cd d
 *	echo 100 > time_scale; echo 8 > channels; ...	what differs from the defaults
 *	echo 1 > power					makes the drive; its data are zeroes
 *	cat disk					vssd0: its name in /sys/block and /dev
 *	echo 0 > power; cd ..; rmdir d			the drive and its data are gone
 *
 * Each number of a drive (SSD_PROFILE in ssd/profile.h), and of how it is played
 * here (VSSD_PARAMS in vssd.h), is a file, in the unit documented there. There
 * are also:
 *
 *	power	0 or 1. EINVAL: no drive can have these values, see `check`; ENOMEM:
 *		the kernel is short of memory for the model.
 *	disk	read only: the drive's name; empty without power
 *	check	read only: what is wrong with the values, as a sentence; empty: nothing
 *
 * A number is refused with ERANGE when it is out of its range and with EBUSY
 * while the drive has power. The files of a running drive are in disk.c.
 */
#include <linux/configfs.h>
#include <linux/log2.h>
#include <linux/mm.h>
#include <linux/module.h>
#include <linux/mutex.h>
#include <linux/rcupdate.h>
#include <linux/slab.h>

#include "vssd.h"

struct vssd_config {
	struct config_item item;
	struct mutex lock; /* for what follows */
	struct vssd_params params;
	struct vssd *vssd; /* NULL: no power */
};

static struct vssd_config *to_vssd_config(struct config_item *item)
{
	return container_of(item, struct vssd_config, item);
}

/* ---- The numbers ---------------------------------------------------------- */

static ssize_t vssd_value_store(struct vssd_config *config, u64 *value, u64 min, u64 max,
				const char *page, size_t count)
{
	ssize_t ret;
	u64 got;

	ret = kstrtou64(page, 0, &got);
	if (ret)
		return ret;
	if (got < min || got > max)
		return -ERANGE;
	mutex_lock(&config->lock);
	if (config->vssd)
		ret = -EBUSY;
	else
		*value = got;
	mutex_unlock(&config->lock);
	return ret ?: count;
}

/* configfs does not say which attribute is meant, so each has a pair of functions. */
#define VSSD_VALUE(name, value, min, max)                                                         \
	static ssize_t vssd_##name##_show(struct config_item *item, char *page)                   \
	{                                                                                         \
		return sysfs_emit(page, "%llu\n", READ_ONCE(to_vssd_config(item)->value));        \
	}                                                                                         \
	static ssize_t vssd_##name##_store(struct config_item *item, const char *page,            \
					   size_t count)                                          \
	{                                                                                         \
		struct vssd_config *config = to_vssd_config(item);                                \
                                                                                                  \
		return vssd_value_store(config, &config->value, min, max, page, count);           \
	}                                                                                         \
	CONFIGFS_ATTR(vssd_, name);
#define VSSD_PROFILE_VALUE(name, unit, min, max, def, help) \
	VSSD_VALUE(name, params.profile.name, min, max)
#define VSSD_PARAM_VALUE(name, unit, min, max, def, help) VSSD_VALUE(name, params.name, min, max)
SSD_PROFILE(VSSD_PROFILE_VALUE)
VSSD_PARAMS(VSSD_PARAM_VALUE)

static void vssd_params_init(struct vssd_params *params)
{
	ssd_profile_init(&params->profile);
#define VSSD_PARAM_DEFAULT(name, unit, min, max, def, help) params->name = def;
	VSSD_PARAMS(VSSD_PARAM_DEFAULT)
}

/*
 * Most bytes that a drive's model may take. They are never given back while the
 * drive has power, and one allocation of the kernel is not larger than INT_MAX.
 */
static u64 vssd_max_memory(void)
{
	return min_t(u64, (u64)(totalram_pages() / 4) << PAGE_SHIFT, INT_MAX);
}

/* Why no drive can be made of @params, and the name of the value at fault; NULL: one can. */
static const char *vssd_params_check(const struct vssd_params *params, const char **name)
{
	const struct ssd_profile_field *field;
	const char *wrong = ssd_profile_check(&params->profile, &field);

	if (wrong) {
		*name = field->name;
		return wrong;
	}
	*name = "block_size";
	if (!is_power_of_2(params->block_size) || params->block_size > PAGE_SIZE)
		return "must be a power of two, not more than the kernel's page";
	*name = "map";
	if (ssd_memory(&params->profile) > vssd_max_memory())
		return "has tables of more than a quarter of the machine's memory, or than 2 GiB; "
		       "make it smaller, or unit larger";
	return NULL;
}

/* ---- Power ---------------------------------------------------------------- */

/* Under config->lock. */
static int vssd_power_on(struct vssd_config *config)
{
	struct vssd_params params = config->params;
	struct vssd *vssd;
	const char *name;

	if (vssd_params_check(&params, &name))
		return -EINVAL;
	if (!params.memory)
		params.memory = (u64)(totalram_pages() / 2) << PAGE_SHIFT;
	vssd = vssd_create(&params);
	if (IS_ERR(vssd))
		return PTR_ERR(vssd);
	config->vssd = vssd;
	return 0;
}

static void vssd_power_off(struct vssd_config *config)
{
	vssd_destroy(config->vssd);
	config->vssd = NULL;
}

static ssize_t vssd_power_store(struct config_item *item, const char *page, size_t count)
{
	struct vssd_config *config = to_vssd_config(item);
	bool on;
	int ret;

	ret = kstrtobool(page, &on);
	if (ret)
		return ret;
	mutex_lock(&config->lock);
	if (on && !config->vssd)
		ret = vssd_power_on(config);
	else if (!on && config->vssd)
		vssd_power_off(config);
	mutex_unlock(&config->lock);
	return ret ?: count;
}

static ssize_t vssd_power_show(struct config_item *item, char *page)
{
	return sysfs_emit(page, "%d\n", !!READ_ONCE(to_vssd_config(item)->vssd));
}

static ssize_t vssd_disk_show(struct config_item *item, char *page)
{
	struct vssd_config *config = to_vssd_config(item);
	ssize_t ret;

	mutex_lock(&config->lock);
	ret = config->vssd ? sysfs_emit(page, "%s\n", vssd_name(config->vssd)) : 0;
	mutex_unlock(&config->lock);
	return ret;
}

static ssize_t vssd_check_show(struct config_item *item, char *page)
{
	struct vssd_config *config = to_vssd_config(item);
	const char *name, *wrong;
	ssize_t ret;

	mutex_lock(&config->lock);
	wrong = vssd_params_check(&config->params, &name);
	ret = wrong ? sysfs_emit(page, "%s %s\n", name, wrong) : 0;
	mutex_unlock(&config->lock);
	return ret;
}

CONFIGFS_ATTR(vssd_, power);
CONFIGFS_ATTR_RO(vssd_, disk);
CONFIGFS_ATTR_RO(vssd_, check);

/* ---- Folders -------------------------------------------------------------- */

#define VSSD_ATTR_ENTRY(name, unit, min, max, def, help) &vssd_attr_##name,
static struct configfs_attribute *vssd_attrs[] = {
	SSD_PROFILE(VSSD_ATTR_ENTRY)
	VSSD_PARAMS(VSSD_ATTR_ENTRY)
	&vssd_attr_power,
	&vssd_attr_disk,
	&vssd_attr_check,
	NULL,
};

static void vssd_release(struct config_item *item)
{
	kfree(to_vssd_config(item));
}

static struct configfs_item_operations vssd_item_ops = { .release = vssd_release };

static const struct config_item_type vssd_item_type = {
	.ct_item_ops = &vssd_item_ops,
	.ct_attrs = vssd_attrs,
	.ct_owner = THIS_MODULE,
};

static struct config_item *vssd_make_item(struct config_group *group, const char *name)
{
	struct vssd_config *config = kzalloc(sizeof(*config), GFP_KERNEL);

	if (!config)
		return ERR_PTR(-ENOMEM);
	mutex_init(&config->lock);
	vssd_params_init(&config->params);
	config_item_init_type_name(&config->item, name, &vssd_item_type);
	return &config->item;
}

static void vssd_drop_item(struct config_group *group, struct config_item *item)
{
	struct vssd_config *config = to_vssd_config(item);

	mutex_lock(&config->lock);
	if (config->vssd)
		vssd_power_off(config);
	mutex_unlock(&config->lock);
	config_item_put(item);
}

static struct configfs_group_operations vssd_group_ops = {
	.make_item = vssd_make_item,
	.drop_item = vssd_drop_item,
};

static const struct config_item_type vssd_group_type = {
	.ct_group_ops = &vssd_group_ops,
	.ct_owner = THIS_MODULE,
};

static struct configfs_subsystem vssd_subsys = {
	.su_group.cg_item = { .ci_namebuf = "vssd", .ci_type = &vssd_group_type },
	.su_mutex = __MUTEX_INITIALIZER(vssd_subsys.su_mutex),
};

static int __init vssd_init(void)
{
	config_group_init(&vssd_subsys.su_group);
	return configfs_register_subsystem(&vssd_subsys);
}

static void __exit vssd_exit(void)
{
	/* No folder is left, or this module would be pinned. But RCU may still have pages to free. */
	configfs_unregister_subsystem(&vssd_subsys);
	rcu_barrier();
}

module_init(vssd_init);
module_exit(vssd_exit);

MODULE_LICENSE("GPL");
MODULE_DESCRIPTION("fairlane: virtual multi-queue NVMe SSD");
