/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
 *
 * A pipelining Redis client that gives hints, and measures its latency itself to compare.
 *
 *   cc redis_hiredis.c -I../include -lhiredis -L... -lbatchwise_hint -lpthread -ldl -lm
 *   ./redis_hiredis 127.0.0.1 6379 [pipelines [depth]]
 *
 * Waits for a line on standard input before it begins and before it ends, so that an agent can be
 * there meanwhile. Prints {"requests": N, "mean_ns": N}.
 */
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>

#include <hiredis/hiredis.h>

#include "batchwise_hint.h"

#define DEEPEST 1024

static uint64_t now_ns(void)
{
	struct timespec t;

	clock_gettime(CLOCK_MONOTONIC, &t);
	return (uint64_t)t.tv_sec * 1000000000u + (uint64_t)t.tv_nsec;
}

static void wait_for_line(void)
{
	int c;

	do
		c = getchar();
	while (c != '\n' && c != EOF);
}

int main(int argc, char **argv)
{
	static uint64_t issued[DEEPEST];
	static char value[512];
	long pipelines = argc > 3 ? atol(argv[3]) : 1000;
	int depth = argc > 4 ? atoi(argv[4]) : 16;
	uint64_t requests = 0, sum = 0;

	if (argc < 3 || depth < 1 || depth > DEEPEST) {
		fprintf(stderr, "usage: %s HOST PORT [PIPELINES [DEPTH <= %d]]\n", argv[0], DEEPEST);
		return 2;
	}
	redisContext *redis = redisConnect(argv[1], atoi(argv[2]));
	if (!redis || redis->err) {
		fprintf(stderr, "%s:%s: %s\n", argv[1], argv[2], redis ? redis->errstr : "no memory");
		return 1;
	}
	/* the one line of set-up */
	bw_hint_t *hint = bw_hint_open_fd(redis->fd);

	wait_for_line();
	for (long p = 0; p < pipelines; p++) {
		for (int i = 0; i < depth; i++) {
			issued[i] = now_ns();
			bw_hint_create(hint, 1);
			if (i % 2)
				redisAppendCommand(redis, "GET key:%d", i - 1);
			else
				redisAppendCommand(redis, "SET key:%d %b", i, value, sizeof(value));
		}
		for (int i = 0; i < depth; i++) {
			redisReply *reply;

			if (redisGetReply(redis, (void **)&reply) != REDIS_OK) {
				fprintf(stderr, "%s\n", redis->errstr);
				return 1;
			}
			bw_hint_complete(hint, 1);
			sum += now_ns() - issued[i];
			requests++;
			if (reply->type == REDIS_REPLY_ERROR) {
				fprintf(stderr, "%s\n", reply->str);
				return 1;
			}
			freeReplyObject(reply);
		}
	}
	printf("{\"requests\": %llu, \"mean_ns\": %.1f}\n", (unsigned long long)requests,
	       requests ? (double)sum / (double)requests : 0.0);
	fflush(stdout);
	wait_for_line();
	bw_hint_close(hint);
	redisFree(redis);
	return 0;
}
