// SPDX-License-Identifier: GPL-2.0-only
/*
 * The core as a module, for drivers and for consumers in the kernel.
 */
#include <linux/module.h>

#define CREATE_TRACE_POINTS
#include "trace.h"

MODULE_DESCRIPTION("Flow control for packet rings: push back, do not drop");
MODULE_LICENSE("GPL");
MODULE_INFO(nodrop, NODROP_VERSION);
MODULE_INFO(version, NODROP_VERSION);
