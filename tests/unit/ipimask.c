// SPDX-License-Identifier: GPL-2.0-only
/*
 * Does what User-Mode Linux does with the signal of its IPIs, and checks that
 * it is masked and delivered as by the host's kernel. With ipimask.so preloaded
 * ("lazy") and without: the same, but for what blocking it costs.
 */
#include <errno.h>
#include <poll.h>
#include <pthread.h>
#include <signal.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/signalfd.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#define IPI SIGRTMIN
#define STORM 20000
#define PAIRS 200000

static __thread bool enabled = true;
static __thread int depth;
static int handled, too_early;
static unsigned long values, nested;
static bool lazy;

#define check(condition) \
	do { \
		if (!(condition)) { \
			printf("%d: %s\n", __LINE__, #condition); \
			exit(1); \
		} \
	} while (0)

static void mask(int how)
{
	sigset_t set;

	sigemptyset(&set);
	sigaddset(&set, IPI);
	check(!sigprocmask(how, &set, NULL));
}

static void off(void)
{
	mask(SIG_BLOCK);
	enabled = false;
}

static void on(void)
{
	enabled = true;
	mask(SIG_UNBLOCK);
}

static void send_to(pthread_t thread, int value)
{
	union sigval sent = { .sival_int = value };

	while (pthread_sigqueue(thread, IPI, sent))
		check(errno == 0 || errno == EAGAIN);
}

/* What the host's kernel has blocked, whatever sigprocmask() says. */
static bool really_blocked(int sig)
{
	unsigned long long set = 0;

	syscall(SYS_rt_sigprocmask, SIG_BLOCK, NULL, &set, sizeof(set));
	return set >> (sig - 1) & 1;
}

static void on_ipi(int sig, siginfo_t *info, void *context)
{
	int before;

	(void)sig;
	(void)context;
	if (!enabled)
		__atomic_fetch_add(&too_early, 1, __ATOMIC_RELAXED);
	enabled = false;
	__atomic_fetch_add(&values, info->si_value.sival_int, __ATOMIC_RELAXED);
	__atomic_fetch_add(&handled, 1, __ATOMIC_RELAXED);
	if (info->si_value.sival_int == 7 && !depth++) {
		/* Softirqs run with interrupts on, and switch them off. */
		on();
		before = handled;
		send_to(pthread_self(), 1);
		check(handled > before);
		off();
		send_to(pthread_self(), 1);
		nested += 2;
		depth--;
	}
	enabled = true;
}

static void on_alarm(int sig, siginfo_t *info, void *context)
{
	bool was = enabled;

	(void)sig;
	(void)info;
	(void)context;
	off();
	if (was)
		on();
}

static void on_fault(int sig, siginfo_t *info, void *context)
{
	(void)sig;
	(void)info;
	(void)context;
	/* Whatever waits is delivered in here; the fault ends as it began. */
	on();
	off();
}

static void install(int sig, void (*handler)(int, siginfo_t *, void *),
		    bool all)
{
	struct sigaction action = {
		.sa_sigaction = handler,
		.sa_flags = SA_SIGINFO | SA_RESTART,
	};

	if (all)
		sigfillset(&action.sa_mask);
	check(!sigaction(sig, &action, NULL));
}

static int reset(void)
{
	return __atomic_exchange_n(&handled, 0, __ATOMIC_RELAXED);
}

static void on_lent(int sig, siginfo_t *info, void *context)
{
	(void)sig;
	(void)info;
	(void)context;
}

/* As the kernel does to see whether its console works. */
static void test_handlers_are_lent(void)
{
	const int signals[] = { IPI, SIGALRM };
	struct sigaction before = {}, new, old;
	int i;

	for (i = 0; i < 2; i++) {
		check(!sigaction(signals[i], NULL, &before));
		check(before.sa_sigaction == (i ? on_alarm : on_ipi));
		new = before;
		new.sa_sigaction = on_lent;
		check(!sigaction(signals[i], &new, &old));
		check(old.sa_sigaction == (i ? on_alarm : on_ipi));
		raise(signals[i]);
		check(reset() == 0);
		check(!sigaction(signals[i], &before, &old));
		check(old.sa_sigaction == on_lent);
		raise(signals[i]);
		check(reset() == !i);
	}
	errno = 0;
	check(sigaction(_NSIG, &before, NULL) == -1 && errno == EINVAL);
	check(sigaction(-1, &before, &old) == -1);
	check(sigaction(SIGKILL, &before, NULL) == -1);
}

static void test_delivery(void)
{
	send_to(pthread_self(), 1);
	check(reset() == 1);
	off();
	check(really_blocked(IPI) == !lazy);
	send_to(pthread_self(), 1);
	send_to(pthread_self(), 2);
	check(reset() == 0 && really_blocked(IPI));
	on();
	check(reset() == 2 && !really_blocked(IPI));
}

static void test_handler_that_unblocks(void)
{
	send_to(pthread_self(), 7);
	check(reset() == 3 && !really_blocked(IPI));
	off();
	send_to(pthread_self(), 7);
	check(reset() == 0);
	on();
	check(reset() == 3 && !really_blocked(IPI));
}

/* A signal waits, blocked; a handler unblocks it; its end blocks it again. */
static void test_fault_while_one_waits(void)
{
	off();
	send_to(pthread_self(), 1);
	check(reset() == 0 && really_blocked(IPI));
	raise(SIGUSR2);
	check(reset() == 1);
	send_to(pthread_self(), 1);
	check(reset() == 0);
	on();
	check(reset() == 1 && !really_blocked(IPI));
}

static void test_other_sets(void)
{
	sigset_t all, old;

	off();
	sigfillset(&all);
	check(!sigprocmask(SIG_SETMASK, &all, &old));
	check(sigismember(&old, IPI));
	send_to(pthread_self(), 1);
	check(!sigprocmask(SIG_SETMASK, &old, NULL));
	check(reset() == 0);
	on();
	check(reset() == 1 && !really_blocked(IPI));
	off();
	sigemptyset(&all);
	check(!sigprocmask(SIG_SETMASK, &all, NULL));
	enabled = true;
	send_to(pthread_self(), 1);
	check(reset() == 1);
	sigaddset(&all, SIGALRM);
	check(!sigprocmask(SIG_BLOCK, &all, NULL) && really_blocked(SIGALRM));
	check(!sigprocmask(SIG_UNBLOCK, &all, NULL));
	send_to(pthread_self(), 1);
	check(reset() == 1);
}

static void *send_late(void *thread)
{
	usleep(100000);
	send_to(*(pthread_t *)thread, 1);
	return NULL;
}

/* An idle CPU: interrupts are off, and one of them is to wake it. */
static void test_idle(void)
{
	pthread_t self = pthread_self(), sender;
	struct pollfd wake = { .events = POLLIN };
	sigset_t set;
	int late;

	sigemptyset(&set);
	sigaddset(&set, IPI);
	wake.fd = signalfd(-1, &set, SFD_CLOEXEC);
	for (late = 0; late < 2; late++) {
		off();
		if (late)
			check(!pthread_create(&sender, NULL, send_late, &self));
		else
			send_to(self, 1);
		check(poll(&wake, 1, 5000) != 0);
		check(reset() == 0);
		on();
		check(reset() == 1);
		if (late)
			pthread_join(sender, NULL);
	}
}

static void *storm(void *thread)
{
	int i;

	for (i = 0; i < STORM; i++)
		send_to(*(pthread_t *)thread, i % 16);
	return NULL;
}

/* All of what another thread sends comes, whatever this one does meanwhile. */
static void test_storm(void)
{
	pthread_t self = pthread_self(), sender;
	unsigned long expected = 0;
	int i;

	for (i = 0; i < STORM; i++)
		expected += i % 16;
	values = 0;
	nested = 0;
	check(!pthread_create(&sender, NULL, storm, &self));
	for (i = 0; pthread_tryjoin_np(sender, NULL); i++) {
		off();
		if (i % 64 == 0)
			raise(SIGUSR2);
		if (i % 64 == 1)
			raise(SIGALRM);
		on();
		if (i % 64 == 2)
			raise(SIGALRM);
	}
	on();
	check(!really_blocked(IPI));
	check(values == expected + nested);
	check(too_early == 0);
}

static unsigned long now_ns(void)
{
	struct timespec now;

	clock_gettime(CLOCK_MONOTONIC, &now);
	return now.tv_sec * 1000000000UL + now.tv_nsec;
}

/* What all of it is for. */
static void test_cost(void)
{
	unsigned long started = now_ns(), calls, masks;
	int i;

	for (i = 0; i < 2 * PAIRS; i++)
		really_blocked(IPI);
	calls = now_ns() - started;
	started = now_ns();
	for (i = 0; i < PAIRS; i++) {
		off();
		on();
	}
	masks = now_ns() - started;
	check(!lazy || 2 * masks < calls);
}

int main(int argc, char **argv)
{
	lazy = argc > 1 && !strcmp(argv[1], "lazy");
	install(IPI, on_ipi, true);
	install(SIGALRM, on_alarm, false);
	install(SIGUSR2, on_fault, false);
	test_handlers_are_lent();
	test_delivery();
	test_handler_that_unblocks();
	test_fault_while_one_waits();
	test_other_sets();
	test_idle();
	test_storm();
	test_cost();
	puts("ok");
	return 0;
}
