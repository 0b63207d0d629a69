/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
 *
 * Sends standard input to a server, and hands TCP no more than it can send:
 *     sender ADDRESS PORT < file
 */
#include <arpa/inet.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "batchwise_window.h"

static int failed(const char *what, int64_t error)
{
	fprintf(stderr, "sender: %s: %s\n", what, strerror(-error));
	return 1;
}

/* Until nothing is left to send. */
static int send_all(bw_window_t *window, int64_t key, int sock)
{
	struct pollfd ready = { .fd = bw_window_fd(window), .events = POLLIN };
	static char data[1 << 16];
	int64_t space, woken, count;
	ssize_t n;

	for (;;) {
		while ((space = bw_window_wait(window, key, sock)) == 0) {
			poll(&ready, 1, -1);
			count = bw_window_ready(window, &woken, 1);
			if (count < 0)
				return failed("bw_window_ready", count);
		}
		if (space < 0)
			return failed("bw_window_wait", space);
		/* what is sent is chosen here, when it can leave */
		n = read(0, data, (size_t)space < sizeof(data) ? (size_t)space : sizeof(data));
		if (n <= 0)
			return n < 0;
		if (write(sock, data, n) != n) {
			perror("write");
			return 1;
		}
		bw_window_wrote(window, key, n);
	}
}

int main(int argc, char **argv)
{
	struct sockaddr_in to = { .sin_family = AF_INET };
	int sock = socket(AF_INET, SOCK_STREAM, 0);
	bw_window_t *window = bw_window_open();
	char why[256];
	int64_t key;
	int bad;

	if (argc != 3 || sock < 0 || !window || inet_pton(AF_INET, argv[1], &to.sin_addr) != 1)
		return 2;
	to.sin_port = htons(atoi(argv[2]));
	if (connect(sock, (struct sockaddr *)&to, sizeof(to))) {
		perror("connect");
		return 1;
	}
	key = bw_window_add(window, sock, 1);
	if (key < 0)
		return failed("bw_window_add", key);
	bad = send_all(window, key, sock);
	if (!bw_window_mode_of(window, key, why, sizeof(why)))
		fprintf(stderr, "sender: without the agent: %s\n", why);
	bw_window_remove(window, key);
	bw_window_close(window);
	close(sock);
	return bad;
}
