// SPDX-License-Identifier: GPL-2.0-only
#include "vhost_far.h"

#include <endian.h>
#include <errno.h>
#include <linux/if_tun.h>
#include <linux/virtio_net.h>
#include <netinet/tcp.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/uio.h>
#include <unistd.h>

#include "common.h"

/* Buffers of the largest packet: 64 kB in pages, and one begun page. */
#define PARTS_MAX	32

void vhost_far_open(const struct vhost_device *dev, int fd)
{
	int size = dev->header;

	if (ioctl(dev->tap, TUNSETVNETHDRSZ, &size) ||
	    ioctl(fd, TUNSETVNETHDRSZ, &size))
		die(EXIT_FAILED, "cannot set the size of a TAP's headers: %s",
		    strerror(errno));
}

/* Returns the number of segments of a packet of @length bytes. */
static __u64 segments_of(const struct virtio_net_hdr *header,
			 const char *packet, size_t length)
{
	size_t headers = le16toh(header->csum_start);
	size_t size = le16toh(header->gso_size);
	struct tcphdr tcp;

	if (header->gso_type == VIRTIO_NET_HDR_GSO_NONE || !size)
		return 1;
	memcpy(&tcp, packet + headers, sizeof(tcp));
	headers += tcp.doff * 4;
	return (length - headers + size - 1) / size;
}

/* Writes the next packet and returns the number of its buffers. */
static __u16 write_packet(struct vhost_device *dev, int fd,
			  struct vhost_counts *counts)
{
	const struct vhost_ring *ring = &dev->rings[VHOST_RX];
	const struct virtio_net_hdr_mrg_rxbuf *header;
	const struct vring_used_elem *entry;
	struct iovec parts[PARTS_MAX];
	const char *packet;
	size_t length = 0;
	__u16 count, i;

	entry = vhost_used_entry(ring, 0);
	header = (const void *)vhost_buffer(ring, entry->id);
	count = le16toh(header->num_buffers);
	if (!count || count > PARTS_MAX || count > vhost_used(ring))
		die(EXIT_FAILED, "vhost-net used %u buffers for a packet",
		    count);
	for (i = 0; i < count; i++) {
		entry = vhost_used_entry(ring, i);
		parts[i].iov_base = vhost_buffer(ring, entry->id);
		parts[i].iov_len = entry->len;
		length += entry->len;
	}
	if (writev(fd, parts, count) != (ssize_t)length)
		add_count(&counts->refused, 1);
	length -= dev->header;
	packet = (const char *)(header + 1);
	add_count(&counts->segments,
		  segments_of(&header->hdr, packet, length));
	add_count(&counts->bytes, length);
	add_count(&counts->packets, 1);
	return count;
}

void vhost_far_receive(struct vhost_device *dev, int fd, __u64 work_ns,
		       struct vhost_counts *counts)
{
	struct vhost_ring *ring = &dev->rings[VHOST_RX];
	struct vring_avail *avail = ring->vring.avail;
	__u16 count, i;

	while (vhost_used(ring) && !stop_asked()) {
		count = write_packet(dev, fd, counts);
		work_for_ns(work_ns);
		for (i = 0; i < count; i++)
			avail->ring[(__u16)(avail->idx + i) % ring->vring.num] =
				vhost_used_entry(ring, i)->id;
		vhost_take(ring, count);
		vhost_give(ring, count);
	}
}

/* Descriptors are used in order, which is also vhost's order. */
void vhost_far_transmit(struct vhost_device *dev, int fd,
			struct vhost_counts *counts)
{
	struct vhost_ring *ring = &dev->rings[VHOST_TX];
	unsigned int slot, slots = ring->vring.num;
	__u64 given = 0;
	ssize_t length;
	__u16 used;

	while (!stop_asked()) {
		used = vhost_used(ring);
		vhost_take(ring, used);
		add_count(&counts->sent, used);
		if (given - counts->sent == slots) {
			vhost_wait(ring);
			continue;
		}
		slot = given % slots;
		length = read(fd, vhost_buffer(ring, slot), ring->buffer_bytes);
		if (length < 0 && errno != EINTR)
			die(EXIT_FAILED, "cannot read from the far TAP: %s",
			    strerror(errno));
		if (length <= 0)
			continue;
		ring->vring.desc[slot].len = length;
		vhost_give(ring, 1);
		given++;
	}
}
