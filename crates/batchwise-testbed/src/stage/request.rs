//! A request and its answer, on a connection of the test's own.

use std::io::{Read, Write};
use std::net::TcpStream;

/// Sends `request` and reads until the answer ends with `end`.
pub fn ask(stream: &mut TcpStream, request: &[u8], end: &[u8]) -> Vec<u8> {
    stream.write_all(request).expect("the request is sent");
    let mut answer = Vec::new();
    let mut buffer = [0; 16 << 10];
    while !answer.ends_with(end) {
        let n = stream.read(&mut buffer).expect("an answer");
        assert!(n > 0, "the server closed the connection after {answer:?}");
        answer.extend_from_slice(&buffer[..n]);
    }
    answer
}
