// SPDX-License-Identifier: GPL-2.0-only
/*
 * kreader: reads a TUN or TAP queue from a kernel thread.
 *
 * A read() loop measures the system call as much as the driver. This module
 * takes packets the way vhost-net does, through the socket that
 * tun_get_socket() hands out, so that the driver is what a benchmark sees.
 * The packet is copied out and thrown away.
 *
 * Each open file of /dev/nodrop-kreader is one reader: START begins it, READ
 * takes its counts while it runs, STOP (or the last close) ends it.
 */
#define pr_fmt(fmt) KBUILD_MODNAME ": " fmt

#include <linux/cpumask.h>
#include <linux/err.h>
#include <linux/file.h>
#include <linux/fs.h>
#include <linux/if_tun.h>
#include <linux/kthread.h>
#include <linux/ktime.h>
#include <linux/miscdevice.h>
#include <linux/module.h>
#include <linux/mutex.h>
#include <linux/net.h>
#include <linux/sched.h>
#include <linux/sched/signal.h>
#include <linux/sched/task.h>
#include <linux/socket.h>
#include <linux/uaccess.h>
#include <linux/uio.h>
#include <linux/vmalloc.h>

#include "kreader.h"

#ifndef ITER_DEST
#define ITER_DEST READ
#endif

/* The largest IP packet, an Ethernet header with two VLAN tags, a vnet_hdr. */
#define KREADER_BUF_LEN (65536 + 64)

/**
 * struct kreader - one reader, behind one open file
 * @lock:       serialises START, READ and STOP
 * @task:       the reading thread, referenced, NULL before START and after STOP
 * @tun_file:   the tun file, referenced as long as @task is set
 * @sock:       the socket of @tun_file
 * @work_ns:    busy time per packet
 * @fifo:       run as SCHED_FIFO
 * @stop:       asks the thread to end
 * @packets:    written by the thread alone
 * @bytes:      written by the thread alone
 * @started_ns: when the thread began
 * @ended:      the thread left its loop
 * @error:      why, if not asked to
 * @last:       the counts at STOP, for a READ afterwards
 * @buf:        where packets are copied to
 */
struct kreader {
	struct mutex lock; /* one ioctl at a time */
	struct task_struct *task;
	struct file *tun_file;
	struct socket *sock;
	u32 work_ns;
	bool fifo;
	bool stop;
	u64 packets;
	u64 bytes;
	u64 started_ns;
	bool ended;
	int error;
	struct kreader_counts last;
	u8 buf[KREADER_BUF_LEN];
};

static void kreader_work(u32 work_ns)
{
	u64 until;

	if (!work_ns)
		return;
	until = ktime_get_ns() + work_ns;
	while (ktime_get_ns() < until)
		cpu_relax();
}

static int kreader_recv(struct kreader *reader)
{
	struct kvec vec = {
		.iov_base = reader->buf,
		.iov_len = KREADER_BUF_LEN,
	};
	struct msghdr msg = {};

	iov_iter_kvec(&msg.msg_iter, ITER_DEST, &vec, 1, KREADER_BUF_LEN);
	return reader->sock->ops->recvmsg(reader->sock, &msg,
					  KREADER_BUF_LEN, 0);
}

static int kreader_thread(void *data)
{
	struct kreader *reader = data;
	int len;

	/* The read sleeps interruptibly: a signal is what ends it. */
	allow_signal(SIGINT);
	if (reader->fifo)
		sched_set_fifo_low(current);
	WRITE_ONCE(reader->started_ns, ktime_get_ns());

	while (!READ_ONCE(reader->stop)) {
		len = kreader_recv(reader);
		if (len < 0) {
			if (len == -ERESTARTSYS || len == -EINTR)
				break;
			WRITE_ONCE(reader->error, len);
			break;
		}
		WRITE_ONCE(reader->bytes, reader->bytes + len);
		WRITE_ONCE(reader->packets, reader->packets + 1);
		kreader_work(reader->work_ns);
		cond_resched();
	}
	WRITE_ONCE(reader->ended, true);
	return 0;
}

static void kreader_snapshot(struct kreader *reader,
			     struct kreader_counts *counts)
{
	if (!reader->task) {
		*counts = reader->last;
		return;
	}
	memset(counts, 0, sizeof(*counts));
	counts->packets = READ_ONCE(reader->packets);
	counts->bytes = READ_ONCE(reader->bytes);
	counts->now_ns = ktime_get_ns();
	counts->started_ns = READ_ONCE(reader->started_ns);
	counts->voluntary_switches = READ_ONCE(reader->task->nvcsw);
	counts->involuntary_switches = READ_ONCE(reader->task->nivcsw);
	counts->error = READ_ONCE(reader->error);
	counts->running = !READ_ONCE(reader->ended);
}

static struct task_struct *kreader_spawn(struct kreader *reader, int cpu)
{
	struct task_struct *task;

	task = kthread_create(kreader_thread, reader, "nodrop-kreader");
	if (IS_ERR(task))
		return task;
	if (cpu >= 0)
		kthread_bind(task, cpu);
	/* The thread may end by itself; its counts are read afterwards. */
	get_task_struct(task);
	return task;
}

static int kreader_start(struct kreader *reader,
			 const struct kreader_start *args)
{
	struct task_struct *task;
	struct socket *sock;
	struct file *file;

	if ((args->flags & ~KREADER_FIFO) || args->cpu < -1)
		return -EINVAL;
	if (args->cpu >= 0 &&
	    (args->cpu >= nr_cpu_ids || !cpu_online(args->cpu)))
		return -EINVAL;
	if (reader->task)
		return -EBUSY;

	file = fget(args->tun_fd);
	if (!file)
		return -EBADF;
	sock = tun_get_socket(file);
	if (IS_ERR(sock)) {
		fput(file);
		return PTR_ERR(sock);
	}

	reader->tun_file = file;
	reader->sock = sock;
	reader->work_ns = args->work_ns;
	reader->fifo = args->flags & KREADER_FIFO;
	reader->stop = false;
	reader->ended = false;
	reader->error = 0;
	reader->packets = 0;
	reader->bytes = 0;
	task = kreader_spawn(reader, args->cpu);
	if (IS_ERR(task)) {
		reader->tun_file = NULL;
		fput(file);
		return PTR_ERR(task);
	}
	reader->task = task;
	wake_up_process(task);
	return 0;
}

static void kreader_stop(struct kreader *reader)
{
	if (!reader->task)
		return;
	WRITE_ONCE(reader->stop, true);
	send_sig(SIGINT, reader->task, 1);
	kthread_stop(reader->task);
	kreader_snapshot(reader, &reader->last);
	put_task_struct(reader->task);
	reader->task = NULL;
	fput(reader->tun_file);
	reader->tun_file = NULL;
}

static long kreader_ioctl(struct file *file, unsigned int cmd,
			  unsigned long arg)
{
	struct kreader *reader = file->private_data;
	void __user *user = (void __user *)arg;
	struct kreader_counts counts;
	struct kreader_start args;
	long ret = 0;

	if (cmd == KREADER_IOC_START &&
	    copy_from_user(&args, user, sizeof(args)))
		return -EFAULT;

	mutex_lock(&reader->lock);
	switch (cmd) {
	case KREADER_IOC_START:
		ret = kreader_start(reader, &args);
		break;
	case KREADER_IOC_STOP:
		kreader_stop(reader);
		fallthrough;
	case KREADER_IOC_READ:
		kreader_snapshot(reader, &counts);
		break;
	default:
		ret = -ENOTTY;
	}
	mutex_unlock(&reader->lock);

	if (!ret && cmd != KREADER_IOC_START &&
	    copy_to_user(user, &counts, sizeof(counts)))
		return -EFAULT;
	return ret;
}

static int kreader_open(struct inode *inode, struct file *file)
{
	struct kreader *reader;

	reader = vzalloc(sizeof(*reader));
	if (!reader)
		return -ENOMEM;
	mutex_init(&reader->lock);
	file->private_data = reader;
	return 0;
}

static int kreader_release(struct inode *inode, struct file *file)
{
	struct kreader *reader = file->private_data;

	kreader_stop(reader);
	mutex_destroy(&reader->lock);
	vfree(reader);
	return 0;
}

static const struct file_operations kreader_fops = {
	.owner = THIS_MODULE,
	.open = kreader_open,
	.release = kreader_release,
	.unlocked_ioctl = kreader_ioctl,
	.compat_ioctl = compat_ptr_ioctl,
};

static struct miscdevice kreader_misc = {
	.minor = MISC_DYNAMIC_MINOR,
	.name = "nodrop-kreader",
	.fops = &kreader_fops,
	.mode = 0600,
};
module_misc_device(kreader_misc);

MODULE_DESCRIPTION("In-kernel reader of TUN and TAP devices for benchmarks");
MODULE_LICENSE("GPL");
