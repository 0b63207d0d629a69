//! What operators ask of a running agent: status, drain, reload, remove.

use std::time::Duration;

use anyhow::Context;
use batchwise_bpf::balance::{Balancer, Options};
use batchwise_core::balance::report::State;

use super::super::config::{self, Kind};
use super::super::control::{Asked, Drain, Request};
use super::super::judge::{self, Terms};
use super::super::plan::key;
use super::super::service::Service;
use super::install::Ready;
use super::{Agent, options};
use crate::frame::supervisor::reloading;

/// New neighbours that do not answer within this are taken for down, for now; health waits so long.
const ARP: Duration = Duration::from_millis(300);

impl Agent {
    pub(super) fn answer(&mut self, asked: Asked) -> anyhow::Result<()> {
        match asked.request.clone() {
            Request::Status => {
                let lines = self.status(Vec::new())?.to_lines()?;
                asked.lines(lines);
            }
            Request::Drain(drain) => {
                let done = match self.drain(&drain) {
                    Ok((at, mut said)) => {
                        self.push()?;
                        self.say_empty();
                        let service = &self.services[at];
                        if !service.states().contains(&State::Serving) {
                            let name = &service.spec.name;
                            said += &format!(
                                "; no backend of {name} serves now: new connections are dropped"
                            );
                        }
                        Ok(said)
                    }
                    Err(why) => Err(why),
                };
                asked.answer(done);
            }
            Request::Reload => asked.answer(self.reload()),
            Request::Remove => self.remove = Some(asked),
        }
        Ok(())
    }

    /// Drains a backend or gives it back: its service's place, and what was done.
    fn drain(&mut self, drain: &Drain) -> Result<(usize, String), String> {
        let (name, service) = (&drain.backend, drain.service.as_ref());
        let services = self.services.iter().enumerate();
        let of = services.filter(|(_, s)| service.is_none_or(|wanted| *wanted == s.spec.name));
        let named = |s: &Service| s.backends.iter().position(|b| b.spec.name == *name);
        let found: Vec<_> = of.filter_map(|(at, s)| Some((at, named(s)?))).collect();
        let [(at, b)] = found[..] else {
            let names = |s: &Service| {
                let names = s.backends.iter().map(|b| b.spec.name.as_str());
                format!("{}: {}", s.spec.name, names.collect::<Vec<_>>().join(", "))
            };
            return Err(if found.is_empty() {
                let known: Vec<String> = self.services.iter().map(names).collect();
                format!(
                    "there is no backend {name:?}; there are {}",
                    known.join("; ")
                )
            } else {
                format!("more than one service has a backend {name:?}: say which with --service")
            });
        };
        let service = &mut self.services[at];
        let backend = &mut service.backends[b];
        backend.drained = !drain.undo;
        let connections = backend.connections.unwrap_or(0);
        let detail = if drain.undo {
            given_back(service, b)
        } else {
            format!("gets no new connections; {connections} are active")
        };
        let of = &service.spec.name;
        self.journal.event("drain", &[of, name], detail.clone());
        Ok((at, format!("{of}/{name} {detail}")))
    }

    /// Opens the log anew and reads the configuration again; one that does not hold changes nothing.
    /// Where the kernel refuses amid the change, it is said that there is a mixture.
    pub(super) fn reload(&mut self) -> Result<String, String> {
        reloading(|| self.read_again())
    }

    fn read_again(&mut self) -> Result<String, String> {
        self.journal.reopen();
        let (error, detail) = match self.make_ready() {
            Ok(ready) => match self.install(ready) {
                Ok(()) => {
                    self.generation += 1;
                    self.config_error = None;
                    let (file, generation) = (self.config.file.display(), self.generation);
                    let detail = format!("{file} is in force (generation {generation})");
                    self.journal.event("reload", &[], detail.clone());
                    self.keep();
                    return Ok(detail);
                }
                Err(error) => {
                    let partly = format!("partly in force: {error:#}; reload or restart");
                    (partly.clone(), partly)
                }
            },
            Err(error) => {
                let error = format!("{error:#}");
                let detail = format!("the configuration before it stays in force: {error}");
                (error, detail)
            }
        };
        self.journal.warn("config_error", &[], &detail);
        self.config_error = Some(error.clone());
        Err(error)
    }

    /// Does all that may fail for the file as it is now, and changes nothing of what is in force.
    fn make_ready(&mut self) -> anyhow::Result<Ready> {
        let config = self.args.read()?;
        let fixed = [
            ("name", config.name != self.config.name),
            ("interfaces", config.interfaces != self.config.interfaces),
            ("flows", config.flows != self.config.flows),
        ];
        if let Some((what, _)) = fixed.iter().find(|(_, changed)| *changed) {
            anyhow::bail!(
                "{}: {what} cannot change while the agent runs: restart it, or put back what it was",
                config.file.display()
            );
        }
        let terms = Terms {
            attached: true,
            patience: ARP,
            tolerates: &|service, backend| has(&self.services, service, backend),
            // all are in force already
            tolerates_gone: &|_| true,
        };
        let mut epochs = Vec::new();
        let checked = judge::check(&self.kernel, config, &terms, || {
            // events wait in a buffer of limited size
            epochs.extend(self.balancer.poll()?);
            Ok(())
        });
        self.count_epochs(epochs);
        let checked = checked?;
        let (new, now) = (&checked.config, &self.config);
        let measures = (new.policy, new.interval) != (now.policy, now.interval);
        let options = measures.then(|| Options {
            attach: false,
            ..options(new)
        });
        let mut ready = self.prepare(checked)?;
        let balancer = options.map(Balancer::start).transpose();
        ready.balancer = balancer.context("loading the programs again")?;
        Ok(ready)
    }
}

/// What holds for a backend, by its place, that the operator does not drain any more.
fn given_back(service: &Service, at: usize) -> String {
    let backend = &service.backends[at];
    let why = match service.states()[at] {
        State::Draining => "its weight in the configuration is 0".to_owned(),
        State::Down => {
            let why = backend.health_why(State::Down).unwrap_or_default();
            format!("it is down: {why}")
        }
        State::Serving => return "gets new connections again".to_owned(),
    };
    format!("is not drained any more, but gets no new connections: {why}")
}

/// Whether a backend is in force already, or a service's health checks are.
fn has(services: &[Service], service: &config::Service, backend: Option<&config::Backend>) -> bool {
    let mut same = services.iter().filter(|s| key(&s.spec) == key(service));
    same.any(|s| match backend {
        Some(backend) => {
            let mut known = s.backends.iter();
            s.spec.method == service.method && known.any(|b| b.spec.address == backend.address)
        }
        None => (s.spec.check.kind == Kind::None) == (service.check.kind == Kind::None),
    })
}
