/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * Where a module's read-only data are, its notes among them. Until Linux 6.4
 * all that stays of a module is one piece of memory.
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
