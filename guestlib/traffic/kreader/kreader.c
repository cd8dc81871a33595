// SPDX-License-Identifier: GPL-2.0-only
/*
 * kreader: reads a TUN or TAP queue in a kernel thread, or is the null VPN
 * between two.
 *
 *   sender -> qdisc -> TAP -> [ kreader ]              copied out, discarded
 *
 *   sender -> qdisc -> TAP a -> [ kreader ] -> TAP b -> receiver
 *     <--------------- TAP a <- [ kreader ] <- TAP b <- qdisc <-
 *
 * A read() loop would measure the system call as much as the driver. So this
 * module takes packets like vhost-net, through the socket from
 * tun_get_socket(), and a benchmark measures the driver.
 *
 * Between two queues it works like a VPN with one thread: it takes a packet
 * from any device that has one, works on it, gives it to the other device, and
 * waits for both if neither has one. It must not block on one direction, so its
 * reads do not wait, and it polls before it sleeps. Two readers, one for each
 * direction, work like a VPN with two threads. A reader ends by itself when a
 * device is removed.
 *
 * Each open file of /dev/nodrop-kreader is one reader: START starts it, READ
 * returns its counts while it runs, STOP (or the last close) stops it.
 */
#define pr_fmt(fmt) KBUILD_MODNAME ": " fmt

#include <linux/if_vlan.h>
#include <linux/miscdevice.h>
#include <linux/module.h>
#include <linux/mutex.h>
#include <linux/poll.h>
#include <linux/sched/signal.h>
#include <linux/uaccess.h>
#include <linux/vmalloc.h>
#include <linux/wait.h>
#include <net/sock.h>

#include "kreader.h"
#include "ktun.h"

/**
 * struct kreader - one reader, behind one open file
 * @lock:    serialises START, READ and STOP
 * @task:    the thread, referenced, NULL before START and after STOP
 * @ends:    the queues, referenced while @task is set; the second is optional
 * @work_ns: busy time per packet
 * @work_per_kb_ns: and for each 1024 bytes of it
 * @flags:   KREADER_*
 * @stop:    stops the thread that drains
 * @dir:     by queue; written by the thread only
 * @others:  written by the thread only
 * @idle_ns: time of all completed sleeps; written by the thread only
 * @since:   when the thread fell asleep, 0 if it is awake
 * @error:   why the thread ended by itself
 * @last:    the counts at STOP, for a later READ
 * @buf:     the packet in transit
 */
struct kreader {
	struct mutex lock; /* one ioctl at a time */
	struct task_struct *task;
	struct ktun ends[2];
	u32 work_ns;
	u32 work_per_kb_ns;
	u32 flags;
	bool stop;
	struct kreader_direction dir[2];
	u64 others;
	u64 idle_ns;
	u64 since;
	int error;
	struct kreader_counts last;
	u8 buf[KTUN_BUF_LEN];
};

/* Whether a frame is IPv4, with or without a VLAN tag. */
static bool kreader_is_ipv4(const struct kreader *reader, int len)
{
	const struct vlan_ethhdr *eth = (const struct vlan_ethhdr *)reader->buf;

	if (len >= VLAN_ETH_HLEN && eth->h_vlan_proto == htons(ETH_P_8021Q))
		return eth->h_vlan_encapsulated_proto == htons(ETH_P_IP);
	return len >= ETH_HLEN && eth->h_vlan_proto == htons(ETH_P_IP);
}

/* Return: the length of the next packet, or a negative errno. */
static int kreader_take(struct kreader *reader, int from, int flags)
{
	struct kreader_direction *dir = &reader->dir[from];
	int len = ktun_recv(&reader->ends[from], reader->buf, flags);

	if (len < 0)
		return len;
	WRITE_ONCE(dir->bytes, dir->bytes + len);
	WRITE_ONCE(dir->packets, dir->packets + 1);
	ktun_work(reader->work_ns +
		  ((u64)reader->work_per_kb_ns * len >> 10));
	return len;
}

/* Discards one queue's packets. The read sleeps until a signal ends it. */
static void kreader_drain(struct kreader *reader)
{
	int len;

	allow_signal(SIGINT);
	if (reader->flags & KREADER_FIFO)
		sched_set_fifo_low(current);
	while (!READ_ONCE(reader->stop)) {
		len = kreader_take(reader, 0, 0);
		if (len == -ERESTARTSYS || len == -EINTR)
			return;
		if (len < 0) {
			WRITE_ONCE(reader->error, len);
			return;
		}
		if (!kreader_is_ipv4(reader, len))
			WRITE_ONCE(reader->others, reader->others + 1);
		cond_resched();
	}
}

/* Return: 1 for a packet, 0 if there was none, or a negative errno. */
static int kreader_move(struct kreader *reader, int from)
{
	struct kreader_direction *dir = &reader->dir[from];
	int len = kreader_take(reader, from, MSG_DONTWAIT);

	if (len < 0)
		return len == -EAGAIN ? 0 : len;
	if (ktun_send(&reader->ends[!from], reader->buf, len) != len)
		WRITE_ONCE(dir->send_errors, dir->send_errors + 1);
	return 1;
}

static bool kreader_readable(const struct kreader *reader, int from)
{
	return vfs_poll(reader->ends[from].file, NULL) & (EPOLLIN | EPOLLERR);
}

/* Sleeps until a device has a packet or is removed. */
static void kreader_wait(struct kreader *reader)
{
	bool one_way = reader->flags & KREADER_ONE_WAY;
	DECLARE_WAITQUEUE(wait_a, current);
	DECLARE_WAITQUEUE(wait_b, current);

	add_wait_queue(sk_sleep(reader->ends[0].sock->sk), &wait_a);
	add_wait_queue(sk_sleep(reader->ends[1].sock->sk), &wait_b);
	set_current_state(TASK_INTERRUPTIBLE);
	if (!kreader_readable(reader, 0) &&
	    (one_way || !kreader_readable(reader, 1)) &&
	    !kthread_should_stop()) {
		WRITE_ONCE(reader->since, ktime_get_ns());
		schedule();
		WRITE_ONCE(reader->idle_ns,
			   reader->idle_ns + ktime_get_ns() - reader->since);
		WRITE_ONCE(reader->since, 0);
	}
	__set_current_state(TASK_RUNNING);
	remove_wait_queue(sk_sleep(reader->ends[1].sock->sk), &wait_b);
	remove_wait_queue(sk_sleep(reader->ends[0].sock->sk), &wait_a);
}

static void kreader_forward(struct kreader *reader)
{
	bool one_way = reader->flags & KREADER_ONE_WAY;
	int first, second = 0;

	while (!kthread_should_stop()) {
		first = kreader_move(reader, 0);
		if (!one_way)
			second = kreader_move(reader, 1);
		if (first < 0 || second < 0) {
			WRITE_ONCE(reader->error, first < 0 ? first : second);
			return;
		}
		if (!first && !second)
			kreader_wait(reader);
		cond_resched();
	}
}

static int kreader_thread(void *data)
{
	struct kreader *reader = data;

	if (reader->ends[1].file)
		kreader_forward(reader);
	else
		kreader_drain(reader);
	return 0;
}

static void kreader_snapshot(struct kreader *reader,
			     struct kreader_counts *counts)
{
	u64 since = READ_ONCE(reader->since);
	int i;

	if (!reader->task) {
		*counts = reader->last;
		return;
	}
	memset(counts, 0, sizeof(*counts));
	for (i = 0; i < 2; i++) {
		counts->dir[i].packets = READ_ONCE(reader->dir[i].packets);
		counts->dir[i].bytes = READ_ONCE(reader->dir[i].bytes);
		counts->dir[i].send_errors =
			READ_ONCE(reader->dir[i].send_errors);
	}
	counts->others = READ_ONCE(reader->others);
	counts->now_ns = ktime_get_ns();
	counts->idle_ns = READ_ONCE(reader->idle_ns);
	if (since)
		counts->idle_ns += counts->now_ns - since;
	counts->voluntary_switches = READ_ONCE(reader->task->nvcsw);
	counts->involuntary_switches = READ_ONCE(reader->task->nivcsw);
	counts->error = READ_ONCE(reader->error);
}

static void kreader_drop_ends(struct kreader *reader)
{
	ktun_put(&reader->ends[1]);
	ktun_put(&reader->ends[0]);
}

static int kreader_start(struct kreader *reader,
			 const struct kreader_start *args)
{
	struct task_struct *task;
	int err;

	if ((args->flags & ~(KREADER_FIFO | KREADER_ONE_WAY)) ||
	    !ktun_cpu_valid(args->cpu))
		return -EINVAL;
	if (reader->task)
		return -EBUSY;

	err = ktun_get(&reader->ends[0], args->tun_fds[0]);
	if (!err && args->tun_fds[1] >= 0)
		err = ktun_get(&reader->ends[1], args->tun_fds[1]);
	if (err)
		goto drop;

	reader->work_ns = args->work_ns;
	reader->work_per_kb_ns = args->work_per_kb_ns;
	reader->flags = args->flags;
	reader->stop = false;
	reader->others = 0;
	reader->idle_ns = 0;
	reader->since = 0;
	reader->error = 0;
	memset(reader->dir, 0, sizeof(reader->dir));
	task = ktun_spawn(kreader_thread, reader, "nodrop-kreader", args->cpu);
	err = PTR_ERR_OR_ZERO(task);
	if (err)
		goto drop;

	reader->task = task;
	wake_up_process(task);
	return 0;

drop:
	kreader_drop_ends(reader);
	return err;
}

static void kreader_stop(struct kreader *reader)
{
	if (!reader->task)
		return;
	/* Before it allows the signal the thread sees this. */
	WRITE_ONCE(reader->stop, true);
	send_sig(SIGINT, reader->task, 1);
	kthread_stop(reader->task);
	kreader_snapshot(reader, &reader->last);
	put_task_struct(reader->task);
	reader->task = NULL;
	kreader_drop_ends(reader);
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

MODULE_DESCRIPTION("In-kernel reader of TUN and TAP devices, and null VPN, for benchmarks");
MODULE_LICENSE("GPL");
