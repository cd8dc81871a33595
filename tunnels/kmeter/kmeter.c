// SPDX-License-Identifier: GPL-2.0-only
/*
 * kmeter: sends packets from one or more CPUs, and counts what each costs.
 *
 * Senders read the cycle counter around each batch of packets. A sender's
 * counts in a slot of time are a sample; their median leaves out the slots in
 * which the host took the CPU away.
 *
 * The measurement covers all that the sender's CPU does for a packet: building
 * it, the transmit path, and softirqs on this CPU in the meantime.
 */
#define pr_fmt(fmt) KBUILD_MODNAME ": " fmt

#include <linux/cpu.h>
#include <linux/etherdevice.h>
#include <linux/kthread.h>
#include <linux/miscdevice.h>
#include <linux/module.h>
#include <linux/nsproxy.h>
#include <linux/slab.h>
#include <linux/uaccess.h>
#include <linux/vmalloc.h>
#include <net/net_namespace.h>

#include "kmeter.h"

/* Limits. */
#define KMETER_BATCHES	4096
#define KMETER_SLOTS	0x100000
#define KMETER_ROOM	0x400000
#define KMETER_CPUS	32
/* Length of an IPv4 header. */
#define KMETER_SHORTEST	20

/**
 * struct kmeter - one running measurement
 * @dev:     the device, referenced
 * @run:     the request
 * @frame:   the packet
 * @fault:   dst_fault, or NULL if it is not to be changed
 * @start:   when slot 0 begins
 * @over:    senders are to stop
 */
struct kmeter {
	struct net_device *dev;
	struct kmeter_run run;
	u8 frame[KMETER_FRAME];
	int *fault;
	ktime_t start;
	bool over;
};

/**
 * struct kmeter_sender - one thread
 * @meter:   its measurement
 * @task:    the thread, referenced
 * @cpu:     its CPU
 * @room:    capacity of @samples
 * @count:   number of samples
 * @samples: its own samples
 */
struct kmeter_sender {
	struct kmeter *meter;
	struct task_struct *task;
	unsigned int cpu;
	u32 room;
	u32 count;
	struct kmeter_sample *samples;
};

/* User-Mode Linux lacks get_cycles(), but has the instruction. */
static u64 kmeter_cycles(void)
{
#if defined(__x86_64__)
	u32 low, high;

	asm volatile("rdtsc" : "=a" (low), "=d" (high));
	return (u64)high << 32 | low;
#else
	return get_cycles();
#endif
}

static u32 kmeter_slot(const struct kmeter *meter)
{
	s64 us = ktime_us_delta(ktime_get(), meter->start);

	return us < 0 ? 0 : div_u64(us, meter->run.slot_us);
}

/* Every sender does this when it sees that a slot has begun. */
static void kmeter_switch(const struct kmeter *meter, u32 slot)
{
	int wanted = slot % 4 == 1 || slot % 4 == 2 ? meter->run.other : 0;

	if (meter->fault && READ_ONCE(*meter->fault) != wanted)
		WRITE_ONCE(*meter->fault, wanted);
}

static struct sk_buff *kmeter_packet(const struct kmeter *meter)
{
	const struct kmeter_run *run = &meter->run;
	unsigned int headroom = LL_RESERVED_SPACE(meter->dev);
	struct sk_buff *skb;

	skb = alloc_skb(headroom + run->length + meter->dev->needed_tailroom,
			GFP_KERNEL);
	if (!skb)
		return NULL;
	skb_reserve(skb, headroom);
	skb_put_data(skb, meter->frame, run->length);
	skb->dev = meter->dev;
	skb->protocol = htons(run->protocol);
	skb->mark = run->mark;
	skb_reset_mac_header(skb);
	skb_set_network_header(skb, run->network);
	skb_probe_transport_header(skb);
	return skb;
}

/* Sends a batch. Returns how many of its packets were not accepted. */
static u32 kmeter_batch(const struct kmeter *meter)
{
	struct sk_buff *skb;
	u32 refused = 0;
	u32 i;

	for (i = 0; i < meter->run.batch; i++) {
		skb = kmeter_packet(meter);
		if (!skb || dev_queue_xmit(skb) != NET_XMIT_SUCCESS)
			refused++;
	}
	return refused;
}

static void kmeter_count(struct kmeter_sender *sender, u32 slot, u32 refused,
			 u64 cycles)
{
	struct kmeter_sample *last = sender->samples + sender->count - 1;

	if (!sender->count || last->slot != slot) {
		if (sender->count == sender->room)
			return;
		last = sender->samples + sender->count++;
		*last = (struct kmeter_sample){
			.slot = slot,
			.cpu = sender->cpu,
		};
	}
	last->packets += sender->meter->run.batch;
	last->refused += refused;
	last->cycles += cycles;
}

static int kmeter_send(void *data)
{
	struct kmeter_sender *sender = data;
	struct kmeter *meter = sender->meter;
	u32 before, after, refused;
	u64 begin, end;

	while (!kthread_should_stop()) {
		before = kmeter_slot(meter);
		if (READ_ONCE(meter->over) || before >= meter->run.slots) {
			/* Until kthread_stop(). */
			schedule_timeout_interruptible(HZ / 100 + 1);
			continue;
		}
		kmeter_switch(meter, before);
		begin = kmeter_cycles();
		refused = kmeter_batch(meter);
		end = kmeter_cycles();
		after = kmeter_slot(meter);
		if (before == after)
			kmeter_count(sender, before, refused, end - begin);
		cond_resched();
	}
	return 0;
}

/* Waits for the end of the last slot. Returns -EINTR on a signal. */
static int kmeter_wait(const struct kmeter *meter)
{
	while (kmeter_slot(meter) < meter->run.slots) {
		schedule_timeout_interruptible(HZ / 100 + 1);
		if (signal_pending(current))
			return -EINTR;
	}
	return 0;
}

static int kmeter_start(struct kmeter *meter, struct kmeter_sender *senders,
			unsigned int count)
{
	struct task_struct *task;
	unsigned int i;

	for (i = 0; i < count; i++) {
		task = kthread_create_on_cpu(kmeter_send, senders + i,
					     senders[i].cpu, "kmeter/%u");
		if (IS_ERR(task))
			return PTR_ERR(task);
		senders[i].task = get_task_struct(task);
	}
	meter->start = ktime_get();
	for (i = 0; i < count; i++)
		wake_up_process(senders[i].task);
	return 0;
}

static void kmeter_stop(struct kmeter *meter, struct kmeter_sender *senders,
			unsigned int count)
{
	unsigned int i;

	WRITE_ONCE(meter->over, true);
	for (i = 0; i < count; i++) {
		if (!senders[i].task)
			continue;
		kthread_stop(senders[i].task);
		put_task_struct(senders[i].task);
	}
}

/* Prepares a sender for each CPU of the mask. Returns how many. */
static int kmeter_senders(struct kmeter *meter, struct kmeter_sender *senders)
{
	struct kmeter_run *run = &meter->run;
	unsigned int wanted = hweight32(run->cpus);
	unsigned int count = 0;
	unsigned int cpu;

	for (cpu = 0; cpu < KMETER_CPUS; cpu++) {
		if (!(run->cpus & BIT(cpu)))
			continue;
		if (cpu >= nr_cpu_ids || !cpu_online(cpu))
			return -ENODEV;
		senders[count] = (struct kmeter_sender){
			.meter = meter,
			.cpu = cpu,
			.room = run->room / wanted,
		};
		senders[count].samples =
			vmalloc_array(senders[count].room,
				      sizeof(*senders->samples));
		if (!senders[count++].samples)
			return -ENOMEM;
	}
	return count;
}

static int kmeter_copy_out(struct kmeter_run *run,
			   const struct kmeter_sender *senders,
			   unsigned int count)
{
	struct kmeter_sample __user *to = u64_to_user_ptr(run->samples);
	unsigned int i;
	u32 copied = 0;

	for (i = 0; i < count; i++) {
		if (copy_to_user(to + copied, senders[i].samples,
				 senders[i].count * sizeof(*to)))
			return -EFAULT;
		copied += senders[i].count;
	}
	run->room = copied;
	return 0;
}

static int kmeter_measure(struct kmeter *meter)
{
	struct kmeter_sender *senders;
	int count, err;

	senders = kcalloc(KMETER_CPUS, sizeof(*senders), GFP_KERNEL);
	if (!senders)
		return -ENOMEM;
	count = kmeter_senders(meter, senders);
	err = count < 0 ? count : kmeter_start(meter, senders, count);
	if (!err)
		err = kmeter_wait(meter);
	kmeter_stop(meter, senders, KMETER_CPUS);
	if (!err)
		err = kmeter_copy_out(&meter->run, senders, count);
	for (count = 0; count < KMETER_CPUS; count++)
		vfree(senders[count].samples);
	kfree(senders);
	return err;
}

static int kmeter_check(const struct kmeter_run *run)
{
	if (!run->cpus || !run->slot_us || !run->slots || !run->batch)
		return -EINVAL;
	if (run->slots > KMETER_SLOTS || run->batch > KMETER_BATCHES ||
	    run->room > KMETER_ROOM || run->room < hweight32(run->cpus))
		return -E2BIG;
	if (run->length < KMETER_SHORTEST || run->length > KMETER_FRAME ||
	    run->network > run->length)
		return -EMSGSIZE;
	return 0;
}

static long kmeter_run(struct kmeter *meter)
{
	struct kmeter_run *run = &meter->run;
	int err;

	err = kmeter_check(run);
	if (err)
		return err;
	if (copy_from_user(meter->frame, u64_to_user_ptr(run->frame),
			   run->length))
		return -EFAULT;
	meter->dev = dev_get_by_index(current->nsproxy->net_ns, run->ifindex);
	if (!meter->dev)
		return -ENODEV;
	err = kmeter_measure(meter);
	dev_put(meter->dev);
	return err;
}

static long kmeter_run_switched(struct kmeter *meter)
{
	long err;

	if (!meter->run.other)
		return kmeter_run(meter);
	meter->fault = symbol_get(dst_fault);
	if (!meter->fault)
		return -EOPNOTSUPP;
	err = kmeter_run(meter);
	WRITE_ONCE(*meter->fault, 0);
	symbol_put(dst_fault);
	return err;
}

static long kmeter_ioctl_run(struct kmeter_run __user *user)
{
	struct kmeter *meter = kzalloc(sizeof(*meter), GFP_KERNEL);
	long err = -EFAULT;

	if (!meter)
		return -ENOMEM;
	if (!copy_from_user(&meter->run, user, sizeof(*user)))
		err = kmeter_run_switched(meter);
	if (!err && copy_to_user(user, &meter->run, sizeof(*user)))
		err = -EFAULT;
	kfree(meter);
	return err;
}

static long kmeter_ioctl(struct file *file, unsigned int request,
			 unsigned long argument)
{
	if (request != KMETER_IOC_RUN)
		return -ENOTTY;
	return kmeter_ioctl_run((void __user *)argument);
}

static const struct file_operations kmeter_fops = {
	.owner = THIS_MODULE,
	.unlocked_ioctl = kmeter_ioctl,
	.llseek = noop_llseek,
};

static struct miscdevice kmeter_misc = {
	.minor = MISC_DYNAMIC_MINOR,
	.name = "nodrop-kmeter",
	.fops = &kmeter_fops,
	.mode = 0600,
};
module_misc_device(kmeter_misc);

MODULE_DESCRIPTION("Counts what a packet costs its sender");
MODULE_LICENSE("GPL");
