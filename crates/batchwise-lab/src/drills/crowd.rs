//! Thousands of connections that are switched at both ends.

use std::process::Command;
use std::time::Duration;

use anyhow::{Context as _, Result};
use batchwise_testbed::host::{Host, Role};
use batchwise_testbed::lines::Printing;
use batchwise_testbed::load::LoadReport;
use batchwise_testbed::process::cpu_time;
use batchwise_testbed::redis::{PORT, RedisServer};
use batchwise_testbed::sockets::with_nodelay;

use super::load::{Load, MIXED, astray};
use super::outcome::{Drill, Outcome};
use super::scene::{Agent, LIMIT, Scene};
use crate::Context;

/// For so long agents are at work on them.
const QUICK: Duration = Duration::from_secs(8);
const FULL: Duration = Duration::from_secs(30);
/// What the guard says of an agent that it has taken for dead.
const FOR_DEAD: &str = "took this agent for dead";

/// Servers and clients of [`of_many_processes`]: no process needs more descriptors than most machines allow, no pair of
/// addresses more ports.
const PAIRS: u16 = 5;
/// Requests a second of each of its clients.
const RATE: u64 = 500;

pub fn connections(context: &Context, drill: Drill, count: usize) -> Result<Outcome> {
    let mut scene = Scene::build(context, drill)?;
    let mut outcome = Outcome::default();
    scene.tell_redis(&format!("CONFIG SET maxclients {}", count + 100))?;
    let load = Load::start(scene.client(), scene.address(), count, MIXED)?;
    let at_server = scene.of_redis(count)?;
    // at either end what applications did not ask for: all of Redis', half of the clients'
    let agents = [
        scene.tune(scene.server(), "server", &["--hold", "on"])?,
        scene.tune(scene.client(), "client", &["--hold", "off"])?,
    ];
    scene.until_held(&at_server, false)?;
    scene.until_held(&load.sockets, true)?;
    load.goes_on(&context.stop)?;
    let time = time(context);
    let replies = load.replies();
    let cpu = work(context, &agents)?;
    let rate = (load.replies() - replies) as f64 / time.as_secs_f64();
    let switched = [astray(&at_server), astray(&load.sockets)];
    outcome.expect(switched == [at_server.len(), count / 2], || {
        format!("in the end only {switched:?} sockets of Redis and of its clients were switched")
    });
    let times = end(agents, &scene, &mut outcome);
    super::death::expect_given_back(&mut outcome, &load.sockets);
    super::death::expect_given_back(&mut outcome, &at_server);
    let (traffic, first) = load.finish();
    outcome.traffic = traffic;
    outcome.wrong.extend(first);
    scene.check()?;
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

/// The same, of several servers and clients; what sockets have is asked of every single one.
pub fn of_many_processes(context: &Context, drill: Drill, count: usize) -> Result<Outcome> {
    let scene = Scene::build(context, drill)?;
    let mut outcome = Outcome::default();
    let (client, server) = (scene.client(), scene.server());
    let each = count / usize::from(PAIRS);
    // the scene's own server is left alone
    let ports = PORT + 1..=PORT + PAIRS;
    let redis = |port| RedisServer::start_for(server, &context.stop, port, each + 100);
    let mut servers: Vec<_> = ports.clone().map(redis).collect::<Result<_>>()?;
    let time = time(context);
    // with all that is waited for meanwhile
    let length = time + LIMIT;
    let load = |port| {
        let how = format!(
            "load redis --format json --sleeping --nodelay off --connections {each} --rate {RATE} --duration {}s --addr {}",
            length.as_secs(),
            scene.hosts.server_address(port)
        );
        let mut command = Command::new(&context.command);
        command.args(how.split(' '));
        Printing::start_text(client, "a load", command, Role::Workload)
    };
    let mut loads: Vec<_> = ports.clone().map(load).collect::<Result<_>>()?;
    let there = |host: &Host, nodelay: bool| -> Result<()> {
        let all = (count, if nodelay { count } else { 0 });
        let mut last = (0, 0);
        let look = || {
            last = with_nodelay(host, ports.clone())?;
            Ok((last == all).then_some(()))
        };
        let found = context.stop.wait_until(LIMIT, look)?;
        found.with_context(|| {
            format!(
                "of {} connections {} have TCP_NODELAY, not of {} {}",
                last.0, last.1, all.0, all.1
            )
        })
    };
    there(server, true)?;
    there(client, false)?;
    let further: Vec<String> = ports.clone().map(|port| format!("--port={port}")).collect();
    let tune = |host, label, hold| {
        let mut args = vec!["--hold", hold];
        args.extend(further.iter().map(String::as_str));
        scene.tune(host, label, &args)
    };
    // at either end what applications did not ask for
    let agents = [
        tune(server, "server", "on")?,
        tune(client, "client", "off")?,
    ];
    there(server, false)?;
    there(client, true)?;
    let cpu = work(context, &agents)?;
    for (host, nodelay) in [(server, false), (client, true)] {
        let held = there(host, nodelay);
        outcome.expect(held.is_ok(), || format!("{:#}", held.unwrap_err()));
    }
    let times = end(agents, &scene, &mut outcome);
    for (host, asked) in [(server, true), (client, false)] {
        let (all, nodelay) = with_nodelay(host, ports.clone())?;
        outcome.not_given_back += if asked { all - nodelay } else { nodelay } as u64;
        outcome.expect(all == count, || {
            format!("in the end there were only {all} connections")
        });
    }
    outcome.traffic.connections = count as u64;
    for load in &mut loads {
        load.wait(&context.stop, length + LIMIT)?;
        let report = LoadReport::from_output(&load.text())
            .with_context(|| format!("a load failed{}", load.quote()))?;
        outcome.traffic.requests += report.requests;
        outcome.traffic.broken += report.errors;
    }
    for server in &mut servers {
        server.check_alive()?;
    }
    outcome.number("cpu_share_of_an_agent", cpu);
    outcome.said = format!(
        "{count} connections of {PAIRS} servers and {PAIRS} clients, two agents at {:.1} % of a CPU each held them for {} s: \
         getsockopt of each said so; taken for dead {times} times",
        cpu * 100.0,
        time.as_secs(),
    );
    Ok(outcome)
}

fn time(context: &Context) -> Duration {
    if context.quick { QUICK } else { FULL }
}

/// Lets agents work for the time of a run; which share of a CPU each took.
fn work(context: &Context, agents: &[Agent; 2]) -> Result<f64> {
    let used = || -> Result<Duration> { agents.iter().map(|agent| cpu_time(agent.pid())).sum() };
    let (time, before) = (time(context), used()?);
    context.stop.sleep(time)?;
    Ok(used()?.saturating_sub(before).as_secs_f64() / time.as_secs_f64() / 2.0)
}

/// Ends the agents, which must be there; how often a guard took its agent for dead.
fn end(mut agents: [Agent; 2], scene: &Scene<'_>, outcome: &mut Outcome) -> usize {
    let mut times = 0;
    for agent in &mut agents {
        outcome.expect_alive(agent.check());
        times += agent.messages().matches(FOR_DEAD).count();
    }
    outcome.expect(times == 0, || format!("a guard {FOR_DEAD}, {times} times"));
    outcome.number("taken_for_dead", times as f64);
    for agent in agents {
        let ended = agent.finish(scene);
        outcome.expect(ended.is_ok(), || format!("{:#}", ended.unwrap_err()));
    }
    times
}
