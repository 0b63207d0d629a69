//! Thousands of connections that are switched at both ends.

use std::time::Duration;

use anyhow::Result;
use batchwise_testbed::process::cpu_time;

use super::load::{Load, MIXED, astray};
use super::outcome::{Drill, Outcome};
use super::scene::Scene;
use crate::Context;

/// For so long agents are at work on them.
const QUICK: Duration = Duration::from_secs(8);
const FULL: Duration = Duration::from_secs(30);
/// What the guard says of an agent that it has taken for dead.
const FOR_DEAD: &str = "took this agent for dead";

pub fn connections(context: &Context, drill: Drill, count: usize) -> Result<Outcome> {
    let mut scene = Scene::build(context, drill)?;
    let mut outcome = Outcome::default();
    scene.tell_redis(&format!("CONFIG SET maxclients {}", count + 100))?;
    let load = Load::start(scene.client(), scene.address(), count, MIXED)?;
    let at_server = scene.of_redis(count)?;
    // at either end what applications did not ask for: all of Redis', half of the clients'
    let mut agents = [
        scene.tune(scene.server(), "server", &["--hold", "on"])?,
        scene.tune(scene.client(), "client", &["--hold", "off"])?,
    ];
    scene.until_held(&at_server, false)?;
    scene.until_held(&load.sockets, true)?;
    load.goes_on(&context.stop)?;
    let time = if context.quick { QUICK } else { FULL };
    let replies = load.replies();
    let used = |agents: &[super::scene::Agent; 2]| -> Result<Duration> {
        agents.iter().map(|agent| cpu_time(agent.pid())).sum()
    };
    let before = used(&agents)?;
    context.stop.sleep(time)?;
    let cpu = used(&agents)?.saturating_sub(before).as_secs_f64() / time.as_secs_f64() / 2.0;
    let rate = (load.replies() - replies) as f64 / time.as_secs_f64();
    let switched = [astray(&at_server), astray(&load.sockets)];
    outcome.expect(switched == [at_server.len(), count / 2], || {
        format!("in the end only {switched:?} sockets of Redis and of its clients were switched")
    });
    let mut said = Vec::new();
    for agent in &mut agents {
        outcome.expect_alive(agent.check());
        said.push(agent.messages());
    }
    let times = said
        .iter()
        .map(|s| s.matches(FOR_DEAD).count())
        .sum::<usize>();
    outcome.expect(times == 0, || format!("a guard {FOR_DEAD}, {times} times"));
    for agent in agents {
        let ended = agent.finish(&scene);
        outcome.expect(ended.is_ok(), || format!("{:#}", ended.unwrap_err()));
    }
    super::death::expect_given_back(&mut outcome, &load.sockets);
    super::death::expect_given_back(&mut outcome, &at_server);
    let (traffic, first) = load.finish();
    outcome.traffic = traffic;
    outcome.wrong.extend(first);
    scene.check()?;
    outcome.number("taken_for_dead", times as f64);
    outcome.number("switched_at_redis", switched[0] as f64);
    outcome.number("switched_at_clients", switched[1] as f64);
    outcome.number("cpu_share_of_an_agent", cpu);
    outcome.number("requests_per_s", rate);
    outcome.said = format!(
        "{count} connections, {rate:.0} requests a second, two agents at {:.1} % of a CPU each held them for {} s, asked by \
         getsockopt: {} of {} sockets of Redis that were asked, {} of its clients' were switched; taken for dead {times} times",
        cpu * 100.0,
        time.as_secs(),
        switched[0],
        at_server.len(),
        switched[1],
    );
    Ok(outcome)
}
