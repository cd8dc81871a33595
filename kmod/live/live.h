/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * Shared by the files of the livepatch.
 */
#ifndef NODROP_LIVE_H
#define NODROP_LIVE_H

#include <linux/livepatch.h>
#include <linux/netdevice.h>
#include <linux/ptr_ring.h>

#include "../flow/nodrop_flow.h"

/* A function of the running driver, and its replacement. */
#define NODROP_LIVE(name, instead) { .old_name = #name, .new_func = (instead) }

extern struct klp_func nodrop_live_tun_funcs[];
extern struct klp_func nodrop_live_vhost_funcs[];

void nodrop_live_begin(void);
bool nodrop_live_is_tun(const struct net_device *dev);
void nodrop_live_join(struct net_device *dev);
void nodrop_live_leave(struct net_device *dev, bool for_good);
void nodrop_live_nudge(struct net_device *dev);
void nodrop_live_ptr_free(void *packet);

/* nodrop_has_packets() for the queue of @ring, if it has one. */
static inline bool nodrop_live_has_packets(struct ptr_ring *ring)
{
	struct nodrop_queue *q;
	bool packets;

	rcu_read_lock();
	q = nodrop_queue_find(ring);
	packets = q && nodrop_has_packets(q);
	rcu_read_unlock();
	return packets;
}

#endif
