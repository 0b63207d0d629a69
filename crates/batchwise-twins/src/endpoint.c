/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only */
/*
 * lib/endpoint.h and lib/wire.h as ordinary functions, so that tests can hold them against
 * batchwise-core.
 */
#include "lib/endpoint.h"
#include "lib/wire.h"

#define ALL_UNITS (1 << SENSE_CALLS | 1 << SENSE_BYTES | 1 << SENSE_SEGS | 1 << SENSE_ACKDELAYS)

void bw_twin_drain(struct sense_endpoint *e)
{
	while (sense_is_logged(e))
		sense_drain_next(e, ALL_UNITS);
}

/* The reference has no log: what is still in it is worked off, where the hook drops it. */
void bw_twin_resync(struct sense_endpoint *e, __u64 now, const struct sense_sock_view *v, __u32 snd_una)
{
	bw_twin_drain(e);
	sense_resync(e, ALL_UNITS, now, v, snd_una);
}

void bw_twin_send(struct sense_endpoint *e, __u64 now, const struct sense_sock_view *v, __u32 end,
		  int more, __u32 mss)
{
	bw_twin_drain(e);
	sense_on_send(e, ALL_UNITS, now, v, end, more, mss);
	sense_match_send(e, now, 0);
}

/* As the hook does: logs the arrival, drains a log that fills. */
void bw_twin_segment(struct sense_endpoint *e, __u64 now, const struct sense_sock_view *v, __u32 seq,
		     __u32 len, __u32 ack, __u32 segs, int push)
{
	sense_log(e, now, v->last_tx, seq, ack, v->rcv_wup,
		  sense_arrival_extent(len, segs, sense_backlog(v->write_seq, v->snd_nxt, v->nagled),
				       push));
	if (sense_log_is_filling(e))
		bw_twin_drain(e);
}

void bw_twin_read(struct sense_endpoint *e, __u64 now, const struct sense_sock_view *v)
{
	bw_twin_drain(e);
	sense_on_read(e, ALL_UNITS, now, v);
	sense_match_read(e, now, 0);
}

void bw_twin_encode(__u8 *opt, __u32 unit, __u32 queue, const struct sense_queue *q)
{
	sense_wire_encode(opt, unit, queue, q);
}

/* Decodes and adds: -2 for what is no option, -1 for a stale one, 0 for one that counts. */
int bw_twin_hear(struct sense_peer_queue *p, const __u8 *opt)
{
	struct sense_wire w;

	return sense_wire_decode(opt, &w) || w.unit >= SENSE_UNITS ? -2 : sense_wire_add(p, &w);
}
