//! Health: what checks say in a row, and the checks themselves, each on its own schedule in one
//! thread, by the way that traffic takes.

use std::collections::HashMap;
use std::panic::resume_unwind;
use std::sync::Arc;
use std::sync::mpsc::Sender;
use std::time::{Duration, Instant};

use anyhow::Context;
use batchwise_core::balance::report::Health;
use rand::Rng;
use tokio::sync::mpsc::UnboundedReceiver;
use tokio::task::{AbortHandle, JoinSet};

use super::attempt::{Outcome, Target, attempt};
use super::config::Check;
use super::worker::{Pulse, ROUND, Worker};

/// A schedule varies by so much, so that checks of many balancers do not come together.
const JITTER: f64 = 0.1;
/// The first checks come within this: one that has not ended keeps a new backend from serving.
const FIRST: Duration = Duration::from_millis(100);
/// What was known holds for so long after the last check that said anything.
const SILENCE: Duration = Duration::from_secs(5);

/// What a row of checks says.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Checks {
    state: Health,
    passed: u32,
    failed: u32,
    /// Checks since the last one that said anything, and when the first of them ended.
    silent: Option<(u32, Instant)>,
    why: Option<String>,
}

impl Checks {
    /// Before any check.
    pub fn new(state: Health) -> Self {
        Self {
            state,
            passed: 0,
            failed: 0,
            silent: None,
            why: None,
        }
    }

    /// What holds now.
    pub fn state(&self) -> Health {
        self.state
    }

    /// What the last check that failed said, or that all is well.
    pub fn why(&self) -> Option<&str> {
        self.why.as_deref()
    }

    /// A check ended; true: what holds has changed.
    pub fn checked(&mut self, check: &Check, result: Result<(), String>) -> bool {
        let before = self.state;
        self.silent = None;
        match result {
            Ok(()) => {
                self.passed = self.passed.saturating_add(1);
                self.failed = 0;
                if before != Health::Down || self.passed >= check.rise {
                    self.state = Health::Up;
                    self.why = None;
                }
            }
            Err(why) => {
                self.failed = self.failed.saturating_add(1);
                self.passed = 0;
                self.why = Some(why);
                if self.failed >= check.fall {
                    self.state = Health::Down;
                }
            }
        }
        self.state != before
    }

    /// A check ended that says nothing; true: what holds has changed. What was known is not known any
    /// more after a while, except that one is down: nothing says that it has come back.
    pub fn silent(&mut self, check: &Check, why: &str, now: Instant) -> bool {
        let (checks, since) = self.silent.unwrap_or((0, now));
        let checks = checks.saturating_add(1);
        self.silent = Some((checks, since));
        checks >= check.fall && now - since >= SILENCE && self.forget(why)
    }

    /// No check will say anything; as [`Self::silent`].
    pub fn forget(&mut self, why: &str) -> bool {
        let known = self.state == Health::Up;
        let said = self.why.as_deref() == Some(why);
        if !known && (self.state != Health::Unknown || said) {
            return false;
        }
        self.state = Health::Unknown;
        (self.passed, self.failed) = (0, 0);
        self.why = Some(why.to_owned());
        true
    }
}

/// How many SYNs left for the backend with an index on the way of the traffic.
type Syns = Arc<dyn Fn(u16) -> Option<u64> + Send + Sync>;

/// Makes the checks of the targets that it was told last; the schedule of one that stays as it was
/// goes on. It finds how checks ended, by the backend's index.
pub type Checker = Worker<Vec<Target>, (u16, Outcome)>;

/// Starts it. `syns`: how many have left for a backend on the way of the traffic; a check of which
/// none has says nothing.
pub fn start(syns: impl Fn(u16) -> Option<u64> + Send + Sync + 'static) -> anyhow::Result<Checker> {
    let syns: Syns = Arc::new(syns);
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .context("starting the runtime for health checks")?;
    Worker::start("health", move |wanted, tell, pulse| {
        runtime.block_on(keep(wanted, tell, syns, pulse));
    })
}

async fn keep(
    mut wanted: UnboundedReceiver<Vec<Target>>,
    tell: Sender<(u16, Outcome)>,
    syns: Syns,
    pulse: &Pulse,
) {
    let mut rounds = tokio::time::interval(ROUND);
    let mut tasks = JoinSet::new();
    let mut running: HashMap<u16, (Target, AbortHandle)> = HashMap::new();
    loop {
        let targets = tokio::select! {
            targets = wanted.recv() => targets,
            Some(Err(ended)) = tasks.join_next() => match ended.try_into_panic() {
                // a backend that is not checked any more must not go unnoticed
                Ok(panic) => resume_unwind(panic),
                Err(_aborted) => continue,
            },
            // in turn with the checks, whose runtime has but this thread
            _ = rounds.tick() => {
                pulse.beat();
                continue;
            }
        };
        let Some(targets) = targets else {
            return;
        };
        running.retain(|_, (target, task)| {
            let stays = targets.contains(target);
            if !stays {
                task.abort();
            }
            stays
        });
        for target in targets {
            running.entry(target.index).or_insert_with(|| {
                let task = again_and_again(target.clone(), tell.clone(), Arc::clone(&syns));
                (target, tasks.spawn(task))
            });
        }
    }
}

async fn again_and_again(target: Target, tell: Sender<(u16, Outcome)>, syns: Syns) {
    // the first ones at once, but not all in the same instant
    let mut wait = target
        .check
        .interval
        .mul_f64(JITTER)
        .min(FIRST)
        .mul_f64(random());
    loop {
        tokio::time::sleep(wait).await;
        let begun = tokio::time::Instant::now();
        let outcome = attempt(&target, &*syns).await;
        if tell.send((target.index, outcome)).is_err() {
            return;
        }
        let every = target
            .check
            .interval
            .mul_f64(1.0 - JITTER + 2.0 * JITTER * random());
        wait = every.saturating_sub(begun.elapsed());
    }
}

/// 0 to 1.
fn random() -> f64 {
    rand::rng().random()
}

#[cfg(test)]
mod tests {
    use std::net::SocketAddr;
    use std::sync::atomic::{AtomicU64, Ordering};

    use socket2::{Domain, Socket, Type};

    use super::super::config::Kind;
    use super::*;

    fn check(rise: u32, fall: u32) -> Check {
        Check {
            kind: Kind::Tcp,
            port: 80,
            interval: Duration::from_millis(20),
            timeout: Duration::from_millis(200),
            rise,
            fall,
        }
    }

    fn target(index: u16, port: u16) -> Target {
        Target {
            index,
            address: [127, 0, 0, 1].into(),
            mark: 0,
            check: Check {
                port,
                ..check(1, 1)
            },
        }
    }

    #[test]
    fn a_backend_is_down_after_fall_failures_in_a_row_and_up_again_after_rise_passes_in_a_row() {
        let (passes, fails, silent) = (Some(true), Some(false), None);
        for (before, rise, fall, results, last) in [
            (
                Health::Unknown,
                2,
                3,
                vec![fails, fails, fails],
                Health::Down,
            ),
            (Health::Unknown, 2, 2, vec![passes], Health::Up),
            (
                Health::Up,
                2,
                2,
                vec![fails, passes, fails, passes, fails, fails],
                Health::Down,
            ),
            (
                Health::Down,
                3,
                1,
                vec![passes, passes, fails, passes, passes, passes],
                Health::Up,
            ),
            // what says nothing neither continues nor breaks a row
            (Health::Up, 2, 2, vec![fails, silent, fails], Health::Down),
        ] {
            let (check, mut health) = (check(rise, fall), Checks::new(before));
            let mut changes = results.iter().map(|passed| match passed {
                Some(true) => health.checked(&check, Ok(())),
                Some(false) => health.checked(&check, Err("refused".to_owned())),
                None => health.silent(&check, "not probed", Instant::now()),
            });
            let early = changes
                .by_ref()
                .take(results.len() - 1)
                .any(|changed| changed);
            assert!(!early && changes.next() == Some(true), "{results:?}");
            let why = (last == Health::Down).then_some("refused");
            assert_eq!((health.state(), health.why()), (last, why));
        }
    }

    #[test]
    fn a_backend_that_is_up_is_unknown_after_checks_that_say_nothing_for_long_and_one_that_is_down_stays_down()
     {
        let (check, start) = (check(1, 2), Instant::now());
        let at = |ms| start + Duration::from_millis(ms);
        let mut health = Checks::new(Health::Up);
        for ms in [0, 1, 4999] {
            assert!(!health.silent(&check, "not probed", at(ms)));
        }
        assert!(health.silent(&check, "not probed", at(5000)));
        assert_eq!(
            (health.state(), health.why()),
            (Health::Unknown, Some("not probed"))
        );
        assert!(health.checked(&check, Ok(())));
        assert_eq!((health.state(), health.why()), (Health::Up, None));
        let mut health = Checks::new(Health::Down);
        for ms in [0, 60_000, 120_000] {
            assert!(!health.silent(&check, "not probed", at(ms)));
        }
        assert_eq!(health.state(), Health::Down);
    }

    #[test]
    fn a_listener_passes_a_tcp_check_and_a_closed_port_fails_it_and_says_so_and_one_that_went_astray_says_nothing()
     {
        let listener = std::net::TcpListener::bind("127.0.0.1:0").expect("a port");
        let port = listener.local_addr().expect("its address").port();
        // bound, so that it is nobody else's, and does not listen
        let closed = Socket::new(Domain::IPV4, Type::STREAM, None).expect("a socket");
        let any = SocketAddr::from(([127, 0, 0, 1], 0));
        closed.bind(&any.into()).expect("a port");
        let closed_at = closed.local_addr().ok().and_then(|at| at.as_socket());
        let closed_port = closed_at.expect("its address").port();
        let syns = AtomicU64::new(0);
        // of 3 none is seen
        let syns = move |index| {
            Some(if index == 3 {
                0
            } else {
                syns.fetch_add(1, Ordering::Relaxed)
            })
        };
        let checker = start(syns).expect("a thread");
        let targets = vec![target(1, port), target(2, closed_port), target(3, port)];
        checker.want(targets).expect("it runs");
        let (mut open, mut refused, mut astray) = (None, None, None);
        while open.is_none() || refused.is_none() || astray.is_none() {
            for (index, outcome) in checker.found().expect("it runs") {
                match index {
                    1 => open = Some(outcome),
                    2 => refused = Some(outcome),
                    _ => astray = Some(outcome),
                }
            }
            std::thread::sleep(Duration::from_millis(5));
        }
        assert_eq!(open, Some(Outcome::Passed));
        let why = "connecting: refused".to_owned();
        assert_eq!(refused, Some(Outcome::Failed(why)));
        assert_eq!(astray, Some(Outcome::Unprobed));
    }
    #[test]
    fn a_check_that_panics_ends_the_thread_and_whoever_asks_it_is_told() {
        let checker = start(|_| panic!("as a bug would")).expect("a thread");
        checker.want(vec![target(1, 9)]).expect("it runs");
        let ended = loop {
            match checker.found() {
                Ok(found) => assert!(found.is_empty(), "{found:?}"),
                Err(ended) => break ended.to_string(),
            }
            std::thread::sleep(Duration::from_millis(5));
        };
        assert!(ended.contains("\"health\" has ended"), "{ended}");
        assert!(checker.want(Vec::new()).is_err());
    }
}
