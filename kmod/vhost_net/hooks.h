/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * Hooks into the kernel's own vhost net.c.
 *
 * wrap.c includes this and then the kernel's net.c, unchanged. net.c keeps the
 * ring of its backend in rx_ring. If the ring has a nodrop_queue, rx_ring
 * points to that queue, marked by the lowest bit; else (the kernel's own tun,
 * tap) to the ring. Each access goes through a name below, which tells the two
 * apart. There is no policy here.
 *
 * A hook without effect fails the build: a function of nodrop that nothing
 * calls is an unused one, and dkms/prepare refuses a net.c that accesses its
 * ring in a way that is not listed here.
 */
#ifndef NODROP_VHOST_NET_HOOKS_H
#define NODROP_VHOST_NET_HOOKS_H

/* Before the hooks, which must rename nothing in a header. */
#include <linux/if_tun.h>
#include <linux/module.h>
#include <linux/ptr_ring.h>
#include <linux/skb_array.h>
#include <linux/vhost.h>
#include <net/sock.h>

#include "stock/vhost.h"

/* Where rx_ring comes from. */
static struct ptr_ring *nodrop_vhost_ring(struct file *file);

#define tun_get_tx_ring(file) nodrop_vhost_ring(file)

/* The files of nodrop_tun, or of the tun that is built in beside it. */
#if IS_BUILTIN(CONFIG_TUN)
static struct socket *nodrop_vhost_socket(struct file *file);

#define tun_get_socket(file) nodrop_vhost_socket(file)
#endif

/*
 * consumer_lock, given by its place in what rx_ring points to. net.c takes no
 * other lock by these names.
 */
static void nodrop_vhost_lock(spinlock_t *place);
static void nodrop_vhost_unlock(spinlock_t *place);

#define spin_lock(place) nodrop_vhost_lock(place)
#define spin_unlock(place) nodrop_vhost_unlock(place)

/* Consume, with and without net.c holding the lock, and put back. */
static int nodrop_vhost_consume(struct ptr_ring *ring, void **packets, int n);
static void nodrop_vhost_unconsume(struct ptr_ring *ring, void **packets,
				   int n, void (*destroy)(void *packet));

#define __ptr_ring_consume_batched(ring, packets, n) \
	nodrop_vhost_consume(ring, packets, n)
#define ptr_ring_consume_batched(ring, packets, n) ({		\
	struct ptr_ring *__ring = (ring);			\
	int __n;						\
								\
	nodrop_vhost_lock(&__ring->consumer_lock);		\
	__n = nodrop_vhost_consume(__ring, packets, n);		\
	nodrop_vhost_unlock(&__ring->consumer_lock);		\
	__n;							\
})

#define ptr_ring_unconsume(ring, packets, n, destroy) \
	nodrop_vhost_unconsume(ring, packets, n, destroy)

/*
 * Where net.c peeks at the next packet. The first word tells its definition,
 * which becomes stock_NAME, from its calls, which are redirected.
 */
struct vhost_net_virtqueue;
static int nodrop_vhost_peek(struct vhost_net_virtqueue *nvq, struct sock *sk);

#define peek_head_len(arg, sk)		nodrop_peek_##arg, sk)
#define nodrop_peek_struct		stock_peek_head_len(struct
#define nodrop_peek_rnvq		nodrop_vhost_peek(rnvq

/* wrap.c sets nodrop's version, which DKMS compares. */
#undef MODULE_VERSION
#define MODULE_VERSION(version)

#endif
