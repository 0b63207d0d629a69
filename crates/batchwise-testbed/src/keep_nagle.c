/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only */
/*
 * Preloaded into a Redis of the lab: TCP_NODELAY is not switched on, so its responses go out by
 * Nagle's algorithm, as in the paper's evaluation (§4). Redis has no setting for that.
 */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <sys/socket.h>

int setsockopt(int fd, int level, int name, const void *value, socklen_t len)
{
	static int (*real)(int, int, int, const void *, socklen_t);

	if (level == IPPROTO_TCP && name == TCP_NODELAY)
		return 0;
	if (!real)
		real = (int (*)(int, int, int, const void *, socklen_t))dlsym(RTLD_NEXT, "setsockopt");
	return real(fd, level, name, value, len);
}
