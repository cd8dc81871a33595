// SPDX-License-Identifier: GPL-2.0-only
/*
 * Replacements for the functions of a running stock tun.ko that access the
 * ring: the kernel's own tun.c, whose accesses go to the core. A ring without a
 * nodrop_queue is treated as the stock driver does.
 *
 * tun.c's data do not exist here: they are the running module's, and reached
 * through its objects. No address of a function here remains in these objects
 * except the ethtool operations, which nodrop_live_leave() restores.
 */
#include "stock.h"
#include "live.h"

#include "../compat/ptr_ring_resize.h"
#include "../flow/nodrop_flow.h"
#include "../flow/owner.h"
#include "../tun/ethtool.h"

/* Before the hooks, which redirect these names. */
static int nodrop_live_plain_resize(struct ptr_ring **rings, int n, int size)
{
	return nodrop_ptr_ring_resize(rings, n, size, nodrop_live_ptr_free);
}

static bool nodrop_live_plain_empty(struct ptr_ring *ring)
{
	return __ptr_ring_empty(ring);
}

static struct socket *nodrop_live_unused_socket(struct file *file);
static struct ptr_ring *nodrop_live_unused_ring(struct file *file);

#define tun_get_socket(file) nodrop_live_unused_socket(file)
#define tun_get_tx_ring(file) nodrop_live_unused_ring(file)
#include "../tun/ring.h"

#pragma GCC diagnostic push
#pragma GCC diagnostic ignored "-Wunused-function"
#pragma GCC diagnostic ignored "-Wunused-variable"
#include "../tun/stock/tun.c"
#pragma GCC diagnostic pop

#include "../tun/unhook.h"

static struct nodrop_queue *nodrop_tun_queue(struct tun_file *tfile)
{
	return nodrop_queue_find(&tfile->tx_ring);
}

static const bool *nodrop_tun_on(const struct tun_struct *tun)
{
	static const bool nodrop_yes = true, nodrop_no;

	return tun->flags & NODROP_TUN_OFF ? &nodrop_no : &nodrop_yes;
}

/* The ring. Senders hold the RCU read lock. */

static int nodrop_tun_produce_skb(struct ptr_ring *ring, void *skb)
{
	struct nodrop_queue *q = nodrop_queue_find(ring);

	if (!q)
		return __ptr_ring_produce(ring, skb);
	return nodrop_produce(q, skb);
}

static int nodrop_tun_produce_frame(struct ptr_ring *ring, void *frame)
{
	struct nodrop_queue *q = nodrop_queue_find(ring);

	if (!q)
		return __ptr_ring_produce(ring, frame);
	return nodrop_produce_xdp(q, frame);
}

static void *nodrop_tun_consume(struct ptr_ring *ring)
{
	struct nodrop_queue *q;
	void *packet;

	rcu_read_lock();
	q = nodrop_queue_find(ring);
	if (q)
		packet = nodrop_consume(q);
	else
		packet = __ptr_ring_consume(ring);
	rcu_read_unlock();
	return packet;
}

static bool nodrop_tun_has_packets(struct ptr_ring *ring)
{
	return nodrop_live_has_packets(ring);
}

static bool nodrop_tun_empty(struct ptr_ring *ring)
{
	struct nodrop_queue *q;
	bool empty;

	spin_lock_bh(&ring->consumer_lock);
	rcu_read_lock();
	q = nodrop_queue_find(ring);
	empty = q ? !nodrop_peek(q) : nodrop_live_plain_empty(ring);
	rcu_read_unlock();
	spin_unlock_bh(&ring->consumer_lock);
	return empty && !nodrop_tun_has_packets(ring);
}

static int nodrop_tun_peek(struct ptr_ring *ring, int (*length)(void *packet))
{
	struct nodrop_queue *q;
	int len;

	spin_lock_bh(&ring->consumer_lock);
	rcu_read_lock();
	q = nodrop_queue_find(ring);
	len = length(q ? nodrop_peek(q) : __ptr_ring_peek(ring));
	rcu_read_unlock();
	spin_unlock_bh(&ring->consumer_lock);
	return len;
}

/* All or none. Sorts the rings: those without a queue first. */
static int nodrop_tun_resize_all(struct ptr_ring **rings, int n, int size)
{
	struct nodrop_queue *q;
	int i, plain = 0, err;

	for (i = 0; i < n; i++) {
		q = nodrop_queue_find(rings[i]);
		err = q ? nodrop_grow(q, size) : 0;
		if (err)
			return err;
		if (!q) {
			swap(rings[i], rings[plain]);
			plain++;
		}
	}
	err = plain ? nodrop_live_plain_resize(rings, plain, size) : 0;
	for (i = plain; i < n && !err; i++)
		nodrop_resize(nodrop_queue_find(rings[i]), size);
	return err;
}

/* Replacements for functions of the same name */

static void nodrop_live_drop(struct nodrop_queue *q)
{
	nodrop_queue_hide(q);
	synchronize_net();
	nodrop_queue_destroy(q);
}

static void nodrop_tun_bind_all(struct net_device *dev)
{
	struct tun_struct *tun = netdev_priv(dev);
	struct nodrop_queue *q;
	int i;

	for (i = 0; i < tun->numqueues; i++) {
		q = nodrop_tun_queue(rtnl_dereference(tun->tfiles[i]));
		if (q)
			nodrop_queue_bind(q, netdev_get_tx_queue(dev, i),
					  nodrop_tun_on(tun));
	}
}

/* A queue is detached; another one may have its index now. */
static void nodrop_live_queue_purge(struct tun_file *tfile)
{
	struct nodrop_queue *q = nodrop_tun_queue(tfile);
	struct net_device *dev;
	int lost;

	if (q) {
		dev = q->txq->dev;
		lost = nodrop_queue_detach(q);
		while (lost--)
			dev_core_stats_tx_dropped_inc(dev);
		nodrop_live_drop(q);
		nodrop_tun_bind_all(dev);
	}
	tun_queue_purge(tfile);
}

/* tun.c's own needs tun_link_ops, but only the running module's is valid. */
static int nodrop_live_device_event(struct notifier_block *nb,
				    unsigned long event, void *info)
{
	struct net_device *dev = netdev_notifier_info_to_dev(info);
	struct tun_struct *tun = netdev_priv(dev);
	struct tun_file *tfile;
	int i;

	if (!nodrop_live_is_tun(dev))
		return NOTIFY_DONE;
	if (event == NETDEV_CHANGE_TX_QUEUE_LEN && tun_queue_resize(tun))
		return NOTIFY_BAD;
	for (i = 0; event == NETDEV_UP && i < tun->numqueues; i++) {
		tfile = rtnl_dereference(tun->tfiles[i]);
		tfile->sk.sk_write_space(&tfile->sk);
	}
	return NOTIFY_DONE;
}

struct klp_func nodrop_live_tun_funcs[] = {
	NODROP_LIVE(tun_net_xmit, tun_net_xmit),
	NODROP_LIVE(tun_do_read, tun_do_read),
	NODROP_LIVE(tun_chr_poll, tun_chr_poll),
	NODROP_LIVE(tun_peek_len, tun_peek_len),
	NODROP_LIVE(tun_xdp_xmit, tun_xdp_xmit),
	NODROP_LIVE(tun_xdp_act, tun_xdp_act),
	NODROP_LIVE(tun_queue_purge, nodrop_live_queue_purge),
	NODROP_LIVE(tun_device_event, nodrop_live_device_event),
	{ }
};

/* Devices */

/* The running module's operations, and a copy with nodrop's. RTNL. */
static const struct ethtool_ops *nodrop_live_stock_ops;
static struct ethtool_ops nodrop_live_ops;

bool nodrop_live_is_tun(const struct net_device *dev)
{
	return dev->rtnl_link_ops && !strcmp(dev->rtnl_link_ops->kind, "tun");
}

/* Forget the operations of a tun.ko that may have been reloaded. */
void nodrop_live_begin(void)
{
	nodrop_live_stock_ops = NULL;
}

static void nodrop_live_notify(const void *key)
{
	struct tun_file *tfile = container_of((struct ptr_ring *)key,
					      struct tun_file, tx_ring);

	kill_fasync(&tfile->fasync, SIGIO, POLL_IN);
	tfile->sk.sk_data_ready(&tfile->sk);
}

static const struct nodrop_ops nodrop_live_ring_ops = {
	.destroy = nodrop_live_ptr_free,
	.notify = nodrop_live_notify,
};

static struct nodrop_queue *nodrop_live_create(struct net_device *dev,
					       struct tun_file *tfile)
{
	struct nodrop_queue *q;

	q = nodrop_queue_create(&tfile->tx_ring, &tfile->tx_ring,
				&nodrop_live_ring_ops);
	if (!q)
		return NULL;
	if (nodrop_grow(q, dev->tx_queue_len)) {
		nodrop_live_drop(q);
		return NULL;
	}
	nodrop_resize(q, dev->tx_queue_len);
	return q;
}

/**
 * nodrop_live_join() - add flow control to all queues of a device
 * @dev: a device of tun.ko
 *
 * A queue for which there is no memory stays stock.
 *
 * Context: process context, RTNL held.
 */
void nodrop_live_join(struct net_device *dev)
{
	struct tun_struct *tun = netdev_priv(dev);
	struct tun_file *tfile;
	struct nodrop_queue *q;
	int i;

	for (i = 0; i < tun->numqueues; i++) {
		tfile = rtnl_dereference(tun->tfiles[i]);
		q = nodrop_tun_queue(tfile) ?: nodrop_live_create(dev, tfile);
		if (q)
			nodrop_queue_bind(q, netdev_get_tx_queue(dev, i),
					  nodrop_tun_on(tun));
	}

	if (dev->ethtool_ops == &nodrop_live_ops)
		return;
	if (dev->ethtool_ops != nodrop_live_stock_ops) {
		nodrop_live_stock_ops = dev->ethtool_ops;
		nodrop_live_ops = *dev->ethtool_ops;
		nodrop_tun_ethtool_add(&nodrop_live_ops);
	}
	dev->ethtool_ops = &nodrop_live_ops;
}

/**
 * nodrop_live_leave() - remove flow control from a device
 * @dev: a device of tun.ko
 * @for_good: also clear the administrator's flags. Else the device may be
 *	moving to another network namespace.
 *
 * Queued packets stay in the rings.
 *
 * Context: process context, RTNL held.
 */
void nodrop_live_leave(struct net_device *dev, bool for_good)
{
	struct tun_struct *tun = netdev_priv(dev);
	struct nodrop_queue *q;
	int i;

	for (i = 0; i < tun->numqueues; i++) {
		q = nodrop_tun_queue(rtnl_dereference(tun->tfiles[i]));
		if (!q)
			continue;
		nodrop_queue_unaware(q);
		nodrop_queue_bind(q, NULL, nodrop_tun_on(tun));
		nodrop_shrink(q);
		nodrop_live_drop(q);
	}
	if (for_good)
		WRITE_ONCE(tun->flags,
			   tun->flags & ~(NODROP_TUN_ON | NODROP_TUN_OFF));
	if (dev->ethtool_ops == &nodrop_live_ops)
		dev->ethtool_ops = nodrop_live_stock_ops;
}

/* Make a task that sleeps in an old function return from it. */
static void nodrop_live_nudge_file(struct tun_file *tfile)
{
	wait_queue_head_t *readers = sk_sleep(&tfile->sk);
	wait_queue_entry_t *entry;
	struct task_struct *task;
	unsigned long flags;

	spin_lock_irqsave(&readers->lock, flags);
	list_for_each_entry(entry, &readers->head, entry) {
		if (entry->func != default_wake_function)
			continue;
		task = entry->private;
		if (!test_tsk_thread_flag(task, TIF_PATCH_PENDING))
			continue;
		if (!(task->flags & PF_KTHREAD))
			set_tsk_thread_flag(task, TIF_NOTIFY_SIGNAL);
		default_wake_function(entry, TASK_INTERRUPTIBLE, 0, NULL);
	}
	spin_unlock_irqrestore(&readers->lock, flags);
}

/**
 * nodrop_live_nudge() - make sleeping consumers pass through user space
 * @dev: a device of tun.ko
 *
 * As livepatch does after 15 s to all tasks. Their system call is restarted,
 * and their program does not notice.
 *
 * Context: process context, RTNL held.
 */
void nodrop_live_nudge(struct net_device *dev)
{
	struct tun_struct *tun = netdev_priv(dev);
	struct tun_file *tfile;
	int i;

	for (i = 0; i < tun->numqueues; i++)
		nodrop_live_nudge_file(rtnl_dereference(tun->tfiles[i]));
	list_for_each_entry(tfile, &tun->disabled, next)
		nodrop_live_nudge_file(tfile);
}

#include "../tun/ethtool.c"
