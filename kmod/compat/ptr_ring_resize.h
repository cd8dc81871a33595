/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * Newer kernels resize several rings by ptr_ring_resize_multiple_bh(), which
 * disables softirqs instead of interrupts.
 */
#ifndef NODROP_COMPAT_PTR_RING_RESIZE_H
#define NODROP_COMPAT_PTR_RING_RESIZE_H

#include <linux/ptr_ring.h>

static inline int nodrop_ptr_ring_resize(struct ptr_ring **rings, int n,
					 int size, void (*destroy)(void *ptr))
{
#ifdef ptr_ring_resize_multiple_bh
	return ptr_ring_resize_multiple_bh(rings, n, size, GFP_KERNEL, destroy);
#else
	return ptr_ring_resize_multiple(rings, n, size, GFP_KERNEL, destroy);
#endif
}

static inline int nodrop_ptr_ring_init(struct ptr_ring *ring, int size)
{
	return ptr_ring_init(ring, size, GFP_KERNEL);
}

#endif
