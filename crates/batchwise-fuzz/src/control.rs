//! A connection to the control socket: any bytes are answered by a line of JSON, and a request that is read
//! is read again from its own JSON.

use std::io::{Read, Write};
use std::net::Shutdown;
use std::os::unix::net::UnixStream;

use batchwise::fuzzing::{control, request};

pub fn run(data: &[u8]) {
    if let Ok(asked) = request(data) {
        let line = serde_json::to_vec(&asked).expect("JSON");
        assert_eq!(request(&line), Ok(asked));
    }
    let (mut ours, theirs) = UnixStream::pair().expect("a pair");
    ours.write_all(data).expect("room");
    ours.shutdown(Shutdown::Write).expect("half closed");
    control(theirs).expect("an answer was sent");
    let mut answer = String::new();
    ours.read_to_string(&mut answer).expect("an answer");
    let answer: serde_json::Value = serde_json::from_str(&answer).expect("JSON");
    assert_eq!(answer["ok"], false);
}
