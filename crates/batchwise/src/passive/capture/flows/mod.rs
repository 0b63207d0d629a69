//! The flows of a capture and what a packet does to them: as `flows.h` and `passive.bpf.c` of
//! batchwise-bpf do it in the kernel, with an exact order of who was used least recently.

use std::num::NonZeroUsize;

use batchwise_core::passive::paper::Paper;
use batchwise_core::passive::report::TotalsLine;
use batchwise_core::passive::stream::{self, datagram};
use batchwise_core::passive::{Epoch, Estimate, Gaps, Mode, Params, Stream, Tuple, code_of};
use lru::LruCache;

use super::direction::Directions;
use super::frame::{Frame, Segment};

/// Gaps of core's modes are in units of so many ns.
const UNIT_NS: u64 = 16;

/// How flows are measured.
#[derive(Clone, Copy, Debug)]
pub struct Settings {
    pub params: Params,
    /// Algorithm 2 as published, with this ε in ns, instead of that estimator.
    pub paper: Option<u64>,
    pub flows: NonZeroUsize,
    /// UDP payloads of at most so many bytes are taken for acknowledgments.
    pub udp_acks: u32,
    /// A flow without a packet for so long, ns, is forgotten.
    pub forget_ns: u64,
}

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
    /// The last packet that counts.
    last: u64,
    gaps: Gaps,
    stream: Stream,
    paper: Option<Paper>,
    /// The epoch has something to say.
    open: bool,
    born: bool,
}

impl Flows {
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
        if !self.directions.goes_to_server(segment, now) {
            return &mut self.totals.other;
        }
        let tuple = Tuple {
            client: segment.from,
            server: segment.to,
            transport: segment.transport(),
            backend: 0,
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
            if let (Some(tcp), Some(flow)) = (segment.tcp, self.table.peek_mut(&tuple)) {
                flow.stream.ack(&flow.gaps, now, tcp.acknowledged);
            }
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
        if !self.table.contains(&tuple)
            && self.table.len() >= settings.flows.get()
            && let Some((tuple, flow)) = self.table.pop_lru()
        {
            self.totals.evicted += 1;
            self.closed.extend(flow.close(&settings.params, tuple, now));
        }
        let flow = self
            .table
            .get_or_insert_mut(tuple, || Flow::new(settings, now));
        if flow.due(&settings.params, now) {
            self.closed.extend(flow.close(&settings.params, tuple, now));
            flow.begin(now);
        }
        let known = flow.gaps.last != 0;
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

    pub fn finish(&mut self, now: u64) {
        while let Some((tuple, flow)) = self.table.pop_lru() {
            let epoch = flow.close(&self.settings.params, tuple, now);
            self.closed.extend(epoch);
        }
    }

    pub fn closed(&mut self) -> Vec<Epoch> {
        std::mem::take(&mut self.closed)
    }

    pub fn totals(&self, ts_ns: u64) -> TotalsLine {
        TotalsLine {
            ts_ns,
            flows_live: self.table.len() as u64,
            flows_capacity: self.settings.flows.get() as u64,
            ..self.totals
        }
    }
}

impl Flow {
    fn new(settings: &Settings, now: u64) -> Self {
        let mut flow = Self {
            start: now,
            last: now,
            gaps: Gaps::default(),
            stream: Stream::default(),
            paper: settings.paper.map(Paper::new),
            open: false,
            born: false,
        };
        flow.begin(now);
        flow
    }

    fn begin(&mut self, now: u64) {
        self.start = now;
        self.open = false;
        self.gaps.open(now);
        if let Some(paper) = &mut self.paper {
            paper.open(now);
        }
    }

    fn due(&self, params: &Params, now: u64) -> bool {
        let due = match &self.paper {
            None => self.gaps.due(params, now),
            Some(paper) => paper.due(params, now),
        };
        self.gaps.last != 0 && due
    }

    fn packet(&mut self, params: &Params, now: u64, segment: &Segment) {
        let before = self.gaps;
        let gaps = &mut self.gaps;
        match segment.tcp {
            Some(tcp) => {
                let segment = stream::Segment {
                    seq: tcp.sequence,
                    len: segment.payload,
                    ack: tcp.acknowledged,
                    ip_len: segment.ip_length,
                };
                self.stream.segment(gaps, params, now, &segment);
            }
            None => datagram(gaps, params, now, segment.ip_length),
        }
        if let Some(paper) = &mut self.paper {
            // The paper looks at sizes only.
            paper.packet(now, !before.after_full, gaps.resent > before.resent);
        }
        self.last = self.last.max(now);
        self.open |= before.last != 0;
    }

    fn close(&self, params: &Params, tuple: Tuple, now: u64) -> Option<Epoch> {
        if !self.open {
            return None;
        }
        let (gaps, estimate) = match &self.paper {
            None => (self.gaps, self.gaps.estimate(params)),
            Some(paper) => shown(paper, &self.gaps, params),
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
    gaps.resent = counted.resent;
    (gaps, paper.estimate(params))
}

#[cfg(test)]
mod tests;
