//! Builds the real segment and asks its servers by the virtual address. Needs root.

use std::io::{Read as _, Write as _};
use std::net::{IpAddr, SocketAddr, TcpListener, TcpStream};
use std::time::Duration;

use batchwise_testbed::cgroup;
use batchwise_testbed::host::{Host, Namespace, ip};
use batchwise_testbed::segment::{self, LINK, SERVERS, Segment, SegmentSpec, VIP, VIP6};

const TIMEOUT: Duration = Duration::from_secs(5);
const PORT: u16 = 8080;

fn build(what: &str, spec: SegmentSpec) -> Segment {
    assert!(
        nix::unistd::geteuid().is_root(),
        "this test makes network namespaces and cgroups: run it as root"
    );
    Segment::build(&format!("{what}{}", std::process::id()), spec).unwrap()
}

/// Lets the balancer's kernel forward what is for the virtual addresses to one server.
fn forward_to(segment: &Segment, server: u8) {
    let namespace = segment.balancer.namespace();
    namespace.set_sysctl("net/ipv4/ip_forward", "1").unwrap();
    let forwarding = "net/ipv6/conf/all/forwarding";
    namespace.set_sysctl(forwarding, "1").unwrap();
    let (v4, v6) = segment::server(server);
    for (vip, via) in [(VIP.into(), v4.into()), (VIP6.into(), v6.into())] {
        let (vip, via): (IpAddr, IpAddr) = (vip, via);
        let (vip, via, n) = (vip.to_string(), via.to_string(), namespace.name());
        ip(&["-n", n, "route", "replace", &vip, "via", &via, "dev", LINK]).unwrap();
    }
}

fn listen(server: &Host, address: IpAddr) -> TcpListener {
    let bind = || Ok(TcpListener::bind((address, PORT))?);
    server.inside(bind).unwrap()
}

fn connect(client: &Host, address: IpAddr) -> std::io::Result<TcpStream> {
    let address = SocketAddr::from((address, PORT));
    let connect = || Ok(TcpStream::connect_timeout(&address, TIMEOUT));
    let stream = client.inside(connect).unwrap()?;
    stream.set_read_timeout(Some(TIMEOUT))?;
    Ok(stream)
}

#[test]
fn the_server_that_the_balancer_chose_answers_from_the_virtual_address() {
    let segment = build("sg", SegmentSpec::default());
    segment.receive_on_own_cpus().unwrap();
    for vip in [IpAddr::from(VIP), IpAddr::from(VIP6)] {
        let servers = segment.servers.iter();
        let listeners: Vec<_> = servers.map(|server| listen(server, vip)).collect();
        for chosen in 0..SERVERS {
            forward_to(&segment, chosen);
            for client in &segment.clients {
                let mut stream = connect(client, vip).unwrap();
                let (mut accepted, _) = listeners[usize::from(chosen)].accept().unwrap();
                accepted.write_all(&[chosen; 10_000]).unwrap();
                let mut received = vec![0; 10_000];
                stream.read_exact(&mut received).unwrap();
                assert!(received.iter().all(|&byte| byte == chosen));
            }
        }
    }
}

#[test]
fn nobody_answers_the_virtual_address_by_himself() {
    let segment = build("sn", SegmentSpec::default());
    let _listening = listen(&segment.servers[0], VIP.into());
    // A client that asks the LAN itself who has it.
    let client = &segment.clients[0];
    let n = client.namespace().name();
    ip(&["-n", n, "route", "replace", "10.79.9.1/32", "dev", LINK]).unwrap();
    assert!(connect(client, VIP.into()).is_err());
}

#[test]
fn nothing_of_a_segment_remains() {
    let tag = format!("se{}", std::process::id());
    drop(build("se", SegmentSpec { mtu: 1600 }));
    for role in ["c1", "c2", "lb", "s1", "s2", "s3", "s4", "net"] {
        let name = format!("bw-{tag}-{role}");
        assert!(!Namespace::file(&name).exists(), "namespace {name} remains");
    }
    let root = cgroup::mount_point().unwrap().join(format!("bw-{tag}"));
    assert!(!root.exists());
}
