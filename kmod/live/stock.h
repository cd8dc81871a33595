/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * Included before a driver of the kernel whose functions replace those of the
 * running one. Removes what would make it a module: init, parameters, exports,
 * description. The compiler then omits all that is unused; dkms/prove
 * refuses an object in which data of the driver are left.
 */
#ifndef NODROP_LIVE_STOCK_H
#define NODROP_LIVE_STOCK_H

/* As the drivers define it, before the first header is read. */
#define pr_fmt(fmt) KBUILD_MODNAME ": " fmt

#include <linux/if_tun.h>
#include <linux/miscdevice.h>
#include <linux/module.h>
#include <linux/netdevice.h>
#include <linux/ptr_ring.h>
#include <linux/rtnetlink.h>
#include <linux/skb_array.h>
#include <net/rtnetlink.h>

#define NODROP_LIVE_NOTHING(...)

#undef module_init
#undef module_exit
#undef module_param
#undef EXPORT_SYMBOL_GPL
#undef MODULE_ALIAS
#undef MODULE_ALIAS_MISCDEV
#undef MODULE_AUTHOR
#undef MODULE_DESCRIPTION
#undef MODULE_IMPORT_NS
#undef MODULE_LICENSE
#undef MODULE_PARM_DESC
#undef MODULE_VERSION
#define module_init NODROP_LIVE_NOTHING
#define module_exit NODROP_LIVE_NOTHING
#define module_param NODROP_LIVE_NOTHING
#define EXPORT_SYMBOL_GPL NODROP_LIVE_NOTHING
#define MODULE_ALIAS NODROP_LIVE_NOTHING
#define MODULE_ALIAS_MISCDEV NODROP_LIVE_NOTHING
#define MODULE_AUTHOR NODROP_LIVE_NOTHING
#define MODULE_DESCRIPTION NODROP_LIVE_NOTHING
#define MODULE_IMPORT_NS NODROP_LIVE_NOTHING
#define MODULE_LICENSE NODROP_LIVE_NOTHING
#define MODULE_PARM_DESC NODROP_LIVE_NOTHING
#define MODULE_VERSION NODROP_LIVE_NOTHING

/* tun.c exports this and vhost_net imports it: a reference would pin tun.ko. */
void nodrop_live_ptr_free(void *packet);

#define tun_ptr_free nodrop_live_ptr_free

#endif
