//! What is wrong with a service, by its name: each by what causes it, and nothing else is said of that side.

use std::io::{self, Read as _, Write as _};
use std::net::{Shutdown, TcpStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::thread::{JoinHandle, sleep, spawn};
use std::time::Duration;

use batchwise_core::sense::report::{Advice, Line, Side};
use batchwise_testbed::stage::watch::Watch;
use batchwise_testbed::stage::{Stage, connect, listen};
use socket2::{Domain, SockRef, Socket, Type};

use super::nft::{Filter, LOSS};

const PORT: u16 = 17_041;
/// What somebody takes who is late.
const LATE: Duration = Duration::from_millis(30);
/// So many lines have to say what is expected.
const ENOUGH: usize = 6;

/// Both ends of a connection.
struct Scene {
    stage: Stage,
    client: TcpStream,
    server: TcpStream,
}

impl Scene {
    fn build(name: &str) -> Self {
        let stage = Stage::build(name);
        let address = stage.hosts.server_address(PORT);
        let listener = listen(&stage.hosts.server, address);
        let client = connect(&stage.hosts.client, address);
        let (server, _) = listener.accept().expect("the client");
        for end in [&client, &server] {
            end.set_nodelay(true).expect("TCP_NODELAY");
        }
        Self {
            stage,
            client,
            server,
        }
    }

    /// Repeats what each end does until lines have told enough of what is expected of a side; nothing else may be told of it.
    fn says(
        &self,
        expected: &[(Side, Option<Advice>)],
        serve: impl FnMut(&mut TcpStream) -> io::Result<()> + Send + 'static,
        ask: impl FnMut(&mut TcpStream) -> io::Result<()> + Send + 'static,
    ) {
        let ends = [repeat(&self.server, serve), repeat(&self.client, ask)];
        let watch = Watch::start(&self.stage.hosts.server, PORT, None, &[]);
        let said = |lines: &[Line], side| {
            let mine = lines.iter().filter(|l| l.side == side);
            // the first hold no more than a part of an interval
            let mine = mine.skip(2).map(|l| l.advice.as_ref().map(|a| a.id));
            mine.collect::<Vec<_>>()
        };
        let lines = watch.until("lines that say it", 0, |lines| {
            expected.iter().all(|(side, what)| {
                let said = said(lines, *side);
                said.iter().filter(|one| *one == what).count() >= ENOUGH
            })
        });
        watch.finish();
        ends.into_iter().for_each(Repeated::finish);
        for (side, what) in expected {
            let others = said(&lines, *side).into_iter().flatten();
            let others: Vec<_> = others.filter(|one| Some(*one) != *what).collect();
            assert!(others.is_empty(), "{side:?}: {others:?}: {lines:#?}");
        }
    }
}

/// What an end does again and again, until it is shut down.
struct Repeated {
    end: TcpStream,
    is_over: Arc<AtomicBool>,
    thread: JoinHandle<()>,
}

fn repeat(
    end: &TcpStream,
    mut act: impl FnMut(&mut TcpStream) -> io::Result<()> + Send + 'static,
) -> Repeated {
    let [end, mut its] = [(); 2].map(|()| end.try_clone().expect("another descriptor"));
    let is_over = Arc::<AtomicBool>::default();
    let over = Arc::clone(&is_over);
    let thread = spawn(move || while !over.load(Relaxed) && act(&mut its).is_ok() {});
    Repeated {
        end,
        is_over,
        thread,
    }
}

impl Repeated {
    fn finish(self) {
        self.is_over.store(true, Relaxed);
        // the other end may have ended it
        let _ = self.end.shutdown(Shutdown::Both);
        self.thread.join().expect("it ends");
    }
}

fn read_request(server: &mut TcpStream) -> io::Result<()> {
    server.read_exact(&mut [0; 50])
}

fn answer(server: &mut TcpStream) -> io::Result<()> {
    read_request(server)?;
    server.write_all(&[b'a'; 20])
}

fn ask(client: &mut TcpStream) -> io::Result<()> {
    client.write_all(&[b'x'; 50])?;
    client.read_exact(&mut [0; 20])
}

#[test]
fn a_second_write_behind_a_delayed_acknowledgment_is_held_at_one_end_and_by_the_other() {
    let scene = Scene::build("held");
    scene.server.set_nodelay(false).expect("Nagle's algorithm");
    let in_two = |server: &mut TcpStream| {
        read_request(server)?;
        server.write_all(&[b'a'; 10])?;
        server.write_all(&[b'b'; 10])
    };
    let expected = [
        (Side::Server, Some(Advice::NagleHolds)),
        (Side::Client, Some(Advice::DelackHolds)),
    ];
    scene.says(&expected, in_two, ask);
}

#[test]
fn a_server_that_answers_late_works_and_its_client_sees_nothing_wrong() {
    let scene = Scene::build("works");
    let late = |server: &mut TcpStream| {
        read_request(server)?;
        sleep(LATE);
        server.write_all(&[b'a'; 20])
    };
    let expected = [
        (Side::Server, Some(Advice::ServerWorks)),
        (Side::Client, None),
    ];
    scene.says(&expected, late, ask);
}

#[test]
fn a_server_that_reads_late_is_told_from_one_that_answers_late() {
    let scene = Scene::build("queue");
    let late = |server: &mut TcpStream| {
        sleep(LATE);
        answer(server)
    };
    scene.says(&[(Side::Server, Some(Advice::ServerReadsLate))], late, ask);
}

#[test]
fn a_client_that_reads_late_says_so_and_its_server_does_not() {
    let scene = Scene::build("lazy");
    let late = |client: &mut TcpStream| {
        client.write_all(&[b'x'; 50])?;
        sleep(LATE);
        client.read_exact(&mut [0; 20])
    };
    let expected = [
        (Side::Client, Some(Advice::ClientReadsLate)),
        (Side::Server, None),
    ];
    scene.says(&expected, answer, late);
}

#[test]
fn a_client_that_stops_reading_fills_the_window() {
    let scene = Scene::build("full");
    let push = |server: &mut TcpStream| server.write_all(&[b'a'; 1 << 16]);
    let stopped = |_: &mut TcpStream| {
        sleep(LATE);
        Ok(())
    };
    let expected = [
        (Side::Server, Some(Advice::WindowFull)),
        (Side::Client, Some(Advice::ClientReadsLate)),
    ];
    scene.says(&expected, push, stopped);
}

#[test]
fn what_a_link_loses_is_sent_again() {
    let scene = Scene::build("lossy");
    let _loss = Filter::add(&scene.stage.hosts.client, LOSS);
    // in ten segments of a small one each
    let long = |server: &mut TcpStream| {
        read_request(server)?;
        (0..10).try_for_each(|_| server.write_all(&[b'a'; 2]))
    };
    scene.says(&[(Side::Server, Some(Advice::Retransmits))], long, ask);
}

#[test]
fn connections_that_find_the_queue_full_are_dropped() {
    let stage = Stage::build("crowd");
    let hosts = &stage.hosts;
    let address = hosts.server_address(PORT);
    let listener = listen(&hosts.server, address);
    SockRef::from(&listener).listen(1).expect("a short queue");
    let client = connect(&hosts.client, address);
    let (server, _) = listener.accept().expect("the client");
    let ends = [repeat(&server, answer), repeat(&client, ask)];
    let watch = Watch::start(&hosts.server, PORT, None, &[]);
    // nobody accepts these, and each tries again after 1, 3, 7 s
    let crowd = hosts.client.inside(|| {
        let new = |_| {
            let socket = Socket::new(Domain::IPV4, Type::STREAM, None)?;
            socket.set_nonblocking(true)?;
            match socket.connect(&address.into()) {
                Err(error) if error.raw_os_error() != Some(libc::EINPROGRESS) => Err(error),
                _ => Ok(socket),
            }
        };
        Ok((0..20).map(new).collect::<io::Result<Vec<_>>>()?)
    });
    let crowd = crowd.expect("a crowd");
    watch.until("a line that says it", 0, |lines| {
        let said = |l: &Line| {
            let advice = l.advice.as_ref();
            advice.is_some_and(|a| a.id == Advice::ListenOverflows)
        };
        lines.iter().any(|l| l.side == Side::Server && said(l))
    });
    watch.finish();
    ends.into_iter().for_each(Repeated::finish);
    drop(crowd);
}

#[test]
fn a_service_without_trouble_has_no_advice() {
    let scene = Scene::build("well");
    scene.says(&[(Side::Server, None), (Side::Client, None)], answer, ask);
}
