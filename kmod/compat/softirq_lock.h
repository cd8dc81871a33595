/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * Softirqs off keep a CPU to one user. On PREEMPT_RT they do so up to Linux
 * 6.17 only: another task may run meanwhile, and turn them off, too. There a
 * lock does it. Kernels before 6.11 neither have that lock nor need it.
 */
#ifndef NODROP_COMPAT_SOFTIRQ_LOCK_H
#define NODROP_COMPAT_SOFTIRQ_LOCK_H

#ifdef CONFIG_PREEMPT_RT
#include <linux/local_lock.h>
#endif

#if defined(CONFIG_PREEMPT_RT) && defined(local_lock_nested_bh)

struct nodrop_softirq_lock {
	local_lock_t lock;
	struct task_struct *owner;
};

#define NODROP_SOFTIRQ_LOCK_INIT { .lock = INIT_LOCAL_LOCK(lock) }

static inline void
nodrop_softirq_lock(struct nodrop_softirq_lock __percpu *lock)
{
	/* netpoll may have interrupts off instead of softirqs. */
	migrate_disable();
	local_lock_nested_bh(&lock->lock);
	__this_cpu_write(lock->owner, current);
}

static inline void
nodrop_softirq_unlock(struct nodrop_softirq_lock __percpu *lock)
{
	__this_cpu_write(lock->owner, NULL);
	local_unlock_nested_bh(&lock->lock);
	migrate_enable();
}

/* Does this task hold the lock? If only softirqs need be off: true. */
static inline bool
nodrop_softirq_is_mine(struct nodrop_softirq_lock __percpu *lock)
{
	return this_cpu_read(lock->owner) == current;
}

#else

struct nodrop_softirq_lock { };

#define NODROP_SOFTIRQ_LOCK_INIT { }

static inline void
nodrop_softirq_lock(struct nodrop_softirq_lock __percpu *lock)
{
}

static inline void
nodrop_softirq_unlock(struct nodrop_softirq_lock __percpu *lock)
{
}

static inline bool
nodrop_softirq_is_mine(struct nodrop_softirq_lock __percpu *lock)
{
	return true;
}

#endif

#endif
