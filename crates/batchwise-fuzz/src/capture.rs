//! A capture file: `passive --pcap` reads it to its end, or says what is wrong with it.

pub fn run(data: &[u8]) {
    if let Err(error) = batchwise::fuzzing::capture(data.to_vec()) {
        assert!(!error.to_string().is_empty());
    }
}
