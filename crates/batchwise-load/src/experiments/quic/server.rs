//! The QUIC test server: answers each request with as many bytes as it asks for, after some work.
//! It has one thread: requests wait for each other's work, as in the paper's servers.

use std::cell::RefCell;
use std::net::SocketAddr;
use std::rc::Rc;
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use anyhow::{Context, Result};
use clap::Parser;
use quinn::{Endpoint, Incoming, RecvStream, SendStream};
use rand::SeedableRng;
use rand::rngs::SmallRng;
use tokio::task::{LocalSet, spawn_local};

use super::{LARGEST, message, runtime, tls};
use crate::causal::distribution::{Distribution, parse_times};
use crate::random_seed;
use crate::units::{parse_addr, parse_duration};

/// Requests of a connection that are served at a time, at most.
const STREAMS: u32 = 1024;
/// What responses are made of.
static CONTENTS: [u8; LARGEST as usize] = [b'x'; LARGEST as usize];

/// What a server does.
#[derive(Clone, Debug, Parser)]
pub struct ServerConfig {
    /// Where to listen, such as 127.0.0.1:4433; port 0 takes a free one
    #[arg(long, value_name = "HOST:PORT", value_parser = parse_addr)]
    pub listen: SocketAddr,
    /// How long the CPU works on each request: none, 200us, exp:200us, lognormal:MEDIAN:SIGMA
    #[arg(long, value_name = "DIST", default_value = "none", value_parser = parse_times)]
    pub work: Distribution,
    /// Of the work; random if left out
    #[arg(long, default_value_t = random_seed(), hide_default_value = true)]
    pub seed: u64,
    /// End after this time; without it, when it is interrupted
    #[arg(long, value_parser = parse_duration)]
    pub duration: Option<Duration>,
}

/// A server that runs until it is dropped.
#[derive(Debug)]
pub struct Server {
    addr: SocketAddr,
    endpoint: Endpoint,
    thread: Option<JoinHandle<()>>,
}

impl Server {
    /// Starts one in a thread of its own.
    pub fn start(config: &ServerConfig) -> Result<Self> {
        let mut quic = tls::server().context("cannot set up TLS")?;
        let mut transport = quinn::TransportConfig::default();
        transport.max_concurrent_bidi_streams(STREAMS.into());
        quic.transport_config(transport.into());
        let runtime = runtime()?;
        let listen = config.listen;
        let failed = || format!("cannot listen on {listen}");
        let endpoint = {
            let _inside = runtime.enter();
            Endpoint::server(quic, listen).with_context(failed)?
        };
        let addr = endpoint.local_addr().with_context(failed)?;
        let (accepting, config) = (endpoint.clone(), config.clone());
        let thread = std::thread::Builder::new()
            .name("quic-server".into())
            .spawn(move || LocalSet::new().block_on(&runtime, accept(accepting, &config)))?;
        Ok(Self {
            addr,
            endpoint,
            thread: Some(thread),
        })
    }

    /// Where it listens.
    pub fn addr(&self) -> SocketAddr {
        self.addr
    }

    /// Serves for a while, or as long as the process runs.
    pub fn serve(mut self, duration: Option<Duration>) {
        match duration {
            Some(duration) => std::thread::sleep(duration),
            None => self.join(),
        }
    }

    fn join(&mut self) {
        if let Some(Err(panic)) = self.thread.take().map(JoinHandle::join) {
            std::panic::resume_unwind(panic);
        }
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        self.endpoint.close(0u32.into(), b"the end");
        // A panic in the thread has been printed; a second one here would abort.
        let _ = self.thread.take().map(JoinHandle::join);
    }
}

/// The work for each request.
struct Work {
    time: Distribution,
    rng: RefCell<SmallRng>,
}

impl Work {
    fn run(&self) {
        let time = self.time.sample(&mut *self.rng.borrow_mut());
        let until = Instant::now() + Duration::from_nanos(time as u64);
        while Instant::now() < until {
            std::hint::spin_loop();
        }
    }
}

async fn accept(endpoint: Endpoint, config: &ServerConfig) {
    let work = Rc::new(Work {
        time: config.work,
        rng: RefCell::new(SmallRng::seed_from_u64(config.seed)),
    });
    while let Some(incoming) = endpoint.accept().await {
        spawn_local(serve(incoming, Rc::clone(&work)));
    }
    // Clients are told before the thread ends.
    endpoint.wait_idle().await;
}

async fn serve(incoming: Incoming, work: Rc<Work>) {
    // A client that goes away has its own report of it.
    let Ok(connection) = incoming.await else {
        return;
    };
    while let Ok((send, receive)) = connection.accept_bi().await {
        spawn_local(answer(send, receive, Rc::clone(&work)));
    }
}

async fn answer(mut send: SendStream, mut receive: RecvStream, work: Rc<Work>) {
    let request = receive.read_to_end(message::REQUEST).await;
    let Some(size) = request.ok().and_then(|bytes| message::asked(&bytes)) else {
        // Tells the client that this was no request; if it is gone already, nobody minds.
        let _ = send.reset(1u32.into());
        return;
    };
    work.run();
    if send.write_all(&CONTENTS[..size as usize]).await.is_ok() {
        let _ = send.finish();
    }
}
