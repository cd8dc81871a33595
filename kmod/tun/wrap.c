// SPDX-License-Identifier: GPL-2.0-only
/*
 * TUN/TAP with nodrop flow control: the kernel's own tun.c, whose accesses to
 * the ring go to the core. No policy here.
 *
 * Each tun_file has a nodrop_queue; the pointer to it lies behind the tun_file.
 * The queue is bound to the txq of the tun_file's index whenever the set of
 * queues changes, and to none when it is detached.
 */
#include "hooks.h"
#include "stock/tun.c"
#include "unhook.h"

#include "../flow/nodrop_flow.h"
#include "../flow/owner.h"
#include "ethtool.h"

static bool nodrop_default = true;
module_param_named(nodrop, nodrop_default, bool, 0644);
MODULE_PARM_DESC(nodrop, "Flow control also for devices whose application did not set IFF_BACKPRESSURE (default on)");
MODULE_INFO(nodrop, NODROP_VERSION);
MODULE_INFO(version, NODROP_VERSION);

#define NODROP_TUN_OFFSET ALIGN(sizeof(struct tun_file), sizeof(void *))

static struct nodrop_queue **nodrop_tun_slot(struct tun_file *tfile)
{
	return (void *)tfile + NODROP_TUN_OFFSET;
}

static struct nodrop_queue *nodrop_tun_queue(struct tun_file *tfile)
{
	return *nodrop_tun_slot(tfile);
}

static struct nodrop_queue *nodrop_tun_ring_queue(struct ptr_ring *ring)
{
	return nodrop_tun_queue(container_of(ring, struct tun_file, tx_ring));
}

static const bool *nodrop_tun_on(const struct tun_struct *tun)
{
	static const bool nodrop_yes = true, nodrop_no;

	if (tun->flags & NODROP_TUN_OFF)
		return &nodrop_no;
	if (tun->flags & (NODROP_TUN_ON | NODROP_IFF_BACKPRESSURE))
		return &nodrop_yes;
	return &nodrop_default;
}

/* The ring */

static int nodrop_tun_produce_skb(struct ptr_ring *ring, void *skb)
{
	return nodrop_produce(nodrop_tun_ring_queue(ring), skb);
}

static int nodrop_tun_produce_frame(struct ptr_ring *ring, void *frame)
{
	return nodrop_produce_xdp(nodrop_tun_ring_queue(ring), frame);
}

static void *nodrop_tun_consume(struct ptr_ring *ring)
{
	return nodrop_consume(nodrop_tun_ring_queue(ring));
}

static bool nodrop_tun_has_packets(struct ptr_ring *ring)
{
	return nodrop_has_packets(nodrop_tun_ring_queue(ring));
}

static bool nodrop_tun_empty(struct ptr_ring *ring)
{
	struct nodrop_queue *q = nodrop_tun_ring_queue(ring);
	bool empty;

	spin_lock_bh(&ring->consumer_lock);
	empty = !nodrop_peek(q);
	spin_unlock_bh(&ring->consumer_lock);
	return empty && !nodrop_has_packets(q);
}

static int nodrop_tun_peek(struct ptr_ring *ring, int (*length)(void *packet))
{
	struct nodrop_queue *q = nodrop_tun_ring_queue(ring);
	int i, len = 0;

	/* A run of the qdisc that follows may bring packets. */
	for (i = 0; i < 2; i++) {
		spin_lock_bh(&ring->consumer_lock);
		len = length(nodrop_peek(q));
		spin_unlock_bh(&ring->consumer_lock);
		if (len || !nodrop_has_packets(q))
			break;
	}
	return len;
}

static int nodrop_tun_resize_all(struct ptr_ring **rings, int n, int size)
{
	int i, err = 0;

	for (i = 0; i < n && !err; i++)
		err = nodrop_grow(nodrop_tun_ring_queue(rings[i]), size);
	for (i = 0; i < n && !err; i++)
		nodrop_resize(nodrop_tun_ring_queue(rings[i]), size);
	return err;
}

#ifdef CONFIG_NET_POLL_CONTROLLER
static void nodrop_tun_poll(struct net_device *dev)
{
	struct tun_struct *tun = netdev_priv(dev);
	struct tun_file *tfile;
	unsigned int i;

	rcu_read_lock();
	for (i = 0; i < READ_ONCE(tun->numqueues); i++) {
		tfile = rcu_dereference(tun->tfiles[i]);
		if (tfile)
			nodrop_queue_poll(nodrop_tun_queue(tfile));
	}
	rcu_read_unlock();
}
#endif

/* The life of a queue */

/* As tun.c does after each packet. */
static void nodrop_tun_notify(const void *key)
{
	struct tun_file *tfile = (struct tun_file *)key;

	kill_fasync(&tfile->fasync, SIGIO, POLL_IN);
	tfile->sk.sk_data_ready(&tfile->sk);
}

static const struct nodrop_ops nodrop_tun_ops = {
	.destroy = tun_ptr_free,
	.notify = nodrop_tun_notify,
};

static void nodrop_tun_bind_all(struct net_device *dev)
{
	struct tun_struct *tun = netdev_priv(dev);
	struct tun_file *tfile;
	int i;

	for (i = 0; i < tun->numqueues; i++) {
		tfile = rtnl_dereference(tun->tfiles[i]);
		nodrop_queue_bind(nodrop_tun_queue(tfile),
				  netdev_get_tx_queue(dev, i),
				  nodrop_tun_on(tun));
	}
}

/* Not part of the macro: unused, and so an error, if the hook has no effect. */
static int nodrop_tun_set_queues(struct net_device *dev, unsigned int n)
{
	int err = netif_set_real_num_tx_queues(dev, n);

	nodrop_tun_bind_all(dev);
	return err;
}

/* As tun.c sets it: wakes a writer that has polled. */
static void (*nodrop_tun_write_space_before)(struct sock *sk);

static void nodrop_tun_write_space(struct sock *sk)
{
	nodrop_wake_writer(sk);
	READ_ONCE(nodrop_tun_write_space_before)(sk);
}

static void nodrop_tun_purge(struct tun_file *tfile, struct net_device *dev)
{
	int lost = nodrop_queue_detach(nodrop_tun_queue(tfile));

	while (dev && lost--)
		dev_core_stats_tx_dropped_inc(dev);
}

/* No sender reaches the queue any more; another one may have its index. */
static void nodrop_tun_queue_purge(struct tun_file *tfile)
{
	struct netdev_queue *txq = nodrop_tun_queue(tfile)->txq;

	nodrop_tun_purge(tfile, txq ? txq->dev : NULL);
	stock_tun_queue_purge(tfile);
}

static int tun_chr_open(struct inode *inode, struct file *file)
{
	int err = stock_tun_chr_open(inode, file);
	struct tun_file *tfile = file->private_data;

	if (err)
		return err;

	*nodrop_tun_slot(tfile) = nodrop_queue_create(&tfile->tx_ring, tfile,
						      &nodrop_tun_ops);
	if (!nodrop_tun_queue(tfile)) {
		stock_tun_chr_close(inode, file);
		return -ENOMEM;
	}
	WRITE_ONCE(nodrop_tun_write_space_before, tfile->sk.sk_write_space);
	tfile->sk.sk_write_space = nodrop_tun_write_space;
	return 0;
}

/* Purge what vhost-net put back after the queue was detached. */
static void nodrop_tun_purge_detached(struct tun_file *tfile)
{
	struct tun_struct *tun;

	if (!READ_ONCE(tfile->detached))
		return;
	rtnl_lock();
	tun = tfile->detached;
	if (tun)
		nodrop_tun_purge(tfile, tun->dev);
	rtnl_unlock();
}

static int tun_chr_close(struct inode *inode, struct file *file)
{
	struct tun_file *tfile = file->private_data;
	struct nodrop_queue *q = nodrop_tun_queue(tfile);
	int err;

	nodrop_queue_hide(q);
	nodrop_tun_purge_detached(tfile);
	err = stock_tun_chr_close(inode, file);
	nodrop_queue_destroy(q);
	return err;
}

#ifndef NODROP_BESIDE
/* Callers do not know the protocol and consume past the core. */
struct ptr_ring *tun_get_tx_ring(struct file *file)
{
	struct ptr_ring *ring = stock_tun_get_tx_ring(file);

	if (!IS_ERR(ring))
		nodrop_queue_unaware(nodrop_tun_ring_queue(ring));
	return ring;
}
#endif

static int nodrop_tun_event(struct notifier_block *nb, unsigned long event,
			    void *info)
{
	struct net_device *dev = netdev_notifier_info_to_dev(info);

	if (dev->rtnl_link_ops != &tun_link_ops)
		return NOTIFY_DONE;
	switch (event) {
	case NETDEV_REGISTER:	/* also in another network namespace */
		return notifier_from_errno(nodrop_egress_add(dev));
	case NETDEV_UNREGISTER:
		nodrop_egress_remove(dev);
		break;
	case NETDEV_UP:
		nodrop_tun_bind_all(dev);
		break;
	}
	return NOTIFY_DONE;
}

static struct notifier_block nodrop_tun_notifier = {
	.notifier_call = nodrop_tun_event,
};

/* The device and the module */

/* tun.c's own operations and nodrop's, combined when the module loads. */
static struct ethtool_ops nodrop_tun_ethtool_ops __ro_after_init;

static void tun_setup(struct net_device *dev)
{
	stock_tun_setup(dev);
	dev->ethtool_ops = &nodrop_tun_ethtool_ops;
}

static int __init tun_init(void)
{
	int err;

	tun_proto.obj_size = NODROP_TUN_OFFSET + sizeof(struct nodrop_queue *);
	nodrop_tun_ethtool_ops = tun_ethtool_ops;
	nodrop_tun_ethtool_add(&nodrop_tun_ethtool_ops);

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
	/* tun.c frees its eBPF programs by call_rcu(), and does not wait. */
	rcu_barrier();
}

#include "ethtool.c"
