/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * A guest's network without the guest: a second TAP, in another namespace.
 * Large packets are not segmented; each takes one system call.
 *
 *   TAP -> vhost -> receive ring  -> writev() -> far TAP
 *   TAP <- vhost <- transmit ring <- read()   <- far TAP
 */
#ifndef TRAFFIC_VHOST_FAR_H
#define TRAFFIC_VHOST_FAR_H

#include "vhost.h"

/* Sets the header size of both TAPs to that of @dev; dies on errors. */
void vhost_far_open(const struct vhost_device *dev, int fd);

/*
 * Writes received packets to the far TAP, works @work_ns on each, and offers
 * their buffers again.
 */
void vhost_far_receive(struct vhost_device *dev, int fd, __u64 work_ns,
		       struct vhost_counts *counts);

/* Sends the packets of the far TAP until the program is to stop. */
void vhost_far_transmit(struct vhost_device *dev, int fd,
			struct vhost_counts *counts);

#endif
