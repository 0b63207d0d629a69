//! What is done at random: restarts, deaths, pauses, reloads, changes of load.

use std::time::Duration;

use anyhow::Result;
use batchwise_testbed::segment::SERVERS;
use batchwise_testbed::stop::Stop;
use nix::sys::signal::Signal;
use rand::Rng as _;
use rand::rngs::StdRng;
use rand::seq::IndexedRandom as _;

use super::agents::Kind;
use super::churn::RATE;
use super::ground::Ground;
use super::stage::Stage;
use crate::balance::agent::NAMES;

/// Between two of them, ms.
const BETWEEN_MS: std::ops::Range<u64> = 8_000..16_000;
/// Connections a second that come and go for a while. Not until the next: what agents hold follows the rate, and a
/// slope would be that of the rate.
const RATES: [u32; 4] = [0, 50, 500, 2_000];
const OTHER_RATE: Duration = Duration::from_secs(5);
/// An agent is stopped for so long, ms.
const PAUSE_MS: std::ops::Range<u64> = 100..1_000;
/// A slow web server's part of its speed.
const SLOW: f64 = 0.01;
/// What is no configuration.
const TYPO: &str = "interval = \"1s\"\n[[service";
/// Agents that are ended: not `watch`, so that one lives as long as the soak.
const MORTAL: &[Kind] = &[
    Kind::Tune,
    Kind::Window,
    Kind::Passive,
    Kind::BurstMark,
    Kind::BurstAdmit,
    Kind::Profile,
    Kind::Balance,
    Kind::Decap,
];

/// The time until the next.
pub fn pause(rng: &mut StdRng) -> Duration {
    Duration::from_millis(rng.random_range(BETWEEN_MS))
}

/// Does something; says what.
pub fn something(stage: &mut Stage, rng: &mut StdRng, stop: &Stop) -> Result<String> {
    match rng.random_range(0..100) {
        // each is ended about once an hour: most live long enough to show whether they grow
        0 => end(stage, rng, Signal::SIGTERM, stop),
        1 => end(stage, rng, Signal::SIGKILL, stop),
        2..30 => suspend(stage, rng, stop),
        30..42 => {
            let weights = std::array::from_fn(|_| rng.random_range(1..=1_000));
            stage.ground.configure(weights)?;
            hang_up(stage, Kind::Balance)?;
            Ok("other weights".to_owned())
        }
        42..48 => {
            stage.ground.write(TYPO)?;
            hang_up(stage, Kind::Balance)?;
            stop.sleep(Duration::from_secs(1))?;
            stage.ground.configure([100; SERVERS as usize])?;
            hang_up(stage, Kind::Balance)?;
            Ok("a typo in the configuration".to_owned())
        }
        48..56 => drain(stage, rng, stop),
        56..64 => {
            if let Some(speed) = stage.site.speeds.choose(rng) {
                speed.set(SLOW)?;
                stop.sleep(Duration::from_secs(2))?;
                speed.set(1.0)?;
            }
            Ok("a slow web server".to_owned())
        }
        64..70 => {
            hang_up(stage, Kind::Tune)?;
            Ok("the log of tune is opened anew".to_owned())
        }
        _ => {
            stage.churn.set_rate(*RATES.choose(rng).unwrap_or(&0));
            let slept = stop.sleep(OTHER_RATE);
            stage.churn.set_rate(RATE);
            slept?;
            Ok("another rate of connections for a while".to_owned())
        }
    }
}

fn hang_up(stage: &mut Stage, kind: Kind) -> Result<()> {
    stage.agent(kind)?.0.signal(Signal::SIGHUP)
}

fn end(stage: &mut Stage, rng: &mut StdRng, signal: Signal, stop: &Stop) -> Result<String> {
    let kind = *MORTAL.choose(rng).unwrap_or(&Kind::Tune);
    let (agent, ground) = stage.agent(kind)?;
    agent.restart(signal, ground, stop)?;
    Ok(match signal {
        Signal::SIGKILL => "an agent is killed and started again".to_owned(),
        _ => "an agent is ended and started again".to_owned(),
    })
}

fn suspend(stage: &mut Stage, rng: &mut StdRng, stop: &Stop) -> Result<String> {
    let kind = *Kind::ALL.choose(rng).unwrap_or(&Kind::Tune);
    let (agent, _) = stage.agent(kind)?;
    agent.signal(Signal::SIGSTOP)?;
    let slept = stop.sleep(Duration::from_millis(rng.random_range(PAUSE_MS)));
    agent.signal(Signal::SIGCONT)?;
    slept?;
    Ok("an agent is stopped for a moment".to_owned())
}

fn drain(stage: &Stage, rng: &mut StdRng, stop: &Stop) -> Result<String> {
    let server = *NAMES.choose(rng).unwrap_or(&NAMES[0]);
    let all = |more: &[&str]| -> Result<()> {
        for service in Ground::services() {
            let drain = ["drain", server, "--service", service];
            stage.ground.balance(&[&drain[..], more].concat())?;
        }
        Ok(())
    };
    all(&[])?;
    stop.sleep(Duration::from_secs(2))?;
    all(&["--undo"])?;
    Ok("a server is drained and given back".to_owned())
}
