/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only */
/*
 * lib/endpoint.h and lib/wire.h as ordinary functions, so that tests can hold them against
 * batchwise-core.
 */
#include "lib/endpoint.h"
#include "lib/wire.h"

#define ALL_UNITS (1 << BW_CALLS | 1 << BW_BYTES | 1 << BW_SEGS | 1 << BW_ACKDELAYS)

void bw_twin_drain(struct bw_endpoint *e)
{
	while (bw_is_logged(e))
		bw_drain_next(e, ALL_UNITS);
}

/* The reference has no log: what is still in it is worked off, where the hook drops it. */
void bw_twin_resync(struct bw_endpoint *e, __u64 now, const struct bw_sock_view *v, __u32 snd_una)
{
	bw_twin_drain(e);
	bw_resync(e, ALL_UNITS, now, v, snd_una);
}

void bw_twin_send(struct bw_endpoint *e, __u64 now, const struct bw_sock_view *v, __u32 end,
		  int more, __u32 mss)
{
	bw_twin_drain(e);
	bw_on_send(e, ALL_UNITS, now, v, end, more, mss);
	bw_match_send(e, now, 0);
}

/* As the hook does: logs the arrival, drains a log that fills. */
void bw_twin_segment(struct bw_endpoint *e, __u64 now, const struct bw_sock_view *v, __u32 seq,
		     __u32 len, __u32 ack, __u32 segs, int push)
{
	bw_log(e, now, bw_log_wants_last_tx(e, now) ? v->last_tx : 0, seq, ack, v->rcv_wup,
	       bw_arrival_extent(len, segs, push));
	if (bw_log_is_filling(e))
		bw_twin_drain(e);
}

void bw_twin_read(struct bw_endpoint *e, __u64 now, const struct bw_sock_view *v)
{
	bw_twin_drain(e);
	bw_on_read(e, ALL_UNITS, now, v);
	bw_match_read(e, now, 0);
}

void bw_twin_encode(__u8 *opt, __u32 unit, __u32 queue, const struct bw_queue *q)
{
	bw_wire_encode(opt, unit, queue, q);
}

/* Decodes and adds: -2 for what is no option, -1 for a stale one, 0 for one that counts. */
int bw_twin_hear(struct bw_peer_queue *p, const __u8 *opt)
{
	struct bw_wire w;

	return bw_wire_decode(opt, &w) || w.unit >= BW_UNITS ? -2 : bw_wire_add(p, &w);
}
