//! Servers at the virtual address that say who they are, and clients that ask them.

use std::io::{BufRead, BufReader, Write};
use std::net::{TcpListener, TcpStream};
use std::sync::MutexGuard;

use batchwise_lab::segment::{Segment, SegmentSpec, VIP};

use crate::stage::{connect, turn};

/// Of the service.
pub const PORT: u16 = 8_080;

/// A segment whose servers answer every line with their names, and the turn.
pub struct Site {
    pub segment: Segment,
    _turn: MutexGuard<'static, ()>,
}

impl Site {
    /// Builds the hosts `bw-<name>-*` and starts the servers.
    pub fn build(name: &str) -> Self {
        let turn = turn();
        let segment = Segment::build(&format!("c{name}"), SegmentSpec::default());
        let segment = segment.expect("hosts");
        for (n, server) in segment.servers.iter().enumerate() {
            let listener = server.inside(|| Ok(TcpListener::bind((VIP, PORT))?));
            let listener = listener.expect("a listener");
            std::thread::spawn(move || {
                for stream in listener.incoming().flatten() {
                    std::thread::spawn(move || serve(stream, n + 1));
                }
            });
        }
        Self {
            segment,
            _turn: turn,
        }
    }

    /// A connection of the first client to the service.
    pub fn connect(&self) -> Connection {
        let stream = connect(&self.segment.clients[0], (VIP, PORT).into());
        Connection(BufReader::new(stream))
    }

    /// Who answers so many new connections.
    pub fn answers(&self, connections: usize) -> Vec<String> {
        (0..connections).map(|_| self.connect().ask()).collect()
    }
}

fn serve(mut stream: TcpStream, n: usize) {
    let Ok(reader) = stream.try_clone() else {
        return;
    };
    let mut lines = BufReader::new(reader).lines();
    while let Some(Ok(_)) = lines.next() {
        if stream.write_all(format!("s{n}\n").as_bytes()).is_err() {
            break;
        }
    }
}

/// A connection to the service.
pub struct Connection(BufReader<TcpStream>);

impl Connection {
    /// Who answers on it.
    pub fn ask(&mut self) -> String {
        self.0.get_mut().write_all(b"who?\n").expect("sent");
        let mut line = String::new();
        self.0.read_line(&mut line).expect("an answer");
        line.trim().to_owned()
    }
}
