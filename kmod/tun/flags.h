/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * Bits of tun->flags that tun.c does not use.
 */
#ifndef NODROP_TUN_FLAGS_H
#define NODROP_TUN_FLAGS_H

/* Set by the administrator: ethtool --set-priv-flags. */
#define NODROP_TUN_ON		0x01000000
#define NODROP_TUN_OFF		0x02000000

#endif
