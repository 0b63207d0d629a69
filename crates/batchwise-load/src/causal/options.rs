//! What all workloads with a truth log are asked.

use std::net::SocketAddr;
use std::path::PathBuf;
use std::time::Duration;

use crate::Error;

/// Whom to load, for how long, and where the truth goes.
#[derive(Clone, Debug)]
pub struct Options {
    /// The server.
    pub addr: SocketAddr,
    /// Connections.
    pub connections: usize,
    /// How long requests are sent; answers are waited for a second longer.
    pub duration: Duration,
    /// Of all that is drawn at random.
    pub seed: u64,
    /// A CSV file with a line for each request: see `docs/guide/load.md`.
    pub log: Option<PathBuf>,
    /// The CPU to run on.
    pub cpu: Option<usize>,
}

impl Options {
    /// One connection for 5 s, no log.
    pub fn new(addr: SocketAddr) -> Self {
        Self {
            addr,
            connections: 1,
            duration: Duration::from_secs(5),
            seed: 1,
            log: None,
            cpu: None,
        }
    }

    pub(crate) fn check(&self) -> Result<(), Error> {
        let longest = Duration::from_secs(86400);
        if !(Duration::from_millis(1)..=longest).contains(&self.duration) {
            return Err(Error::Config("the duration must be 1ms to a day".into()));
        }
        if !(1..=60_000).contains(&self.connections) {
            let text = "the number of connections must be 1 to 60000";
            return Err(Error::Config(text.into()));
        }
        Ok(())
    }
}

/// Refuses a rate that is no rate.
pub(crate) fn check_rate(rate: Option<f64>) -> Result<(), Error> {
    match rate.is_none_or(|rate| rate > 0.0 && rate <= 50e6) {
        true => Ok(()),
        false => Err(Error::Config(
            "the rate must be above 0 and at most 50m requests/s".into(),
        )),
    }
}

/// Refuses a number of requests in flight that makes no sense.
pub(crate) fn check_in_flight(requests: usize) -> Result<(), Error> {
    match (1..=65536).contains(&requests) {
        true => Ok(()),
        false => Err(Error::Config(
            "the requests in flight must be 1 to 65536".into(),
        )),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_default_is_accepted_and_nonsense_is_not() {
        let good = Options::new("127.0.0.1:1".parse().unwrap());
        assert!(good.check().is_ok());
        let nobody = Options {
            connections: 0,
            ..good.clone()
        };
        let never = Options {
            duration: Duration::ZERO,
            ..good
        };
        for bad in [nobody, never] {
            assert!(matches!(bad.check(), Err(Error::Config(_))), "{bad:?}");
        }
        assert!(check_rate(Some(0.0)).is_err() && check_rate(None).is_ok());
        assert!(check_in_flight(0).is_err() && check_in_flight(4).is_ok());
    }
}
