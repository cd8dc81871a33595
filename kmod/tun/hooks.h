/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * Hooks into the kernel's own tun.c.
 *
 * wrap.c includes this and then the kernel's tun.c, unchanged. Each hook either
 * renames a definition (the driver's becomes stock_NAME, and NAME is nodrop's)
 * or redirects an access to the ring to the core. There is no policy here.
 *
 * A hook without effect fails the build. A renamed function that tun.c does not
 * define is undefined, and one that it defines in another form is defined
 * twice. A function of nodrop that nothing calls is an unused one. dkms/prepare
 * refuses a tun.c that accesses its ring by a name not listed here.
 */
#ifndef NODROP_TUN_HOOKS_H
#define NODROP_TUN_HOOKS_H

/* As tun.c defines it, before the first header is read. */
#define pr_fmt(fmt) KBUILD_MODNAME ": " fmt

/* Before the hooks, which must rename nothing in a header. */
#include <linux/if_tun.h>
#include <linux/module.h>
#include <linux/netdevice.h>
#include <linux/ptr_ring.h>
#include <linux/rtnetlink.h>
#include <linux/skb_array.h>

/* Definitions that nodrop replaces. */
static int __init tun_init(void);
static void __exit tun_cleanup(void);
static void tun_setup(struct net_device *dev);
static int tun_chr_open(struct inode *inode, struct file *file);
static int tun_chr_close(struct inode *inode, struct file *file);

#define tun_init(args)			stock_tun_init(args)
#define tun_cleanup(args)		stock_tun_cleanup(args)
#define tun_setup(args)			stock_tun_setup(args)
#define tun_chr_open(inode, file)	stock_tun_chr_open(inode, file)
#define tun_chr_close(inode, file)	stock_tun_chr_close(inode, file)

/* For consumers that do not know the protocol; nodrop_tun has none. */
#ifndef NODROP_BESIDE
struct ptr_ring *stock_tun_get_tx_ring(struct file *file);

#define tun_get_tx_ring(args)		stock_tun_get_tx_ring(args)
#endif

/*
 * The purge of a detached queue. The first word tells tun.c's definition, which
 * becomes stock_NAME, from its calls, which are redirected.
 */
struct tun_file;
static void nodrop_tun_queue_purge(struct tun_file *tfile);

#define tun_queue_purge(arg)		nodrop_purge_##arg)
#define nodrop_purge_struct		stock_tun_queue_purge(struct
#define nodrop_purge_tfile		nodrop_tun_queue_purge(tfile

#include "ring.h"

/* Called at every change of the set of queues, with RTNL held. */
static int nodrop_tun_set_queues(struct net_device *dev, unsigned int n);

#define netif_set_real_num_tx_queues(dev, n) nodrop_tun_set_queues(dev, n)

/* Both tables of operations get one more. */
#ifdef CONFIG_NET_POLL_CONTROLLER
static void nodrop_tun_poll(struct net_device *dev);

#define ndo_start_xmit ndo_poll_controller = nodrop_tun_poll, .ndo_start_xmit
#endif

/*
 * The flag by which an application requests flow control. The code of kernels
 * that know it is compiled out; other kernels accept it. tun.c uses
 * IFF_ONE_QUEUE in the set of known flags and nowhere else.
 */
#define NODROP_IFF_BACKPRESSURE		0x0080
#undef IFF_BACKPRESSURE
#define IFF_BACKPRESSURE		0
#undef IFF_ONE_QUEUE
#define IFF_ONE_QUEUE			(0x2000 | NODROP_IFF_BACKPRESSURE)

#endif
