/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * Included before a driver of the kernel whose functions are to stand in for
 * those of the running one. What would make a module of it is taken away: no
 * init, no parameters, no exports, no description. What nothing refers to then
 * is left out by the compiler: kmod/live/prove sees to it that none of the
 * driver's data is among what is left.
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
#define module_init(function)
#define module_exit(function)
#define module_param(name, type, mode)
#define EXPORT_SYMBOL_GPL(name)
#define MODULE_ALIAS(name)
#define MODULE_ALIAS_MISCDEV(minor)
#define MODULE_AUTHOR(name)
#define MODULE_DESCRIPTION(text)
#define MODULE_IMPORT_NS(name)
#define MODULE_LICENSE(name)
#define MODULE_PARM_DESC(name, text)
#define MODULE_VERSION(text)

/* What tun.c exports and vhost_net imports: a reference would pin tun.ko. */
void nodrop_live_ptr_free(void *packet);

#define tun_ptr_free(packet) nodrop_live_ptr_free(packet)

#endif
