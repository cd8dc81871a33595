// SPDX-License-Identifier: GPL-2.0-only
/*
 * kcover: which code of the modules under test was executed, by whomever.
 *
 * The kernel's own KCOV tells what one thread executes, and nothing of
 * softirqs, timers and kernel threads, in which most of a tun driver runs. It
 * would also have to be built into each kernel that something is fuzzed on.
 * This module takes KCOV's place for modules that are built for it ("make -C
 * kmod COVER=...", docs/fuzzing.md): they call it at each branch.
 *
 * read() of /dev/nodrop-kcover takes the places, as 64-bit addresses, that
 * were passed since the last read(), each once.
 */
#define pr_fmt(fmt) KBUILD_MODNAME ": " fmt

#include <linux/atomic.h>
#include <linux/bitmap.h>
#include <linux/fs.h>
#include <linux/hash.h>
#include <linux/kernel.h>
#include <linux/miscdevice.h>
#include <linux/module.h>
#include <linux/uaccess.h>

#include "kcover.h"

#define KCOVER_PLACES	16384
#define KCOVER_BITS	14
/* A place that finds none of so many entries free is not told. */
#define KCOVER_TRIES	64

/* A hash table that only grows: a place that was passed once stays. */
static unsigned long kcover_places[KCOVER_PLACES];
/* Passed since the last read(). */
static DECLARE_BITMAP(kcover_passed, KCOVER_PLACES);

/*
 * Context: any. No lock, nothing that is instrumented.
 */
notrace void __sanitizer_cov_trace_pc(void)
{
	unsigned long place = _RET_IP_;
	unsigned int at = hash_long(place, KCOVER_BITS);
	unsigned long found;
	int i;

	for (i = 0; i < KCOVER_TRIES; i++) {
		found = READ_ONCE(kcover_places[at]);
		if (!found)
			found = cmpxchg(&kcover_places[at], 0, place);
		if (!found || found == place) {
			if (!test_bit(at, kcover_passed))
				set_bit(at, kcover_passed);
			return;
		}
		at = (at + 1) % KCOVER_PLACES;
	}
}
EXPORT_SYMBOL_GPL(__sanitizer_cov_trace_pc);

static ssize_t kcover_read(struct file *file, char __user *buf, size_t len,
			   loff_t *pos)
{
	u64 __user *to = (u64 __user *)buf;
	size_t most = len / sizeof(*to);
	unsigned int at;
	size_t n = 0;

	for_each_set_bit(at, kcover_passed, KCOVER_PLACES) {
		if (n == most)
			break;
		if (!test_and_clear_bit(at, kcover_passed))
			continue;
		if (put_user((u64)READ_ONCE(kcover_places[at]), to + n))
			return -EFAULT;
		n++;
	}
	return n * sizeof(*to);
}

static const struct file_operations kcover_fops = {
	.owner = THIS_MODULE,
	.read = kcover_read,
	.llseek = noop_llseek,
};

static struct miscdevice kcover_misc = {
	.minor = MISC_DYNAMIC_MINOR,
	.name = "nodrop-kcover",
	.fops = &kcover_fops,
	.mode = 0600,
};
module_misc_device(kcover_misc);

MODULE_DESCRIPTION("What the modules under test have executed");
MODULE_LICENSE("GPL");
