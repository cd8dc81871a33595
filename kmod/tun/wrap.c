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
#include "flags.h"

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

static bool nodrop_tun_enabled(const struct tun_struct *tun)
{
	unsigned int flags = READ_ONCE(tun->flags);

	if (flags & (NODROP_TUN_ON | NODROP_TUN_OFF))
		return flags & NODROP_TUN_ON;
	return READ_ONCE(nodrop_default) || (flags & NODROP_IFF_BACKPRESSURE);
}

/* The ring */

static int nodrop_tun_produce_skb(struct ptr_ring *ring, void *skb)
{
	return nodrop_produce(nodrop_tun_ring_queue(ring), skb,
			      ((struct sk_buff *)skb)->len);
}

static int nodrop_tun_produce_frame(struct ptr_ring *ring, void *frame)
{
	return nodrop_produce_xdp(nodrop_tun_ring_queue(ring), frame);
}

static void *nodrop_tun_consume(struct ptr_ring *ring)
{
	return nodrop_consume(nodrop_tun_ring_queue(ring));
}

static bool nodrop_tun_act(struct ptr_ring *ring)
{
	return nodrop_act(nodrop_tun_ring_queue(ring));
}

static bool nodrop_tun_empty(struct ptr_ring *ring)
{
	struct nodrop_queue *q = nodrop_tun_ring_queue(ring);
	bool empty;

	spin_lock(&ring->consumer_lock);
	empty = !nodrop_peek(q);
	spin_unlock(&ring->consumer_lock);
	return !nodrop_act(q) && empty;
}

static int nodrop_tun_peek(struct ptr_ring *ring, int (*length)(void *packet))
{
	struct nodrop_queue *q = nodrop_tun_ring_queue(ring);
	int i, len = 0;

	for (i = 0; i < 2 && !len; i++) {
		spin_lock(&ring->consumer_lock);
		len = length(nodrop_peek(q));
		spin_unlock(&ring->consumer_lock);
		if (!nodrop_act(q))
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

/* Transmit */

/* As sock_init_data() sets it: wakes the consumer that sleeps or polls. */
static void (*nodrop_tun_data_ready_before)(struct sock *sk);

/* READ_ONCE: each open writes it, the same value again. */
static void nodrop_tun_call_reader(struct sock *sk)
{
	READ_ONCE(nodrop_tun_data_ready_before)(sk);
}

/* Packets notify the consumer at the end of their burst, XDP frames here. */
static void nodrop_tun_data_ready(struct sock *sk)
{
	struct tun_file *tfile = container_of(sk, struct tun_file, sk);

	if (!nodrop_softirq_is_mine(&nodrop_tun_lock) ||
	    this_cpu_read(nodrop_tun_target) != tfile)
		nodrop_tun_call_reader(sk);
}

/*
 * A burst (xmit_more) ends with its last packet, when its txq is stopped, or
 * with a packet that is not accepted: pktgen sends no more of it then. The
 * check for a sleeping consumer has a full barrier, wq_has_sleeper().
 * Litmus: SB+burst-mb-sleeps+sleep-mb-ring
 */
static void nodrop_tun_burst_end(struct tun_file *tfile,
				 const struct netdev_queue *txq,
				 netdev_tx_t ret)
{
	/* On PREEMPT_RT, a sender may be preempted for long in its burst. */
	bool more = netdev_xmit_more() && ret == NETDEV_TX_OK &&
		    !IS_ENABLED(CONFIG_PREEMPT_RT);

	/* A race with a wake is harmless: one notification more, or later. */
	if (!more || data_race(netif_xmit_stopped(txq)))
		nodrop_tun_call_reader(&tfile->sk);
}

/* The packet's queue was detached: requeue the packet for another one. */
static netdev_tx_t nodrop_tun_redirect(struct sk_buff *skb,
				       struct net_device *dev)
{
	struct tun_struct *tun = netdev_priv(dev);
	u16 index = skb_get_queue_mapping(skb);
	u32 n = READ_ONCE(tun->numqueues);

	if (!n || !nodrop_tun_enabled(tun) ||
	    !nodrop_has_qdisc(netdev_get_tx_queue(dev, index)))
		return nodrop_tun_xmit_to(NULL, stock_tun_net_xmit, skb, dev);
	skb_set_queue_mapping(skb, index % n);
	return NETDEV_TX_BUSY;
}

static netdev_tx_t tun_net_xmit(struct sk_buff *skb, struct net_device *dev)
{
	struct tun_struct *tun = netdev_priv(dev);
	u16 index = skb_get_queue_mapping(skb);
	netdev_tx_t ret = NETDEV_TX_BUSY;
	struct netdev_queue *txq;
	struct nodrop_queue *q;
	struct tun_file *tfile;
	int err = 0;

	nodrop_softirq_lock(&nodrop_tun_lock);
	tfile = rcu_dereference_bh(tun->tfiles[index]);
	if (unlikely(!tfile)) {
		ret = nodrop_tun_redirect(skb, dev);
		nodrop_softirq_unlock(&nodrop_tun_lock);
		return ret;
	}

	q = nodrop_tun_queue(tfile);
	txq = netdev_get_tx_queue(dev, index);
	if (!nodrop_reserved(q, txq))
		err = nodrop_reserve(q, txq, nodrop_tun_enabled(tun),
				     nodrop_keeps(skb));
	if (!err)
		ret = nodrop_tun_xmit_to(tfile, stock_tun_net_xmit, skb, dev);
	else if (err == -ENOSPC)
		ret = nodrop_tun_drop(skb, dev);
	nodrop_softirq_unlock(&nodrop_tun_lock);
	nodrop_tun_burst_end(tfile, txq, ret);
	return ret;
}

#ifdef CONFIG_NET_POLL_CONTROLLER
static void nodrop_tun_poll(struct net_device *dev)
{
	unsigned int i;

	for (i = 0; i < dev->num_tx_queues; i++)
		nodrop_poll(netdev_get_tx_queue(dev, i));
}
#endif

/* The life of a queue */

static void nodrop_tun_bind_all(struct net_device *dev)
{
	struct tun_struct *tun = netdev_priv(dev);
	bool stale = tun->flags & NODROP_TUN_STALE;
	struct nodrop_queue *q;
	int i;

	/* A single txq has no other one beside it. */
	stale = stale && dev->real_num_tx_queues > 1;
	for (i = 0; i < tun->numqueues; i++) {
		q = nodrop_tun_queue(rtnl_dereference(tun->tfiles[i]));
		nodrop_queue_bind(q, netdev_get_tx_queue(dev, i), stale);
	}
}

/* A burst that was cut off has not notified its consumer. */
static void nodrop_tun_call_all(struct net_device *dev)
{
	struct tun_struct *tun = netdev_priv(dev);
	struct tun_file *tfile;
	int i;

	for (i = 0; i < tun->numqueues; i++) {
		tfile = rtnl_dereference(tun->tfiles[i]);
		nodrop_tun_call_reader(&tfile->sk);
	}
}

#include "txqs.h"

/* As tun.c sets it: wakes a writer that has polled. */
static void (*nodrop_tun_write_space_before)(struct sock *sk);

static void nodrop_tun_write_space(struct sock *sk)
{
	nodrop_wake_writer(sk);
	READ_ONCE(nodrop_tun_write_space_before)(sk);
}

static void nodrop_tun_purge(struct nodrop_queue *q,
			     struct nodrop_queue *target,
			     struct net_device *dev)
{
	int lost = nodrop_queue_detach(q, target);

	while (dev && lost--)
		dev_core_stats_tx_dropped_inc(dev);
}

/* No sender reaches the queue any more; another one may have its index. */
static void nodrop_tun_queue_purge(struct tun_file *tfile)
{
	struct nodrop_queue *q = nodrop_tun_queue(tfile);
	struct net_device *dev = q->txq ? q->txq->dev : NULL;
	struct nodrop_queue *target = NULL;
	struct tun_struct *tun = NULL;
	struct tun_file *other;

	if (dev)
		tun = netdev_priv(dev);
	if (tun && tun->numqueues) {
		other = rtnl_dereference(tun->tfiles[tfile->queue_index %
						     tun->numqueues]);
		target = nodrop_tun_queue(other);
	}
	nodrop_tun_purge(q, target, dev);
	if (target)
		nodrop_tun_call_reader(&other->sk);
	stock_tun_queue_purge(tfile);
}

static int tun_chr_open(struct inode *inode, struct file *file)
{
	int err = stock_tun_chr_open(inode, file);
	struct tun_file *tfile = file->private_data;

	if (err)
		return err;

	*nodrop_tun_slot(tfile) = nodrop_queue_create(&tfile->tx_ring, tfile,
						      tun_ptr_free);
	if (!nodrop_tun_queue(tfile)) {
		stock_tun_chr_close(inode, file);
		return -ENOMEM;
	}
	WRITE_ONCE(nodrop_tun_data_ready_before, tfile->sk.sk_data_ready);
	tfile->sk.sk_data_ready = nodrop_tun_data_ready;
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
		nodrop_tun_purge(nodrop_tun_queue(tfile), NULL, tun->dev);
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

/* Callers do not know the protocol and consume past the core. */
struct ptr_ring *tun_get_tx_ring(struct file *file)
{
	struct ptr_ring *ring = stock_tun_get_tx_ring(file);

	if (!IS_ERR(ring))
		nodrop_queue_unaware(nodrop_tun_ring_queue(ring));
	return ring;
}

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
	case NETDEV_DOWN:
		nodrop_tun_down(dev);
		break;
	}
	return NOTIFY_DONE;
}

static struct notifier_block nodrop_tun_notifier = {
	.notifier_call = nodrop_tun_event,
};

/* The device and the module */

#include "ethtool.h"

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
