/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * The socket that a packet is charged to.
 */
#ifndef NODROP_OWNER_H
#define NODROP_OWNER_H

#include <linux/skbuff.h>
#include <linux/wait.h>
#include <net/sock.h>

/**
 * nodrop_is_reply() - is the packet charged to a socket of the kernel's own?
 * @skb: the packet
 *
 * All ICMP replies and TCP resets of a CPU, in all network namespaces, share
 * one send buffer. TCP's data, as of NFS, has another destructor.
 *
 * Context: any.
 * Return: true if it is.
 */
static inline bool nodrop_is_reply(const struct sk_buff *skb)
{
	return skb->destructor == sock_wfree && skb->sk->sk_kern_sock;
}

/**
 * nodrop_is_shared() - is the packet charged to a socket that others need?
 * @skb: the packet
 *
 * Two kinds of sockets send for many receivers, none of whom may make the
 * others wait: the kernel's, and those of devices (tun, tap), the only ones
 * without an address family. A guest's frames for all other guests share the
 * send buffer of its device (TUNSETSNDBUF).
 *
 * Context: any.
 * Return: true if it is: orphan the packet before it waits for a consumer.
 */
static inline bool nodrop_is_shared(const struct sk_buff *skb)
{
	return nodrop_is_reply(skb) || (skb->destructor == sock_wfree &&
					skb->sk->sk_family == AF_UNSPEC);
}

/**
 * nodrop_wake_writer() - wake a write() that waits for send buffer space
 * @sk: the socket of a tun or tap file
 *
 * For sk_write_space, besides the driver's own function: that one wakes only
 * those who polled before.
 *
 * Leaves SOCK_NOSPACE set. A writer sets it before it is in the wait queue: a
 * clear in between would wake nothing, and another writer may use up the space
 * before this one looks.
 *
 * Context: any.
 */
static inline void nodrop_wake_writer(struct sock *sk)
{
	/*
	 * The space is freed before this reads whether a writer sleeps: the
	 * barrier in wq_has_sleeper(). Pairs with that of prepare_to_wait() in
	 * sock_wait_for_wmem().
	 * Litmus: SB+wait-mb-full+free-mb-wait
	 */
	if (sock_writeable(sk) && wq_has_sleeper(sk_sleep(sk)) &&
	    test_bit(SOCK_NOSPACE, &sk->sk_socket->flags))
		wake_up_interruptible_poll(sk_sleep(sk), EPOLLOUT |
					   EPOLLWRNORM | EPOLLWRBAND);
}

#endif
