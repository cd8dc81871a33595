/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * A TUN or TAP queue, used through the socket from tun_get_socket() like
 * vhost-net does, and a thread for it.
 */
#ifndef NODROP_KTUN_H
#define NODROP_KTUN_H

#include <linux/cpumask.h>
#include <linux/err.h>
#include <linux/file.h>
#include <linux/fs.h>
#include <linux/if_tun.h>
#include <linux/kthread.h>
#include <linux/ktime.h>
#include <linux/net.h>
#include <linux/sched.h>
#include <linux/sched/task.h>
#include <linux/socket.h>
#include <linux/uio.h>

#ifndef ITER_DEST
#define ITER_DEST READ
#define ITER_SOURCE WRITE
#endif

/* The largest IP packet, an Ethernet header with two VLAN tags, a vnet_hdr. */
#define KTUN_BUF_LEN (65536 + 64)

/**
 * struct ktun - a queue that a thread uses
 * @file: the tun file, referenced; NULL: none
 * @sock: its socket
 */
struct ktun {
	struct file *file;
	struct socket *sock;
};

/* nodrop's tun beside one that is built in. */
struct socket *nodrop_tun_get_socket(struct file *file);

static inline struct socket *ktun_beside(struct file *file)
{
	struct socket *sock = ERR_PTR(-EINVAL);
	typeof(tun_get_socket) *get;

	if (!IS_BUILTIN(CONFIG_TUN))
		return sock;
	get = symbol_get(nodrop_tun_get_socket);
	if (get) {
		sock = get(file);
		symbol_put(nodrop_tun_get_socket);
	}
	return sock;
}

/**
 * ktun_get() - reference the tun file of a caller's descriptor
 * @tun: where to keep it
 * @fd:  the descriptor
 *
 * Return: 0, -EBADF, or -EINVAL if it is not a tun file.
 */
static inline int ktun_get(struct ktun *tun, int fd)
{
	struct file *file = fget(fd);
	struct socket *sock;

	if (!file)
		return -EBADF;
	sock = tun_get_socket(file);
	if (IS_ERR(sock))
		sock = ktun_beside(file);
	if (IS_ERR(sock)) {
		fput(file);
		return PTR_ERR(sock);
	}
	tun->file = file;
	tun->sock = sock;
	return 0;
}

static inline void ktun_put(struct ktun *tun)
{
	if (tun->file)
		fput(tun->file);
	tun->file = NULL;
}

/* Return: the packet's length with tun's headers, or a negative errno. */
static inline int ktun_recv(struct ktun *tun, void *buf, int flags)
{
	struct kvec vec = { .iov_base = buf, .iov_len = KTUN_BUF_LEN };
	struct msghdr msg = {};

	iov_iter_kvec(&msg.msg_iter, ITER_DEST, &vec, 1, KTUN_BUF_LEN);
	return tun->sock->ops->recvmsg(tun->sock, &msg, KTUN_BUF_LEN, flags);
}

/* Return: @len, or a negative errno. */
static inline int ktun_send(struct ktun *tun, void *buf, size_t len)
{
	struct kvec vec = { .iov_base = buf, .iov_len = len };
	struct msghdr msg = { .msg_flags = MSG_DONTWAIT };

	iov_iter_kvec(&msg.msg_iter, ITER_SOURCE, &vec, 1, len);
	return tun->sock->ops->sendmsg(tun->sock, &msg, len);
}

static inline void ktun_work(u64 work_ns)
{
	u64 until;

	if (!work_ns)
		return;
	until = ktime_get_ns() + work_ns;
	while (ktime_get_ns() < until)
		cpu_relax();
}

/* Whether a thread can be bound to @cpu; -1 for any. */
static inline bool ktun_cpu_valid(int cpu)
{
	return cpu == -1 || (cpu >= 0 && cpu < nr_cpu_ids && cpu_online(cpu));
}

/*
 * Creates a thread without starting it. It is referenced, because it may end by
 * itself and its counts are read afterwards.
 */
static inline struct task_struct *ktun_spawn(int (*run)(void *data), void *data,
					     const char *name, int cpu)
{
	struct task_struct *task = kthread_create(run, data, "%s", name);

	if (IS_ERR(task))
		return task;
	if (cpu >= 0)
		kthread_bind(task, cpu);
	get_task_struct(task);
	return task;
}

#endif
