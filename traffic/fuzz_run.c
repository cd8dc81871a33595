// SPDX-License-Identifier: GPL-2.0-only
/*
 * The process that runs a program of fuzz_exec: makes its calls, one after
 * another or several at a time, and leaves what they returned.
 */
#include "fuzz_run.h"

#include <errno.h>
#include <fcntl.h>
#include <linux/sockios.h>
#include <signal.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <sys/time.h>
#include <unistd.h>

/* A call that waits is interrupted after this, and again. */
#define TICK_US		20000
/* How long calls that are not waited for may go on after the last one. */
#define LINGER_MS	15
/* Packets of a queue that are read at a time. */
#define DRAIN_MOST	20000

static struct program *program;
static __s64 slots[FUZZ_SLOTS];
/* Calls that are not waited for and go on. */
static unsigned int pending;

static __s64 slot_value(__u64 slot)
{
	return __atomic_load_n(&slots[slot], __ATOMIC_RELAXED);
}

static void fill_memory(const struct call *this)
{
	const struct fuzz_copy *copy = this->copies;
	__u32 value;
	unsigned int i;

	for (i = 0; i < this->call->copies; i++) {
		memcpy((void *)copy->at, copy + 1, copy->bytes);
		copy = (const void *)((const char *)(copy + 1) +
				      ((copy->bytes + 7) & ~7ULL));
	}
	for (i = 0; i < this->call->patches; i++) {
		value = slot_value(this->patches[i].slot);
		memcpy((void *)this->patches[i].at, &value, sizeof(value));
	}
}

static __s64 make_once(const struct fuzz_call *call)
{
	__u64 a[6];
	long ret;
	int i;

	for (i = 0; i < 6; i++)
		a[i] = call->from & 1U << i ? (__u64)slot_value(call->args[i]) :
					      call->args[i];
	ret = syscall(call->nr, a[0], a[1], a[2], a[3], a[4], a[5]);
	return ret == -1 ? -errno : ret;
}

static void *make_call(void *arg)
{
	const struct call *this = arg;
	const struct fuzz_call *call = this->call;
	unsigned int times = call->times;
	__u32 loaded;
	__s64 ret;

	program->shared->results[this - program->calls] = FUZZ_UNENDED;
	do {
		ret = make_once(call);
	} while (ret >= 0 && times-- > 1);

	if (ret >= 0 && call->load) {
		memcpy(&loaded, (void *)call->load, sizeof(loaded));
		ret = loaded;
	}
	if (call->slot >= 0)
		__atomic_store_n(&slots[call->slot], ret < 0 ? -1 : ret,
				 __ATOMIC_RELAXED);
	program->shared->results[this - program->calls] = ret;
	if (call->flags & FUZZ_ASYNC)
		__atomic_sub_fetch(&pending, 1, __ATOMIC_RELAXED);
	return NULL;
}

/* Ticks are for the calls that are waited for: the others do not get them. */
static void make_call_aside(struct call *this)
{
	pthread_attr_t attributes;
	pthread_t thread;
	sigset_t tick;

	sigemptyset(&tick);
	sigaddset(&tick, SIGALRM);
	pthread_sigmask(SIG_BLOCK, &tick, NULL);
	pthread_attr_init(&attributes);
	pthread_attr_setdetachstate(&attributes, PTHREAD_CREATE_DETACHED);
	__atomic_add_fetch(&pending, 1, __ATOMIC_RELAXED);
	if (pthread_create(&thread, &attributes, make_call, this))
		__atomic_sub_fetch(&pending, 1, __ATOMIC_RELAXED);
	pthread_sigmask(SIG_UNBLOCK, &tick, NULL);
}

/* Reads what the program's queues hold. */
static void drain_queues(void)
{
	static char packet[1 << 17];
	unsigned int i, n;
	int fd;

	for (i = 0; i < program->head.calls; i++) {
		if (!(program->calls[i].call->flags & FUZZ_QUEUE) ||
		    program->calls[i].call->slot < 0)
			continue;
		fd = slot_value(program->calls[i].call->slot);
		if (fd < 0 || fcntl(fd, F_SETFL, O_RDWR | O_NONBLOCK))
			continue;
		for (n = 0; n < DRAIN_MOST; n++) {
			if (read(fd, packet, sizeof(packet)) <= 0)
				break;
		}
	}
}

/* What the program's senders have sent and nobody has taken yet, bytes. */
static __u32 on_the_way(void)
{
	__u32 bytes = 0;
	unsigned int i;
	int fd, n;

	for (i = 0; i < program->head.calls; i++) {
		if (!(program->calls[i].call->flags & FUZZ_SENDER) ||
		    program->calls[i].call->slot < 0)
			continue;
		fd = slot_value(program->calls[i].call->slot);
		n = 0;
		if (fd >= 0 && !ioctl(fd, SIOCOUTQ, &n) && n > 0)
			bytes += n;
	}
	return bytes;
}

static void settle(void)
{
	__u64 deadline = now_ns() + program->head.settle_ms * MSEC;

	do {
		drain_queues();
		program->shared->held = on_the_way();
		if (program->shared->held)
			sleep_until_ns(now_ns() + MSEC);
	} while (program->shared->held && now_ns() < deadline);
}

static void on_tick(int signal_number)
{
	(void)signal_number;
}

static void prepare_process(void)
{
	struct sigaction action = { .sa_handler = on_tick };
	unsigned int i;
	int null;

	prctl(PR_SET_PDEATHSIG, SIGKILL);
	null = open("/dev/null", O_RDWR);
	dup2(null, STDIN_FILENO);
	dup2(null, STDOUT_FILENO);
	close(null);

	sigaction(SIGALRM, &action, NULL);
	sigaction(SIGIO, &action, NULL);
	signal(SIGPIPE, SIG_IGN);

	for (i = 0; i < FUZZ_SLOTS; i++)
		slots[i] = -1;
	slots[FUZZ_HERE] = program->spaces[0];
	slots[FUZZ_AWAY] = program->spaces[1];
}

void run_program(struct program *running)
{
	const struct itimerval ticks = { { 0, TICK_US }, { 0, TICK_US } };
	unsigned int i;
	__u64 deadline;

	program = running;
	prepare_process();
	for (i = 0; i < program->head.calls; i++) {
		fill_memory(&program->calls[i]);
		setitimer(ITIMER_REAL, &ticks, NULL);
		if (program->calls[i].call->flags & FUZZ_ASYNC)
			make_call_aside(&program->calls[i]);
		else
			make_call(&program->calls[i]);
	}
	deadline = now_ns() + LINGER_MS * MSEC;
	while (__atomic_load_n(&pending, __ATOMIC_RELAXED) &&
	       now_ns() < deadline)
		sleep_until_ns(now_ns() + MSEC);
	if (program->head.settle_ms)
		settle();
	_exit(EXIT_FINE);
}
