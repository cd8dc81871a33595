// SPDX-License-Identifier: GPL-2.0-only
/*
 * kspinner: keeps every CPU from going idle, at the lowest priority, as long
 * as it is loaded.
 *
 * In a virtual machine an idle CPU is a sleeping host thread; waking it costs
 * far more than the kernel code under test. A SCHED_IDLE thread on each CPU
 * yields its CPU at once, so the measurement is of the code. It is a kernel
 * thread: under User-Mode Linux a program has its own host thread, and the
 * thread that handles the virtual CPU's interrupts would wait behind it, for
 * milliseconds on a busy host.
 */
#define pr_fmt(fmt) KBUILD_MODNAME ": " fmt

#include <linux/cpumask.h>
#include <linux/err.h>
#include <linux/kthread.h>
#include <linux/module.h>
#include <linux/percpu.h>
#include <linux/sched.h>
#include <uapi/linux/sched/types.h>

static DEFINE_PER_CPU(struct task_struct *, kspinner_task);

static int kspinner_thread(void *data)
{
	const struct sched_attr idle = {
		.size = sizeof(idle),
		.sched_policy = SCHED_IDLE,
	};

	sched_setattr_nocheck(current, &idle);
	while (!kthread_should_stop()) {
		cpu_relax();
		cond_resched();
	}
	return 0;
}

static void kspinner_exit(void)
{
	int cpu;

	for_each_possible_cpu(cpu)
		if (per_cpu(kspinner_task, cpu))
			kthread_stop(per_cpu(kspinner_task, cpu));
}

static int __init kspinner_init(void)
{
	struct task_struct *task;
	int cpu;

	for_each_online_cpu(cpu) {
		task = kthread_create(kspinner_thread, NULL,
				      "nodrop-spin/%d", cpu);
		if (IS_ERR(task)) {
			kspinner_exit();
			return PTR_ERR(task);
		}
		kthread_bind(task, cpu);
		per_cpu(kspinner_task, cpu) = task;
		wake_up_process(task);
	}
	return 0;
}

module_init(kspinner_init);
module_exit(kspinner_exit);

MODULE_DESCRIPTION("Keeps CPUs from going idle, for benchmarks");
MODULE_LICENSE("GPL");
