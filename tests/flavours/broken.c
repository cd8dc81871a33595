// SPDX-License-Identifier: GPL-2.0-only
/*
 * Deliberate faults, one at each load: insmod broken.ko mistake=NAME.
 *
 * A flavour of the lab's kernels must report each of them. If it does not,
 * Kconfig has dropped the option for it, which it does silently.
 * tests/guest/test_flavours.py loads this module.
 */
#include <linux/delay.h>
#include <linux/jiffies.h>
#include <linux/kthread.h>
#include <linux/list.h>
#include <linux/module.h>
#include <linux/mutex.h>
#include <linux/percpu.h>
#include <linux/rcupdate.h>
#include <linux/slab.h>
#include <linux/spinlock.h>
#include <linux/timer.h>
#include <linux/vmalloc.h>

/* More per-CPU memory than the kernel has at boot: 32 times 32 kB. */
#define BROKEN_CHUNKS 32
#define BROKEN_CHUNK_BYTES (32 << 10)

/* Duration of a race: KCSAN watches few accesses. */
#define BROKEN_RACE_MS 10000

static char *mistake = "";
module_param(mistake, charp, 0);
MODULE_PARM_DESC(mistake, "Fault to cause");

/*
 * No fault: release areas from both ends of the vmalloc space at once. The
 * kernel allocates per-CPU memory from the far end.
 */
static void broken_none_far_apart(void)
{
	void __percpu *chunks[BROKEN_CHUNKS];
	void *near = vmalloc(1 << 20);
	int i;

	for (i = 0; i < BROKEN_CHUNKS; i++)
		chunks[i] = __alloc_percpu(BROKEN_CHUNK_BYTES, sizeof(long));
	for (i = 0; i < BROKEN_CHUNKS; i++)
		free_percpu(chunks[i]);
	/* Chunks are freed in the background. */
	msleep(500);
	vfree(near);
	vm_unmap_aliases();
}

/* Locks */

static DEFINE_MUTEX(broken_first);
static DEFINE_MUTEX(broken_second);

static void broken_lock_order(void)
{
	mutex_lock(&broken_first);
	mutex_lock(&broken_second);
	mutex_unlock(&broken_second);
	mutex_unlock(&broken_first);

	mutex_lock(&broken_second);
	mutex_lock(&broken_first);
	mutex_unlock(&broken_first);
	mutex_unlock(&broken_second);
}

static DEFINE_SPINLOCK(broken_spinlock);

static void broken_tick(struct timer_list *timer)
{
	spin_lock(&broken_spinlock);
	spin_unlock(&broken_spinlock);
}

static void broken_atomic_sleep(void)
{
	spin_lock(&broken_spinlock);
	kfree(kmalloc(64, GFP_KERNEL));
	spin_unlock(&broken_spinlock);
}

static int __rcu *broken_pointer;

static void broken_rcu(void)
{
	if (rcu_dereference(broken_pointer))
		pr_info("broken: there is something\n");
}

/* Life cycles */

static struct timer_list broken_timer;

static void broken_timer_again(void)
{
	timer_setup(&broken_timer, broken_tick, 0);
	mod_timer(&broken_timer, jiffies + HZ);
	timer_setup(&broken_timer, broken_tick, 0);
	timer_delete_sync(&broken_timer);
}

static LIST_HEAD(broken_list);
static LIST_HEAD(broken_entry);

static void broken_list_twice(void)
{
	list_add(&broken_entry, &broken_list);
	list_add(&broken_entry, &broken_list);
}

/* Memory. The compiler must not see the fault. */

static noinline void broken_read(const char *place)
{
	OPTIMIZER_HIDE_VAR(place);
	if (READ_ONCE(*place) == 42)
		pr_info("broken: there it was\n");
}

static void broken_use_after_free(void)
{
	char *memory = kmalloc(64, GFP_KERNEL);
	char *place = memory;

	OPTIMIZER_HIDE_VAR(place);
	kfree(memory);
	broken_read(place);
}

static void broken_leak(void)
{
	char *memory = kzalloc(1000, GFP_KERNEL);

	if (memory)
		broken_read(memory);
}

/* Undefined behaviour */

static int broken_array[4];

static void broken_index(void)
{
	unsigned int at = 4;

	OPTIMIZER_HIDE_VAR(at);
	pr_info("broken: %d\n", broken_array[at]);
}

/* Data races */

static unsigned long broken_counter;
static unsigned long broken_data;
static unsigned long broken_turn;

static bool broken_goes_on(void)
{
	cond_resched();
	return !kthread_should_stop();
}

static int broken_count(void *unused)
{
	while (broken_goes_on())
		broken_counter++;
	return 0;
}

/* Each thread passes the data to the other without a release barrier. */
static int broken_hand_over(void *mine)
{
	unsigned long me = (unsigned long)mine;

	while (broken_goes_on()) {
		if (READ_ONCE(broken_turn) != me)
			continue;
		smp_rmb(); /* pairs with nothing */
		broken_data++;
		WRITE_ONCE(broken_turn, !me);
	}
	return 0;
}

/* Two threads on two CPUs. */
static void broken_run(int (*thread)(void *data))
{
	struct task_struct *tasks[2];
	unsigned long i;

	for (i = 0; i < ARRAY_SIZE(tasks); i++) {
		tasks[i] = kthread_create(thread, (void *)i, "broken/%lu", i);
		if (IS_ERR(tasks[i]))
			continue;
		kthread_bind(tasks[i], i % num_online_cpus());
		wake_up_process(tasks[i]);
	}
	msleep(BROKEN_RACE_MS);
	for (i = 0; i < ARRAY_SIZE(tasks); i++)
		if (!IS_ERR(tasks[i]))
			kthread_stop(tasks[i]);
}

static void broken_data_race(void)
{
	broken_run(broken_count);
}

static void broken_no_barrier(void)
{
	broken_run(broken_hand_over);
}

static const struct {
	const char *name;
	void (*make)(void);
} broken_mistakes[] = {
	{ "none_far_apart", broken_none_far_apart },
	{ "lock_order", broken_lock_order },
	{ "atomic_sleep", broken_atomic_sleep },
	{ "rcu", broken_rcu },
	{ "timer_again", broken_timer_again },
	{ "list_twice", broken_list_twice },
	{ "use_after_free", broken_use_after_free },
	{ "leak", broken_leak },
	{ "index", broken_index },
	{ "data_race", broken_data_race },
	{ "no_barrier", broken_no_barrier },
};

static int __init broken_init(void)
{
	int i;

	for (i = 0; i < ARRAY_SIZE(broken_mistakes); i++) {
		if (strcmp(mistake, broken_mistakes[i].name))
			continue;
		broken_mistakes[i].make();
		return 0;
	}
	return -EINVAL;
}
module_init(broken_init);

MODULE_DESCRIPTION("Faults that the lab's kernels must report");
MODULE_LICENSE("GPL");
