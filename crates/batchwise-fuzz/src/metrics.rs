//! A client of the metrics: it gets an HTTP answer or none.

pub fn run(data: &[u8]) {
    let answer = batchwise::fuzzing::metrics(data).expect("memory does not fail");
    assert!(answer.is_empty() || answer.starts_with(b"HTTP/1."));
}
