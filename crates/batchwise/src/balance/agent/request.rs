//! What operators ask of a running agent: status, drain, reload, remove.

use std::time::Duration;

use anyhow::Context;
use batchwise_bpf::balance::{Balancer, Options};
use batchwise_core::balance::report::State;

use super::super::config::{self, Kind};
use super::super::control::{Asked, Request};
use super::super::journal::About;
use super::super::judge::{self, Terms};
use super::super::plan::key;
use super::super::service::Service;
use super::install::Ready;
use super::{Agent, options};

/// New neighbours that do not answer within this are taken for down, for now; health waits so long.
const ARP: Duration = Duration::from_millis(300);

impl Agent {
    pub(super) fn answer(&mut self, asked: Asked) -> anyhow::Result<()> {
        match asked.request.clone() {
            Request::Status => {
                let lines = self.status(Vec::new())?.to_lines()?;
                asked.lines(lines);
            }
            Request::Drain {
                backend,
                service,
                undo,
            } => {
                let done = match self.drain(&backend, service.as_deref(), undo) {
                    Ok((service, mut said)) => {
                        self.push()?;
                        self.say_empty();
                        if !self.serves(&service) {
                            said += &format!(
                                "; no backend of {service} serves now: new connections are dropped"
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

    fn serves(&self, service: &str) -> bool {
        let mut named = self.services.iter().filter(|s| s.spec.name == service);
        named.any(|s| s.states().contains(&State::Serving))
    }

    /// Drains a backend or gives it back: its service's name, and what was done.
    fn drain(
        &mut self,
        name: &str,
        service: Option<&str>,
        undo: bool,
    ) -> Result<(String, String), String> {
        let mut found: Vec<(usize, usize)> = Vec::new();
        for (s, known) in self.services.iter().enumerate() {
            if service.is_none_or(|wanted| wanted == known.spec.name) {
                let backends = known.backends.iter().enumerate();
                found.extend(
                    backends
                        .filter(|(_, b)| b.spec.name == name)
                        .map(|(b, _)| (s, b)),
                );
            }
        }
        let [(s, b)] = found[..] else {
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
        let Some(service) = self.services.get_mut(s) else {
            return Err("the service has gone".to_owned());
        };
        let of = service.spec.name.clone();
        let Some(backend) = service.backends.get_mut(b) else {
            return Err("the backend has gone".to_owned());
        };
        backend.drained = !undo;
        let connections = backend.connections.unwrap_or(0);
        let detail = if undo {
            given_back(service, b)
        } else {
            format!("gets no new connections; {connections} are active")
        };
        let about = About::backend(&of, name);
        self.journal.event("drain", about, detail.clone());
        let said = format!("{of}/{name} {detail}");
        Ok((of, said))
    }

    /// Opens the log anew and reads the configuration again; one that does not hold changes nothing.
    /// Where the kernel refuses amid the change, it is said that there is a mixture.
    pub(super) fn reload(&mut self) -> Result<String, String> {
        self.journal.reopen();
        let (error, detail) = match self.make_ready() {
            Ok(next) => match self.bring_in(next) {
                Ok(()) => return Ok(self.reloaded()),
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
        self.journal.warn("config_error", About::default(), &detail);
        self.config_error = Some(error.clone());
        Err(error)
    }

    fn reloaded(&mut self) -> String {
        self.generation += 1;
        self.config_error = None;
        let detail = format!(
            "{} is in force (generation {})",
            self.config.file.display(),
            self.generation
        );
        self.journal
            .event("reload", About::default(), detail.clone());
        detail
    }

    /// Does all that may fail for the file as it is now, and changes nothing of what is in force.
    fn make_ready(&mut self) -> anyhow::Result<Next> {
        let config = self.run.read()?;
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
        let ready = self.prepare(checked)?;
        let balancer = options.map(Balancer::start).transpose();
        Ok(Next {
            ready,
            balancer: balancer.context("loading the programs again")?,
        })
    }

    fn bring_in(&mut self, next: Next) -> anyhow::Result<()> {
        let before = self.config.policy;
        if let Some(mut balancer) = next.balancer {
            balancer.attach().context("replacing the programs")?;
            self.balancer = balancer;
        }
        self.install(next.ready, before)
    }
}

/// What holds for a backend, by its place, that the operator does not drain any more.
fn given_back(service: &Service, at: usize) -> String {
    let state = service.states().get(at).copied();
    let why = match (service.backends.get(at), state) {
        (_, Some(State::Draining)) => "its weight in the configuration is 0".to_owned(),
        (Some(backend), Some(State::Down)) => {
            let why = backend.health_why(State::Down).unwrap_or_default();
            format!("it is down: {why}")
        }
        _ => return "gets new connections again".to_owned(),
    };
    format!("is not drained any more, but gets no new connections: {why}")
}

/// What nothing keeps from being brought into force.
struct Next {
    ready: Ready,
    /// The program that measures otherwise, to take the place of the one in the pinned links.
    balancer: Option<Balancer>,
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
