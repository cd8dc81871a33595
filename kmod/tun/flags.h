/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * In tun->flags, where tun.c leaves room.
 */
#ifndef NODROP_TUN_FLAGS_H
#define NODROP_TUN_FLAGS_H

/* What the administrator said. */
#define NODROP_TUN_ON		0x01000000
#define NODROP_TUN_OFF		0x02000000
/* And that packets may be in qdiscs of txqs that are not theirs any more. */
#define NODROP_TUN_STRAYS	0x04000000

#endif
