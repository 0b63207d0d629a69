/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
 *
 * Tells when TCP can send on a socket, and how much, so that data is chosen at the last moment.
 *
 * All functions may be called from any thread (not from signal handlers), and none blocks for long.
 * Errors are negative errnos. Link with -lbatchwise_window -lpthread -ldl -lm.
 */
#ifndef BATCHWISE_WINDOW_H
#define BATCHWISE_WINDOW_H

#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

struct bw_window;
typedef struct bw_window bw_window_t;

/* A set of sockets; NULL if the process may have no more descriptors. */
bw_window_t *bw_window_open(void);

/* A descriptor for epoll, poll or io_uring: readable when bw_window_ready() has something to say. */
int bw_window_fd(const bw_window_t *window);

/*
 * 1: the agent has the kernel ring when TCP can send. 0: the set has fallen back to
 * TCP_NOTSENT_LOWAT, for the reason in `why` (NULL: not wanted).
 */
int bw_window_mode(const bw_window_t *window, char *why, size_t length);

/* The same of one socket: the agent may be there, and not be able to. */
int bw_window_mode_of(const bw_window_t *window, int64_t key, char *why, size_t length);

/*
 * Takes in a connected or connecting TCP socket, which remains the caller's; gives its key. -EPROTONOSUPPORT:
 * it is not TCP's (MPTCP's is not); -ENOTCONN: it has no peer; -ENOSPC: the set is full (16,383 sockets).
 */
int64_t bw_window_add(bw_window_t *window, int sockfd, uint32_t at_least);

/* Lets go of a socket, before it is closed: bw_window_ready() gives its key no more. */
void bw_window_remove(bw_window_t *window, int64_t key);

/*
 * How many bytes may be written now, so that none waits in the kernel. 0: not `at_least`, and
 * bw_window_ready() will give the key when this should be asked again. On a socket that is connecting, closed
 * or was reset there is any space: a write tells what is the matter. -ENOENT: the key was removed.
 */
int64_t bw_window_wait(bw_window_t *window, int64_t key, int sockfd);

/* So many bytes were written of what bw_window_wait() gave: spares the next one a question to the kernel. */
void bw_window_wrote(bw_window_t *window, int64_t key, size_t bytes);

/* Writes up to `most` keys, each once; gives how many. While there are others the descriptor stays readable. */
int64_t bw_window_ready(bw_window_t *window, int64_t *keys, size_t most);

/* Bytes that TCP would send at once on any connected TCP socket. */
int64_t bw_window_space(int sockfd);

/* Ends a set. No other call may be using it. */
void bw_window_close(bw_window_t *window);

#ifdef __cplusplus
}
#endif

#endif
