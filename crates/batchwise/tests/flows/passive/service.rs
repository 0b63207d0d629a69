//! A service that takes a known time for every answer, and a client that measures it.

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::time::{Duration, Instant};

use batchwise_testbed::host::Host;
use batchwise_testbed::stage::connect;

/// What the service takes for an answer: much more than what a busy machine adds.
pub const DELAY: Duration = Duration::from_millis(20);
const REQUEST: usize = 100;
const ANSWER: usize = 500;

/// Serves in the host's namespace until the test ends.
pub fn start(host: &Host, address: SocketAddr) {
    let listener = host.inside(|| Ok(TcpListener::bind(address)?));
    let listener = listener.expect("a listener");
    std::thread::spawn(move || {
        for stream in listener.incoming().flatten() {
            std::thread::spawn(move || serve(stream));
        }
    });
}

fn serve(mut stream: TcpStream) {
    let mut request = [0; REQUEST];
    while stream.read_exact(&mut request).is_ok() {
        std::thread::sleep(DELAY);
        if stream.write_all(&[0; ANSWER]).is_err() {
            break;
        }
    }
}

/// Asks for so long, one request at a time; gives the mean latency, ns, of the answers.
pub fn ask(host: &Host, address: SocketAddr, duration: Duration) -> f64 {
    let mut stream = connect(host, address);
    stream.set_nodelay(true).expect("an option");
    let (begin, mut answers, mut waited) = (Instant::now(), 0, Duration::ZERO);
    let mut answer = [0; ANSWER];
    while begin.elapsed() < duration {
        let sent = Instant::now();
        stream.write_all(&[0; REQUEST]).expect("sent");
        stream.read_exact(&mut answer).expect("an answer");
        waited += sent.elapsed();
        answers += 1;
    }
    waited.as_nanos() as f64 / f64::from(answers)
}
