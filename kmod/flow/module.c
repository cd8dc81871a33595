// SPDX-License-Identifier: GPL-2.0-only
/*
 * The core as a module, for drivers and for consumers in the kernel.
 */
#include <linux/module.h>
#include <linux/netdevice.h>

#include "internal.h"

#define CREATE_TRACE_POINTS
#include "trace.h"

static int __init nodrop_init(void)
{
	nodrop_kick_init();
	return 0;
}
module_init(nodrop_init);

/* Packets may still be in the hook of a device that a livepatch has left. */
static void __exit nodrop_exit(void)
{
	nodrop_kick_exit();
	synchronize_net();
}
module_exit(nodrop_exit);

MODULE_DESCRIPTION("Flow control for packet rings: push back, do not drop");
MODULE_LICENSE("GPL");
MODULE_INFO(nodrop, NODROP_VERSION);
MODULE_INFO(version, NODROP_VERSION);
