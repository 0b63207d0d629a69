//! What Kubernetes calls the pods of this node: its kubelet is asked at the start, and again now and then, by a thread
//! of its own.

use std::collections::HashMap;
use std::fs;
use std::net::IpAddr;
use std::sync::mpsc::{Receiver, RecvTimeoutError};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use anyhow::{Context as _, bail};
use batchwise_core::sense::process::Pod;
use serde::Deserialize;
use ureq::http::Uri;
use ureq::tls::TlsConfig;

use crate::frame::companion::Companion;
use crate::frame::tls::roots;

/// Where a kubelet listens.
pub const KUBELET: &str = "https://127.0.0.1:10250";
/// Where a pod finds who it is, and whom to trust.
const ACCOUNT: &str = "/var/run/secrets/kubernetes.io/serviceaccount";
const EVERY: Duration = Duration::from_secs(30);
const TIMEOUT: Duration = Duration::from_secs(10);
/// A node runs 110 unless it was told otherwise; more have no names.
const MOST_PODS: usize = 1_000;
/// Of an answer.
const MOST_BYTES: u64 = 64 << 20;

/// By uid.
type Pods = HashMap<String, Pod>;

/// Until it is dropped.
#[derive(Debug)]
pub struct Kube {
    pods: Arc<Mutex<Pods>>,
    _companion: Companion,
}

impl Kube {
    /// Asks once, so that what is wrong is said at the start.
    pub fn start(url: &str) -> anyhow::Result<Self> {
        let kubelet = Kubelet::new(url)?;
        let pods = Arc::new(Mutex::new(kubelet.pods()?));
        let known = Arc::clone(&pods);
        let ask = move |stopped: Receiver<()>| {
            let mut is_away = false;
            while stopped.recv_timeout(EVERY) == Err(RecvTimeoutError::Timeout) {
                let found = kubelet.pods();
                if let (Err(error), false) = (&found, is_away) {
                    tracing::warn!("names of pods stay as they were: {error:#}");
                }
                is_away = found.is_err();
                if let Ok(found) = found {
                    *known.lock().unwrap_or_else(PoisonError::into_inner) = found;
                }
            }
        };
        Ok(Self {
            pods,
            _companion: Companion::start("kube", ask)?,
        })
    }

    pub fn pod(&self, uid: &str) -> Option<Pod> {
        let pods = self.pods.lock().unwrap_or_else(PoisonError::into_inner);
        pods.get(uid).cloned()
    }
}

struct Kubelet {
    url: String,
    agent: ureq::Agent,
}

impl Kubelet {
    fn new(url: &str) -> anyhow::Result<Self> {
        let uri: Uri = url.parse().with_context(|| format!("--kube {url}"))?;
        let host = uri.host().unwrap_or_default();
        if !matches!(uri.scheme_str(), Some("http" | "https")) || host.is_empty() {
            bail!("--kube {url}: not a URL such as {KUBELET}");
        }
        let mut tls = TlsConfig::builder();
        let address = host.trim_matches(['[', ']']).parse::<IpAddr>();
        if host == "localhost" || address.is_ok_and(|address| address.is_loopback()) {
            // on the node itself; most kubelets have signed for themselves
            tls = tls.disable_verification(true);
        } else if let Ok(pem) = fs::read(format!("{ACCOUNT}/ca.crt")) {
            tls = tls.root_certs(roots(&pem));
        }
        let config = ureq::Agent::config_builder()
            .timeout_global(Some(TIMEOUT))
            .http_status_as_error(false)
            .tls_config(tls.build());
        Ok(Self {
            url: format!("{}/pods", url.trim_end_matches('/')),
            agent: config.build().into(),
        })
    }

    fn pods(&self) -> anyhow::Result<Pods> {
        let url = &self.url;
        let mut get = self.agent.get(url);
        // it is renewed every hour
        if let Ok(token) = fs::read_to_string(format!("{ACCOUNT}/token")) {
            get = get.header("Authorization", format!("Bearer {}", token.trim()));
        }
        let mut answer = get.call().with_context(|| format!("asking {url}"))?;
        match answer.status().as_u16() {
            200 => {}
            401 | 403 => bail!(
                "{url} refuses: run in a pod whose service account may get `nodes/proxy`, as the Helm chart's may with `watch.kube`"
            ),
            other => bail!("{url} answers {other}: it is not a kubelet"),
        }
        let body = answer.body_mut().with_config().limit(MOST_BYTES);
        let body = body
            .read_to_vec()
            .with_context(|| format!("reading {url}"))?;
        read(&body).with_context(|| format!("{url} does not answer with a list of pods"))
    }
}

#[derive(Deserialize)]
struct List {
    items: Vec<Item>,
}

#[derive(Deserialize)]
struct Item {
    metadata: Metadata,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Metadata {
    name: String,
    namespace: String,
    uid: String,
    #[serde(default)]
    labels: HashMap<String, String>,
    #[serde(default)]
    annotations: HashMap<String, String>,
    #[serde(default)]
    owner_references: Vec<Owner>,
}

#[derive(Deserialize)]
struct Owner {
    name: String,
}

fn read(body: &[u8]) -> serde_json::Result<Pods> {
    let list: List = serde_json::from_slice(body)?;
    let named = |Item { metadata: of }: Item| {
        // the cgroup of a pod that comes from a file has the file's hash
        let hash = of.annotations.get("kubernetes.io/config.hash").cloned();
        let pod = Pod {
            workload: workload(&of),
            namespace: of.namespace,
            name: of.name,
        };
        let hash = hash.map(|hash| (hash, pod.clone()));
        hash.into_iter().chain([(of.uid, pod)])
    };
    let items = list.items.into_iter().take(MOST_PODS);
    Ok(items.flat_map(named).collect())
}

/// Whoever made it: a Deployment makes it by a ReplicaSet, whose name has a hash at its end.
fn workload(of: &Metadata) -> String {
    let Some(owner) = of.owner_references.first() else {
        return of.name.clone();
    };
    let hash = of.labels.get("pod-template-hash");
    let ending = hash.map(|hash| format!("-{hash}"));
    let bare = ending.and_then(|ending| owner.name.strip_suffix(&ending));
    bare.unwrap_or(&owner.name).to_owned()
}

#[cfg(test)]
mod tests {
    use std::io::{Read as _, Write as _};
    use std::net::TcpListener;

    use super::*;

    const LIST: &str = r#"{"kind": "PodList", "apiVersion": "v1", "metadata": {}, "items": [
        {"metadata": {"name": "web-7d4b9c-x2x4q", "namespace": "shop", "uid": "8dbc11a7-0c1e-4f2a-9a54-1b6a3c1d2e3f",
            "labels": {"app": "web", "pod-template-hash": "7d4b9c"},
            "ownerReferences": [{"apiVersion": "apps/v1", "kind": "ReplicaSet", "name": "web-7d4b9c", "uid": "1", "controller": true}]},
         "spec": {"containers": []}, "status": {"phase": "Running"}},
        {"metadata": {"name": "db-0", "namespace": "shop", "uid": "b", "ownerReferences": [{"kind": "StatefulSet", "name": "db"}]}},
        {"metadata": {"name": "etcd-node1", "namespace": "kube-system", "uid": "c",
            "annotations": {"kubernetes.io/config.hash": "0123456789abcdef0123456789abcdef"}}}]}"#;

    #[test]
    fn a_pod_is_named_with_the_workload_that_made_it() {
        let pods = read(LIST.as_bytes()).expect("a list");
        for (uid, [namespace, name, workload]) in [
            (
                "8dbc11a7-0c1e-4f2a-9a54-1b6a3c1d2e3f",
                ["shop", "web-7d4b9c-x2x4q", "web"],
            ),
            ("b", ["shop", "db-0", "db"]),
            (
                "0123456789abcdef0123456789abcdef",
                ["kube-system", "etcd-node1", "etcd-node1"],
            ),
        ] {
            let pod = &pods[uid];
            assert_eq!(
                [&pod.namespace, &pod.name, &pod.workload],
                [namespace, name, workload]
            );
        }
    }

    /// Answers one request with this.
    fn kubelet(status: &'static str, body: &'static str) -> String {
        let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
        let address = listener.local_addr().expect("its address");
        std::thread::spawn(move || {
            let (mut stream, _) = listener.accept().expect("a client");
            let _ = stream.read(&mut [0; 4096]);
            let length = body.len();
            let head = format!(
                "HTTP/1.1 {status}\r\nContent-Length: {length}\r\nConnection: close\r\n\r\n"
            );
            let _ = stream.write_all((head + body).as_bytes());
        });
        format!("http://{address}")
    }

    #[test]
    fn a_kubelet_is_asked_at_the_start_and_what_is_wrong_is_said() {
        let kube = Kube::start(&kubelet("200 OK", LIST)).expect("it answers");
        assert_eq!(kube.pod("b").map(|pod| pod.workload).as_deref(), Some("db"));
        assert_eq!(kube.pod("another"), None);
        for (status, body, remedy) in [
            ("403 Forbidden", "", "nodes/proxy"),
            ("404 Not Found", "", "not a kubelet"),
            ("200 OK", "hello", "list of pods"),
        ] {
            let refused = Kube::start(&kubelet(status, body))
                .map(drop)
                .expect_err(status);
            assert!(format!("{refused:#}").contains(remedy), "{refused:#}");
        }
        let refused = Kube::start("node1").map(drop).expect_err("no URL");
        assert!(
            format!("{refused:#}").contains("--kube node1"),
            "{refused:#}"
        );
    }
}
