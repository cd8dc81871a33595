/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * Included by wrap.c: the number of txqs. The kernel resets the qdiscs of txqs
 * that are no longer used, and a qdisc of the whole device is one of them. So a
 * device keeps its txqs until it goes down; nodrop_tun_redirect() assigns their
 * packets to the remaining queues.
 */

static bool nodrop_tun_keeps_txqs(struct net_device *dev, unsigned int n)
{
	return n < dev->real_num_tx_queues && netif_running(dev) &&
	       nodrop_tun_enabled(netdev_priv(dev));
}

/* Does the qdisc hold no packet, and is none on its way from it? */
static bool nodrop_tun_idle(struct Qdisc *qdisc)
{
	bool idle;

	local_bh_disable();
	if (qdisc->flags & TCQ_F_NOLOCK) {
		idle = qdisc_run_begin(qdisc);
		if (idle) {
			idle = qdisc_is_empty(qdisc);
			qdisc_run_end(qdisc);
		}
	} else {
		spin_lock(qdisc_lock(qdisc));
		idle = qdisc_is_empty(qdisc) && !qdisc_is_running(qdisc);
		spin_unlock(qdisc_lock(qdisc));
	}
	local_bh_enable();
	return idle;
}

/*
 * All queues are attached. Are all packets that nodrop_tun_redirect() assigned
 * to the queue of another txq gone from their qdisc? It assigns none after the
 * grace period, so each qdisc needs to be idle only once.
 */
static bool nodrop_tun_settled(struct net_device *dev)
{
	struct netdev_queue *txq;
	unsigned int i;

	synchronize_net();
	for (i = 0; i < dev->real_num_tx_queues; i++) {
		txq = netdev_get_tx_queue(dev, i);
		if (!nodrop_tun_idle(rtnl_dereference(txq->qdisc)))
			return false;
	}
	return true;
}

/* Not part of the macro: unused, and so an error, if the hook has no effect. */
static int nodrop_tun_set_queues(struct net_device *dev, unsigned int n)
{
	struct tun_struct *tun = netdev_priv(dev);
	int err;

	if (nodrop_tun_keeps_txqs(dev, n)) {
		WRITE_ONCE(tun->flags, tun->flags | NODROP_TUN_STALE);
		err = 0;
	} else {
		err = netif_set_real_num_tx_queues(dev, n);
		if ((tun->flags & NODROP_TUN_STALE) && nodrop_tun_settled(dev))
			WRITE_ONCE(tun->flags, tun->flags & ~NODROP_TUN_STALE);
	}
	nodrop_tun_bind_all(dev);
	nodrop_tun_call_all(dev);
	return err;
}

static void nodrop_tun_down(struct net_device *dev)
{
	struct tun_struct *tun = netdev_priv(dev);

	nodrop_tun_call_all(dev);
	if (!(tun->flags & NODROP_TUN_STALE))
		return;
	WRITE_ONCE(tun->flags, tun->flags & ~NODROP_TUN_STALE);
	if (tun->numqueues)
		netif_set_real_num_tx_queues(dev, tun->numqueues);
	nodrop_tun_bind_all(dev);
}
