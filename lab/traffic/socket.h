/* SPDX-License-Identifier: GPL-2.0-only */
/* UDP sockets. All functions die on an error. */
#ifndef TRAFFIC_SOCKET_H
#define TRAFFIC_SOCKET_H

#include <linux/types.h>
#include <netinet/in.h>

/*
 * A UDP socket at the IPv4 address @local. @rcvbuf: bytes of packets that it
 * holds, 0: the system's choice; only root gets more than the system allows.
 */
int open_udp(const char *local, __u64 port, __u64 rcvbuf);

/* Dies unless @text is an IPv4 address. */
struct sockaddr_in parse_address(const char *text, __u64 port);

/* From now on the socket knows nobody else. */
void connect_udp(int fd, const char *remote, __u64 port);

/* Bytes that the socket may have on their way, 0: the system's choice. */
void set_sndbuf(int fd, __u64 bytes);

/*
 * From now on what is given to the socket at once goes as segments of @bytes,
 * in one packet as far as the device takes it so (GSO).
 */
void segment_udp(int fd, __u64 bytes);

/* Packets that came and did not fit into the socket's buffer. */
__u64 socket_drops(int fd);

#endif
