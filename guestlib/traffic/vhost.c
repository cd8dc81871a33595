// SPDX-License-Identifier: GPL-2.0-only
#include "vhost.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <linux/vhost.h>
#include <linux/virtio_config.h>
#include <linux/virtio_net.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <time.h>
#include <unistd.h>

#define RING_ALIGN	4096

/* Size of a buffer: a small packet, or a part of a large one. */
#define PACKET_BYTES	2048
#define PAGE_BYTES	4096

static void ask(const struct vhost_device *dev, unsigned long request,
		void *argument, const char *what)
{
	if (ioctl(dev->fd, request, argument))
		die(EXIT_FAILED, "vhost-net: cannot %s: %s", what,
		    strerror(errno));
}

static void set_features(struct vhost_device *dev, bool large)
{
	__u64 needed = 1ULL << VIRTIO_F_VERSION_1 |
		       1ULL << (large ? VIRTIO_NET_F_MRG_RXBUF :
					VHOST_NET_F_VIRTIO_NET_HDR);
	__u64 features;

	ask(dev, VHOST_GET_FEATURES, &features, "ask for its features");
	features &= needed;
	if (features != needed)
		die(EXIT_UNSUPPORTED,
		    "this vhost-net lacks the features for these headers");
	ask(dev, VHOST_SET_FEATURES, &features, "set its features");
	dev->header = sizeof(struct virtio_net_hdr_mrg_rxbuf);
}

/* All memory is one region, at the same addresses on both sides. */
static void share_memory(struct vhost_device *dev, void *memory, size_t size)
{
	struct vhost_memory *table;

	table = calloc(1, sizeof(*table) + sizeof(*table->regions));
	if (!table)
		die(EXIT_FAILED, "out of memory");
	table->nregions = 1;
	table->regions[0].guest_phys_addr = (__u64)memory;
	table->regions[0].userspace_addr = (__u64)memory;
	table->regions[0].memory_size = size;
	ask(dev, VHOST_SET_MEM_TABLE, table, "share memory");
	free(table);
}

static int new_event(void)
{
	int fd = eventfd(0, EFD_NONBLOCK | EFD_CLOEXEC);

	if (fd < 0)
		die(EXIT_FAILED, "cannot make an eventfd: %s", strerror(errno));
	return fd;
}

static void set_ring(const struct vhost_device *dev, unsigned int index)
{
	const struct vhost_ring *ring = &dev->rings[index];
	struct vhost_vring_state state = { index, ring->vring.num };
	struct vhost_vring_file file = { index, ring->kick };
	struct vhost_vring_addr addr = {
		.index = index,
		.desc_user_addr = (__u64)ring->vring.desc,
		.used_user_addr = (__u64)ring->vring.used,
		.avail_user_addr = (__u64)ring->vring.avail,
	};

	ask(dev, VHOST_SET_VRING_NUM, &state, "set a ring's size");
	state.num = 0;
	ask(dev, VHOST_SET_VRING_BASE, &state, "set a ring's start");
	ask(dev, VHOST_SET_VRING_ADDR, &addr, "set a ring's place");
	ask(dev, VHOST_SET_VRING_KICK, &file, "set a ring's kick");
	file.fd = ring->call;
	ask(dev, VHOST_SET_VRING_CALL, &file, "set a ring's call");
	file.fd = ring->error;
	ask(dev, VHOST_SET_VRING_ERR, &file, "set a ring's error event");
}

char *vhost_buffer(const struct vhost_ring *ring, __u32 id)
{
	return ring->buffers + id * ring->buffer_bytes;
}

static void fill_ring(struct vhost_ring *ring, void *rings, char *buffers,
		      unsigned int slots, __u16 flags)
{
	unsigned int i;

	vring_init(&ring->vring, slots, rings, RING_ALIGN);
	ring->buffers = buffers;
	ring->kick = new_event();
	ring->call = new_event();
	ring->error = new_event();
	for (i = 0; i < slots; i++) {
		ring->vring.desc[i].addr =
			(__u64)vhost_buffer(ring, i);
		ring->vring.desc[i].len = ring->buffer_bytes;
		ring->vring.desc[i].flags = flags;
		ring->vring.avail->ring[i] = i;
	}
	/* vhost is to call only while this thread sleeps. */
	ring->vring.avail->flags = VRING_AVAIL_F_NO_INTERRUPT;
}

/* vhost names its thread "vhost-" and its owner's pid; 0: none in @folder */
static pid_t find_thread(const char *folder, const char *wanted)
{
	char path[300], name[32];
	struct dirent *entry;
	pid_t found = 0;
	FILE *comm;
	DIR *dir;

	dir = opendir(folder);
	while (dir && !found && (entry = readdir(dir))) {
		snprintf(path, sizeof(path), "%s/%s/comm", folder,
			 entry->d_name);
		comm = fopen(path, "re");
		if (!comm)
			continue;
		if (fgets(name, sizeof(name), comm) && !strcmp(name, wanted))
			found = atoi(entry->d_name);
		fclose(comm);
	}
	if (dir)
		closedir(dir);
	return found;
}

/* A thread of this process since Linux 6.4, a kernel thread before. */
static pid_t find_worker(void)
{
	char wanted[32];
	pid_t found;

	snprintf(wanted, sizeof(wanted), "vhost-%d\n", getpid());
	found = find_thread("/proc/self/task", wanted);
	return found ? found : find_thread("/proc", wanted);
}

void vhost_open(struct vhost_device *dev, int tap, unsigned int slots,
		bool large)
{
	size_t ring_size = (vring_size(slots, RING_ALIGN) + RING_ALIGN - 1) &
			   ~(RING_ALIGN - 1UL);
	struct vhost_ring *rings = dev->rings;
	size_t size = VHOST_RINGS * ring_size;
	char *memory, *buffers;
	unsigned int i;

	rings[VHOST_RX].buffer_bytes = large ? PAGE_BYTES : PACKET_BYTES;
	rings[VHOST_TX].buffer_bytes = large ? TUN_PACKET_MAX : PACKET_BYTES;
	for (i = 0; i < VHOST_RINGS; i++)
		size += slots * rings[i].buffer_bytes;
	dev->tap = tap;
	dev->fd = open("/dev/vhost-net", O_RDWR | O_CLOEXEC);
	if (dev->fd < 0)
		die(EXIT_FAILED,
		    "cannot open /dev/vhost-net: %s; load vhost_net first",
		    strerror(errno));
	ask(dev, VHOST_SET_OWNER, NULL, "become its owner");
	dev->worker = find_worker();
	set_features(dev, large);

	memory = mmap(NULL, size, PROT_READ | PROT_WRITE,
		      MAP_PRIVATE | MAP_ANONYMOUS | MAP_POPULATE, -1, 0);
	if (memory == MAP_FAILED)
		die(EXIT_FAILED, "out of memory");
	share_memory(dev, memory, size);
	buffers = memory + VHOST_RINGS * ring_size;
	for (i = 0; i < VHOST_RINGS; i++) {
		fill_ring(&rings[i], memory, buffers, slots,
			  i == VHOST_RX ? VRING_DESC_F_WRITE : 0);
		set_ring(dev, i);
		memory += ring_size;
		buffers += slots * rings[i].buffer_bytes;
	}
}

static void set_backends(struct vhost_device *dev, int fd)
{
	struct vhost_vring_file backend = { .fd = fd };

	for (backend.index = 0; backend.index < VHOST_RINGS; backend.index++)
		ask(dev, VHOST_NET_SET_BACKEND, &backend, "set its backend");
}

void vhost_busyloop(struct vhost_device *dev, unsigned int us)
{
	struct vhost_vring_state state = { .num = us };

	for (state.index = 0; state.index < VHOST_RINGS; state.index++)
		ask(dev, VHOST_SET_VRING_BUSYLOOP_TIMEOUT, &state,
		    "set how long it polls");
}

void vhost_attach(struct vhost_device *dev)
{
	set_backends(dev, dev->tap);
	vhost_kick(&dev->rings[VHOST_RX]);
	vhost_kick(&dev->rings[VHOST_TX]);
}

void vhost_detach(struct vhost_device *dev)
{
	set_backends(dev, -1);
}

__u16 vhost_used(const struct vhost_ring *ring)
{
	__u16 count;

	/*
	 * User-mode Linux copies an index byte by byte. From 0x1ff to 0x200 the
	 * used index is 0x100 for a moment, which is before the entries seen.
	 * The available index may be read as 0x2ff. If all buffers are used,
	 * vhost accepts that and uses up to 255 of them again.
	 */
	do {
		count = __atomic_load_n(&ring->vring.used->idx,
					__ATOMIC_ACQUIRE) - ring->seen;
	} while (count > 2 * ring->vring.num);
	return count;
}

const struct vring_used_elem *vhost_used_entry(const struct vhost_ring *ring,
					       __u16 ahead)
{
	__u16 place = ring->seen + ahead;

	return &ring->vring.used->ring[place % ring->vring.num];
}

void vhost_take(struct vhost_ring *ring, __u16 count)
{
	ring->seen += count;
}

void vhost_kick(const struct vhost_ring *ring)
{
	__u64 one = 1;

	/* It fails only if the eventfd's counter overflows. */
	if (write(ring->kick, &one, sizeof(one)) < 0 && errno != EAGAIN)
		die(EXIT_FAILED, "cannot kick vhost: %s", strerror(errno));
}

void vhost_give(struct vhost_ring *ring, __u16 count)
{
	struct vring_avail *avail = ring->vring.avail;

	__atomic_store_n(&avail->idx, (__u16)(avail->idx + count),
			 __ATOMIC_RELEASE);
	/* vhost requests a kick and then reads the index. */
	__atomic_thread_fence(__ATOMIC_SEQ_CST);
	if (!(__atomic_load_n(&ring->vring.used->flags, __ATOMIC_RELAXED) &
	      VRING_USED_F_NO_NOTIFY))
		vhost_kick(ring);
}

void vhost_hide(struct vhost_ring *ring, bool hide)
{
	size_t size = ring->vring.num * ring->buffer_bytes;

	__atomic_store_n(&ring->hidden, hide, __ATOMIC_SEQ_CST);
	if (mprotect(ring->buffers, size,
		     hide ? PROT_NONE : PROT_READ | PROT_WRITE))
		die(EXIT_FAILED, "cannot hide buffers: %s", strerror(errno));
	if (!hide)
		vhost_kick(ring);
}

/* Reads and resets the number of events. */
static __u64 take_events(int fd)
{
	__u64 events;

	if (read(fd, &events, sizeof(events)) == sizeof(events))
		return events;
	if (errno != EAGAIN)
		die(EXIT_FAILED, "cannot read an eventfd: %s", strerror(errno));
	return 0;
}

__u64 vhost_errors(struct vhost_ring *ring)
{
	return __atomic_add_fetch(&ring->errors, take_events(ring->error),
				  __ATOMIC_RELAXED);
}

static bool is_hidden(const struct vhost_ring *ring)
{
	return __atomic_load_n(&ring->hidden, __ATOMIC_SEQ_CST);
}

void vhost_wait(struct vhost_ring *ring)
{
	struct pollfd fds[] = {
		{ .fd = is_hidden(ring) ? -1 : ring->error, .events = POLLIN },
		{ .fd = ring->call, .events = POLLIN },
	};
	__u16 *flags = &ring->vring.avail->flags;

	__atomic_store_n(flags, 0, __ATOMIC_RELAXED);
	/* vhost writes the used index and then reads the flag. */
	__atomic_thread_fence(__ATOMIC_SEQ_CST);
	if (!vhost_used(ring) && poll(fds, 2, -1) > 0) {
		take_events(ring->call);
		if (fds[0].revents) {
			vhost_errors(ring);
			/* A kick would make it drop another packet. */
			if (!is_hidden(ring))
				vhost_kick(ring);
		}
	}
	__atomic_store_n(flags, VRING_AVAIL_F_NO_INTERRUPT, __ATOMIC_RELAXED);
}

__u64 vhost_worker_cpu_ns(const struct vhost_device *dev)
{
	/* The clock's id as pthread_getcpuclockid() computes it. */
	clockid_t clock = ~(unsigned int)dev->worker << 3 | 6;
	struct timespec time;

	if (!dev->worker || clock_gettime(clock, &time))
		return 0;
	return time.tv_sec * NSEC_PER_SEC + time.tv_nsec;
}
