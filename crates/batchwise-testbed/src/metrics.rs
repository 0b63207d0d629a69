//! An agent's metrics, as Prometheus asks for them, and what a Prometheus answers.

use std::io::{Read as _, Write as _};
use std::net::{SocketAddr, TcpStream};
use std::time::Duration;

use anyhow::{Context as _, Result, bail};
use serde_json::Value;

use crate::host::Host;

/// The whole answer, its head included. Each step takes at most so long.
pub fn scrape(host: &Host, address: SocketAddr, patience: Duration) -> Result<String> {
    let request = "GET /metrics HTTP/1.1\r\nHost: bw\r\nConnection: close\r\n\r\n";
    get(host, address, request, patience)
}

/// What a Prometheus finds by a path of its interface, such as `query?query=up`: the series.
pub fn ask(host: &Host, address: SocketAddr, path: &str, patience: Duration) -> Result<Vec<Value>> {
    // the older version is answered in one piece
    let request = format!("GET /api/v1/{path} HTTP/1.0\r\nHost: bw\r\n\r\n");
    let answer = get(host, address, &request, patience)?;
    let (_, body) = answer.split_once("\r\n\r\n").context("no answer")?;
    let mut body: Value = serde_json::from_str(body).context("no JSON")?;
    if body["status"] != "success" {
        bail!("{path}: {body}");
    }
    match body["data"]["result"].take() {
        Value::Array(series) => Ok(series),
        other => bail!("{path}: {other}"),
    }
}

/// A query as a part of a path.
pub fn encoded(query: &str) -> String {
    query.bytes().map(|b| format!("%{b:02x}")).collect()
}

fn get(host: &Host, address: SocketAddr, request: &str, patience: Duration) -> Result<String> {
    host.inside(|| {
        let mut stream = TcpStream::connect_timeout(&address, patience)
            .with_context(|| format!("connecting to {address}"))?;
        stream.set_read_timeout(Some(patience))?;
        stream.set_write_timeout(Some(patience))?;
        stream.write_all(request.as_bytes())?;
        let mut answer = String::new();
        stream.read_to_string(&mut answer)?;
        Ok(answer)
    })
}
