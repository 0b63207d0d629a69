/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only */
/*
 * Preloaded into a server with one thread: makes it as slow as a machine with a fraction of this
 * one's speed. Before it sends or waits, it rests for as long as its work since would have taken
 * longer there. Unlike under a quota no request waits for the next period, and servers that share
 * a CPU do not wait for each other's slowness.
 */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <fcntl.h>
#include <stdint.h>
#include <stdlib.h>
#include <sys/epoll.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/uio.h>
#include <time.h>
#include <unistd.h>

/* Below that resting costs more than it is worth; it is added to the next rest. */
#define LEAST_NS 20000
/* Rests that lasted too long shorten the next ones by so much in all. */
#define MOST_ADVANCE_NS 1000000

/* Millionths of this machine's speed; the lab writes it. */
static const volatile uint32_t *speed;
static int64_t worked, owed;

static int64_t now(clockid_t clock)
{
	struct timespec at;

	clock_gettime(clock, &at);
	return at.tv_sec * 1000000000LL + at.tv_nsec;
}

static void __attribute__((constructor)) begin(void)
{
	const char *file = getenv("BW_SPEED_FILE");
	int fd = file ? open(file, O_RDONLY | O_CLOEXEC) : -1;
	void *page;

	if (fd < 0)
		return;
	page = mmap(NULL, sizeof(*speed), PROT_READ, MAP_SHARED, fd, 0);
	close(fd);
	if (page == MAP_FAILED)
		return;
	speed = page;
	prctl(PR_SET_TIMERSLACK, 1000);
	worked = now(CLOCK_THREAD_CPUTIME_ID);
}

static void rest(void)
{
	int64_t work, from;
	uint32_t millionths;
	struct timespec pause;

	if (!speed)
		return;
	work = now(CLOCK_THREAD_CPUTIME_ID);
	millionths = *speed;
	if (millionths > 0 && millionths < 1000000)
		owed += (work - worked) * (1000000 - millionths) / millionths;
	worked = work;
	if (owed < LEAST_NS)
		return;
	pause.tv_sec = owed / 1000000000;
	pause.tv_nsec = owed % 1000000000;
	from = now(CLOCK_MONOTONIC);
	nanosleep(&pause, NULL);
	owed -= now(CLOCK_MONOTONIC) - from;
	if (owed < -MOST_ADVANCE_NS)
		owed = -MOST_ADVANCE_NS;
	worked = now(CLOCK_THREAD_CPUTIME_ID);
}

ssize_t writev(int fd, const struct iovec *parts, int count)
{
	static ssize_t (*real)(int, const struct iovec *, int);

	if (!real)
		real = (ssize_t (*)(int, const struct iovec *, int))dlsym(RTLD_NEXT, "writev");
	rest();
	return real(fd, parts, count);
}

int epoll_wait(int fd, struct epoll_event *events, int most, int timeout)
{
	static int (*real)(int, struct epoll_event *, int, int);

	if (!real)
		real = (int (*)(int, struct epoll_event *, int, int))dlsym(RTLD_NEXT, "epoll_wait");
	rest();
	return real(fd, events, most, timeout);
}
