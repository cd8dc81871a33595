// SPDX-License-Identifier: GPL-2.0-only
/*
 * vhost-net with nodrop flow control: the kernel's own net.c, whose accesses to
 * the rings of nodrop's tun go to the core. No policy here.
 *
 * net.c holds a reference on the file of its backend while rx_ring is set, and
 * a queue lives as long as its file. So no queue is freed while net.c uses it,
 * even if its device is. Packets that net.c has taken and not delivered go back
 * to the head of the ring when the backend changes; the next consumer, of any
 * kind, takes them first.
 */
#include "hooks.h"
#include "stock/net.c"
#include "unhook.h"

#include "../flow/nodrop_flow.h"
#include "../tun/socket.h"

MODULE_INFO(nodrop, NODROP_VERSION);
MODULE_INFO(version, NODROP_VERSION);

#define NODROP_VHOST_MARK 1UL

/* The queue that @ring stands for; NULL: an ordinary ring. */
static struct nodrop_queue *nodrop_vhost_queue(const struct ptr_ring *ring)
{
	unsigned long value = (unsigned long)ring;

	BUILD_BUG_ON(__alignof__(struct ptr_ring) <= NODROP_VHOST_MARK);
	BUILD_BUG_ON(__alignof__(struct nodrop_queue) <= NODROP_VHOST_MARK);

	if (!(value & NODROP_VHOST_MARK))
		return NULL;
	return (struct nodrop_queue *)(value & ~NODROP_VHOST_MARK);
}

static struct ptr_ring *nodrop_vhost_ring(struct file *file)
{
	struct nodrop_queue *q = nodrop_queue_find(file->private_data);

	if (!q)
		return tun_get_tx_ring(file);
	return (struct ptr_ring *)((unsigned long)q | NODROP_VHOST_MARK);
}

#if IS_BUILTIN(CONFIG_TUN)
static struct socket *nodrop_vhost_socket(struct file *file)
{
	struct socket *sock = nodrop_tun_get_socket(file);

	return IS_ERR(sock) ? tun_get_socket(file) : sock;
}
#endif

/* The lock that net.c means by @place in what rx_ring points to. */
static spinlock_t *nodrop_vhost_consumer_lock(spinlock_t *place)
{
	unsigned long ring = (unsigned long)place -
			     offsetof(struct ptr_ring, consumer_lock);
	struct nodrop_queue *q = nodrop_vhost_queue((struct ptr_ring *)ring);

	return q ? &q->ring->consumer_lock : place;
}

static void nodrop_vhost_lock(spinlock_t *place)
	__acquires(place)
{
	spin_lock_bh(nodrop_vhost_consumer_lock(place));
}

static void nodrop_vhost_unlock(spinlock_t *place)
	__releases(place)
{
	spin_unlock_bh(nodrop_vhost_consumer_lock(place));
}

/* A run of the qdisc that follows may bring packets: if so, peek again. */
static int nodrop_vhost_peek(struct vhost_net_virtqueue *nvq, struct sock *sk)
{
	struct nodrop_queue *q = nodrop_vhost_queue(nvq->rx_ring);
	int len = stock_peek_head_len(nvq, sk);

	if (!len && q && nodrop_has_packets(q))
		len = stock_peek_head_len(nvq, sk);
	return len;
}

static int nodrop_vhost_consume(struct ptr_ring *ring, void **packets, int n)
{
	struct nodrop_queue *q = nodrop_vhost_queue(ring);

	if (!q)
		return __ptr_ring_consume_batched(ring, packets, n);
	return nodrop_consume_batched(q, packets, n);
}

static void nodrop_vhost_unconsume(struct ptr_ring *ring, void **packets,
				   int n, void (*destroy)(void *packet))
{
	struct nodrop_queue *q = nodrop_vhost_queue(ring);

	if (!q)
		ptr_ring_unconsume(ring, packets, n, destroy);
	else
		nodrop_unconsume(q, packets, n);
}
