//! TCP_NODELAY as getsockopt() tells it: of the test's own sockets, and of copies of other
//! processes' sockets.

use std::net::TcpStream;
use std::time::{Duration, Instant};

use batchwise_testbed::host::Host;
use batchwise_testbed::redis::PORT;
use batchwise_testbed::sockets::accepted;
use batchwise_testbed::stage::eventually;
use socket2::SockRef;

/// Every socket must be back within this time of the agent's death (issue 3).
const GIVEN_BACK: Duration = Duration::from_secs(1);

/// Between two looks at them.
const LOOK: Duration = Duration::from_millis(1);

/// A socket and what its application asked for.
pub struct Socket {
    pub socket: TcpStream,
    pub nodelay: bool,
}

impl Socket {
    /// An application asks for it.
    pub fn set(socket: &TcpStream, nodelay: bool) -> Self {
        socket.set_nodelay(nodelay).expect("TCP_NODELAY");
        let socket = socket.try_clone().expect("a second handle");
        Self { socket, nodelay }
    }
}

/// What getsockopt(TCP_NODELAY) says.
pub fn nodelay(socket: &TcpStream) -> bool {
    SockRef::from(socket).tcp_nodelay().expect("TCP_NODELAY")
}

/// Copies of the sockets of the Redis in `host`, its listeners left out; it asks for TCP_NODELAY
/// for all of them.
pub fn of_redis(host: &Host) -> Vec<Socket> {
    let copies = accepted(host, PORT, usize::MAX).expect("copies of its sockets");
    let socket = |socket| Socket {
        socket,
        nodelay: true,
    };
    copies.into_iter().map(socket).collect()
}

/// Waits until Redis has accepted `count` connections; gives its sockets, as [`of_redis`].
pub fn accepted_by_redis(host: &Host, count: usize) -> Vec<Socket> {
    eventually(
        "Redis to accept all connections",
        || {
            let sockets = of_redis(host);
            // it asks for TCP_NODELAY just after it has accepted
            let ready = sockets.len() == count && astray(&sockets) == 0;
            ready.then_some(sockets)
        },
        || format!("{count} were made"),
    )
}

/// Waits until all these sockets have TCP_NODELAY on or off, whatever their applications asked for.
pub fn until_held(sockets: &[Socket], held: bool) {
    let state = || sockets.iter().map(|s| nodelay(&s.socket));
    eventually(
        "the agent to hold all sockets",
        || state().all(|now| now == held).then_some(()),
        || format!("TCP_NODELAY: {:?}", state().collect::<Vec<_>>()),
    );
}

/// The sockets that are not as their applications asked.
fn astray(sockets: &[Socket]) -> usize {
    let astray = |s: &&Socket| nodelay(&s.socket) != s.nodelay;
    sockets.iter().filter(astray).count()
}

/// All sockets are as their applications asked, now.
pub fn assert_given_back(sockets: &[Socket]) {
    assert!(!sockets.is_empty());
    let astray = astray(sockets);
    assert_eq!(astray, 0, "of {} sockets", sockets.len());
}

/// All sockets are as their applications asked within a second of `death`, and stay so. By how much
/// this thread, which has as little to do as the guard, wakes up too late does not count: the machine
/// stood still, or had no CPU.
pub fn assert_given_back_in_time(sockets: &[Socket], death: Instant) {
    let mut late = Duration::ZERO;
    while astray(sockets) > 0 {
        assert!(
            death.elapsed().saturating_sub(late) < GIVEN_BACK,
            "{} of {} sockets are not given back after {:?}, of which {late:?} late",
            astray(sockets),
            sockets.len(),
            death.elapsed()
        );
        let asleep = Instant::now();
        std::thread::sleep(LOOK);
        late += asleep.elapsed().saturating_sub(LOOK);
    }
    let took = death.elapsed().saturating_sub(late);
    assert!(took < GIVEN_BACK, "it took {took:?}");
    println!("all {} sockets given back in {took:?}", sockets.len());
    while death.elapsed() < GIVEN_BACK {
        assert_given_back(sockets);
        std::thread::sleep(Duration::from_millis(5));
    }
}
