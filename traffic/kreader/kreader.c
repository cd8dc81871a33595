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

#include <linux/if_vlan.h>
#include <linux/miscdevice.h>
#include <linux/module.h>
#include <linux/mutex.h>
#include <linux/sched/signal.h>
#include <linux/uaccess.h>
#include <linux/vmalloc.h>

#include "kreader.h"
#include "ktun.h"

/**
 * struct kreader - one reader, behind one open file
 * @lock:       serialises START, READ and STOP
 * @task:       the reading thread, referenced, NULL before START and after STOP
 * @tun:        the queue, held as long as @task is set
 * @work_ns:    busy time per packet
 * @fifo:       run as SCHED_FIFO
 * @stop:       asks the thread to end
 * @packets:    written by the thread alone
 * @bytes:      written by the thread alone
 * @others:     written by the thread alone
 * @started_ns: when the thread began
 * @ended:      the thread left its loop
 * @error:      why, if not asked to
 * @last:       the counts at STOP, for a READ afterwards
 * @buf:        where packets are copied to
 */
struct kreader {
	struct mutex lock; /* one ioctl at a time */
	struct task_struct *task;
	struct ktun tun;
	u32 work_ns;
	bool fifo;
	bool stop;
	u64 packets;
	u64 bytes;
	u64 others;
	u64 started_ns;
	bool ended;
	int error;
	struct kreader_counts last;
	u8 buf[KTUN_BUF_LEN];
};

/* Whether a frame is one of IPv4, with a VLAN's tag or without one. */
static bool kreader_is_ipv4(const struct kreader *reader, int len)
{
	const struct vlan_ethhdr *eth = (const struct vlan_ethhdr *)reader->buf;

	if (len >= VLAN_ETH_HLEN && eth->h_vlan_proto == htons(ETH_P_8021Q))
		return eth->h_vlan_encapsulated_proto == htons(ETH_P_IP);
	return len >= ETH_HLEN && eth->h_vlan_proto == htons(ETH_P_IP);
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
		len = ktun_recv(&reader->tun, reader->buf, 0);
		if (len < 0) {
			if (len == -ERESTARTSYS || len == -EINTR)
				break;
			WRITE_ONCE(reader->error, len);
			break;
		}
		if (!kreader_is_ipv4(reader, len))
			WRITE_ONCE(reader->others, reader->others + 1);
		WRITE_ONCE(reader->bytes, reader->bytes + len);
		WRITE_ONCE(reader->packets, reader->packets + 1);
		ktun_work(reader->work_ns);
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
	counts->others = READ_ONCE(reader->others);
	counts->now_ns = ktime_get_ns();
	counts->started_ns = READ_ONCE(reader->started_ns);
	counts->voluntary_switches = READ_ONCE(reader->task->nvcsw);
	counts->involuntary_switches = READ_ONCE(reader->task->nivcsw);
	counts->error = READ_ONCE(reader->error);
	counts->running = !READ_ONCE(reader->ended);
}

static int kreader_start(struct kreader *reader,
			 const struct kreader_start *args)
{
	struct task_struct *task;
	int err;

	if ((args->flags & ~KREADER_FIFO) || !ktun_cpu_valid(args->cpu))
		return -EINVAL;
	if (reader->task)
		return -EBUSY;

	err = ktun_get(&reader->tun, args->tun_fd);
	if (err)
		return err;

	reader->work_ns = args->work_ns;
	reader->fifo = args->flags & KREADER_FIFO;
	reader->stop = false;
	reader->ended = false;
	reader->error = 0;
	reader->packets = 0;
	reader->bytes = 0;
	reader->others = 0;
	task = ktun_spawn(kreader_thread, reader, "nodrop-kreader", args->cpu);
	if (IS_ERR(task)) {
		ktun_put(&reader->tun);
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
	ktun_put(&reader->tun);
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
