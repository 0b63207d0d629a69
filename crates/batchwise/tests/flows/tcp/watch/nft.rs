//! Packet filters of a host that hurt traffic on purpose; removed when dropped.

use std::io::Write;
use std::process::{Command, Stdio};

use batchwise_testbed::host::Host;

/// The middlebox that knows nothing of option 253.
pub const STRIP: &str = "tcp option 253 exists counter reset tcp option 253";
/// The same, on handshakes only.
pub const STRIP_SYN: &str =
    "tcp flags & syn == syn tcp option 253 exists counter reset tcp option 253";
/// A bad link: every 50th segment is lost.
pub const LOSS: &str = "meta l4proto tcp numgen random mod 50 == 0 counter drop";

/// A rule on all that arrives at a host.
pub struct Filter<'a> {
    host: &'a Host,
}

impl<'a> Filter<'a> {
    /// Applies `rule` to what arrives at `host` from now on.
    pub fn add(host: &'a Host, rule: &str) -> Self {
        let table = format!(
            "table inet bw {{\nchain arrivals {{\n\
             type filter hook prerouting priority raw\n{rule}\n}}\n}}\n"
        );
        nft(host, &table);
        Self { host }
    }

    /// How many packets met the rule's counter.
    pub fn hits(&self) -> u64 {
        let shown = nft(self.host, "list table inet bw");
        let hits = shown.split("counter packets ").nth(1);
        let hits = hits.and_then(|rest| rest.split_whitespace().next());
        hits.and_then(|n| n.parse().ok())
            .unwrap_or_else(|| panic!("no counter in {shown}"))
    }
}

impl Drop for Filter<'_> {
    fn drop(&mut self) {
        nft(self.host, "delete table inet bw");
    }
}

fn nft(host: &Host, script: &str) -> String {
    let output = host.inside(|| {
        let mut nft = Command::new("nft")
            .args(["-f", "-"])
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()?;
        if let Some(mut stdin) = nft.stdin.take() {
            stdin.write_all(script.as_bytes())?;
        }
        Ok(nft.wait_with_output()?)
    });
    let output = output.expect("nft is needed (Debian: apt install nftables)");
    let errors = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(output.status.success(), "nft {script:?}: {errors}");
    String::from_utf8_lossy(&output.stdout).into_owned()
}
