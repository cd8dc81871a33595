/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * Hooks into the kernel's own tap.c.
 *
 * wrap.c includes this and then the kernel's tap.c, unchanged. Each hook either
 * renames a definition (the driver's becomes stock_NAME, and NAME is nodrop's)
 * or redirects an access to the ring. There is no policy here.
 *
 * A hook without effect fails the build. A renamed function that tap.c does not
 * define is undefined. A function of nodrop that nothing calls is an unused
 * one. dkms/prepare refuses a tap.c that accesses its ring by a name not listed
 * here.
 */
#ifndef NODROP_TAP_HOOKS_H
#define NODROP_TAP_HOOKS_H

/* Before the hooks, which must rename nothing in a header. */
#include <linux/if_tap.h>
#include <linux/if_tun.h>
#include <linux/module.h>
#include <linux/netdevice.h>
#include <linux/ptr_ring.h>
#include <linux/skb_array.h>
#include <linux/skbuff.h>

#include "../compat/ptr_ring_resize.h"

/* Definitions that nodrop replaces. */
static int tap_open(struct inode *inode, struct file *file);
static int tap_release(struct inode *inode, struct file *file);
struct ptr_ring *stock_tap_get_ptr_ring(struct file *file);

#define tap_open(inode, file)		stock_tap_open(inode, file)
#define tap_release(inode, file)	stock_tap_release(inode, file)
#define tap_get_ptr_ring(file)		stock_tap_get_ptr_ring(file)

/* Produce. */
static int nodrop_tap_produce(struct ptr_ring *ring, struct sk_buff *skb);

#undef ptr_ring_produce
#define ptr_ring_produce(ring, skb) nodrop_tap_produce(ring, skb)

/* The ring's life: init, resize when txqueuelen changes, cleanup. */
static int nodrop_tap_ring_init(struct ptr_ring *ring, unsigned int txqueuelen);
static int nodrop_tap_resize(struct ptr_ring **rings, int n,
			     unsigned int txqueuelen);
static void nodrop_tap_ring_cleanup(struct ptr_ring *ring);

#undef ptr_ring_init
#undef ptr_ring_cleanup
#undef ptr_ring_resize_multiple
#undef ptr_ring_resize_multiple_bh
#define ptr_ring_init(ring, size, ...) nodrop_tap_ring_init(ring, size)
#define ptr_ring_cleanup(ring, ...) nodrop_tap_ring_cleanup(ring)
#define ptr_ring_resize_multiple(rings, n, size, ...) \
	nodrop_tap_resize(rings, n, size)
#define ptr_ring_resize_multiple_bh ptr_ring_resize_multiple

/* The rest of a large frame's segments, when q's ring dropped one. */
static void nodrop_tap_free_rest(struct tap_queue *q, struct sk_buff *segments,
				 enum skb_drop_reason reason);

#define kfree_skb_list_reason(segments, reason) \
	nodrop_tap_free_rest(q, segments, reason)

#endif
