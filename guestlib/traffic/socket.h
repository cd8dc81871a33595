/* SPDX-License-Identifier: GPL-2.0-only */
/* UDP sockets. All functions die on an error. */
#ifndef TRAFFIC_SOCKET_H
#define TRAFFIC_SOCKET_H

#include <linux/types.h>
#include <netinet/in.h>

/*
 * A UDP socket bound to the IPv4 address @local. @rcvbuf: receive buffer,
 * bytes, 0: the default; only root may exceed the system's limit.
 */
int open_udp(const char *local, __u64 port, __u64 rcvbuf);

/* Dies unless @text is an IPv4 address. */
struct sockaddr_in parse_address(const char *text, __u64 port);

/* Connects the socket to one remote address. */
void connect_udp(int fd, const char *remote, __u64 port);

/* Sets the send buffer, bytes, 0: the default. */
void set_sndbuf(int fd, __u64 bytes);

/*
 * Sends data as UDP segments of @bytes. Segments of one send() share a packet
 * as far as the device supports that (GSO).
 */
void segment_udp(int fd, __u64 bytes);

/* Packets dropped because the receive buffer was full. */
__u64 socket_drops(int fd);

#endif
