// SPDX-License-Identifier: GPL-2.0-only
/*
 * The core as a module, for drivers and for consumers in the kernel.
 */
#include <linux/module.h>
#include <linux/netdevice.h>

#define CREATE_TRACE_POINTS
#include "trace.h"

/* Packets may still be in the hook of a device that a livepatch has left. */
static void __exit nodrop_exit(void)
{
	synchronize_net();
}
module_exit(nodrop_exit);

MODULE_DESCRIPTION("Flow control for packet rings: push back, do not drop");
MODULE_LICENSE("GPL");
MODULE_INFO(nodrop, NODROP_VERSION);
MODULE_INFO(version, NODROP_VERSION);
