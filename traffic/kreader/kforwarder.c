// SPDX-License-Identifier: GPL-2.0-only
/*
 * kforwarder: the null VPN in a kernel thread.
 *
 *   sender -> qdisc -> TAP a -> [ kforwarder ] -> TAP b -> receiver
 *     <--------------- TAP a <- [ kforwarder ] <- TAP b <- qdisc <-
 *
 * It works as a VPN with a single thread does: it takes a packet from whichever
 * device has one, works on it, gives it to the other device, and waits for both
 * when neither has any. It must not block on one direction, so it reads without
 * waiting and looks by poll() before it sleeps. Two of them, each for one way,
 * work as a VPN with a thread for each direction. Without system calls, the
 * drivers are what a benchmark sees.
 *
 * Each open file of /dev/nodrop-kforwarder is one forwarder: START begins it,
 * READ takes its counts, STOP (or the last close) ends it. It ends by itself
 * when a device goes.
 */
#define pr_fmt(fmt) KBUILD_MODNAME ": " fmt

#include <linux/miscdevice.h>
#include <linux/module.h>
#include <linux/mutex.h>
#include <linux/poll.h>
#include <linux/uaccess.h>
#include <linux/vmalloc.h>
#include <linux/wait.h>
#include <net/sock.h>

#include "kforwarder.h"
#include "ktun.h"

/**
 * struct kforwarder - one forwarder, behind one open file
 * @lock:    serialises START, READ and STOP
 * @task:    the thread, referenced, NULL before START and after STOP
 * @ends:    the two queues, held as long as @task is set
 * @work_ns: busy time per packet
 * @one_way: nothing is taken from the second of @ends
 * @ways:    written by the thread alone
 * @idle_ns: time of all sleeps that are over; written by the thread alone
 * @since:   when the thread fell asleep, 0 when it is awake
 * @error:   why the thread ended, if not asked to
 * @last:    the counts at STOP, for a READ afterwards
 * @buf:     the packet on its way
 */
struct kforwarder {
	struct mutex lock; /* one ioctl at a time */
	struct task_struct *task;
	struct ktun ends[2];
	u32 work_ns;
	bool one_way;
	struct kforwarder_way ways[2];
	u64 idle_ns;
	u64 since;
	int error;
	struct kforwarder_counts last;
	u8 buf[KTUN_BUF_LEN];
};

/* Return: 1 for a packet, 0 when there was none, or a negative errno. */
static int kforwarder_move(struct kforwarder *fwd, int from)
{
	struct kforwarder_way *way = &fwd->ways[from];
	int len;

	len = ktun_recv(&fwd->ends[from], fwd->buf, MSG_DONTWAIT);
	if (len == -EAGAIN)
		return 0;
	if (len < 0)
		return len;
	ktun_work(fwd->work_ns);
	WRITE_ONCE(way->bytes, way->bytes + len);
	WRITE_ONCE(way->packets, way->packets + 1);
	if (ktun_send(&fwd->ends[!from], fwd->buf, len) != len)
		WRITE_ONCE(way->send_errors, way->send_errors + 1);
	return 1;
}

static bool kforwarder_readable(const struct kforwarder *fwd, int from)
{
	return vfs_poll(fwd->ends[from].file, NULL) & (EPOLLIN | EPOLLERR);
}

/* Sleep until one of the devices has a packet, or is gone. */
static void kforwarder_wait(struct kforwarder *fwd)
{
	DECLARE_WAITQUEUE(wait_a, current);
	DECLARE_WAITQUEUE(wait_b, current);

	add_wait_queue(sk_sleep(fwd->ends[0].sock->sk), &wait_a);
	add_wait_queue(sk_sleep(fwd->ends[1].sock->sk), &wait_b);
	set_current_state(TASK_INTERRUPTIBLE);
	if (!kforwarder_readable(fwd, 0) &&
	    (fwd->one_way || !kforwarder_readable(fwd, 1)) &&
	    !kthread_should_stop()) {
		WRITE_ONCE(fwd->since, ktime_get_ns());
		schedule();
		WRITE_ONCE(fwd->idle_ns,
			   fwd->idle_ns + ktime_get_ns() - fwd->since);
		WRITE_ONCE(fwd->since, 0);
	}
	__set_current_state(TASK_RUNNING);
	remove_wait_queue(sk_sleep(fwd->ends[1].sock->sk), &wait_b);
	remove_wait_queue(sk_sleep(fwd->ends[0].sock->sk), &wait_a);
}

static int kforwarder_thread(void *data)
{
	struct kforwarder *fwd = data;
	int there, back = 0;

	while (!kthread_should_stop()) {
		there = kforwarder_move(fwd, 0);
		if (!fwd->one_way)
			back = kforwarder_move(fwd, 1);
		if (there < 0 || back < 0) {
			WRITE_ONCE(fwd->error, there < 0 ? there : back);
			break;
		}
		if (!there && !back)
			kforwarder_wait(fwd);
		cond_resched();
	}
	return 0;
}

static void kforwarder_snapshot(struct kforwarder *fwd,
				struct kforwarder_counts *counts)
{
	u64 since = READ_ONCE(fwd->since);
	int i;

	if (!fwd->task) {
		*counts = fwd->last;
		return;
	}
	memset(counts, 0, sizeof(*counts));
	for (i = 0; i < 2; i++) {
		counts->ways[i].packets = READ_ONCE(fwd->ways[i].packets);
		counts->ways[i].bytes = READ_ONCE(fwd->ways[i].bytes);
		counts->ways[i].send_errors =
			READ_ONCE(fwd->ways[i].send_errors);
	}
	counts->now_ns = ktime_get_ns();
	counts->idle_ns = READ_ONCE(fwd->idle_ns);
	if (since)
		counts->idle_ns += counts->now_ns - since;
	counts->voluntary_switches = READ_ONCE(fwd->task->nvcsw);
	counts->involuntary_switches = READ_ONCE(fwd->task->nivcsw);
	counts->error = READ_ONCE(fwd->error);
}

static void kforwarder_drop_ends(struct kforwarder *fwd)
{
	ktun_put(&fwd->ends[1]);
	ktun_put(&fwd->ends[0]);
}

static int kforwarder_start(struct kforwarder *fwd,
			    const struct kforwarder_start *args)
{
	struct task_struct *task;
	int err;

	if ((args->flags & ~KFORWARDER_ONE_WAY) || !ktun_cpu_valid(args->cpu))
		return -EINVAL;
	if (fwd->task)
		return -EBUSY;

	err = ktun_get(&fwd->ends[0], args->tun_fds[0]);
	if (!err)
		err = ktun_get(&fwd->ends[1], args->tun_fds[1]);
	if (err)
		goto drop;

	fwd->work_ns = args->work_ns;
	fwd->one_way = args->flags & KFORWARDER_ONE_WAY;
	fwd->error = 0;
	fwd->idle_ns = 0;
	fwd->since = 0;
	memset(fwd->ways, 0, sizeof(fwd->ways));
	task = ktun_spawn(kforwarder_thread, fwd, "nodrop-kforward",
			  args->cpu);
	err = PTR_ERR_OR_ZERO(task);
	if (err)
		goto drop;

	fwd->task = task;
	wake_up_process(task);
	return 0;

drop:
	kforwarder_drop_ends(fwd);
	return err;
}

static void kforwarder_stop(struct kforwarder *fwd)
{
	if (!fwd->task)
		return;
	kthread_stop(fwd->task);
	kforwarder_snapshot(fwd, &fwd->last);
	put_task_struct(fwd->task);
	fwd->task = NULL;
	kforwarder_drop_ends(fwd);
}

static long kforwarder_ioctl(struct file *file, unsigned int cmd,
			     unsigned long arg)
{
	struct kforwarder *fwd = file->private_data;
	void __user *user = (void __user *)arg;
	struct kforwarder_counts counts;
	struct kforwarder_start args;
	long ret = 0;

	if (cmd == KFORWARDER_IOC_START &&
	    copy_from_user(&args, user, sizeof(args)))
		return -EFAULT;

	mutex_lock(&fwd->lock);
	switch (cmd) {
	case KFORWARDER_IOC_START:
		ret = kforwarder_start(fwd, &args);
		break;
	case KFORWARDER_IOC_STOP:
		kforwarder_stop(fwd);
		fallthrough;
	case KFORWARDER_IOC_READ:
		kforwarder_snapshot(fwd, &counts);
		break;
	default:
		ret = -ENOTTY;
	}
	mutex_unlock(&fwd->lock);

	if (!ret && cmd != KFORWARDER_IOC_START &&
	    copy_to_user(user, &counts, sizeof(counts)))
		return -EFAULT;
	return ret;
}

static int kforwarder_open(struct inode *inode, struct file *file)
{
	struct kforwarder *fwd;

	fwd = vzalloc(sizeof(*fwd));
	if (!fwd)
		return -ENOMEM;
	mutex_init(&fwd->lock);
	file->private_data = fwd;
	return 0;
}

static int kforwarder_release(struct inode *inode, struct file *file)
{
	struct kforwarder *fwd = file->private_data;

	kforwarder_stop(fwd);
	mutex_destroy(&fwd->lock);
	vfree(fwd);
	return 0;
}

static const struct file_operations kforwarder_fops = {
	.owner = THIS_MODULE,
	.open = kforwarder_open,
	.release = kforwarder_release,
	.unlocked_ioctl = kforwarder_ioctl,
	.compat_ioctl = compat_ptr_ioctl,
};

static struct miscdevice kforwarder_misc = {
	.minor = MISC_DYNAMIC_MINOR,
	.name = "nodrop-kforwarder",
	.fops = &kforwarder_fops,
	.mode = 0600,
};
module_misc_device(kforwarder_misc);

MODULE_DESCRIPTION("In-kernel null VPN between TUN or TAP devices for benchmarks");
MODULE_LICENSE("GPL");
