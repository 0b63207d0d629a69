//! Builds the real topology, uses it, and checks that nothing of it remains. Needs root.

use std::fs;
use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};
use std::path::Path;
use std::process::Command;
use std::time::Duration;

use batchwise_testbed::cgroup;
use batchwise_testbed::host::{Namespace, Role};
use batchwise_testbed::topology::TwoHosts;
use nix::sys::socket::getsockopt;
use nix::sys::socket::sockopt::TcpCongestion;

const TIMEOUT: Duration = Duration::from_secs(10);

fn need_root() {
    assert!(
        nix::unistd::geteuid().is_root(),
        "this test makes network namespaces and cgroups: run it as root"
    );
}

fn assert_nothing_remains(tag: &str) {
    for role in ["srv", "cli"] {
        let name = format!("bw-{tag}-{role}");
        assert!(!Namespace::file(&name).exists(), "namespace {name} remains");
    }
    let cgroup = cgroup::mount_point().unwrap().join(format!("bw-{tag}"));
    assert!(!cgroup.exists(), "{} remains", cgroup.display());
    let links = Command::new("ip").args(["-o", "link"]).output().unwrap();
    let links = String::from_utf8_lossy(&links.stdout).into_owned();
    assert!(
        !links.contains(&format!("bw-{tag}")) && !links.contains("bw-veth"),
        "{links}"
    );
}

#[test]
fn two_hosts_carry_a_connection_and_leave_nothing_behind() {
    need_root();
    let tag = format!("t{}", std::process::id());
    let hosts = TwoHosts::build(&tag).unwrap();

    for address in ["10.77.0.1:7000", "[fd77::1]:7000"] {
        let listener = hosts
            .server
            .inside(|| Ok(TcpListener::bind(address)?))
            .unwrap();
        let mut client = hosts
            .client
            .inside(|| Ok(TcpStream::connect_timeout(&address.parse()?, TIMEOUT)?))
            .unwrap();
        let (mut server, _) = listener.accept().unwrap();
        server.set_read_timeout(Some(TIMEOUT)).unwrap();
        client.write_all(b"ping").unwrap();
        let mut received = [0; 4];
        server.read_exact(&mut received).unwrap();
        assert_eq!(&received, b"ping");
        for end in [&server, &client] {
            let used = getsockopt(end, TcpCongestion).unwrap();
            let recorded = hosts.settings().unwrap().tcp_congestion_control;
            assert_eq!(
                used.to_string_lossy().trim_end_matches('\0'),
                recorded,
                "{address}, {end:?}"
            );
        }
    }

    let mut command = Command::new("sleep");
    command.arg("3600");
    let sleeper = hosts
        .client
        .spawn("the sleeper", command, Role::Workload)
        .unwrap();
    let pid = sleeper.pid();
    assert_eq!(cgroup::processes(hosts.client.cgroup()).unwrap(), [pid]);
    let status = fs::read_to_string(format!("/proc/{pid}/status")).unwrap();
    let allowed = status
        .lines()
        .find_map(|l| l.strip_prefix("Cpus_allowed_list:"))
        .unwrap();
    assert_eq!(allowed.trim(), hosts.client.cpu().to_string());

    drop(hosts);
    assert_nothing_remains(&tag);
    drop(sleeper);
    assert!(
        !Path::new(&format!("/proc/{pid}")).exists(),
        "the sleeper remains"
    );
}

#[test]
fn what_a_killed_run_left_is_removed_by_the_next() {
    need_root();
    let tag = format!("k{}", std::process::id());
    let root = cgroup::mount_point().unwrap().join(format!("bw-{tag}"));
    let left = root.join("srv");
    fs::create_dir_all(&left).unwrap();
    batchwise_testbed::host::ip(&["netns", "add", &format!("bw-{tag}-srv")]).unwrap();
    let mut sleeper = Command::new("sleep").arg("3600").spawn().unwrap();
    fs::write(left.join("cgroup.procs"), sleeper.id().to_string()).unwrap();

    let hosts = TwoHosts::build(&tag).unwrap();
    let status = sleeper.wait().unwrap();
    assert!(!status.success(), "the sleeper was not killed: {status}");
    let second = TwoHosts::build(&tag).unwrap_err().to_string();
    assert!(second.contains("under way"), "{second}");
    drop(hosts);
    assert_nothing_remains(&tag);
}
