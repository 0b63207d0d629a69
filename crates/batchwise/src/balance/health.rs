//! Health: what checks say in a row, and the checks themselves, each on its own schedule in one
//! thread, by the way that traffic takes.

use std::collections::HashMap;
use std::sync::Arc;
use std::sync::mpsc::{Receiver, Sender, channel};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use anyhow::{Context, anyhow};
use batchwise_core::balance::report::Health;
use rand::Rng;
use tokio::sync::mpsc::{UnboundedReceiver, UnboundedSender, unbounded_channel};
use tokio::task::JoinHandle as Task;

use super::attempt::{Outcome, Target, attempt};
use super::config::Check;

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

/// A check that ended.
#[derive(Clone, Debug)]
pub struct Checked {
    /// The backend's index.
    pub index: u16,
    /// How.
    pub outcome: Outcome,
}

/// How many SYNs left for the backend with an index on the way of the traffic.
type Syns = Arc<dyn Fn(u16) -> Option<u64> + Send + Sync>;

/// Makes the checks.
pub struct Checker {
    targets: Option<UnboundedSender<Vec<Target>>>,
    results: Receiver<Checked>,
    thread: Option<JoinHandle<()>>,
}

impl Checker {
    /// Starts the thread, in the calling thread's network namespace. `syns`: how many have left for a
    /// backend on the way of the traffic; a check of which none has says nothing.
    ///
    /// # Errors
    /// It cannot be started.
    pub fn start(
        syns: impl Fn(u16) -> Option<u64> + Send + Sync + 'static,
    ) -> anyhow::Result<Self> {
        let syns: Syns = Arc::new(syns);
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_all()
            .build()
            .context("starting the runtime for health checks")?;
        let (targets, wanted) = unbounded_channel();
        let (tell, results) = channel();
        let thread = std::thread::Builder::new()
            .name("health".to_owned())
            .spawn(move || runtime.block_on(keep(wanted, tell, syns)))
            .context("starting the thread that checks health")?;
        Ok(Self {
            targets: Some(targets),
            results,
            thread: Some(thread),
        })
    }

    /// From now on these are checked; the schedule of one that stays as it was goes on.
    ///
    /// # Errors
    /// The thread has ended.
    pub fn set(&self, targets: Vec<Target>) -> anyhow::Result<()> {
        let sent = self.targets.as_ref().map(|t| t.send(targets));
        match sent {
            Some(Ok(())) => Ok(()),
            _ => Err(anyhow!("the thread that checks health has ended")),
        }
    }

    /// Checks that ended since the last call.
    pub fn results(&self) -> impl Iterator<Item = Checked> + '_ {
        self.results.try_iter()
    }
}

impl Drop for Checker {
    fn drop(&mut self) {
        self.targets = None;
        if let Some(thread) = self.thread.take() {
            // a panic there has been printed
            let _ = thread.join();
        }
    }
}

async fn keep(mut wanted: UnboundedReceiver<Vec<Target>>, tell: Sender<Checked>, syns: Syns) {
    let mut running: HashMap<u16, (Target, Task<()>)> = HashMap::new();
    while let Some(targets) = wanted.recv().await {
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
                let task = tokio::spawn(task);
                (target, task)
            });
        }
    }
}

async fn again_and_again(target: Target, tell: Sender<Checked>, syns: Syns) {
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
        let index = target.index;
        if tell.send(Checked { index, outcome }).is_err() {
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

    use super::super::attempt::Nothing;
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

    fn fail() -> Result<(), String> {
        Err("refused".to_owned())
    }

    #[test]
    fn a_backend_serves_until_as_many_checks_in_a_row_as_fall_have_failed() {
        let (check, mut health) = (check(2, 3), Checks::new(Health::Unknown));
        assert!(health.state() != Health::Down);
        assert!(!health.checked(&check, fail()));
        assert!(!health.checked(&check, fail()));
        assert!(health.state() != Health::Down);
        assert!(health.checked(&check, fail()));
        assert!(health.state() == Health::Down);
        assert_eq!(health.why(), Some("refused"));
    }

    #[test]
    fn a_check_that_passes_between_failures_keeps_it_up() {
        let (check, mut health) = (check(2, 2), Checks::new(Health::Unknown));
        assert!(health.checked(&check, Ok(())));
        for _ in 0..10 {
            assert!(!health.checked(&check, fail()));
            assert!(!health.checked(&check, Ok(())));
        }
        assert_eq!(health.state(), Health::Up);
    }

    #[test]
    fn a_backend_that_is_down_comes_back_after_as_many_passes_in_a_row_as_rise() {
        let (check, mut health) = (check(3, 1), Checks::new(Health::Down));
        for result in [Ok(()), Ok(()), fail(), Ok(()), Ok(())] {
            assert!(!health.checked(&check, result));
        }
        assert!(health.checked(&check, Ok(())));
        assert_eq!((health.state(), health.why()), (Health::Up, None));
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
    fn a_check_that_says_nothing_neither_continues_nor_breaks_a_row() {
        let (check, mut health) = (check(2, 2), Checks::new(Health::Up));
        assert!(!health.checked(&check, fail()));
        assert!(!health.silent(&check, "not probed", Instant::now()));
        assert!(health.checked(&check, fail()));
        assert!(health.state() == Health::Down);
    }

    #[test]
    fn a_listener_passes_a_tcp_check_and_a_closed_port_fails_it_and_says_so_and_one_that_went_astray_says_nothing()
     {
        let listener = std::net::TcpListener::bind("127.0.0.1:0").expect("a port");
        let port = listener.local_addr().expect("its address").port();
        let target = |index, port| Target {
            index,
            address: [127, 0, 0, 1].into(),
            mark: 0,
            check: Check {
                port,
                ..check(1, 1)
            },
        };
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
        let checker = Checker::start(syns).expect("a thread");
        let targets = vec![target(1, port), target(2, closed_port), target(3, port)];
        checker.set(targets).expect("it runs");
        let (mut open, mut refused, mut astray) = (None, None, None);
        while open.is_none() || refused.is_none() || astray.is_none() {
            for checked in checker.results() {
                match checked.index {
                    1 => open = Some(checked.outcome),
                    2 => refused = Some(checked.outcome),
                    _ => astray = Some(checked.outcome),
                }
            }
            std::thread::sleep(Duration::from_millis(5));
        }
        assert_eq!(open, Some(Outcome::Passed));
        let why = "connecting: refused".to_owned();
        assert_eq!(refused, Some(Outcome::Failed(why)));
        assert_eq!(astray, Some(Outcome::Nothing(Nothing::Unprobed)));
    }
}
