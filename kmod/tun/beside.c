// SPDX-License-Identifier: GPL-2.0-only
/*
 * nodrop_tun: nodrop's tun beside one that is built into the kernel
 * (CONFIG_TUN=y), which cannot be replaced.
 *
 * While this module is loaded, it gets each open of the character device
 * 10:200, by whatever node. Files that were open before keep the built-in
 * driver, and so do their devices. Each driver knows its own by its tun_fops
 * and tun_link_ops. An open is passed on to the built-in driver if it may be
 * meant for one of that driver's devices, or if vhost_net is not nodrop's: it
 * would refuse the file.
 */
#define NODROP_BESIDE

/* As tun.c defines it, before the first header is read. */
#define pr_fmt(fmt) KBUILD_MODNAME ": " fmt

/* vmlinux exports what tun.c exports. */
#define tun_get_socket		nodrop_tun_get_socket
#define tun_get_tx_ring		nodrop_tun_get_tx_ring
#define tun_ptr_free		nodrop_tun_ptr_free
#define tun_wake_queue		nodrop_tun_wake_queue

#include <linux/miscdevice.h>
#include <linux/module.h>
#include <net/rtnetlink.h>

#include "socket.h"

/* What is taken: the minor number and the kind of link. */
static int nodrop_tun_claim(struct miscdevice *misc);
static void nodrop_tun_yield(struct miscdevice *misc);
static int nodrop_tun_add_kind(struct rtnl_link_ops *ops);

#define misc_register(misc)		nodrop_tun_claim(misc)
#define misc_deregister(misc)		nodrop_tun_yield(misc)
#define rtnl_link_register(ops)		nodrop_tun_add_kind(ops)

#include "wrap.c"

#undef misc_register
#undef misc_deregister
#undef rtnl_link_register

/*
 * Whether a file can be attached to a device of the built-in driver in @net:
 * one that is persistent, and so without carrier while no file is attached; or
 * one with several queues.
 */
static bool nodrop_tun_other_waits(struct net *net)
{
	const struct rtnl_link_ops *ops;
	struct net_device *dev;
	bool waits = false;

	rcu_read_lock();
	for_each_netdev_rcu(net, dev) {
		ops = dev->rtnl_link_ops;
		if (ops && ops != &tun_link_ops &&
		    !strcmp(ops->kind, tun_link_ops.kind) &&
		    (dev->num_tx_queues > 1 || !netif_carrier_ok(dev))) {
			waits = true;
			break;
		}
	}
	rcu_read_unlock();
	return waits;
}

/* Whether a vhost_net that is not nodrop's was loaded after this module. */
static bool nodrop_tun_other_vhost;

static int nodrop_tun_module(struct notifier_block *nb, unsigned long event,
			     void *data)
{
	struct module *mod = data;

	if (!strcmp(mod->name, "vhost_net") &&
	    (!mod->version || strcmp(mod->version, NODROP_VERSION)))
		WRITE_ONCE(nodrop_tun_other_vhost, event != MODULE_STATE_GOING);
	return NOTIFY_DONE;
}

static struct notifier_block nodrop_tun_modules = {
	.notifier_call = nodrop_tun_module,
};

/*
 * Called by misc_open(), whose lock protects the list of devices, and keeps
 * this module loaded until it returns: nodrop_tun_yield() takes it. What was
 * registered before this module follows in the list: the built-in driver, and
 * a vhost_net that is not nodrop's, which needs this module.
 */
static int nodrop_tun_choose(struct inode *inode, struct file *file)
{
	const struct file_operations *fops = &tun_fops;
	struct miscdevice *misc = file->private_data;
	bool pass = nodrop_tun_other_waits(current->nsproxy->net_ns) ||
		    READ_ONCE(nodrop_tun_other_vhost);

	do {
		misc = list_next_entry(misc, list);
		pass |= misc->minor == VHOST_NET_MINOR;
	} while (misc->minor != TUN_MINOR);

	fops = fops_get(pass ? misc->fops : fops);
	if (!fops)
		return -ENODEV;
	replace_fops(file, fops);
	return fops->open(inode, file);
}

static const struct file_operations nodrop_tun_fops = {
	.owner = THIS_MODULE,
	.open = nodrop_tun_choose,
};

/*
 * misc_open() takes the first device with the minor number of the inode, and
 * misc_register() adds to the front, so that later devices can override earlier
 * ones; but it refuses a number that is taken. So register with another number
 * and then change it. Both values are right for a misc_open() that reads it at
 * this moment.
 */
static int nodrop_tun_registered_minor;

static int nodrop_tun_claim(struct miscdevice *misc)
{
	int err;

	err = misc_register(misc);
	if (!err) {
		/* There is no other tun. */
		misc_deregister(misc);
		return -ENODEV;
	}
	if (err != -EBUSY)
		return err;

	misc->fops = &nodrop_tun_fops;
	misc->name = KBUILD_MODNAME;
	misc->nodename = NULL;
	misc->minor = MISC_DYNAMIC_MINOR;
	err = register_module_notifier(&nodrop_tun_modules);
	if (err)
		return err;
	err = misc_register(misc);
	if (err) {
		unregister_module_notifier(&nodrop_tun_modules);
		return err;
	}

	/* Nothing answers by that number: remove its node. */
	device_unregister(misc->this_device);
	nodrop_tun_registered_minor = misc->minor;
	WRITE_ONCE(misc->minor, TUN_MINOR);
	return 0;
}

static void nodrop_tun_yield(struct miscdevice *misc)
{
	WRITE_ONCE(misc->minor, nodrop_tun_registered_minor);
	misc_deregister(misc);
	unregister_module_notifier(&nodrop_tun_modules);
}

/*
 * Programs must see the kind "tun", but the kernel refuses a second one. It
 * only reads the name again to look up a kind, and then finds the built-in one
 * first. rtnl_link_unregister() deletes the devices by the address of @ops.
 */
static int nodrop_tun_add_kind(struct rtnl_link_ops *ops)
{
	const char *kind = ops->kind;
	int err;

	ops->kind = KBUILD_MODNAME;
	err = rtnl_link_register(ops);
	ops->kind = kind;
	return err;
}
