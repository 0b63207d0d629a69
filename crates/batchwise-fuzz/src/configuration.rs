//! A configuration of `balance`: it holds, or the error names the line.

pub fn run(data: &[u8]) {
    let Ok(text) = std::str::from_utf8(data) else {
        return;
    };
    let Err(error) = batchwise::fuzzing::configuration(text) else {
        return;
    };
    let said = error.to_string();
    let line = said.strip_prefix("lb.toml:");
    let line = line.and_then(|rest| rest.split(':').next()?.parse().ok());
    let lines = 1..=text.matches('\n').count() + 1;
    assert!(line.is_some_and(|line| lines.contains(&line)), "{said}");
}
