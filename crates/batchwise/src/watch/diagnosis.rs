//! What is wrong, in words.

use batchwise_core::sense::advice::{Extent, Finding};
use batchwise_core::sense::report::{Advice, Diagnosis};

use crate::frame::human::{bytes, duration, percent};

pub fn told(found: &Finding) -> Diagnosis {
    let what = words(found.advice);
    let (text, share) = match found.extent {
        Extent::Of(part, whole) => (
            format!("{what}, {} of {}", duration(part), duration(whole)),
            Some(part as f64 / whole.max(1) as f64),
        ),
        Extent::Share(share) => (format!("{what}, {}", percent(share)), Some(share)),
        Extent::Times(1) => (format!("{what}, once"), None),
        Extent::Bytes(n) => (format!("{what}, {} unread", bytes(n)), None),
        Extent::Times(times) => (format!("{what}, {times} times"), None),
    };
    Diagnosis {
        id: found.advice,
        text,
        share,
    }
}

fn words(advice: Advice) -> &'static str {
    match advice {
        Advice::NagleHolds => "held by Nagle's algorithm",
        Advice::NodelayCosts => "many small segments",
        Advice::DelackHolds => "held behind a delayed acknowledgment",
        Advice::ClientReadsLate => "the client reads late",
        Advice::ServerReadsLate => "the server reads late",
        Advice::ServerWorks => "the server's application",
        Advice::WindowFull => "the receive window is full",
        Advice::Retransmits => "segments are sent again",
        Advice::ListenOverflows => "the listen queue overflows",
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_finding_is_told_with_how_much_it_is() {
        let text = |advice, extent| told(&Finding { advice, extent }).text;
        let held = text(Advice::NagleHolds, Extent::Of(40_000_000, 43_200_000));
        assert_eq!(held, "held by Nagle's algorithm, 40.0 ms of 43.2 ms");
        let lost = text(Advice::Retransmits, Extent::Share(0.032));
        assert_eq!(lost, "segments are sent again, 3.2 %");
        let dropped = text(Advice::ListenOverflows, Extent::Times(1));
        assert_eq!(dropped, "the listen queue overflows, once");
    }
}
