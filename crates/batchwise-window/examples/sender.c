/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
 *
 * Sends standard input to a server, and hands TCP no more than it can send:
 *     sender ADDRESS PORT < file
 */
#include <arpa/inet.h>
#include <errno.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "batchwise_window.h"

int main(int argc, char **argv)
{
	struct sockaddr_in to = { .sin_family = AF_INET };
	int sock = socket(AF_INET, SOCK_STREAM, 0);
	bw_window_t *window = bw_window_open();
	static char data[1 << 16];
	struct pollfd ready;
	int64_t key, space;
	ssize_t n;

	if (argc != 3 || !window || inet_pton(AF_INET, argv[1], &to.sin_addr) != 1)
		return 2;
	to.sin_port = htons(atoi(argv[2]));
	if (connect(sock, (struct sockaddr *)&to, sizeof(to))) {
		perror("connect");
		return 1;
	}
	ready.fd = bw_window_fd(window);
	ready.events = POLLIN;
	key = bw_window_add(window, sock, 1);
	for (;;) {
		while ((space = bw_window_wait(window, key, sock)) == 0) {
			poll(&ready, 1, -1);
			bw_window_ready(window, &key, 1);
		}
		if (space < 0) {
			fprintf(stderr, "sender: %s\n", strerror(-space));
			return 1;
		}
		/* what is sent is chosen here, when it can leave */
		n = read(0, data, (size_t)space < sizeof(data) ? (size_t)space : sizeof(data));
		if (n <= 0)
			break;
		if (write(sock, data, n) != n) {
			perror("write");
			return 1;
		}
		bw_window_wrote(window, key, n);
	}
	bw_window_remove(window, key);
	bw_window_close(window);
	close(sock);
	return n < 0;
}
