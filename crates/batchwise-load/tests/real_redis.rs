//! Whole runs against a real Redis on the loopback interface, where it is installed.

use std::net::{SocketAddr, TcpListener, TcpStream};
use std::process::{Child, Command, Stdio};
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use batchwise_load::{Arrivals, Config, Mode, Rate, run};

const MS: Duration = Duration::from_millis(1);

/// A real server; killed and removed at the end.
struct Redis {
    process: Child,
    addr: SocketAddr,
}

impl Redis {
    /// `None` where Redis is not installed.
    fn start() -> Option<Self> {
        // one at a time: until a server listens on its port, the kernel may offer it to another
        static STARTING: Mutex<()> = Mutex::new(());
        let _starting = STARTING.lock().unwrap_or_else(PoisonError::into_inner);
        let free = TcpListener::bind("127.0.0.1:0")
            .unwrap()
            .local_addr()
            .unwrap();
        let process = Command::new("redis-server")
            .args(["--bind", "127.0.0.1", "--port", &free.port().to_string()])
            .args(["--save", "", "--appendonly", "no"])
            .stdout(Stdio::null())
            .spawn()
            .ok()?;
        let mut redis = Self {
            process,
            addr: free,
        };
        for _ in 0..3000 {
            let ended = redis.process.try_wait().unwrap();
            assert!(ended.is_none(), "is {free} taken? redis-server: {ended:?}");
            if TcpStream::connect(free).is_ok() {
                return Some(redis);
            }
            std::thread::sleep(10 * MS);
        }
        panic!("redis-server does not listen on {free}");
    }
}

impl Drop for Redis {
    fn drop(&mut self) {
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

#[test]
fn a_real_redis_answers_sets_and_gets_on_one_and_on_many_connections() {
    let redis = Redis::start().expect("redis-server is needed: apt install redis-server");
    for connections in [1, 50] {
        let config = Config {
            connections,
            value_size: 16 << 10,
            get_ratio: 0.5,
            nodelay: connections == 1,
            mode: Mode::Open {
                rate: Rate::constant(2_000.0),
                arrivals: Arrivals::Poisson,
            },
            duration: 300 * MS,
            ..Config::new(redis.addr)
        };
        let report = run(&config, |_| Ok(())).unwrap().report;
        assert_eq!(report.errors, 0, "{report:?}");
        assert!(report.requests > 400, "{report:?}");
    }
}

#[test]
fn a_real_redis_that_is_killed_mid_run_is_reported() {
    let mut redis = Redis::start().expect("redis-server is needed: apt install redis-server");
    let config = Config {
        duration: Duration::from_secs(3600),
        warmup: Duration::ZERO,
        progress: Some(20 * MS),
        ..Config::new(redis.addr)
    };
    let report = run(&config, |_| redis.process.kill()).unwrap().report;
    assert!(
        !report.valid && report.why_invalid[0].contains("lost"),
        "{report:?}"
    );
}
