//! What a backend answers to a health check: its status does not change as more of the answer comes.

use batchwise::fuzzing::health;

pub fn run(data: &[u8]) {
    let begin = data.get(..data.len() / 2).unwrap_or_default();
    if let (Ok(Some(first)), Ok(status)) = (health(begin), health(data)) {
        assert_eq!(status, Some(first));
    }
}
