//! The table of measured flows as its loader sees it: how large it is made, and the epochs that come
//! out of it. Shared by all programs that measure (`measure.h`).

use std::collections::hash_map::RandomState;
use std::hash::{BuildHasher, Hasher};
use std::mem::size_of;
use std::sync::{Arc, Mutex, PoisonError};

use batchwise_core::passive::{Algorithm, Epoch, Params};
use libbpf_rs::{MapMut, ProgramInput, ProgramMut, RingBuffer};

use super::record::Collector;
use crate::Error;
use crate::flows_skel::{types, types::flow_gaps_algorithm};
use crate::object::ring;
use crate::plain::{bytes, read};

/// Bytes of flow table for each flow that is to find room (the paper's Table 1): so much above a
/// flow's own 124 that two choices of 16 slots do.
const BYTES_PER_FLOW: usize = 154;
/// What the kernel adds to the table: its head, and up to a whole page.
const TABLE_OVERHEAD: usize = 2 * 4096;
/// Room for events, bytes for each flow; and its bounds.
const EVENT_BYTES_PER_FLOW: u32 = 64;
const EVENT_BYTES: [u32; 2] = [1 << 20, 1 << 24];

/// Buckets for so many flows.
pub(crate) fn buckets(flows: u32) -> u32 {
    let bytes = (flows as usize * BYTES_PER_FLOW).saturating_sub(TABLE_OVERHEAD);
    let buckets = bytes / size_of::<types::flow_bucket>();
    buckets.clamp(2, u32::MAX as usize) as u32
}

/// Bytes of the ring buffer for so many flows.
pub(crate) fn event_bytes(flows: u32) -> u32 {
    let bytes = flows.saturating_mul(EVENT_BYTES_PER_FLOW);
    bytes
        .clamp(EVENT_BYTES[0], EVENT_BYTES[1])
        .next_power_of_two()
}

/// `algorithm` and `fixed_ns` of `struct flow_gaps_params`.
pub(crate) fn algorithm(params: &Params) -> (u32, u64) {
    let (algorithm, fixed_ns) = match params.algorithm {
        Algorithm::Auto => (flow_gaps_algorithm::FLOW_GAPS_AUTO, 0),
        Algorithm::Modes => (flow_gaps_algorithm::FLOW_GAPS_MODES, 0),
        Algorithm::Fixed(delta) => (flow_gaps_algorithm::FLOW_GAPS_FIXED, delta),
    };
    (algorithm.0, fixed_ns)
}

/// Keys of the table's hash: else a stranger could choose flows that fall into one bucket.
pub(crate) fn hash_keys() -> [u64; 2] {
    let random = || RandomState::new().build_hasher().finish();
    [random(), random() | 1]
}

/// What comes out of a table.
pub(crate) struct Events {
    ring: RingBuffer<'static>,
    collector: Arc<Mutex<Collector>>,
    buckets: u32,
    live: u64,
}

impl Events {
    /// Of a table of so many buckets.
    pub(crate) fn open(map: &MapMut<'_>, buckets: u32) -> Result<Self, Error> {
        let slots = buckets as usize * types::flow_bucket::default().tag.len();
        let collector = Arc::new(Mutex::new(Collector::new(slots)));
        let ring = ring(map, &collector, Collector::event)?;
        Ok(Self {
            ring,
            collector,
            buckets,
            live: 0,
        })
    }

    /// The epochs that closed since the last call, oldest first.
    pub(crate) fn poll(&mut self) -> Result<Vec<Epoch>, Error> {
        self.ring
            .consume()
            .map_err(Error::bpf("reading closed epochs"))?;
        let collector = self.collector.lock();
        Ok(collector.unwrap_or_else(PoisonError::into_inner).take())
    }

    /// Closes the epochs of idle flows, or `all`, and gives what closed. `sweep` is `flow_sweep`.
    pub(crate) fn sweep(&mut self, sweep: &ProgramMut<'_>, all: bool) -> Result<Vec<Epoch>, Error> {
        let mut closed = Vec::new();
        let (mut bucket, mut live) = (0, 0);
        while bucket < self.buckets {
            let swept = sweep_from(sweep, bucket, all)?;
            bucket = swept.bucket;
            live += u64::from(swept.live);
            closed.extend(self.poll()?);
        }
        self.live = live;
        Ok(closed)
    }

    /// Flows in the table as of the last [`Self::sweep`].
    pub(crate) fn live(&self) -> u64 {
        self.live
    }

    /// Slots in the table.
    pub(crate) fn capacity(&self) -> u64 {
        u64::from(self.buckets) * types::flow_bucket::default().tag.len() as u64
    }
}

/// Looks at the buckets from this one on, up to a number that the program sets.
fn sweep_from(sweep: &ProgramMut<'_>, bucket: u32, all: bool) -> Result<types::flow_sweep, Error> {
    let asked = types::flow_sweep {
        bucket,
        live: 0,
        all: all.into(),
    };
    let mut context = bytes(&asked).to_vec();
    let run = ProgramInput {
        context_in: Some(&mut context),
        ..Default::default()
    };
    let swept = sweep.test_run(run);
    swept.map_err(Error::bpf("closing the epochs of idle flows"))?;
    Ok(read(&context).unwrap_or(asked))
}
