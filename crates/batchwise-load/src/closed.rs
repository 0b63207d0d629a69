//! The closed loop: each connection keeps a fixed number of requests in flight, and the rate is
//! what comes out of that.

use anyhow::Result;

use crate::config::Config;
use crate::engine::{Drain, Engine};
use crate::phase::Stretch;
use crate::schedule::Mix;

/// Runs until the end of the window and waits for the last answers.
pub(crate) fn run(engine: &mut Engine, config: &Config, stretch: &Stretch) -> Result<()> {
    let mut mix = Mix::new(config);
    let end = engine.recorder.to;
    let send = |engine: &mut Engine, mix: &mut Mix, index: usize, count: usize| {
        for _ in 0..count {
            let now = engine.clock.now();
            if now >= end {
                return;
            }
            engine.recorder.counted(now);
            engine.offer(index, now, mix.pick(stretch));
        }
    };
    for index in 0..engine.connections() {
        send(engine, &mut mix, index, config.pipeline);
    }
    let mut drain = Drain::default();
    loop {
        let now = engine.clock.now();
        let stop = drain.stop(now, end);
        engine.recorder.tick(now)?;
        if engine.alive == 0 {
            engine.recorder.end_at(now);
            return engine.recorder.finish(now);
        }
        if now >= end {
            engine.recorder.finish(now)?;
        }
        if now >= end && (engine.outstanding == 0 || now >= stop) {
            break;
        }
        let progress = engine.recorder.progress.as_ref();
        let next = progress.map_or(stop, |p| p.next_end.min(stop));
        let wait_ms = next.saturating_sub(now).div_ceil(1_000_000).clamp(1, 1000) as u16;
        engine.poll(wait_ms, |engine, index, replies| {
            send(engine, &mut mix, index, replies)
        });
    }
    engine.give_up();
    Ok(())
}
