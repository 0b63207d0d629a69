//! Builds the real triangle, sends through it, and checks who saw what. Needs root.

use std::collections::BTreeMap;
use std::io::{Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream, UdpSocket};
use std::path::Path;
use std::process::Command;
use std::time::Duration;

use batchwise_testbed::cgroup;
use batchwise_testbed::cpu_share::CpuShare;
use batchwise_testbed::cpu_share::trace::Trace;
use batchwise_testbed::host::{Host, Namespace, Role};
use batchwise_testbed::process::cpu_time;
use batchwise_testbed::stop::Stop;
use batchwise_testbed::triangle::{Triangle, TriangleSpec};
use batchwise_testbed::wire::WireSpec;
use nix::sys::socket::{getsockopt, sockopt};

const TIMEOUT: Duration = Duration::from_secs(10);

fn build(what: &str, spec: &TriangleSpec) -> Triangle {
    assert!(
        nix::unistd::geteuid().is_root(),
        "this test makes network namespaces and cgroups: run it as root"
    );
    Triangle::build(&format!("{what}{}", std::process::id()), spec).unwrap()
}

/// Counts, at the vantage, packets that it forwards from the client and from the server.
fn count_forwarded(triangle: &Triangle) {
    let rules = "
        table inet bw {
            counter requests {}
            counter responses {}
            chain forward {
                type filter hook forward priority 0;
                ip saddr 10.78.0.2 counter name requests
                ip6 saddr fd78::2 counter name requests
                ip saddr 10.78.0.1 counter name responses
                ip6 saddr fd78::1 counter name responses
            }
        }";
    nft(triangle, &[rules]);
}

fn nft(triangle: &Triangle, arguments: &[&str]) -> Vec<u8> {
    let run = || Ok(Command::new("nft").args(arguments).output()?);
    let output = triangle.vantage.inside(run).unwrap();
    assert!(output.status.success(), "{output:?}");
    output.stdout
}

fn forwarded(triangle: &Triangle) -> BTreeMap<String, u64> {
    let listed = nft(triangle, &["-j", "list", "counters"]);
    let listed: serde_json::Value = serde_json::from_slice(&listed).unwrap();
    let counters = listed["nftables"].as_array().unwrap().iter();
    counters
        .filter_map(|entry| {
            let counter = entry.get("counter")?;
            let name = counter["name"].as_str()?.to_owned();
            Some((name, counter["packets"].as_u64()?))
        })
        .collect()
}

fn udp(host: &Host, address: &str) -> UdpSocket {
    let socket = host.inside(|| Ok(UdpSocket::bind(address)?)).unwrap();
    socket.set_read_timeout(Some(TIMEOUT)).unwrap();
    socket
}

fn tcp_pair(triangle: &Triangle, address: &str) -> (TcpStream, TcpStream) {
    let address: SocketAddr = address.parse().unwrap();
    let listen = || Ok(TcpListener::bind(address)?);
    let listener = triangle.server.inside(listen).unwrap();
    let connect = || Ok(TcpStream::connect_timeout(&address, TIMEOUT)?);
    let client = triangle.client.inside(connect).unwrap();
    let (server, _) = listener.accept().unwrap();
    for end in [&client, &server] {
        end.set_read_timeout(Some(TIMEOUT)).unwrap();
        end.set_nodelay(true).unwrap();
    }
    (client, server)
}

fn exchange(client: &mut TcpStream, server: &mut TcpStream, response: usize) {
    client.write_all(b"request!").unwrap();
    let mut request = [0; 8];
    server.read_exact(&mut request).unwrap();
    assert_eq!(&request, b"request!");
    // In a thread: it may be more than the sockets hold.
    std::thread::scope(|scope| {
        scope.spawn(|| server.write_all(&vec![7; response]).unwrap());
        let mut received = vec![0; response];
        client.read_exact(&mut received).unwrap();
        assert!(received.iter().all(|&byte| byte == 7));
    });
}

#[test]
fn requests_pass_the_vantage_and_responses_do_not() {
    let mut triangle = build("tr", &TriangleSpec::default());
    triangle.receive_on_own_cpus().unwrap();
    count_forwarded(&triangle);
    for address in ["10.78.0.1:7000", "[fd78::1]:7000"] {
        let (mut client, mut server) = tcp_pair(&triangle, address);
        for _ in 0..10 {
            exchange(&mut client, &mut server, 100_000);
        }
        let congestion = getsockopt(&client, sockopt::TcpCongestion).unwrap();
        assert_eq!(congestion.to_string_lossy().trim_end_matches('\0'), "cubic");
    }
    let tcp = forwarded(&triangle);
    assert!(tcp["requests"] > 20, "{tcp:?}");

    for (server, client) in [
        ("10.78.0.1:7001", "10.78.0.2:0"),
        ("[fd78::1]:7001", "[fd78::2]:0"),
    ] {
        let socket = udp(&triangle.server, server);
        let client = udp(&triangle.client, client);
        client.send_to(b"ping", server).unwrap();
        let mut buffer = [0; 16];
        let (length, from) = socket.recv_from(&mut buffer).unwrap();
        assert_eq!(&buffer[..length], b"ping");
        socket.send_to(b"pong", from).unwrap();
        let (length, from) = client.recv_from(&mut buffer).unwrap();
        assert_eq!(
            (&buffer[..length], from),
            (&b"pong"[..], server.parse().unwrap())
        );
    }
    let all = forwarded(&triangle);
    assert_eq!(
        all["requests"],
        tcp["requests"] + 2,
        "a datagram of each family"
    );
    assert_eq!(all["responses"], 0, "the vantage saw a response");
    triangle.check().unwrap();
}

#[test]
fn nothing_of_a_triangle_remains() {
    let spec = TriangleSpec {
        access: Some(WireSpec::default()),
        back: Some(WireSpec::default()),
    };
    let tag = format!("tn{}", std::process::id());
    drop(build("tn", &spec));
    for role in ["cli", "van", "srv", "wire", "back"] {
        let name = format!("bw-{tag}-{role}");
        assert!(!Namespace::file(&name).exists(), "namespace {name} remains");
    }
    let root = cgroup::mount_point().unwrap().join(format!("bw-{tag}"));
    assert!(!root.exists());
}

#[test]
fn a_wire_at_the_access_loses_what_it_was_asked_to_and_tcp_goes_on() {
    let spec = TriangleSpec {
        access: Some(WireSpec {
            seed: 3,
            ..WireSpec::losing(0.02)
        }),
        back: None,
    };
    let mut triangle = build("tl", &spec);
    count_forwarded(&triangle);
    let address = "10.78.0.1:7000";
    let server = udp(&triangle.server, address);
    let client = udp(&triangle.client, "10.78.0.2:0");
    server.set_nonblocking(true).unwrap();
    let sent = 5000u64;
    for i in 0..sent {
        client.send_to(&i.to_le_bytes(), address).unwrap();
        if i % 100 == 0 {
            std::thread::sleep(Duration::from_millis(1));
        }
    }
    let wire = triangle.access.as_ref().unwrap();
    let done = || Ok((wire.counts().arrived >= sent).then_some(()));
    Stop::default()
        .wait_until(TIMEOUT, done)
        .unwrap()
        .expect("every datagram at the wire");
    let counts = wire.counts();
    // Besides the datagrams: what IPv6 itself says of its multicast groups.
    let others = counts.arrived - sent;
    assert!(others <= 10 && counts.overflowed == 0, "{counts:?}");
    assert!((50..150).contains(&counts.lost), "{counts:?}");
    let all = || {
        let seen = forwarded(&triangle)["requests"];
        Ok((seen >= sent - counts.lost).then_some(seen))
    };
    let seen = Stop::default().wait_until(TIMEOUT, all).unwrap();
    let seen = seen.expect("all that was not lost at the vantage");
    assert!(seen <= sent - counts.lost + others, "{seen} of {counts:?}");
    let received = std::iter::from_fn(|| server.recv(&mut [0; 16]).ok()).count() as u64;
    // The receiver's own buffer may have been too small for all.
    assert!(received > 0 && received <= seen);

    let (mut client, mut server) = tcp_pair(&triangle, "10.78.0.1:7001");
    for _ in 0..200 {
        exchange(&mut client, &mut server, 2000);
    }
    assert!(triangle.access.as_ref().unwrap().counts().lost > counts.lost);
    triangle.check().unwrap();
}

#[test]
fn a_wire_can_be_set_anew_and_reorders() {
    let spec = TriangleSpec {
        access: Some(WireSpec::default()),
        back: None,
    };
    let mut triangle = build("tw", &spec);
    let address = "10.78.0.1:7000";
    let server = udp(&triangle.server, address);
    let client = udp(&triangle.client, "10.78.0.2:0");
    let reordering = WireSpec {
        hold: Duration::from_millis(20), // until the next frames are sent also on a slow machine
        ..WireSpec::reordering(0.25)
    };
    let orders = [WireSpec::default(), reordering].map(|spec| {
        triangle.access.as_ref().unwrap().set(&spec);
        let mut order = Vec::new();
        for burst in 0..20u8 {
            for i in 0..10u8 {
                client.send_to(&[burst * 10 + i], address).unwrap();
            }
            for _ in 0..10 {
                let mut byte = [0];
                server.recv_from(&mut byte).unwrap();
                order.push(byte[0]);
            }
        }
        order
    });
    assert!(
        orders[0].is_sorted() && !orders[1].is_sorted(),
        "{orders:?}"
    );
    let counts = triangle.access.as_ref().unwrap().counts();
    assert!(counts.reordered > 20 && counts.lost == 0, "{counts:?}");
    triangle.check().unwrap();
}

#[test]
fn a_wire_on_the_way_back_delays_responses() {
    let delay = Duration::from_millis(20);
    let spec = TriangleSpec {
        access: None,
        back: Some(WireSpec::delaying(delay, Duration::ZERO)),
    };
    let mut triangle = build("tb", &spec);
    let (mut client, mut server) = tcp_pair(&triangle, "10.78.0.1:7000");
    for _ in 0..5 {
        let before = std::time::Instant::now();
        exchange(&mut client, &mut server, 1000);
        assert!(before.elapsed() >= delay);
    }
    let counts = triangle.back.as_ref().unwrap().counts();
    assert!(counts.passed >= 5 && counts.overflowed == 0, "{counts:?}");
    triangle.check().unwrap();
}

#[test]
fn a_server_gets_the_share_of_a_cpu_that_a_trace_gives_it() {
    let triangle = build("tc", &TriangleSpec::default());
    let mut command = Command::new("sh");
    command.args(["-c", "while :; do :; done"]);
    let spinner = triangle
        .server
        .spawn("a spinner", command, Role::Workload)
        .unwrap();
    let share = CpuShare::of(&triangle.server, &[spinner.pid()]).unwrap();
    let step = Duration::from_secs(1);
    let trace = Trace::steps_of(&[0.3], step, step);
    let follower = share.follow(trace);
    let given = || Ok((!follower.applied().is_empty()).then_some(()));
    let given = Stop::default().wait_until(TIMEOUT, given).unwrap();
    given.expect("the share in force");
    let (before, began) = (cpu_time(spinner.pid()).unwrap(), std::time::Instant::now());
    std::thread::sleep(step);
    let used = cpu_time(spinner.pid()).unwrap() - before;
    let used = used.as_secs_f64() / began.elapsed().as_secs_f64();
    let (share, applied) = follower.finish().unwrap();
    assert_eq!(applied.len(), 1);
    assert_eq!(applied[0].share, 0.3);
    // Never more than was given, but for the rounding of the scheduler; less on a busy machine.
    assert!(used < 0.36, "{used}");
    share.release().unwrap();
    assert!(
        Path::new(&format!("/proc/{}", spinner.pid())).exists(),
        "it was ended"
    );
}
