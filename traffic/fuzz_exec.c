// SPDX-License-Identifier: GPL-2.0-only
/*
 * fuzz_exec: makes the system calls of programs that a fuzzer has written.
 *
 * Programs come on stdin, answers go to stdout (fuzz_wire.h). Each program is
 * run by a process of its own, so that all it has opened is closed at its end,
 * wherever it is then. What the calls mean is known to the fuzzer alone.
 */
#include <errno.h>
#include <fcntl.h>
#include <linux/rtnetlink.h>
#include <sched.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/mount.h>
#include <sys/socket.h>
#include <sys/time.h>
#include <sys/wait.h>
#include <unistd.h>

#include "common.h"
#include "fuzz_run.h"

/* A process that was killed and is still there then never goes. */
#define STUCK_MS	15000
#define NETLINK_WAIT_S	20

/* Each network namespace has it, by this index. */
#define LOOPBACK	1

static __u64 frame[FUZZ_BYTES / sizeof(__u64)];
static struct program program;

/* Connections to rtnetlink in both network namespaces, and what they answer. */
static int links[2];
static __u64 reply[8192];

static bool read_all(void *to, size_t bytes)
{
	size_t done = 0;
	ssize_t got;

	while (done < bytes) {
		got = read(STDIN_FILENO, (char *)to + done, bytes - done);
		if (got < 0 && errno == EINTR)
			continue;
		if (got < 0)
			die(EXIT_FAILED, "cannot read: %s", strerror(errno));
		if (!got && !done)
			return false;
		if (!got)
			die(EXIT_FAILED, "a program ends early");
		done += got;
	}
	return true;
}

static void write_all(const void *from, size_t bytes)
{
	size_t done = 0;
	ssize_t put;

	while (done < bytes) {
		put = write(STDOUT_FILENO, (const char *)from + done,
			    bytes - done);
		if (put < 0 && errno != EINTR)
			die(EXIT_FAILED, "cannot write: %s", strerror(errno));
		done += put > 0 ? put : 0;
	}
}

static bool in_memory(__u64 at, __u64 bytes)
{
	return at >= FUZZ_MEMORY && bytes <= FUZZ_MEMORY_LEN &&
	       at - FUZZ_MEMORY <= FUZZ_MEMORY_LEN - bytes;
}

/* The next @bytes of the frame. */
static const void *part(size_t *at, __u64 bytes)
{
	const char *here = (const char *)frame + *at;

	bytes = (bytes + 7) & ~7ULL;
	if (bytes > program.head.bytes - *at)
		die(EXIT_FAILED, "a program is longer than its frame");
	*at += bytes;
	return here;
}

static void check_call(const struct fuzz_call *call)
{
	unsigned int i;

	for (i = 0; i < 6; i++) {
		if (call->from & 1U << i && call->args[i] >= FUZZ_SLOTS)
			die(EXIT_FAILED, "an argument is no slot");
	}
	if (call->slot >= FUZZ_SLOTS)
		die(EXIT_FAILED, "a result goes to no slot");
	if (call->load && !in_memory(call->load, sizeof(__u32)))
		die(EXIT_FAILED, "a result comes from elsewhere");
}

static void parse_program(void)
{
	const struct fuzz_patch *patch;
	const struct fuzz_copy *copy;
	struct call *this;
	size_t at = 0;
	unsigned int i, j;

	for (i = 0; i < program.head.calls; i++) {
		this = &program.calls[i];
		this->call = part(&at, sizeof(*this->call));
		check_call(this->call);
		this->copies = (const void *)((const char *)frame + at);
		for (j = 0; j < this->call->copies; j++) {
			copy = part(&at, sizeof(*copy));
			part(&at, copy->bytes);
			if (!in_memory(copy->at, copy->bytes))
				die(EXIT_FAILED, "a copy goes elsewhere");
		}
		this->patches = (const void *)((const char *)frame + at);
		for (j = 0; j < this->call->patches; j++) {
			patch = part(&at, sizeof(*patch));
			if (!in_memory(patch->at, sizeof(__u32)) ||
			    patch->slot >= FUZZ_SLOTS)
				die(EXIT_FAILED, "a patch goes elsewhere");
		}
	}
	if (at != program.head.bytes)
		die(EXIT_FAILED, "a frame is longer than its program");
}

static bool read_program(void)
{
	if (!read_all(&program.head, sizeof(program.head)))
		return false;
	if (program.head.bytes > sizeof(frame) ||
	    program.head.calls > FUZZ_CALLS)
		die(EXIT_FAILED, "a program is too large");
	if (program.head.bytes && !read_all(frame, program.head.bytes))
		die(EXIT_FAILED, "a program has no calls");
	parse_program();
	return true;
}

static bool ends_until(pid_t pid, __u64 deadline)
{
	struct timespec left;
	sigset_t child;
	__u64 now;

	sigemptyset(&child);
	sigaddset(&child, SIGCHLD);
	for (;;) {
		if (waitpid(pid, NULL, WNOHANG) == pid)
			return true;
		now = now_ns();
		if (now >= deadline)
			return false;
		left.tv_sec = (deadline - now) / NSEC_PER_SEC;
		left.tv_nsec = (deadline - now) % NSEC_PER_SEC;
		sigtimedwait(&child, NULL, &left);
	}
}

static enum fuzz_end run_process(void)
{
	unsigned int i;
	pid_t pid;

	program.shared->held = 0;
	for (i = 0; i < FUZZ_CALLS; i++)
		program.shared->results[i] = FUZZ_NOT_MADE;
	pid = fork();
	if (pid < 0)
		die(EXIT_FAILED, "cannot fork: %s", strerror(errno));
	if (!pid) {
		close(links[0]);
		close(links[1]);
		run_program(&program);
	}
	if (ends_until(pid, now_ns() + program.head.limit_ms * MSEC))
		return FUZZ_ENDED;
	kill(pid, SIGKILL);
	return ends_until(pid, now_ns() + STUCK_MS * MSEC) ? FUZZ_KILLED :
							      FUZZ_STUCK;
}

struct link_request {
	struct nlmsghdr header;
	struct ifinfomsg info;
};

static ssize_t tell(int netlink, __u16 type, __u16 flags, int index)
{
	const struct link_request request = {
		.header.nlmsg_len = sizeof(request),
		.header.nlmsg_type = type,
		.header.nlmsg_flags = NLM_F_REQUEST | flags,
		.info.ifi_index = index,
	};
	ssize_t got;

	if (send(netlink, &request, sizeof(request), 0) < 0)
		die(EXIT_FAILED, "cannot ask rtnetlink: %s", strerror(errno));
	got = recv(netlink, reply, sizeof(reply), 0);
	if (got < 0)
		die(EXIT_FAILED, "rtnetlink does not answer: %s",
		    strerror(errno));
	return got;
}

/* Of those after @index, or 0. Reads the rest of the kernel's answer, too. */
static int next_device(int netlink, int index)
{
	ssize_t left = tell(netlink, RTM_GETLINK, NLM_F_DUMP, 0);
	const struct ifinfomsg *info;
	struct nlmsghdr *header;
	int found = 0;

	for (;;) {
		for (header = (struct nlmsghdr *)reply; NLMSG_OK(header, left);
		     header = NLMSG_NEXT(header, left)) {
			if (header->nlmsg_type == NLMSG_DONE ||
			    header->nlmsg_type == NLMSG_ERROR)
				return found;
			info = NLMSG_DATA(header);
			if (info->ifi_index > index &&
			    (!found || info->ifi_index < found))
				found = info->ifi_index;
		}
		left = recv(netlink, reply, sizeof(reply), 0);
		if (left < 0)
			die(EXIT_FAILED, "rtnetlink does not answer: %s",
			    strerror(errno));
	}
}

/* All of the namespace but lo. Returns how many there were. */
static __u32 delete_devices(int netlink)
{
	__u32 there = 0;
	int index = LOOPBACK;

	while ((index = next_device(netlink, index))) {
		tell(netlink, RTM_DELLINK, NLM_F_ACK, index);
		there++;
	}
	return there;
}

/* Neither is the caller's: all devices in them are deleted. */
static void open_space(int which)
{
	const struct timeval wait = { NETLINK_WAIT_S, 0 };

	if (unshare(CLONE_NEWNET))
		die(EXIT_UNSUPPORTED, "no network namespace: %s",
		    strerror(errno));
	program.spaces[which] = open("/proc/self/ns/net", O_RDONLY);
	links[which] = socket(AF_NETLINK, SOCK_RAW, NETLINK_ROUTE);
	if (program.spaces[which] < 0 || links[which] < 0 ||
	    setsockopt(links[which], SOL_SOCKET, SO_RCVTIMEO, &wait,
		       sizeof(wait)))
		die(EXIT_FAILED, "no network namespace: %s", strerror(errno));
}

/* /sys shows the devices of the network namespace that it is mounted in. */
static void mount_sys(void)
{
	if (unshare(CLONE_NEWNS) ||
	    mount(NULL, "/", NULL, MS_REC | MS_PRIVATE, NULL) ||
	    mount("none", "/sys", "sysfs", 0, NULL))
		die(EXIT_UNSUPPORTED, "no /sys: %s", strerror(errno));
}

static void open_spaces(void)
{
	open_space(FUZZ_HERE);
	mount_sys();
	open_space(FUZZ_AWAY);
	if (setns(program.spaces[FUZZ_HERE], CLONE_NEWNET))
		die(EXIT_FAILED, "no way back: %s", strerror(errno));
}

static void *map(unsigned long at, size_t bytes, int flags)
{
	void *memory = mmap((void *)at, bytes, PROT_READ | PROT_WRITE,
			    flags | MAP_ANONYMOUS, -1, 0);

	if (memory == MAP_FAILED || (at && memory != (void *)at))
		die(EXIT_FAILED, "no memory: %s", strerror(errno));
	return memory;
}

static void prepare(void)
{
	sigset_t child;

	signal(SIGPIPE, SIG_IGN);
	sigemptyset(&child);
	sigaddset(&child, SIGCHLD);
	sigprocmask(SIG_BLOCK, &child, NULL);
	map(FUZZ_MEMORY, FUZZ_MEMORY_LEN, MAP_PRIVATE | MAP_FIXED_NOREPLACE);
	program.shared = map(0, sizeof(*program.shared), MAP_SHARED);
	open_spaces();
}

int main(int argc, char **argv)
{
	struct fuzz_answer answer;

	if (argc > 1)
		die(EXIT_USAGE, "'%s' is too much: programs come on stdin",
		    argv[1]);
	prepare();
	while (read_program()) {
		answer = (struct fuzz_answer){
			.end = run_process(),
			.calls = program.head.calls,
			.held = program.shared->held,
		};
		if (answer.end != FUZZ_STUCK)
			answer.removed = delete_devices(links[FUZZ_HERE]) +
					 delete_devices(links[FUZZ_AWAY]);
		write_all(&answer, sizeof(answer));
		write_all(program.shared->results,
			  program.head.calls * sizeof(__s64));
	}
	return EXIT_FINE;
}
