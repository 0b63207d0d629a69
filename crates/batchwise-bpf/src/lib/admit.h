/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only */
/* What a packet meets at a queue: the twin of batchwise-core's `burst`. Helper-free. */
#ifndef BW_ADMIT_H
#define BW_ADMIT_H

#include "base.h"

#define BW_EPOCHS 8
#define BW_UNIT_SHIFT 20

struct bw_rules {
	__u32 limit;
	__u32 source_bytes;
	__u32 all_bytes;
	__u32 headroom;
	__u64 keep;
	__u64 send_time;
	__u64 refill_time;
	__u32 epoch_shift;
	__u32 whole;
};

struct bw_lease {
	__u64 epoch;
	__u32 left;
	__u32 refused;
};

struct bw_credit {
	__u64 full_at;
};

struct bw_total {
	__u64 epoch;
	__u64 keep_until;
	__u32 bytes;
	__u32 until[BW_EPOCHS];
	__u32 unused;
};

enum bw_verdict {
	BW_TAKEN,
	BW_FULL,
	BW_ADMITTED,
	BW_PROMISED,
	BW_REFUSED,
	BW_DENIED,
};

BW_INLINE int bw_lease_is_live(const struct bw_lease *l, __u64 epoch)
{
	return l->left && l->epoch >= epoch;
}

BW_INLINE void bw_advance(struct bw_total *t, __u64 epoch)
{
	__u32 i;

	if (epoch <= t->epoch)
		return;
	for (i = 0; i < BW_EPOCHS; i++) {
		__u32 *over = &t->until[(t->epoch + i) & (BW_EPOCHS - 1)];

		if (t->epoch + i >= epoch)
			break;
		t->bytes -= *over;
		*over = 0;
	}
	t->epoch = epoch;
}

BW_INLINE int bw_decide(const struct bw_rules *r, struct bw_total *t, struct bw_lease *l,
			struct bw_credit *c, __u64 now, __u64 queued, __u64 bytes, __u32 segments)
{
	__u64 burst = segments * bytes, held, end, epoch = now >> r->epoch_shift, full_at;

	bw_advance(t, epoch);
	epoch = t->epoch;
	if (segments && l && bw_lease_is_live(l, epoch)) {
		__u32 used = bytes < l->left ? bytes : l->left;

		l->left -= used;
		if (l->refused)
			return BW_DENIED;
		t->until[l->epoch & (BW_EPOCHS - 1)] -= used;
		t->bytes -= used;
		return queued + t->bytes + bytes <= r->limit ? BW_PROMISED : BW_FULL;
	}
	held = t->bytes + burst;
	if (segments && l && c && held <= r->all_bytes) {
		full_at = (c->full_at > now ? c->full_at : now) + (r->refill_time * burst >> BW_UNIT_SHIFT);
		if (full_at - now <= r->refill_time * r->source_bytes >> BW_UNIT_SHIFT) {
			t->keep_until = now + r->keep;
			end = (now + 2 * (r->send_time * burst >> BW_UNIT_SHIFT)) >> r->epoch_shift;
			if (end > epoch + BW_EPOCHS - 1)
				end = epoch + BW_EPOCHS - 1;
			l->epoch = end < epoch ? epoch : end;
			l->left = burst - bytes;
			l->refused = queued + held > r->limit;
			if (l->refused)
				return BW_REFUSED;
			c->full_at = full_at;
			t->until[l->epoch & (BW_EPOCHS - 1)] += l->left;
			t->bytes += l->left;
			return BW_ADMITTED;
		}
	}
	held = now < t->keep_until ? r->headroom : 0;
	if (held < t->bytes)
		held = t->bytes;
	return queued + held + bytes <= r->limit ? BW_TAKEN : BW_FULL;
}

#endif
