/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * The guard's part of hold.h, for hold.c.
 */
#ifndef NODROP_HOLD_GUARD_H
#define NODROP_HOLD_GUARD_H

#include "hold.h"

/*
 * How many frames the ring holds. Slots that were read and not yet given back
 * still have their pointers; what these point to is gone.
 *
 * Context: both locks held.
 */
static inline int nodrop_hold_frames(struct ptr_ring *ring)
{
	int frames = ring->producer - ring->consumer_head;

	if (frames < 0 || (!frames && !__ptr_ring_empty(ring)))
		frames += ring->size;
	return frames;
}

void nodrop_hold_guard_init(struct nodrop_hold *hold);
void nodrop_hold_guard_arm(struct nodrop_hold *hold);

/*
 * Has a reader that was taken for gone read on? Who asks too early is told by
 * the next frame.
 */
static inline bool nodrop_hold_is_back(const struct nodrop_hold *hold)
{
	return READ_ONCE(hold->ring->consumer_head) != READ_ONCE(hold->head);
}

#endif
