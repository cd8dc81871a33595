/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * What gcc calls at each branch of code that was built with
 * -fsanitize-coverage=trace-pc, in a kernel that was not.
 */
#ifndef NODROP_KCOVER_H
#define NODROP_KCOVER_H

void __sanitizer_cov_trace_pc(void);

#endif
