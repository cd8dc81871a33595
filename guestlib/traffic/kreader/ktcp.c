// SPDX-License-Identifier: GPL-2.0-only
/*
 * ktcp: a TCP socket of the kernel, as NFS has one: for tests of what its data
 * waits for. The module connects when it is loaded, without waiting.
 *
 *   insmod ktcp.ko address=0xc6120002 port=5000
 *   echo 5000 >/sys/module/ktcp/parameters/send	bytes, without waiting
 *   cat /sys/module/ktcp/parameters/charged	bytes charged to the socket
 */
#define pr_fmt(fmt) KBUILD_MODNAME ": " fmt

#include <linux/in.h>
#include <linux/module.h>
#include <linux/net.h>
#include <linux/slab.h>
#include <linux/uio.h>
#include <net/net_namespace.h>
#include <net/sock.h>

#define KTCP_MOST 65536

static unsigned int ktcp_address;
module_param_named(address, ktcp_address, uint, 0444);
MODULE_PARM_DESC(address, "IPv4 address, in the byte order of the CPU");

static ushort ktcp_port;
module_param_named(port, ktcp_port, ushort, 0444);
MODULE_PARM_DESC(port, "TCP port");

static struct socket *ktcp_sock;

static int ktcp_send(const char *text, const struct kernel_param *param)
{
	struct msghdr msg = { .msg_flags = MSG_DONTWAIT };
	unsigned int bytes;
	struct kvec data;
	int err;

	err = kstrtouint(text, 0, &bytes);
	if (err)
		return err;
	/* A parameter on the command line comes before the socket. */
	if (!ktcp_sock || bytes > KTCP_MOST)
		return -EINVAL;
	data.iov_len = bytes;
	data.iov_base = kvzalloc(bytes, GFP_KERNEL);
	if (!data.iov_base)
		return -ENOMEM;
	err = kernel_sendmsg(ktcp_sock, &msg, &data, 1, bytes);
	kvfree(data.iov_base);
	if (err < 0)
		return err;
	return err == bytes ? 0 : -EAGAIN;
}

static const struct kernel_param_ops ktcp_send_ops = { .set = ktcp_send };

module_param_cb(send, &ktcp_send_ops, NULL, 0200);
MODULE_PARM_DESC(send, "Send so many bytes");

static int ktcp_charged(char *text, const struct kernel_param *param)
{
	return sysfs_emit(text, "%d\n", sk_wmem_alloc_get(ktcp_sock->sk));
}

static const struct kernel_param_ops ktcp_charged_ops = {
	.get = ktcp_charged,
};

module_param_cb(charged, &ktcp_charged_ops, NULL, 0444);
MODULE_PARM_DESC(charged, "Bytes charged to the socket");

static int __init ktcp_init(void)
{
	struct sockaddr_in to = {
		.sin_family = AF_INET,
		.sin_addr.s_addr = htonl(ktcp_address),
		.sin_port = htons(ktcp_port),
	};
	int err;

	err = sock_create_kern(&init_net, PF_INET, SOCK_STREAM, IPPROTO_TCP,
			       &ktcp_sock);
	if (err)
		return err;
	/* A reset at the end: nothing is sent again. */
	sock_no_linger(ktcp_sock->sk);
	err = kernel_connect(ktcp_sock, (void *)&to, sizeof(to), O_NONBLOCK);
	if (err && err != -EINPROGRESS) {
		sock_release(ktcp_sock);
		return err;
	}
	return 0;
}
module_init(ktcp_init);

static void __exit ktcp_exit(void)
{
	sock_release(ktcp_sock);
}
module_exit(ktcp_exit);

MODULE_DESCRIPTION("A TCP socket of the kernel, for tests");
MODULE_LICENSE("GPL");
