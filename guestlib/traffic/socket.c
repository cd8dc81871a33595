// SPDX-License-Identifier: GPL-2.0-only
#include "socket.h"

#include <arpa/inet.h>
#include <errno.h>
#include <linux/sock_diag.h>
#include <netinet/in.h>
#include <netinet/udp.h>
#include <string.h>
#include <sys/socket.h>

#include "common.h"

#ifndef SO_MEMINFO
#define SO_MEMINFO 55
#endif
#ifndef UDP_SEGMENT
#define UDP_SEGMENT 103
#endif

struct sockaddr_in parse_address(const char *text, __u64 port)
{
	struct sockaddr_in address = {
		.sin_family = AF_INET,
		.sin_port = htons(port),
	};

	if (inet_pton(AF_INET, text, &address.sin_addr) != 1)
		die(EXIT_USAGE, "'%s' is not an IPv4 address", text);
	return address;
}

int open_udp(const char *local, __u64 port, __u64 rcvbuf)
{
	struct sockaddr_in address = parse_address(local, port);
	/* The kernel doubles it, for its overhead per packet. */
	int size = rcvbuf / 2;
	int fd;

	fd = socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC, 0);
	if (fd < 0)
		die(EXIT_FAILED, "cannot open a UDP socket: %s",
		    strerror(errno));
	if (size &&
	    setsockopt(fd, SOL_SOCKET, SO_RCVBUFFORCE, &size, sizeof(size)) &&
	    setsockopt(fd, SOL_SOCKET, SO_RCVBUF, &size, sizeof(size)))
		die(EXIT_FAILED, "cannot set the receive buffer: %s",
		    strerror(errno));
	if (bind(fd, (const struct sockaddr *)&address, sizeof(address)))
		die(EXIT_FAILED, "cannot bind to %s: %s", local,
		    strerror(errno));
	return fd;
}

void connect_udp(int fd, const char *remote, __u64 port)
{
	struct sockaddr_in address = parse_address(remote, port);

	if (connect(fd, (const struct sockaddr *)&address, sizeof(address)))
		die(EXIT_FAILED, "cannot reach %s: %s", remote,
		    strerror(errno));
}

void set_sndbuf(int fd, __u64 bytes)
{
	int size = bytes;

	if (size && setsockopt(fd, SOL_SOCKET, SO_SNDBUF, &size, sizeof(size)))
		die(EXIT_FAILED, "cannot set the send buffer to %d bytes: %s",
		    size, strerror(errno));
}

void segment_udp(int fd, __u64 bytes)
{
	int size = bytes;

	if (setsockopt(fd, IPPROTO_UDP, UDP_SEGMENT, &size, sizeof(size)))
		die(EXIT_FAILED, "cannot send segments of %d bytes: %s", size,
		    strerror(errno));
}

__u64 socket_drops(int fd)
{
	__u32 values[SK_MEMINFO_VARS] = {};
	socklen_t size = sizeof(values);

	if (getsockopt(fd, SOL_SOCKET, SO_MEMINFO, values, &size))
		die(EXIT_FAILED, "cannot read a socket's drops: %s",
		    strerror(errno));
	return values[SK_MEMINFO_DROPS];
}
