// SPDX-License-Identifier: GPL-2.0-only
/*
 * LD_PRELOAD=backpressure.so: adds IFF_BACKPRESSURE to each TUNSETIFF of a
 * program that does not know the flag, so that upstream's driver (Linux 7.3 or
 * newer) pushes back. A program that makes its own system calls (Go) is not
 * affected.
 */
#include <linux/if_tun.h>
#include <net/if.h>
#include <stdarg.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "common.h"

static int set_iff(int fd, struct ifreq *wanted)
{
	struct ifreq asked = *wanted;
	int error;

	asked.ifr_flags |= IFF_BACKPRESSURE;
	error = syscall(SYS_ioctl, fd, TUNSETIFF, &asked);
	if (!error)
		memcpy(wanted->ifr_name, asked.ifr_name, IFNAMSIZ);
	return error;
}

int ioctl(int fd, unsigned long request, ...)
{
	void *argument;
	va_list rest;

	va_start(rest, request);
	argument = va_arg(rest, void *);
	va_end(rest);
	/* The kernel uses 32 bits, and some callers sign-extend it. */
	if ((unsigned int)request == TUNSETIFF && argument)
		return set_iff(fd, argument);
	return syscall(SYS_ioctl, fd, request, argument);
}
