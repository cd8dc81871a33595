// SPDX-License-Identifier: GPL-2.0-only
/*
 * LD_PRELOAD=ipimask.so: User-Mode Linux masks its IPIs without system calls.
 *
 * With several CPUs, UML disables interrupts by blocking SIGRTMIN, the signal
 * of its IPIs. That is one system call, and another one to enable interrupts,
 * for each lock: two thirds of a guest's time. UML masks all other signals by a
 * flag and handles what arrived when it unmasks them. This library does the
 * same for SIGRTMIN:
 *
 * - Blocking it sets a flag of the thread, unblocking clears the flag.
 * - A signal that arrives while the flag is set is sent again, and blocked in
 *   the interrupted context: it is pending in the host's kernel, as if it had
 *   been blocked. Unblocking then is a system call, and delivers it.
 *
 * It may overtake other pending IPIs. Each requests another function call, and
 * these have no order.
 *
 * "blocked" may be true although the signal is not, which costs a system call.
 * It must never be false while the signal is. The signal is blocked when a
 * handler returns to a context that had it blocked, and by a handler's own
 * mask. A guest's kernel thread that faults may continue as another host
 * thread, in the middle of a handler. So the flags are accessed by functions
 * that the compiler cannot inline.
 */
#include <dlfcn.h>
#include <errno.h>
#include <signal.h>
#include <stdbool.h>
#include <string.h>
#include <sys/syscall.h>
#include <ucontext.h>
#include <unistd.h>

#define IPI SIGRTMIN

typedef void handler_fn(int sig, siginfo_t *info, void *context);

static handler_fn *handlers[_NSIG];
static int (*next_sigprocmask)(int how, const sigset_t *set, sigset_t *old);
static int (*next_sigaction)(int sig, const struct sigaction *act,
			     struct sigaction *old);

/* The set that a guest's kernel blocks and unblocks. */
static sigset_t ipi_alone;

static __thread bool masked;
static __thread bool blocked;

__attribute__((noipa)) static bool is_masked(void)
{
	return masked;
}

__attribute__((noipa)) static void set_masked(bool value)
{
	masked = value;
}

__attribute__((noipa)) static void set_blocked(bool value)
{
	blocked = value;
}

__attribute__((constructor)) static void find_next(void)
{
	next_sigprocmask = dlsym(RTLD_NEXT, "sigprocmask");
	next_sigaction = dlsym(RTLD_NEXT, "sigaction");
	sigemptyset(&ipi_alone);
	sigaddset(&ipi_alone, IPI);
}

/* The host's kernel uses only so many bytes of a set. */
static bool is_ipi_alone(const sigset_t *set)
{
	return !memcmp(set, &ipi_alone, _NSIG / 8);
}

static int unblock(const sigset_t *set)
{
	masked = false;
	/* The handler of an earlier signal sets "blocked". */
	__atomic_signal_fence(__ATOMIC_SEQ_CST);
	if (!blocked)
		return 0;
	blocked = false;
	return next_sigprocmask(SIG_UNBLOCK, set, NULL);
}

int sigprocmask(int how, const sigset_t *set, sigset_t *old)
{
	bool was_masked = masked;

	if (set && !old && how != SIG_SETMASK && is_ipi_alone(set)) {
		if (how == SIG_UNBLOCK)
			return unblock(set);
		masked = true;
		return 0;
	}
	if (next_sigprocmask(how, set, old))
		return -1;
	if (old && was_masked)
		sigaddset(old, IPI);
	if (set && (how == SIG_SETMASK || sigismember(set, IPI))) {
		blocked = how != SIG_UNBLOCK && sigismember(set, IPI);
		masked = blocked;
	}
	return 0;
}

static void on_ipi(int sig, siginfo_t *info, void *context)
{
	ucontext_t *interrupted = context;
	int error = errno;

	if (is_masked()) {
		set_blocked(true);
		sigaddset(&interrupted->uc_sigmask, IPI);
		syscall(SYS_rt_tgsigqueueinfo, getpid(), gettid(), sig, info);
		errno = error;
		return;
	}
	/* The handler's mask has all signals, until it unblocks them. */
	set_blocked(true);
	handlers[sig](sig, info, context);
	set_blocked(false);
	set_masked(false);
}

static void on_other(int sig, siginfo_t *info, void *context)
{
	const ucontext_t *interrupted = context;

	handlers[sig](sig, info, context);
	if (sigismember(&interrupted->uc_sigmask, IPI))
		set_blocked(true);
}

/* The caller gets its own handler in @old, and may set it again. */
int sigaction(int sig, const struct sigaction *act, struct sigaction *old)
{
	handler_fn *before = sig > 0 && sig < _NSIG ? handlers[sig] : NULL;
	struct sigaction ours;

	if (act && act->sa_flags & SA_SIGINFO && sig > 0 && sig < _NSIG) {
		ours = *act;
		handlers[sig] = act->sa_sigaction;
		ours.sa_sigaction = sig == IPI ? on_ipi : on_other;
		act = &ours;
	}
	if (next_sigaction(sig, act, old))
		return -1;
	if (old && (old->sa_sigaction == on_ipi ||
		    old->sa_sigaction == on_other))
		old->sa_sigaction = before;
	return 0;
}
