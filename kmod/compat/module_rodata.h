/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * A module's read-only data, its notes among them. Before Linux 6.4 all of a
 * module but its init sections is one allocation.
 */
#ifndef NODROP_COMPAT_MODULE_RODATA_H
#define NODROP_COMPAT_MODULE_RODATA_H

#include <linux/module.h>

static inline const void *nodrop_module_rodata(const struct module *module,
					       unsigned int *size)
{
#ifdef for_each_mod_mem_type
	*size = module->mem[MOD_RODATA].size;
	return module->mem[MOD_RODATA].base;
#else
	*size = module->core_layout.ro_size;
	return module->core_layout.base;
#endif
}

#endif
