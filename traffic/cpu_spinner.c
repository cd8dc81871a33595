// SPDX-License-Identifier: GPL-2.0-only
/*
 * cpu_spinner: keeps every CPU from going idle, at the lowest priority.
 *
 * In a virtual machine an idle CPU is a host thread asleep; waking it costs far
 * more than the kernel code under test. A SCHED_IDLE thread on each CPU hands
 * its CPU over at once, so that what is measured is the code.
 */
#include <errno.h>
#include <sched.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "common.h"
#include "json.h"
#include "options.h"

#define CPUS_MAX	CPU_SETSIZE

static void *spin(void *arg)
{
	const struct sched_param none = {};
	long cpu = (long)arg;
	cpu_set_t only;

	CPU_ZERO(&only);
	CPU_SET(cpu, &only);
	if (sched_setaffinity(0, sizeof(only), &only) ||
	    sched_setscheduler(0, SCHED_IDLE, &none))
		die(EXIT_FAILED, "cannot idle on CPU %ld: %s", cpu,
		    strerror(errno));
	while (!stop_asked())
		;
	return NULL;
}

int main(int argc, char **argv)
{
	static pthread_t threads[CPUS_MAX];
	__u64 duration = 10 * NSEC_PER_SEC;
	const struct option_spec specs[] = {
		{ .name = "seconds", .duration_ns = &duration,
		  .help = "how long to spin" },
		{}
	};
	long cpus = sysconf(_SC_NPROCESSORS_ONLN);
	__u64 started = now_ns();
	long cpu;

	parse_options(argc, argv, "keep every CPU from going idle", specs);
	if (cpus < 1 || cpus > CPUS_MAX)
		die(EXIT_FAILED, "cannot spin on %ld CPUs", cpus);
	catch_stop_signals();
	for (cpu = 0; cpu < cpus; cpu++)
		start_thread(&threads[cpu], spin, (void *)cpu);
	wait_for_end(started + duration);
	join_threads(threads, cpus);
	json_open(NULL);
	json_count("cpus", cpus);
	json_seconds("seconds", now_ns() - started);
	json_close();
	return EXIT_FINE;
}
