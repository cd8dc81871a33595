/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * In tun->flags, where tun.c leaves room.
 */
#ifndef NODROP_TUN_FLAGS_H
#define NODROP_TUN_FLAGS_H

/* What the administrator said. */
#define NODROP_TUN_ON		0x01000000
#define NODROP_TUN_OFF		0x02000000
/* Other txqs' qdiscs may hold packets for it: nodrop_queue_stale(). */
#define NODROP_TUN_STALE	0x04000000

#endif
