// SPDX-License-Identifier: GPL-2.0-only
/*
 * A cumulative livepatch, as kpatch makes them, that has never heard of
 * nodrop's: /proc/version is empty while it is loaded.
 */
#include <linux/livepatch.h>
#include <linux/module.h>

struct seq_file;

static int empty_version(struct seq_file *file, void *unused)
{
	return 0;
}

static struct klp_func funcs[] = {
	{ .old_name = "version_proc_show", .new_func = empty_version },
	{ }
};

/* Without a name: the kernel itself. */
static struct klp_object objects[] = { { .funcs = funcs }, { } };

static struct klp_patch patch = {
	.mod = THIS_MODULE,
	.objs = objects,
	.replace = true,
};

static int __init cumulative_init(void)
{
	return klp_enable_patch(&patch);
}
module_init(cumulative_init);

static void __exit cumulative_exit(void)
{
}
module_exit(cumulative_exit);

MODULE_DESCRIPTION("A cumulative livepatch");
MODULE_LICENSE("GPL");
MODULE_INFO(livepatch, "Y");
