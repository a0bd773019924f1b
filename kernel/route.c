// SPDX-License-Identifier: GPL-2.0-only
/*
 * fairlane-route.ko: the drives, the schedulers beside the elevator, and
 * /sys/block/DISK/fairlane/scheduler, which connects the two. A module of its own, so
 * that a driver does not pin the schedulers.
 *
 * Every disk with hardware queues has that file, as long as it is registered, or as
 * this module is there. A driver that takes classes offers its tag set (route.h), by
 * which its disks are known.
 */
#include <linux/module.h>
#include <linux/slab.h>

#include "compat.h"
#include "route.h"

static LIST_HEAD(fl_routers);
static DEFINE_MUTEX(fl_routers_lock);
static LIST_HEAD(fl_offers);
static LIST_HEAD(fl_routes);
static DEFINE_MUTEX(fl_routes_lock); /* both lists, and that one disk of an offer is chosen */

/* ---- One scheduler goes, another comes ------------------------------------- */

/* Under route->lock. */
static void fl_route_clear(struct fl_route *route)
{
	const struct fl_router *router = route->router;
	unsigned int noio;

	if (!router)
		return;
	if (!route->gone)
		sysfs_unmerge_group(&disk_to_dev(route->disk)->kobj, router->files(route));
	noio = fl_freeze_and_lock(route->q);
	router->detach(route);
	if (router->wrr) { /* only now: the next one's weights are set after our last ones */
		route->offer->clear_weights(route->offer);
		mutex_lock(&fl_routes_lock);
		rcu_assign_pointer(route->offer->chosen, NULL);
		mutex_unlock(&fl_routes_lock);
	}
	fl_unlock_and_unfreeze(route->q, noio);
	WRITE_ONCE(route->router, NULL);
	module_put(router->owner);
}

/*
 * Of a drive with several disks, the weights of its classes are there once, so one disk
 * alone may have a scheduler that routes. Under fl_routes_lock.
 */
static int fl_route_alone(struct fl_route *route)
{
	struct fl_route *other =
		rcu_dereference_protected(route->offer->chosen, lockdep_is_held(&fl_routes_lock));

	if (!other || other == route)
		return 0;
	pr_err("fairlane: %s: %s has its drive's weights: write none to its fairlane/scheduler first\n",
	       route->disk->disk_name, other->disk->disk_name);
	return -EBUSY;
}

/* The queue is frozen. */
static int fl_route_attach(struct fl_route *route, const struct fl_router *router)
{
	int ret;

	if (!router->wrr)
		return router->attach(route);
	mutex_lock(&fl_routes_lock);
	ret = fl_route_alone(route);
	if (!ret) {
		ret = router->attach(route);
		if (ret) /* it may have set some */
			route->offer->clear_weights(route->offer);
		else
			rcu_assign_pointer(route->offer->chosen, route);
	}
	mutex_unlock(&fl_routes_lock);
	return ret;
}

/* Under route->lock. @router is referenced, which is passed on or given up. */
static int fl_route_set(struct fl_route *route, const struct fl_router *router)
{
	unsigned int noio;
	int ret;

	fl_route_clear(route);
	noio = fl_freeze_and_lock(route->q);
	ret = fl_route_attach(route, router);
	fl_unlock_and_unfreeze(route->q, noio);
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
	list_for_each_entry(router, &fl_routers, node) {
		if (router->wrr && !route->offer) /* as fl_route_possible() has it */
			continue;
		len += sysfs_emit_at(page, len, router == now ? " [%s]" : " %s", router->name);
	}
	mutex_unlock(&fl_routers_lock);
	return len + sysfs_emit_at(page, len, "\n");
}

static int fl_route_possible(struct fl_route *route, const struct fl_router *router)
{
	int ret;

	if (!router->wrr)
		return 0;
	if (!route->offer) {
		pr_err("fairlane: %s: no %s: the drive has no weighted round robin arbitration\n",
		       route->disk->disk_name, router->name);
		return -EOPNOTSUPP;
	}
	mutex_lock(&fl_routes_lock);
	ret = fl_route_alone(route);
	mutex_unlock(&fl_routes_lock);
	return ret;
}

static int fl_route_choose(struct fl_route *route, const char *name)
{
	const struct fl_router *router;
	int ret;

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
	ret = fl_route_possible(route, router);
	if (!ret && !fl_hwqs_trylock(route->q))
		ret = -EBUSY;
	if (ret) { /* what was chosen before stays */
		module_put(router->owner);
		return ret;
	}
	ret = fl_route_set(route, router);
	fl_hwqs_unlock(route->q);
	return ret;
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

/* ---- Drives, disks and schedulers come and go -------------------------------- */

void fl_route_offer(struct fl_route_offer *offer)
{
	mutex_lock(&fl_routes_lock);
	list_add(&offer->node, &fl_offers);
	mutex_unlock(&fl_routes_lock);
}
EXPORT_SYMBOL_GPL(fl_route_offer);

void fl_route_withdraw(struct fl_route_offer *offer)
{
	mutex_lock(&fl_routes_lock);
	if (offer->node.next) {
		list_del(&offer->node);
		offer->node.next = NULL;
	}
	mutex_unlock(&fl_routes_lock);
}
EXPORT_SYMBOL_GPL(fl_route_withdraw);

/* The drive that a disk belongs to, if it was offered. Under fl_routes_lock. */
static struct fl_route_offer *fl_offer_of(struct gendisk *disk)
{
	struct fl_route_offer *offer;

	list_for_each_entry(offer, &fl_offers, node)
		if (offer->tags == disk->queue->tag_set)
			return offer;
	return NULL;
}

static int fl_route_add(FL_CLASS_ARGS)
{
	struct gendisk *disk = dev_to_disk(dev);
	struct fl_route *route;
	int ret;

	if (bdev_is_partition(dev_to_bdev(dev)) || !queue_is_mq(disk->queue))
		return 0;
	route = kzalloc(sizeof(*route), GFP_KERNEL);
	if (!route)
		return -ENOMEM;
	route->disk = disk;
	route->q = disk->queue;
	mutex_init(&route->lock);
	route->file = (struct device_attribute)__ATTR(scheduler, 0644, fl_scheduler_show,
						      fl_scheduler_store);
	sysfs_attr_init(&route->file.attr);
	route->files[0] = &route->file.attr;
	route->folder = (struct attribute_group){ .name = FL_ROUTE_FOLDER, .attrs = route->files };
	mutex_lock(&fl_routes_lock);
	route->offer = fl_offer_of(disk);
	list_add(&route->node, &fl_routes);
	mutex_unlock(&fl_routes_lock);
	ret = sysfs_create_group(&disk_to_dev(disk)->kobj, &route->folder);
	if (ret) {
		mutex_lock(&fl_routes_lock);
		list_del(&route->node);
		mutex_unlock(&fl_routes_lock);
		kfree(route);
	}
	return ret;
}

static struct fl_route *fl_route_unlist(struct gendisk *disk)
{
	struct fl_route *route, *found = NULL;

	mutex_lock(&fl_routes_lock);
	list_for_each_entry(route, &fl_routes, node) {
		if (route->disk == disk) {
			list_del(&route->node);
			found = route;
			break;
		}
	}
	mutex_unlock(&fl_routes_lock);
	return found;
}

/*
 * Waits for the disk's requests, under a lock of all disks' class: while a drive answers
 * none, no other comes or goes, and nobody can open one whose partitions are to be read.
 */
static void fl_route_remove(FL_CLASS_ARGS)
{
	struct fl_route *route;

	if (bdev_is_partition(dev_to_bdev(dev)))
		return;
	route = fl_route_unlist(dev_to_disk(dev));
	if (!route)
		return;
	mutex_lock(&route->lock);
	route->gone = true;
	mutex_unlock(&route->lock);
	/* Waits for who is in one of the files; who waits for the lock there finds us gone. */
	sysfs_remove_group(&disk_to_dev(route->disk)->kobj, &route->folder);
	mutex_lock(&route->lock);
	fl_route_clear(route);
	mutex_unlock(&route->lock);
	kfree_rcu(route, rcu);
}

static struct class_interface fl_disks = {
	.add_dev = fl_route_add,
	.remove_dev = fl_route_remove,
};

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

MODULE_LICENSE("GPL");
MODULE_DESCRIPTION("fairlane: drives that schedulers choose classes of submission queues for");
