//! nginx as the web server of a host: one process, its configuration and its files in a directory
//! of its own, text compressed so that requests cost it CPU time.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context as _, Result};
use nix::unistd::Pid;
use tempfile::TempDir;

use crate::host::Host;
use crate::process::Process;
use crate::server;
use crate::stop::Stop;

/// The port of the server.
pub const PORT: u16 = 8080;
/// Requests on one connection: more than any run makes.
const KEEPALIVE_REQUESTS: u64 = 1_000_000_000;

/// A running nginx.
#[derive(Debug)]
pub struct Nginx {
    process: Process,
    // Outlives the process: fields are dropped in order.
    prefix: TempDir,
}

impl Nginx {
    /// Starts it in `host`, at [`PORT`], and waits until it answers. `fill` puts the site into the
    /// directory that it is given.
    pub fn start(host: &Host, stop: &Stop, fill: impl FnOnce(&Path) -> Result<()>) -> Result<Self> {
        Self::start_changed(host, stop, fill, |_| ())
    }

    /// The same after `change` changed the command, such as its environment.
    pub fn start_changed(
        host: &Host,
        stop: &Stop,
        fill: impl FnOnce(&Path) -> Result<()>,
        change: impl FnOnce(&mut Command),
    ) -> Result<Self> {
        let prefix = TempDir::with_prefix("bw-nginx-").context("making a directory")?;
        let site = prefix.path().join("site");
        fs::create_dir(&site).with_context(|| format!("making {}", site.display()))?;
        fill(&site)?;
        let file = prefix.path().join("nginx.conf");
        fs::write(&file, configuration()).with_context(|| format!("writing {}", file.display()))?;

        let mut command = Command::new("nginx");
        command
            .arg("-p")
            .arg(prefix.path())
            .args(["-c", "nginx.conf", "-e", "stderr"]);
        change(&mut command);
        let names = ("nginx", "nginx-light");
        let process = server::start(host, names, command, PORT, |_| Ok(()), stop)?;
        Ok(Self { process, prefix })
    }

    /// Its process id: it has one process.
    pub fn pid(&self) -> Pid {
        self.process.pid()
    }

    /// The directory of the site.
    pub fn site(&self) -> PathBuf {
        self.prefix.path().join("site")
    }

    /// Fails when it has died.
    pub fn check_alive(&mut self) -> Result<()> {
        self.process.check_alive()
    }
}

fn configuration() -> String {
    format!(
        "# One process, so that a quota and a CPU are all of it.
daemon off;
master_process off;
user root;
pid nginx.pid;
error_log stderr warn;
events {{ worker_connections 4096; }}
http {{
  access_log off;
  types {{
    text/html html;
    text/css css;
    application/javascript js;
    application/json json;
    image/jpeg jpg;
    image/png png;
  }}
  default_type application/octet-stream;
  gzip on;
  gzip_comp_level 1;
  gzip_min_length 256;
  gzip_types text/css application/javascript application/json;
  keepalive_requests {KEEPALIVE_REQUESTS};
  keepalive_timeout 600s;
  tcp_nodelay on;
  sendfile off;
  open_file_cache max=10000 inactive=600s;
  client_body_temp_path body;
  proxy_temp_path proxy;
  fastcgi_temp_path fastcgi;
  uwsgi_temp_path uwsgi;
  scgi_temp_path scgi;
  server {{
    listen 0.0.0.0:{PORT} backlog=4096;
    listen [::]:{PORT} backlog=4096;
    root site;
  }}
}}
"
    )
}
