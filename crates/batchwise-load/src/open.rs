//! The open loop: a busy thread that sends each request when it is due, whatever the server does.

use anyhow::{Context as _, Result};
use nix::sys::prctl;

use crate::config::Config;
use crate::engine::{Drain, Engine};
use crate::phase::Stretch;
use crate::schedule::{Mix, Schedule};

/// Requests that are sent before the sockets are looked at again. A generator that has fallen
/// behind would otherwise read responses late, and blame the server for it.
const BURST: usize = 8;

/// Runs the schedule to its end and waits for the last answers.
pub(crate) fn run(engine: &mut Engine, config: &Config, stretches: &[Stretch]) -> Result<()> {
    let mut schedule = Schedule::new(config.seed, stretches, config.arrivals);
    let mut mix = Mix::new(config);
    let end = engine.recorder.to;
    let connections = engine.connections();
    let mut turn = 0;
    let mut drain = Drain::default();
    if config.sleeping {
        // the default lets a wake-up be 50 us late
        prctl::set_timerslack(1).context("asking for exact timers")?;
    }
    loop {
        let now = engine.clock.now();
        for _ in 0..BURST {
            let intended = schedule.next();
            if intended > now || intended >= end {
                break;
            }
            engine.recorder.arrival(intended, schedule.per_ns());
            engine.offer(turn, intended, mix.pick(schedule.stretch()));
            turn = if turn + 1 == connections { 0 } else { turn + 1 };
            schedule.advance();
        }
        if connections > 1 {
            engine.poll(0, |_, _, _| ());
        } else {
            engine.flush(0);
            if engine.outstanding > 0 {
                engine.receive(0);
            }
        }
        engine.recorder.tick(now)?;
        if engine.alive == 0 {
            engine.recorder.end_at(now);
            return engine.recorder.finish(now);
        }
        if now >= end && schedule.next() >= end {
            engine.recorder.finish(now)?;
            if engine.outstanding == 0 {
                return Ok(());
            }
        }
        let stop = drain.stop(now, end);
        if now >= stop {
            break;
        }
        if config.sleeping {
            engine.sleep_until(schedule.next().min(stop))?;
        }
    }
    // What the generator itself never got round to was offered all the same.
    while schedule.next() < end {
        engine.recorder.arrival(schedule.next(), schedule.per_ns());
        engine.fail(schedule.next(), || {
            "the generator could not send all requests: ask for a lower rate".to_owned()
        });
        schedule.advance();
    }
    engine.give_up();
    engine.recorder.finish(end)
}
