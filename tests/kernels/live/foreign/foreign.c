// SPDX-License-Identifier: GPL-2.0-only
/*
 * A livepatch that knows nothing of nodrop, as a vendor's: one function returns
 * an error, which shows where the patch takes effect.
 */
#include <linux/livepatch.h>
#include <linux/module.h>

static char *object;
module_param(object, charp, 0);
MODULE_PARM_DESC(object, "The module to patch (default: the kernel itself)");

static char *function;
module_param(function, charp, 0);
MODULE_PARM_DESC(function, "The function to patch");

static int result = -EPERM;
module_param(result, int, 0);
MODULE_PARM_DESC(result, "What it returns");

static unsigned long calls;
module_param(calls, ulong, 0444);
MODULE_PARM_DESC(calls, "How often it was called");

static struct klp_func funcs[2];
static struct klp_object objects[] = { { .funcs = funcs }, { } };
static struct klp_patch patch = { .mod = THIS_MODULE, .objs = objects };

module_param_named(replace, patch.replace, bool, 0);
MODULE_PARM_DESC(replace, "Is it cumulative, as kpatch makes them?");

static long patched(void)
{
	calls++;
	return result;
}

static int __init foreign_init(void)
{
	objects[0].name = object;
	funcs[0].old_name = function;
	funcs[0].new_func = patched;
	return klp_enable_patch(&patch);
}
module_init(foreign_init);

static void __exit foreign_exit(void)
{
}
module_exit(foreign_exit);

MODULE_DESCRIPTION("Another livepatch");
MODULE_LICENSE("GPL");
MODULE_INFO(livepatch, "Y");
