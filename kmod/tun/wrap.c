// SPDX-License-Identifier: GPL-2.0-only
/*
 * TUN/TAP with nodrop flow control: the kernel's own tun.c, and between its
 * functions and its ring the core. No policy here.
 *
 * Each tun_file has its nodrop_queue behind it, in the same allocation. The
 * queue is bound to the txq of the tun_file's index whenever the set of queues
 * changes, and to none when the file closes or the device goes.
 */
#include "hooks.h"
#include "stock/tun.c"
#include "unhook.h"

#include "../compat/lltx.h"
#include "../flow/nodrop_flow.h"

static bool nodrop_default = true;
module_param_named(nodrop, nodrop_default, bool, 0644);
MODULE_PARM_DESC(nodrop, "Flow control for devices whose application did not ask for it by IFF_BACKPRESSURE (default on)");
MODULE_INFO(nodrop, "0.1.0");

#define NODROP_TUN_OFFSET ALIGN(sizeof(struct tun_file), SMP_CACHE_BYTES)

static struct nodrop_queue *nodrop_tun_queue(struct tun_file *tfile)
{
	return (void *)tfile + NODROP_TUN_OFFSET;
}

static struct nodrop_queue *nodrop_tun_ring_queue(struct ptr_ring *ring)
{
	return nodrop_tun_queue(container_of(ring, struct tun_file, tx_ring));
}

static bool nodrop_tun_enabled(const struct tun_struct *tun)
{
	return READ_ONCE(nodrop_default) ||
	       (READ_ONCE(tun->flags) & NODROP_IFF_BACKPRESSURE);
}

/* The ring */

static int nodrop_tun_produce_skb(struct ptr_ring *ring, void *skb)
{
	return nodrop_produce(nodrop_tun_ring_queue(ring), skb);
}

static int nodrop_tun_produce_frame(struct ptr_ring *ring, void *frame)
{
	return nodrop_produce_aside(nodrop_tun_ring_queue(ring), frame);
}

static void *nodrop_tun_consume(struct ptr_ring *ring)
{
	return nodrop_consume(nodrop_tun_ring_queue(ring));
}

static bool nodrop_tun_empty(struct ptr_ring *ring)
{
	bool empty;

	spin_lock(&ring->consumer_lock);
	empty = nodrop_empty(nodrop_tun_ring_queue(ring));
	spin_unlock(&ring->consumer_lock);
	return empty;
}

static netdev_tx_t tun_net_xmit(struct sk_buff *skb, struct net_device *dev)
{
	struct tun_struct *tun = netdev_priv(dev);
	u16 index = skb_get_queue_mapping(skb);
	netdev_tx_t ret = NETDEV_TX_BUSY;
	struct tun_file *tfile;

	rcu_read_lock();
	tfile = rcu_dereference(tun->tfiles[index]);
	if (!tfile || nodrop_claim(nodrop_tun_queue(tfile),
				   netdev_get_tx_queue(dev, index),
				   nodrop_tun_enabled(tun)) != NODROP_BUSY)
		ret = stock_tun_net_xmit(skb, dev);
	rcu_read_unlock();

	return ret;
}

/* The life of a queue */

static void nodrop_tun_bind_all(struct net_device *dev)
{
	struct tun_struct *tun = netdev_priv(dev);
	struct tun_file *tfile;
	int i;

	for (i = 0; i < tun->numqueues; i++) {
		tfile = rtnl_dereference(tun->tfiles[i]);
		nodrop_queue_bind(nodrop_tun_queue(tfile),
				  netdev_get_tx_queue(dev, i));
	}
	list_for_each_entry(tfile, &tun->disabled, next)
		nodrop_queue_bind(nodrop_tun_queue(tfile), NULL);
}

/* A function of its own, so that a hook that does not take leaves it unused. */
static void nodrop_tun_queues_changed(struct net_device *dev)
{
	nodrop_tun_bind_all(dev);
}

static void tun_net_uninit(struct net_device *dev)
{
	struct tun_struct *tun = netdev_priv(dev);
	struct tun_file *tfile;
	int i;

	for (i = 0; i < tun->numqueues; i++) {
		tfile = rtnl_dereference(tun->tfiles[i]);
		nodrop_queue_bind(nodrop_tun_queue(tfile), NULL);
	}
	stock_tun_net_uninit(dev);
}

static int tun_chr_open(struct inode *inode, struct file *file)
{
	int err = stock_tun_chr_open(inode, file);
	struct tun_file *tfile = file->private_data;

	if (!err)
		nodrop_queue_init(nodrop_tun_queue(tfile), &tfile->tx_ring);
	return err;
}

static int tun_chr_close(struct inode *inode, struct file *file)
{
	rtnl_lock();
	nodrop_queue_close(nodrop_tun_queue(file->private_data));
	rtnl_unlock();

	return stock_tun_chr_close(inode, file);
}

/* vhost_net asks for the ring and reads it past us. */
struct ptr_ring *tun_get_tx_ring(struct file *file)
{
	struct ptr_ring *ring = stock_tun_get_tx_ring(file);

	if (!IS_ERR(ring))
		nodrop_queue_foreign(nodrop_tun_ring_queue(ring));
	return ring;
}

static int nodrop_tun_event(struct notifier_block *nb, unsigned long event,
			    void *info)
{
	struct net_device *dev = netdev_notifier_info_to_dev(info);

	if (event == NETDEV_CHANGE_TX_QUEUE_LEN &&
	    dev->rtnl_link_ops == &tun_link_ops)
		nodrop_tun_bind_all(dev);
	return NOTIFY_DONE;
}

static struct notifier_block nodrop_tun_notifier = {
	.notifier_call = nodrop_tun_event,
	/* After tun.c's own: the rings have their new size. */
	.priority = -1,
};

/* The device and the module */

/*
 * The core serialises transmit for each txq: no two senders meet between
 * claim and produce, and byte_queue_limits appear in sysfs.
 */
static int tun_net_init(struct net_device *dev)
{
	int err = stock_tun_net_init(dev);

	if (!err)
		nodrop_clear_lltx(dev);
	return err;
}

/* tun.c's own and ours, put together when the module loads. */
static struct ethtool_ops nodrop_tun_ethtool_ops __ro_after_init;

static void tun_setup(struct net_device *dev)
{
	stock_tun_setup(dev);
	dev->ethtool_ops = &nodrop_tun_ethtool_ops;
}

static int nodrop_tun_sset_count(struct net_device *dev, int set)
{
	struct tun_struct *tun = netdev_priv(dev);

	return set == ETH_SS_STATS ? tun->numqueues * NODROP_STATS :
				     -EOPNOTSUPP;
}

static void nodrop_tun_strings(struct net_device *dev, u32 set, u8 *data)
{
	struct tun_struct *tun = netdev_priv(dev);
	int i, stat;

	if (set != ETH_SS_STATS)
		return;

	for (i = 0; i < tun->numqueues; i++) {
		for (stat = 0; stat < NODROP_STATS; stat++) {
			snprintf(data, ETH_GSTRING_LEN, "tx%d_%s", i,
				 nodrop_stat_names[stat]);
			data += ETH_GSTRING_LEN;
		}
	}
}

static void nodrop_tun_stats(struct net_device *dev,
			     struct ethtool_stats *stats, u64 *data)
{
	struct tun_struct *tun = netdev_priv(dev);
	struct tun_file *tfile;
	int i;

	for (i = 0; i < tun->numqueues; i++) {
		tfile = rtnl_dereference(tun->tfiles[i]);
		nodrop_queue_stats(nodrop_tun_queue(tfile), data);
		data += NODROP_STATS;
	}
}

static int __init tun_init(void)
{
	int err;

	BUILD_BUG_ON(!IS_ENABLED(CONFIG_LOCKDEP) &&
		     sizeof(struct nodrop_queue) > 256);
	tun_proto.obj_size = NODROP_TUN_OFFSET + sizeof(struct nodrop_queue);

	nodrop_tun_ethtool_ops = tun_ethtool_ops;
	nodrop_tun_ethtool_ops.get_sset_count = nodrop_tun_sset_count;
	nodrop_tun_ethtool_ops.get_strings = nodrop_tun_strings;
	nodrop_tun_ethtool_ops.get_ethtool_stats = nodrop_tun_stats;

	err = register_netdevice_notifier(&nodrop_tun_notifier);
	if (err)
		return err;

	err = stock_tun_init();
	if (err)
		unregister_netdevice_notifier(&nodrop_tun_notifier);
	return err;
}

static void __exit tun_cleanup(void)
{
	stock_tun_cleanup();
	unregister_netdevice_notifier(&nodrop_tun_notifier);
}
