// SPDX-License-Identifier: GPL-2.0-only
/*
 * The livepatch as a module: its transitions, and the queues of devices.
 *
 * During a transition some tasks run the old functions and some the new ones.
 * Without a queue both do the same, so queues are created after the transition
 * to the new functions and destroyed before the one back. A notifier does both:
 * when it is registered or unregistered, the kernel calls it for every device
 * of every network namespace.
 */
#include <linux/livepatch.h>
#include <linux/module.h>
#include <linux/netdevice.h>
#include <linux/rtnetlink.h>
#include <linux/workqueue.h>
#include <net/net_namespace.h>

#include "../compat/module_rodata.h"
#include "live.h"
#include "proof.h"

/* The interval at which sleeping consumers are woken during a transition. */
#define NODROP_LIVE_NUDGE_MS 20

/* A note: lengths of name and content, type, name, content. */
struct nodrop_live_build_id {
	u32 name_size;
	u32 size;
	u32 type;
	char name[4];
	u8 id[20];
};

static struct nodrop_live_build_id nodrop_live_tun_id = {
	4, 20, 3, "GNU", NODROP_LIVE_TUN_ID
};

static struct nodrop_live_build_id nodrop_live_vhost_id = {
	4, 20, 3, "GNU", NODROP_LIVE_VHOST_ID
};

/* Does the build id match the module that dkms/prove has checked? */
static bool nodrop_live_fits(const struct module *module,
			     const struct nodrop_live_build_id *id)
{
	unsigned int at, size;
	const void *rodata = nodrop_module_rodata(module, &size);

	for (at = 0; at + sizeof(*id) <= size; at += sizeof(u32))
		if (!memcmp(rodata + at, id, sizeof(*id)))
			return true;
	pr_err("nodrop_live: the %s.ko that is loaded is not the one that this was built for: load the distribution's own, or build again\n",
	       module->name);
	return false;
}

/* The notifier is registered and stays so. Events come with RTNL held. */
static bool nodrop_live_on;

static int nodrop_live_event(struct notifier_block *nb, unsigned long event,
			     void *info)
{
	struct net_device *dev = netdev_notifier_info_to_dev(info);

	if (!nodrop_live_is_tun(dev))
		return NOTIFY_DONE;
	switch (event) {
	case NETDEV_REGISTER:	/* with its first queue */
		/* Without memory: as on a kernel without the hook. */
		nodrop_egress_add(dev);
		fallthrough;
	case NETDEV_UP:
	case NETDEV_CHANGE:	/* sent when a queue is attached or detached */
		nodrop_live_join(dev);
		break;
	case NETDEV_UNREGISTER:
		nodrop_live_leave(dev, !READ_ONCE(nodrop_live_on));
		nodrop_egress_remove(dev);
		break;
	}
	return NOTIFY_DONE;
}

static struct notifier_block nodrop_live_notifier = {
	.notifier_call = nodrop_live_event,
};

/*
 * Does not wait for RTNL: livepatch's mutex is held when this is cancelled, and
 * a task that holds RTNL may wait for that mutex while it loads a module.
 */
static void nodrop_live_nudge_all(struct work_struct *work)
{
	struct net_device *dev;
	struct net *net;

	if (rtnl_trylock()) {
		down_read(&net_rwsem);
		for_each_net(net)
			for_each_netdev(net, dev)
				if (nodrop_live_is_tun(dev))
					nodrop_live_nudge(dev);
		up_read(&net_rwsem);
		rtnl_unlock();
	}
	schedule_delayed_work(to_delayed_work(work),
			      msecs_to_jiffies(NODROP_LIVE_NUDGE_MS));
}

static DECLARE_DELAYED_WORK(nodrop_live_nudger, nodrop_live_nudge_all);

static void nodrop_live_nudge_begin(void)
{
	schedule_delayed_work(&nodrop_live_nudger,
			      msecs_to_jiffies(NODROP_LIVE_NUDGE_MS));
}

static int nodrop_live_pre_patch(struct klp_object *obj)
{
	if (!nodrop_live_fits(obj->mod, &nodrop_live_tun_id))
		return -ENODEV;
	nodrop_live_nudge_begin();
	return 0;
}

/* All tasks run the new functions. */
static void nodrop_live_post_patch(struct klp_object *obj)
{
	int err;

	cancel_delayed_work_sync(&nodrop_live_nudger);
	if (nodrop_live_on)
		return;
	nodrop_live_begin();
	err = register_netdevice_notifier(&nodrop_live_notifier);
	WRITE_ONCE(nodrop_live_on, !err);
	if (err)
		pr_err("nodrop_live: no flow control: error %d\n", err);
}

static void nodrop_live_pre_unpatch(struct klp_object *obj)
{
	bool on = nodrop_live_on;

	WRITE_ONCE(nodrop_live_on, false);
	if (on)
		unregister_netdevice_notifier(&nodrop_live_notifier);
	nodrop_live_nudge_begin();
}

/* No task runs the new functions, or tun.ko is unloaded. */
static void nodrop_live_post_unpatch(struct klp_object *obj)
{
	cancel_delayed_work_sync(&nodrop_live_nudger);
}

static int nodrop_live_pre_patch_vhost(struct klp_object *obj)
{
	return nodrop_live_fits(obj->mod, &nodrop_live_vhost_id) ? 0 : -ENODEV;
}

static struct klp_object nodrop_live_objects[] = {
	{
		.name = "tun",
		.funcs = nodrop_live_tun_funcs,
		.callbacks = {
			.pre_patch = nodrop_live_pre_patch,
			.post_patch = nodrop_live_post_patch,
			.pre_unpatch = nodrop_live_pre_unpatch,
			.post_unpatch = nodrop_live_post_unpatch,
		},
	},
	{
		.name = "vhost_net",
		.funcs = nodrop_live_vhost_funcs,
		.callbacks = {
			.pre_patch = nodrop_live_pre_patch_vhost,
		},
	},
	{ }
};

/*
 * A cumulative patch (.replace) would remove this one without its callbacks,
 * and leave queues and the notifier behind. The kernel refuses one that does
 * not know this state.
 */
static struct klp_state nodrop_live_states[] = {
	{ .id = 0x6e6f6472, .version = 1 },
	{ }
};

static struct klp_patch nodrop_live_patch = {
	.mod = THIS_MODULE,
	.objs = nodrop_live_objects,
	.states = nodrop_live_states,
};

static int __init nodrop_live_init(void)
{
	return klp_enable_patch(&nodrop_live_patch);
}
module_init(nodrop_live_init);

/* The kernel calls this only if no task runs the new functions. */
static void __exit nodrop_live_exit(void)
{
}
module_exit(nodrop_live_exit);

MODULE_DESCRIPTION("Flow control for a running tun.ko and vhost_net.ko");
MODULE_LICENSE("GPL");
MODULE_INFO(livepatch, "Y");
MODULE_INFO(nodrop, NODROP_VERSION);
MODULE_INFO(version, NODROP_VERSION);
