/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
 *
 * Tells batchwise how many requests are outstanding, so that it knows their latency exactly.
 *
 * All functions may be called from any thread (not from signal handlers), never block and never
 * fail: a NULL handle does nothing. Link with -lbatchwise_hint -lpthread -ldl -lm.
 */
#ifndef BATCHWISE_HINT_H
#define BATCHWISE_HINT_H

#include <stdint.h>
#include <sys/socket.h>

#ifdef __cplusplus
extern "C" {
#endif

struct bw_hint;
typedef struct bw_hint bw_hint_t;

/* A handle for a connected TCP socket; NULL if it is none. The socket remains the caller's. */
bw_hint_t *bw_hint_open_fd(int sockfd);

/* A handle for all requests to a service: the server's address as this client sees it. */
bw_hint_t *bw_hint_open_service(const struct sockaddr *address, socklen_t length);

/* n requests were issued. */
void bw_hint_create(const bw_hint_t *hint, uint32_t n);

/* The responses of n requests are there, or are no longer waited for. */
void bw_hint_complete(const bw_hint_t *hint, uint32_t n);

/* Ends a handle. No other call may be using it. */
void bw_hint_close(bw_hint_t *hint);

#ifdef __cplusplus
}
#endif

#endif
