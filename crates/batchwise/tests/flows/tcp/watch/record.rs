//! What was seen, as a file and as a page.

use std::fs;

use batchwise_testbed::stage::watch::Watch;
use batchwise_testbed::stage::{Stage, batchwise, connect, eventually, listen};
use tempfile::TempDir;

use super::whose::ask;

const PORT: u16 = 17_071;

#[test]
fn a_recording_becomes_a_page_with_all_in_it() {
    let stage = Stage::build("record");
    let folder = TempDir::new().expect("a folder");
    let [file, page] = ["r.jsonl.gz", "r.html"].map(|name| folder.path().join(name));
    let address = stage.hosts.server_address(PORT);
    let listener = listen(&stage.hosts.server, address);
    let client = connect(&stage.hosts.client, address);
    let (server, _) = listener.accept().expect("the client");
    let mut pair = [client, server];
    let record = file.to_str().expect("a path");
    let watch = Watch::start(&stage.hosts.server, PORT, None, &["--record", record]);
    let told = || {
        ask(&mut pair);
        let lines = watch.lines();
        (lines.len() > 8).then_some(())
    };
    eventually("lines", told, || format!("{:#?}", watch.lines()));
    let lines = watch.finish();
    let report = || {
        batchwise()
            .arg("report")
            .arg(&file)
            .arg("-o")
            .arg(&page)
            .output()
    };
    let done = report().expect("it runs");
    assert!(done.status.success(), "{done:?}");
    let text = fs::read_to_string(&page).expect("a page");
    let begin = format!("of {} in {}", lines[0].service, lines[0].netns);
    for part in [&begin, "<svg", "Requests a second"] {
        assert!(text.contains(part), "{part}: {text}");
    }

    // an agent that was killed has not ended its file
    let all = fs::read(&file).expect("a file");
    fs::write(&file, &all[..all.len() - 9]).expect("cut");
    assert!(report().expect("it runs").status.success());
    fs::write(&file, "not lines\n").expect("other text");
    let refused = report().expect("it runs");
    let said = String::from_utf8_lossy(&refused.stderr);
    assert!(
        !refused.status.success() && said.contains("--record"),
        "{said}"
    );
}
