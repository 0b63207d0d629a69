//! A capture at an endpoint or at the vantage, and what public tools make of it: round-trip times of
//! acknowledgments (Wireshark's analysis, at the client, where both directions are seen) and the
//! time from SYN to the handshake's ACK (at the vantage).

use std::collections::HashMap;
use std::fs;
use std::net::{Ipv4Addr, SocketAddr};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use anyhow::{Context as _, Result, bail};
use batchwise_testbed::host::{Host, Role};
use batchwise_testbed::process::Process;
use batchwise_testbed::stop::Stop;

use crate::truth::Sample;

/// Bytes of each packet: headers with all options.
const SNAP: &str = "160";
/// How long tcpdump may take to open its file, and to end.
const LIMIT: Duration = Duration::from_secs(10);

/// How many captures there were: their files' names differ.
static CAPTURES: AtomicUsize = AtomicUsize::new(0);

/// A running tcpdump. Its file goes when this is dropped.
#[derive(Debug)]
pub struct Capture {
    process: Process,
    file: PathBuf,
}

impl Capture {
    /// Captures the headers of what matches `filter` at `link` of `host` (`any`: at all its links).
    pub fn start(host: &Host, link: &str, filter: &str, stop: &Stop) -> Result<Self> {
        Self::begin(host, link, filter, SNAP, stop)
    }

    /// As [`Self::start`], whole packets.
    pub fn whole(host: &Host, link: &str, filter: &str, stop: &Stop) -> Result<Self> {
        Self::begin(host, link, filter, "0", stop)
    }

    fn begin(host: &Host, link: &str, filter: &str, snap: &str, stop: &Stop) -> Result<Self> {
        let number = CAPTURES.fetch_add(1, Ordering::Relaxed);
        let name = format!("bw-{}-{number}.pcap", host.namespace().name());
        let file = std::env::temp_dir().join(name);
        let _ = fs::remove_file(&file);
        let mut command = Command::new("tcpdump");
        command.args([
            "-i", link, "-s", snap, "-n", "-Z", "root", "-B", "16384", "-w",
        ]);
        command
            .arg(&file)
            .args(["--time-stamp-precision=nano", filter]);
        let mut process = host
            .spawn("tcpdump", command, Role::Observer)
            .context("tcpdump is needed (Debian: apt install tcpdump)")?;
        process.on_line(drop);
        let mut capture = Self { process, file };
        // It makes its file when it begins to capture.
        let begun = stop.wait_until(LIMIT, || {
            capture.process.check_alive()?;
            Ok(capture.file.exists().then_some(()))
        })?;
        match begun {
            Some(()) => Ok(capture),
            None => bail!(
                "tcpdump did not begin within {LIMIT:?}{}",
                capture.process.quote()
            ),
        }
    }

    /// Ends capturing; the file, which is whole then.
    pub fn end(&mut self) -> &Path {
        self.process.terminate(LIMIT);
        &self.file
    }
}

impl Drop for Capture {
    fn drop(&mut self) {
        self.process.terminate(LIMIT);
        let _ = fs::remove_file(&self.file);
    }
}

/// Round-trip times from the client's data to their acknowledgments, of a capture at the client:
/// each at the time of the acknowledgment. `server` is who acknowledges.
pub fn ack_round_trips(capture: &Path, server: Ipv4Addr) -> Result<Vec<Sample>> {
    let filter = format!("ip.src == {server} && tcp.analysis.ack_rtt");
    let fields = ["ip.dst", "tcp.dstport", "tcp.analysis.ack_rtt"];
    let rows = tshark(capture, &filter, &fields, &[])?;
    let sample = |row: &String| {
        let (at_ns, client, rtt) = parse(row)?;
        Some(Sample {
            client,
            at_ns,
            value_ns: nanoseconds(rtt.trim())? as f64,
        })
    };
    Ok(rows.iter().filter_map(sample).collect())
}

/// From each connection's SYN to the ACK that completes its handshake, of a capture of what the
/// client sends: one a connection.
pub fn handshakes(capture: &Path, server: Ipv4Addr) -> Result<Vec<Sample>> {
    // The SYN, and the first packet after it: relative acknowledgment number 1 and no data before.
    let filter = format!(
        "ip.dst == {server} && (tcp.flags.syn == 1 || (tcp.seq == 1 && tcp.ack == 1 && tcp.len == 0))"
    );
    let fields = ["ip.src", "tcp.srcport", "tcp.flags.syn"];
    Ok(first_acks(&tshark(capture, &filter, &fields, &[])?))
}

fn first_acks(rows: &[String]) -> Vec<Sample> {
    let mut began: HashMap<SocketAddr, u64> = HashMap::new();
    let mut samples = Vec::new();
    for (at_ns, client, syn) in rows.iter().filter_map(|row| parse(row)) {
        if matches!(syn, "1" | "True") {
            // The first of several: as who waits for the connection does.
            began.entry(client).or_insert(at_ns);
        } else if let Some(begin) = began.remove(&client) {
            samples.push(Sample {
                client,
                at_ns,
                value_ns: at_ns.saturating_sub(begin) as f64,
            });
        }
    }
    samples
}

/// A packet's time, the client's address, and what else was asked.
fn parse(row: &str) -> Option<(u64, SocketAddr, &str)> {
    let fields: Vec<_> = row.split('\t').collect();
    let [time, ip, port, value] = fields[..] else {
        return None;
    };
    let client = SocketAddr::new(ip.parse().ok()?, port.parse().ok()?);
    Some((nanoseconds(time)?, client, value))
}

/// HTTP/2's streams on connections to the server at this port, of a capture of whole packets: when each began (the client's
/// HEADERS), and when the frame came with which the server ended it.
pub fn streams(capture: &Path, server: u16) -> Result<Vec<(u64, u64)>> {
    let fields = [
        "tcp.srcport",
        "tcp.dstport",
        "http2.type",
        "http2.streamid",
        "http2.flags",
    ];
    let decode = format!("tcp.port=={server},http2");
    let rows = tshark(capture, "http2.type <= 1", &fields, &["-d", &decode])?;
    Ok(ended_streams(&rows, server))
}

fn ended_streams(rows: &[String], server: u16) -> Vec<(u64, u64)> {
    let (mut began, mut ended) = (HashMap::new(), Vec::new());
    for row in rows {
        let fields: Vec<_> = row.split('\t').collect();
        let [time, from, to, types, ids, flags] = fields[..] else {
            continue;
        };
        let Some(at_ns) = nanoseconds(time) else {
            continue;
        };
        let from_server = from == server.to_string();
        let client = if from_server { to } else { from };
        let frames = types.split(',').zip(ids.split(',')).zip(flags.split(','));
        for ((kind, id), flags) in frames {
            let stream = (client.to_owned(), id.to_owned());
            match (kind, from_server) {
                (HEADERS, false) => drop(began.entry(stream).or_insert(at_ns)),
                (DATA | HEADERS, true) if ends_stream(flags) => {
                    ended.extend(began.remove(&stream).map(|began| (began, at_ns)));
                }
                _ => {}
            }
        }
    }
    ended
}

/// HTTP/2's types of frames, and its flag END_STREAM (RFC 9113, section 6).
const DATA: &str = "0";
const HEADERS: &str = "1";
fn ends_stream(flags: &str) -> bool {
    let flags = u8::from_str_radix(flags.trim_start_matches("0x"), 16);
    flags.is_ok_and(|flags| flags & 1 != 0)
}

/// The time and these fields of the packets that match, a line each.
fn tshark(capture: &Path, filter: &str, fields: &[&str], more: &[&str]) -> Result<Vec<String>> {
    let mut command = Command::new("tshark");
    command.args(["-n", "-r"]).arg(capture);
    command.args(["-Y", filter, "-T", "fields", "-e", "frame.time_epoch"]);
    command.args(fields.iter().flat_map(|field| ["-e", field]));
    command.args(more);
    // Only what is needed is dissected.
    command.args(["--disable-protocol", "http", "--disable-protocol", "tls"]);
    command.stdin(Stdio::null());
    let output = command
        .output()
        .context("tshark is needed (Debian: apt install tshark)")?;
    // It complains of a last packet that is cut short, and gives the rest.
    if !output.status.success() && output.stdout.is_empty() {
        let message = String::from_utf8_lossy(&output.stderr);
        bail!("tshark cannot read {capture:?}: {}", message.trim());
    }
    let text = String::from_utf8_lossy(&output.stdout);
    Ok(text.lines().map(str::to_owned).collect())
}

/// Decimal seconds as nanoseconds, without the rounding of a float.
pub(super) fn nanoseconds(seconds: &str) -> Option<u64> {
    let (whole, part) = seconds.split_once('.').unwrap_or((seconds, ""));
    let whole: u64 = whole.parse().ok()?;
    let part = format!("{part:0<9.9}").parse().ok()?;
    whole.checked_mul(1_000_000_000)?.checked_add(part)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn seconds_keep_their_nanoseconds() {
        assert_eq!(
            nanoseconds("1795325027.123456789"),
            Some(1_795_325_027_123_456_789)
        );
        assert_eq!(nanoseconds("0.000071"), Some(71_000));
        assert_eq!(nanoseconds("2"), Some(2_000_000_000));
        assert_eq!(nanoseconds("soon"), None);
    }

    #[test]
    fn a_stream_lasts_from_the_clients_headers_to_the_frame_that_ends_it() {
        let rows = [
            "1.000000000\t5000\t80\t1,0\t1,1\t0x04,0x01",
            "1.000100000\t5000\t80\t1,0\t3,3\t0x04,0x01",
            "1.000300000\t80\t5000\t1,0\t3,3\t0x04,0x00",
            "1.000400000\t80\t5000\t1,1,0\t3,1,1\t0x05,0x04,0x00",
            "1.000900000\t80\t5000\t1\t1\t0x05",
        ]
        .map(str::to_owned);
        let at = |us: u64| 1_000_000_000 + us * 1000;
        assert_eq!(
            ended_streams(&rows, 80),
            [(at(100), at(400)), (at(0), at(900))]
        );
    }

    #[test]
    fn a_handshake_lasts_from_the_first_syn_to_the_first_ack() {
        let rows = [
            "1.000000000\t10.78.0.2\t5000\t1",
            "1.100000000\t10.78.0.2\t5001\tTrue",
            "2.000000000\t10.78.0.2\t5000\t1",
            "2.000500000\t10.78.0.2\t5000\t0",
            "2.100000000\t10.78.0.2\t5000\t0",
            "1.100200000\t10.78.0.2\t5001\tFalse",
        ]
        .map(str::to_owned);
        let found = first_acks(&rows);
        let seen = found.iter().map(|s| (s.client.port(), s.value_ns));
        assert!(seen.eq([(5000, 1.0005e9), (5001, 2e5)]));
    }
}
