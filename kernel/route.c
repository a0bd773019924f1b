// SPDX-License-Identifier: GPL-2.0-only
/*
 * fairlane-route.ko: the drives, the schedulers beside the elevator, and
 * /sys/block/DISK/fairlane/scheduler, which connects the two. A module of its own, so
 * that a driver does not pin the schedulers.
 *
 * Every disk with hardware queues has that file. Of one whose driver takes classes
 * (route.h), the struct fl_route is the driver's; of all others it is ours, and
 * lives as long as the disk is registered, or as this module.
 */
#include <linux/module.h>
#include <linux/slab.h>

#include "compat.h"
#include "route.h"

static LIST_HEAD(fl_routers);
static DEFINE_MUTEX(fl_routers_lock);

/* ---- One scheduler goes, another comes ------------------------------------- */

/* Under route->lock. */
static void fl_route_clear(struct fl_route *route)
{
	const struct fl_router *router = route->router;
	struct request_queue *q = route->disk->queue;
	unsigned int noio;

	if (!router)
		return;
	if (!route->gone)
		sysfs_unmerge_group(&disk_to_dev(route->disk)->kobj, router->files(route));
	noio = fl_freeze_and_lock(q);
	router->detach(route);
	fl_unlock_and_unfreeze(q, noio);
	WRITE_ONCE(route->router, NULL);
	module_put(router->owner);
}

/* Under route->lock. @router is referenced, which is passed on or given up. */
static int fl_route_set(struct fl_route *route, const struct fl_router *router)
{
	struct request_queue *q = route->disk->queue;
	unsigned int noio;
	int ret;

	fl_route_clear(route);
	noio = fl_freeze_and_lock(q);
	ret = router->attach(route);
	fl_unlock_and_unfreeze(q, noio);
	if (ret) {
		module_put(router->owner);
		return ret;
	}
	WRITE_ONCE(route->router, router);
	ret = sysfs_merge_group(&disk_to_dev(route->disk)->kobj, router->files(route));
	if (ret)
		fl_route_clear(route);
	return ret;
}

/* The scheduler of that name, referenced, or NULL. */
static const struct fl_router *fl_router_get(const char *name)
{
	struct fl_router *router;

	mutex_lock(&fl_routers_lock);
	list_for_each_entry(router, &fl_routers, node) {
		if (!strcmp(router->name, name) && try_module_get(router->owner)) {
			mutex_unlock(&fl_routers_lock);
			return router;
		}
	}
	mutex_unlock(&fl_routers_lock);
	return NULL;
}

/* ---- /sys/block/DISK/fairlane/scheduler ------------------------------------ */

static ssize_t fl_scheduler_show(struct device *dev, struct device_attribute *attr, char *page)
{
	struct fl_route *route = container_of(attr, struct fl_route, file);
	const struct fl_router *now, *router;
	int len;

	mutex_lock(&fl_routers_lock);
	now = READ_ONCE(route->router);
	len = sysfs_emit(page, now ? "none" : "[none]");
	list_for_each_entry(router, &fl_routers, node)
		len += sysfs_emit_at(page, len, router == now ? " [%s]" : " %s", router->name);
	mutex_unlock(&fl_routers_lock);
	return len + sysfs_emit_at(page, len, "\n");
}

static int fl_route_choose(struct fl_route *route, const char *name)
{
	const struct fl_router *router;

	if (route->gone)
		return -ENODEV;
	if (!strcmp(name, "none")) {
		fl_route_clear(route);
		return 0;
	}
	if (route->router && !strcmp(name, route->router->name))
		return 0;
	router = fl_router_get(name);
	if (!router) {
		request_module("fairlane-route-%s", name);
		router = fl_router_get(name);
	}
	if (!router)
		return -EINVAL;
	if (router->wrr && !route->ops->set_weights) {
		pr_err("fairlane: %s: no %s: the drive has no weighted round robin arbitration\n",
		       route->disk->disk_name, name);
		module_put(router->owner);
		return -EOPNOTSUPP;
	}
	return fl_route_set(route, router);
}

static ssize_t fl_scheduler_store(struct device *dev, struct device_attribute *attr,
				  const char *page, size_t count)
{
	struct fl_route *route = container_of(attr, struct fl_route, file);
	char name[32];
	int ret;

	if (strscpy(name, page, sizeof(name)) < 0)
		return -EINVAL;
	mutex_lock(&route->lock);
	ret = fl_route_choose(route, strim(name));
	mutex_unlock(&route->lock);
	return ret ?: count;
}

/* ---- Drives and schedulers come and go ------------------------------------- */

static int fl_route_add(struct fl_route *route, struct gendisk *disk, const struct fl_route_ops *ops)
{
	route->disk = disk;
	route->ops = ops;
	mutex_init(&route->lock);
	route->file = (struct device_attribute)__ATTR(scheduler, 0644, fl_scheduler_show,
						      fl_scheduler_store);
	sysfs_attr_init(&route->file.attr);
	route->files[0] = &route->file.attr;
	route->folder = (struct attribute_group){ .name = FL_ROUTE_FOLDER, .attrs = route->files };
	return sysfs_create_group(&disk_to_dev(disk)->kobj, &route->folder);
}

void fl_route_unregister(struct fl_route *route)
{
	mutex_lock(&route->lock);
	route->gone = true;
	mutex_unlock(&route->lock);
	/* Waits for who is in one of the files; who waits for the lock there finds us gone. */
	sysfs_remove_group(&disk_to_dev(route->disk)->kobj, &route->folder);
	mutex_lock(&route->lock);
	fl_route_clear(route);
	mutex_unlock(&route->lock);
}
EXPORT_SYMBOL_GPL(fl_route_unregister);

/* ---- Disks whose drivers do not know us -------------------------------------- */

struct fl_plain_route {
	struct fl_route route;
	struct list_head node; /* in fl_plain_routes */
};

static LIST_HEAD(fl_plain_routes);
static DEFINE_MUTEX(fl_plain_lock);
static const struct fl_route_ops fl_plain_ops;

static int fl_plain_add(FL_CLASS_ARGS)
{
	struct gendisk *disk = dev_to_disk(dev);
	struct fl_plain_route *plain;
	int ret;

	if (bdev_is_partition(dev_to_bdev(dev)) || !queue_is_mq(disk->queue))
		return 0;
	plain = kzalloc(sizeof(*plain), GFP_KERNEL);
	if (!plain)
		return -ENOMEM;
	ret = fl_route_add(&plain->route, disk, &fl_plain_ops);
	if (ret) {
		kfree(plain);
		return ret;
	}
	mutex_lock(&fl_plain_lock);
	list_add(&plain->node, &fl_plain_routes);
	mutex_unlock(&fl_plain_lock);
	return 0;
}

static void fl_plain_remove(struct gendisk *disk)
{
	struct fl_plain_route *plain, *found = NULL;

	mutex_lock(&fl_plain_lock);
	list_for_each_entry(plain, &fl_plain_routes, node) {
		if (plain->route.disk == disk) {
			list_del(&plain->node);
			found = plain;
			break;
		}
	}
	mutex_unlock(&fl_plain_lock);
	if (found) {
		fl_route_unregister(&found->route);
		kfree(found);
	}
}

static void fl_class_remove(FL_CLASS_ARGS)
{
	if (!bdev_is_partition(dev_to_bdev(dev)))
		fl_plain_remove(dev_to_disk(dev));
}

static struct class_interface fl_disks = {
	.add_dev = fl_plain_add,
	.remove_dev = fl_class_remove,
};

/* The class of all disks is not exported; but each disk knows it. */
static int __init fl_disks_init(void)
{
	struct gendisk *disk = fl_alloc_disk();

	if (IS_ERR_OR_NULL(disk))
		return -ENOMEM;
	fl_disks.class = disk_to_dev(disk)->class;
	put_disk(disk);
	return class_interface_register(&fl_disks);
}

static void __exit fl_disks_exit(void)
{
	class_interface_unregister(&fl_disks);
}

module_init(fl_disks_init);
module_exit(fl_disks_exit);

/* ---- Disks whose drivers do -------------------------------------------------- */

int fl_route_register(struct fl_route *route, struct gendisk *disk, const struct fl_route_ops *ops)
{
	fl_plain_remove(disk);
	return fl_route_add(route, disk, ops);
}
EXPORT_SYMBOL_GPL(fl_route_register);

void fl_router_register(struct fl_router *router)
{
	mutex_lock(&fl_routers_lock);
	list_add_tail(&router->node, &fl_routers);
	mutex_unlock(&fl_routers_lock);
}
EXPORT_SYMBOL_GPL(fl_router_register);

void fl_router_unregister(struct fl_router *router)
{
	mutex_lock(&fl_routers_lock);
	list_del(&router->node);
	mutex_unlock(&fl_routers_lock);
}
EXPORT_SYMBOL_GPL(fl_router_unregister);

MODULE_LICENSE("GPL");
MODULE_DESCRIPTION("fairlane: drives that schedulers choose classes of submission queues for");
