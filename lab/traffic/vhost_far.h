/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * A guest's network without the guest: a second TAP, in another namespace.
 * Large packets pass whole, each by one system call.
 *
 *   TAP -> vhost -> receive ring  -> writev() -> far TAP
 *   TAP <- vhost <- transmit ring <- read()   <- far TAP
 */
#ifndef TRAFFIC_VHOST_FAR_H
#define TRAFFIC_VHOST_FAR_H

#include "vhost.h"

/* Gives both TAPs, @fd is the far one, the headers of @dev; dies on errors. */
void vhost_far_open(const struct vhost_device *dev, int fd);

/* Writes what was received to the far TAP and offers the buffers anew. */
void vhost_far_receive(struct vhost_device *dev, int fd,
		       struct vhost_counts *counts);

/* Sends what comes from the far TAP until it is to stop. */
void vhost_far_transmit(struct vhost_device *dev, int fd,
			struct vhost_counts *counts);

#endif
