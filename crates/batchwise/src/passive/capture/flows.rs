//! The flows of a capture and what a packet does to them: as `flows.h` and `passive.bpf.c` of
//! batchwise-bpf do it in the kernel, with an exact order of who was used least recently.

use std::num::NonZeroUsize;

use batchwise_core::passive::paper::{PAPER_MODES, Paper};
use batchwise_core::passive::report::TotalsLine;
use batchwise_core::passive::{Epoch, Estimate, Gaps, Mode, Params, Tuple, code_of};
use lru::LruCache;

use super::direction::Directions;
use super::frame::{Frame, Segment, Tcp};

/// Gaps of core's modes are in units of so many ns.
const UNIT_NS: u64 = 16;

/// How flows are measured.
#[derive(Clone, Copy, Debug)]
pub struct Settings {
    /// The estimator's.
    pub params: Params,
    /// Algorithm 2 as published, with this ε in ns, instead of that estimator.
    pub paper: Option<u64>,
    /// Most flows.
    pub flows: NonZeroUsize,
    /// UDP payloads of at most so many bytes are taken for acknowledgments.
    pub udp_acks: u32,
    /// A flow without a packet for so long, ns, is forgotten.
    pub forget_ns: u64,
}

/// The table.
pub struct Flows {
    settings: Settings,
    directions: Directions,
    table: LruCache<Tuple, Flow>,
    totals: TotalsLine,
    closed: Vec<Epoch>,
}

#[derive(Debug)]
struct Flow {
    start: u64,
    /// The last packet that counts; 0: there was none.
    last: u64,
    measure: Measure,
    /// TCP: the highest sequence number that was seen, plus one.
    next_sequence: u32,
    /// TCP: acknowledged by the last packet that counts.
    acknowledged: u32,
    /// The last packet was full-sized.
    full: bool,
    /// The epoch has something to say.
    open: bool,
    born: bool,
}

#[derive(Debug)]
enum Measure {
    Ours(Gaps),
    Paper(Paper, Gaps),
}

impl Flows {
    /// An empty table. With `ports`, only what goes to one of them is measured.
    pub fn new(settings: Settings, ports: Vec<u16>) -> Self {
        Self {
            settings,
            directions: Directions::new(ports),
            table: LruCache::unbounded(),
            totals: TotalsLine::default(),
            closed: Vec::new(),
        }
    }

    /// A packet was seen at `now`, ns since 1970.
    pub fn packet(&mut self, now: u64, frame: &Frame) {
        // 0 stands for "none"
        let now = now.max(1);
        self.totals.packets += 1;
        let fate = match frame {
            Frame::Segment(segment) => self.segment(now, segment),
            Frame::Fragment => &mut self.totals.fragments,
            Frame::Other => &mut self.totals.other,
            Frame::Malformed => &mut self.totals.malformed,
        };
        *fate += 1;
    }

    fn segment(&mut self, now: u64, segment: &Segment) -> &mut u64 {
        if !self.directions.to_server(segment, now) {
            return &mut self.totals.other;
        }
        let tuple = Tuple {
            client: segment.from,
            server: segment.to,
            transport: segment.transport(),
        };
        match segment.tcp {
            None if segment.payload <= self.settings.udp_acks => return &mut self.totals.acks,
            Some(tcp) if tcp.syn && tcp.ack => return &mut self.totals.other,
            Some(tcp) if tcp.syn || (segment.payload == 0 && (tcp.fin || tcp.rst)) => {
                // what it had is another connection's, or its last
                self.end(&tuple, now);
            }
            _ => {}
        }
        if segment.payload == 0 {
            return &mut self.totals.acks;
        }
        self.measure(now, tuple, segment);
        if segment.tcp.is_some_and(|tcp| tcp.fin) {
            self.end(&tuple, now);
        }
        &mut self.totals.measured
    }

    fn measure(&mut self, now: u64, tuple: Tuple, segment: &Segment) {
        let settings = &self.settings;
        if !self.table.contains(&tuple) && self.table.len() >= settings.flows.get() {
            if let Some((tuple, flow)) = self.table.pop_lru() {
                self.totals.evicted += 1;
                self.closed.extend(flow.close(&settings.params, tuple, now));
            }
        }
        let flow = self
            .table
            .get_or_insert_mut(tuple, || Flow::new(settings, now));
        if flow.last != 0 && flow.due(&settings.params, now) {
            self.closed.extend(flow.close(&settings.params, tuple, now));
            flow.begin(now);
        }
        let known = flow.last != 0;
        flow.packet(&settings.params, now, segment);
        if known && !flow.born {
            flow.born = true;
            self.totals.born += 1;
        }
    }

    fn end(&mut self, tuple: &Tuple, now: u64) {
        if let Some(flow) = self.table.pop(tuple) {
            let epoch = flow.close(&self.settings.params, *tuple, now);
            self.closed.extend(epoch);
        }
    }

    /// Closes the epochs of idle flows and forgets the long idle.
    pub fn sweep(&mut self, now: u64) {
        let before = now.saturating_sub(self.settings.forget_ns);
        while let Some((tuple, flow)) = self.table.peek_lru() {
            if flow.last >= before {
                break;
            }
            let tuple = *tuple;
            self.end(&tuple, now);
        }
        let params = self.settings.params;
        for (tuple, flow) in &mut self.table {
            if now.saturating_sub(flow.last) >= params.idle_ns && flow.open {
                self.closed.extend(flow.close(&params, *tuple, now));
                flow.begin(now);
            }
        }
        self.directions.forget_before(before);
    }

    /// Closes the epochs of all flows: the capture is at its end.
    pub fn finish(&mut self, now: u64) {
        while let Some((tuple, flow)) = self.table.pop_lru() {
            let epoch = flow.close(&self.settings.params, tuple, now);
            self.closed.extend(epoch);
        }
    }

    /// Epochs that closed since the last call.
    pub fn closed(&mut self) -> Vec<Epoch> {
        std::mem::take(&mut self.closed)
    }

    /// Counts so far.
    pub fn totals(&self, ts_ns: u64) -> TotalsLine {
        TotalsLine {
            ts_ns,
            flows_live: self.table.len() as u64,
            flows_capacity: self.settings.flows.get() as u64,
            ..self.totals
        }
    }
}

/// Whether a sequence number lies behind another.
fn after(a: u32, b: u32) -> bool {
    a.wrapping_sub(b).cast_signed() > 0
}

impl Flow {
    fn new(settings: &Settings, now: u64) -> Self {
        let gaps = Gaps::default();
        let measure = match settings.paper {
            None => Measure::Ours(gaps),
            Some(epsilon) => Measure::Paper(Paper::new(epsilon, PAPER_MODES), gaps),
        };
        let mut flow = Self {
            start: now,
            last: 0,
            measure,
            next_sequence: 0,
            acknowledged: 0,
            full: false,
            open: false,
            born: false,
        };
        flow.begin(now);
        flow
    }

    fn begin(&mut self, now: u64) {
        self.start = now;
        self.open = false;
        match &mut self.measure {
            Measure::Ours(gaps) => gaps.open(now),
            Measure::Paper(paper, gaps) => {
                paper.open(now);
                gaps.open(now);
            }
        }
    }

    fn due(&self, params: &Params, now: u64) -> bool {
        match &self.measure {
            Measure::Ours(gaps) => gaps.due(params, now),
            Measure::Paper(paper, _) => paper.due(params, now),
        }
    }

    fn packet(&mut self, params: &Params, now: u64, segment: &Segment) {
        let known = self.last != 0;
        let (mut marked, mut resent) = (!self.full, false);
        if let Some(tcp) = segment.tcp {
            (marked, resent) = self.acknowledges(&tcp, segment.payload, marked, known);
        }
        match &mut self.measure {
            Measure::Ours(gaps) => {
                gaps.acks |= segment.tcp.is_some();
                gaps.packet(params, now, marked, resent);
                self.full = gaps.full_sized(segment.ip_length);
            }
            Measure::Paper(paper, gaps) => {
                // The paper knows only sizes.
                paper.packet(now, !self.full, resent);
                gaps.resent = gaps.resent.saturating_add(resent.into());
                self.full = gaps.full_sized(segment.ip_length);
            }
        }
        self.last = self.last.max(now);
        self.open |= known;
    }

    /// Whether the packet may end a pause, and whether it was sent before.
    fn acknowledges(&mut self, tcp: &Tcp, payload: u32, marked: bool, known: bool) -> (bool, bool) {
        let end = tcp.sequence.wrapping_add(payload);
        let resent = known && after(self.next_sequence, tcp.sequence);
        let newly = after(tcp.acknowledged, self.acknowledged);
        if !known || after(end, self.next_sequence) {
            self.next_sequence = end;
        }
        if !known || newly {
            self.acknowledged = tcp.acknowledged;
        }
        (marked && newly, resent)
    }

    fn close(&self, params: &Params, tuple: Tuple, now: u64) -> Option<Epoch> {
        if !self.open {
            return None;
        }
        let (gaps, estimate) = match &self.measure {
            Measure::Ours(gaps) => (*gaps, gaps.estimate(params)),
            Measure::Paper(paper, gaps) => shown(paper, gaps, params),
        };
        Some(Epoch {
            tuple: Some(tuple),
            start: self.start,
            end: now,
            estimate,
            gaps,
        })
    }
}

/// The paper's modes as ours, as far as these can show them.
fn shown(paper: &Paper, counted: &Gaps, params: &Params) -> (Gaps, Estimate) {
    let small = |n: u32| u16::try_from(n).unwrap_or(u16::MAX);
    let modes = paper.modes().iter().map(|mode| Mode {
        sum: u32::try_from(mode.sum / UNIT_NS).unwrap_or(u32::MAX),
        count: small(mode.count),
        marked: small(mode.marked),
        lo: code_of(mode.min),
        hi: code_of(mode.max),
    });
    let modes: Vec<Mode> = modes.collect();
    let mut gaps = Gaps::from_modes(&modes);
    gaps.start = counted.start;
    gaps.last = counted.last;
    gaps.resent = counted.resent;
    (gaps, paper.estimate(params))
}

#[cfg(test)]
#[path = "flows_tests.rs"]
mod tests;
