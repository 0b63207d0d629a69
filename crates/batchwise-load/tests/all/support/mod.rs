//! A RESP server in a thread, with the faults that the tests need.

use std::io::{BufRead, BufReader, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::thread;

/// One command as the server got it: its words, and its number since the server's start.
pub struct Command {
    pub words: Vec<Vec<u8>>,
    pub number: u64,
}

/// What the server does with a command.
pub enum Answer {
    Reply(Vec<u8>),
    Close,
}

/// Answers like Redis, with values of `value_size` bytes.
pub fn honest(command: &Command, value_size: usize) -> Answer {
    Answer::Reply(match &command.words[0][..] {
        b"PING" => b"+PONG\r\n".to_vec(),
        b"SET" => b"+OK\r\n".to_vec(),
        b"GET" => {
            let head = format!("${value_size}\r\n").into_bytes();
            [head, vec![b'y'; value_size], b"\r\n".to_vec()].concat()
        }
        _ => b"-ERR unknown command\r\n".to_vec(),
    })
}

/// Serves connections for as long as the test's process lives.
pub fn serve(behave: impl Fn(&Command) -> Answer + Send + Sync + 'static) -> SocketAddr {
    let listener = TcpListener::bind("127.0.0.1:0").expect("a free port");
    let addr = listener.local_addr().expect("bound");
    let behave = Arc::new(behave);
    let number = Arc::new(AtomicU64::new(0));
    thread::spawn(move || {
        for stream in listener.incoming().flatten() {
            let (behave, number) = (behave.clone(), number.clone());
            thread::spawn(move || serve_one(stream, &number, &*behave));
        }
    });
    addr
}

fn serve_one(stream: TcpStream, number: &AtomicU64, behave: &dyn Fn(&Command) -> Answer) {
    stream.set_nodelay(true).expect("a TCP socket");
    let mut replies = stream.try_clone().expect("a socket");
    let mut input = BufReader::new(stream);
    while let Some(words) = read_command(&mut input) {
        let command = Command {
            words,
            number: number.fetch_add(1, Ordering::Relaxed),
        };
        match behave(&command) {
            Answer::Reply(bytes) => {
                if replies.write_all(&bytes).is_err() {
                    return;
                }
            }
            Answer::Close => return,
        }
    }
}

fn read_command(input: &mut impl BufRead) -> Option<Vec<Vec<u8>>> {
    let line = read_line(input)?;
    let Some(count) = line.strip_prefix('*') else {
        return Some(
            line.split(' ')
                .map(|word| word.as_bytes().to_vec())
                .collect(),
        );
    };
    let words = 0..count.parse::<usize>().ok()?;
    words
        .map(|_| {
            let length: usize = read_line(input)?.strip_prefix('$')?.parse().ok()?;
            let mut word = vec![0; length + 2];
            input.read_exact(&mut word).ok()?;
            word.truncate(length);
            Some(word)
        })
        .collect()
}

fn read_line(input: &mut impl BufRead) -> Option<String> {
    let mut line = String::new();
    input
        .read_line(&mut line)
        .ok()
        .filter(|&length| length > 0)?;
    Some(line.trim_end().to_owned())
}
