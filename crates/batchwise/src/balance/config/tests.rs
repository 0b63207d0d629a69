//! What a file that is wrong is told, to the letter.

use super::*;

const RIGHT: &str = r#"interfaces = ["eth0"]
[[service]]
name = "web"
address = "10.79.9.1"
port = 80
[service.health]
check = "http"
[[service.backend]]
name = "s1"
address = "10.79.0.21"
[[service.backend]]
name = "s2"
address = "10.79.0.22"
weight = 50
"#;

fn parse(text: &str) -> anyhow::Result<Config> {
    Config::parse(Path::new("lb.toml"), text)
}

/// What [`RIGHT`] is told when `from` in it becomes `to`.
fn told(from: &str, to: &str) -> String {
    assert!(RIGHT.contains(from), "{from:?}");
    let text = RIGHT.replacen(from, to, 1);
    match parse(&text) {
        Ok(_) => panic!("{text} holds"),
        Err(wrong) => wrong.to_string(),
    }
}

fn doubts(text: &str) -> Vec<String> {
    let config = parse(text).expect("it holds");
    config.doubts().into_iter().map(|d| d.what).collect()
}

#[test]
fn a_file_that_says_little_gets_the_defaults() {
    let config = parse(RIGHT).expect("it holds");
    assert_eq!(config.name, "default");
    assert_eq!(config.policy, Policy::Latency);
    assert_eq!(config.interval, Duration::from_millis(500));
    assert_eq!(config.drain_timeout, Duration::from_secs(60));
    let web = &config.services[0];
    assert_eq!((web.method, web.protocol), (Method::L2, Protocol::Tcp));
    assert_eq!((web.check.rise, web.check.fall), (2, 3));
    let http = Kind::Http {
        path: "/".to_owned(),
        host: "10.79.9.1".to_owned(),
        status: 200..=399,
    };
    assert_eq!((&web.check.kind, web.check.port), (&http, 80));
    let weights: Vec<u32> = web.backends.iter().map(|b| b.weight).collect();
    assert_eq!(weights, [100, 50]);
}

#[test]
fn a_service_without_backends_and_latency_that_nothing_vouches_for_are_doubts_of_a_file_that_holds()
{
    assert_eq!(doubts(RIGHT), [""; 0]);
    let (empty, _) = RIGHT.split_once("[[service.backend]]").expect("backends");
    assert_eq!(
        doubts(empty),
        ["lb.toml:2: service web has no backend: its packets are dropped"]
    );
    for check in ["tcp", "none"] {
        let text = RIGHT.replace("\"http\"", &format!("\"{check}\""));
        let told = doubts(&text);
        assert_eq!(told.len(), 1, "{told:?}");
        assert!(
            told[0].starts_with("lb.toml:2: service web has")
                && told[0].contains(&format!("check = \"{check}\": nothing vouches for answers"))
                && told[0].ends_with("use check = \"http\""),
            "{told:?}"
        );
        let (one, _) = text
            .rsplit_once("[[service.backend]]")
            .expect("two backends");
        assert_eq!(doubts(one), [""; 0]);
        for policy in ["static", "observe"] {
            assert_eq!(doubts(&format!("policy = \"{policy}\"\n{text}")), [""; 0]);
        }
    }
}

#[test]
fn clients_that_are_to_stay_while_latency_moves_weights_are_a_doubt() {
    let text = RIGHT.replace("port = 80", "port = 80\naffinity = \"client\"");
    assert_eq!(
        doubts(&text),
        [
            "lb.toml:2: service web has affinity = \"client\" and policy = \"latency\": each change of \
          weights moves clients to other backends; use policy = \"static\" or \"observe\""
        ]
    );
    for policy in ["static", "observe"] {
        let kept = format!("policy = \"{policy}\"\n{text}");
        assert_eq!(doubts(&kept), [""; 0], "{policy}");
    }
    let (one, _) = text.rsplit_once("[[service.backend]]").expect("two");
    assert_eq!(doubts(one), [""; 0], "there is nowhere to move to");
}

#[test]
fn new_flows_choose_by_default_under_latency_unless_they_belong_to_others() {
    let chooses = |text: &str, policy| {
        let config = parse(text).expect("it holds");
        config.services[0].two_choices(policy)
    };
    let all_ports = RIGHT
        .replace("port = 80", "port = 0")
        .replace("\"http\"", "\"none\"");
    let by_client = RIGHT.replace("port = 80", "port = 80\naffinity = \"client\"");
    assert!(chooses(RIGHT, Policy::Latency));
    assert!(!chooses(RIGHT, Policy::Static));
    assert!(!chooses(&all_ports, Policy::Latency));
    assert!(!chooses(&by_client, Policy::Latency));
    for (given, expected) in [(1, false), (2, true)] {
        let text = RIGHT.replace("port = 80", &format!("port = 80\nchoices = {given}"));
        for policy in [Policy::Latency, Policy::Observe, Policy::Static] {
            assert_eq!(chooses(&text, policy), expected);
        }
    }
}

#[test]
fn udp_is_not_checked_unless_a_port_is_given() {
    let text = "interfaces = [\"e\"]\n[[service]]\nname = \"dns\"\naddress = \"fd79:9::1\"\nport = 53\nprotocol = \"udp\"\n";
    let config = parse(text).expect("it holds");
    assert_eq!(config.services[0].check.kind, Kind::None);
    let wrong = parse(&(text.to_owned() + "[service.health]\ncheck = \"tcp\"\n"));
    let wrong = wrong.expect_err("no port").to_string();
    assert!(
        wrong.starts_with("lb.toml:7: service \"dns\" is udp"),
        "{wrong}"
    );
}

#[test]
fn every_error_names_its_line_what_is_wrong_and_the_remedy() {
    for (from, to, expected) in [
        (
            "interfaces = [\"eth0\"]",
            "",
            "lb.toml:1: interfaces is missing: name those at which clients' packets arrive, such as interfaces = [\"eth0\"]",
        ),
        (
            "port = 80",
            "port = 80000",
            "lb.toml:5: port = 80000 is out of bounds: write a number from 0 to 65535",
        ),
        (
            "port = 80\n",
            "",
            "lb.toml:2: service \"web\" has no port: add one, such as port = 80, or port = 0 for all",
        ),
        (
            "port = 80",
            "port = 0",
            "lb.toml:6: the health check of service \"web\" needs a port, as the service is for all: add port = N below [service.health], or check = \"none\"",
        ),
        (
            "port = 80",
            "port = \"80\"",
            "lb.toml:5: invalid type: string \"80\", expected i64",
        ),
        (
            "port = 80",
            "port = 80\naffinity = \"client\"\nchoices = 2",
            "lb.toml:7: service \"web\" sends all connections of a client to one backend, so that there is nothing to choose: take out choices or affinity = \"client\"",
        ),
        (
            "port = 80",
            "port = 0\nchoices = 2",
            "lb.toml:6: service \"web\" is for all ports and keeps a client's connections from one port together, so that there is nothing to choose: take out choices, or give it a port",
        ),
        (
            "port = 80",
            "prot = 80",
            "lb.toml:5: unknown field `prot`, expected one of `name`, `address`, `port`, `protocol`, `method`, `affinity`, `choices`, `tunnel_source`, `allow_small_mtu`, `health`, `backend`",
        ),
        (
            "port = 80",
            "port = 80\nmethod = \"ipip\"\ntunnel_source = \"10.0.0.1/16\"",
            "lb.toml:7: tunnel_source \"10.0.0.1/16\" is no prefix of IPv4 sources: write its first address and its length, 8 to 31, such as \"10.0.0.0/16\" (outer IPv6 headers have the flow label instead)",
        ),
        (
            "port = 80",
            "port = 80\ntunnel_source = \"10.0.0.0/16\"",
            "lb.toml:6: tunnel_source is for method = \"ipip\": remove it, or change the method",
        ),
        (
            "interfaces",
            "interval = \"49ms\"\ninterfaces",
            "lb.toml:1: interval \"49ms\": out of bounds: write a time from 50ms to 1m",
        ),
        (
            "check = \"http\"",
            "check = \"icmp\"",
            "lb.toml:7: check \"icmp\" is unknown: write \"tcp\" or \"http\" or \"none\"",
        ),
        (
            "check = \"http\"",
            "check = \"tcp\"\npath = \"/\"",
            "lb.toml:8: path is for check = \"http\": remove it, or change the check",
        ),
        (
            "check = \"http\"",
            "check = \"http\"\nhost = \"a b\"",
            "lb.toml:8: host \"a b\" cannot stand in a request: write visible ASCII without blanks, such as \"10.79.9.1\"",
        ),
        (
            "check = \"http\"",
            "check = \"http\"\nstatus = \"399-200\"",
            "lb.toml:8: status \"399-200\" is no range of HTTP statuses: write such as \"200-399\" or \"200\"",
        ),
        (
            "check = \"http\"",
            "check = \"http\"\ninterval = \"1\"",
            "lb.toml:8: interval \"1\": time unit needed, for example 1sec or 1ms; write a number with a unit, such as 10us, 500ms or 5s",
        ),
        (
            "address = \"10.79.0.21\"",
            "address = \"s1.example\"",
            "lb.toml:10: address \"s1.example\" is no IP address: write numbers, without a port, such as \"10.0.0.1\" or \"2001:db8::1\"",
        ),
        (
            "address = \"10.79.0.21\"",
            "address = \"127.0.0.1\"",
            "lb.toml:10: address \"127.0.0.1\" is none that packets are routed to: give a unicast address of a network",
        ),
        (
            "address = \"10.79.0.21\"",
            "address = \"10.79.9.1\"",
            "lb.toml:8: backend \"s1\" has the service's own address 10.79.9.1: give the address at which the server itself is reached",
        ),
        (
            "address = \"10.79.0.21\"",
            "address = \"fd79::21\"",
            "lb.toml:8: backend \"s1\" (fd79::21) and service \"web\" (10.79.9.1) are of different IP versions, between which method \"l2\" cannot go: use method = \"ipip\", or give the backend's other address",
        ),
        (
            "name = \"s2\"",
            "name = \"s1\"",
            "lb.toml:11: backend \"s1\" of service \"web\" is there already, at line 8: give every backend of a service a name of its own",
        ),
        (
            "address = \"10.79.0.22\"",
            "address = \"10.79.0.21\"",
            "lb.toml:11: backend address 10.79.0.21 of service \"web\" is there already, at line 8: raise the weight of the one instead",
        ),
        (
            "name = \"web\"",
            "name = \"we b\"",
            "lb.toml:3: service name \"we b\" does not fit: use 1 to 64 letters, digits, dots, _ and -",
        ),
        (
            "interfaces",
            "name = \"Über\"\ninterfaces",
            "lb.toml:1: name \"Über\" cannot name files: use 1 to 32 of a-z, 0-9 and -, such as \"default\"",
        ),
        (
            "[\"eth0\"]",
            "[\"eth0\", \"eth0\"]",
            "lb.toml:1: interface \"eth0\" is there already, at line 1: name it once",
        ),
    ] {
        assert_eq!(told(from, to), expected);
    }
}

#[test]
fn two_services_at_one_place_are_refused() {
    let (_, service) = RIGHT.split_once('\n').expect("lines");
    let wrong = parse(&format!(
        "{RIGHT}{}",
        service.replace("\"web\"", "\"other\"")
    ));
    let wrong = wrong.expect_err("the same place").to_string();
    assert_eq!(
        wrong,
        "lb.toml:15: the service at 10.79.9.1:80 is there already, at line 2: give it another address, port or protocol, or join the two"
    );
}

#[test]
fn text_that_is_no_toml_names_its_line() {
    let wrong = parse("interfaces = [\"eth0\"]\n[[service\n").expect_err("no TOML");
    assert!(wrong.to_string().starts_with("lb.toml:2: "), "{wrong}");
}

#[test]
fn the_packaged_example_holds() {
    let text = include_str!("../../../../../packaging/balance.toml");
    let config = parse(text).expect("it holds");
    assert_eq!(config.services.len(), 2);
    assert_eq!(config.services[1].check.port, 8053);
}

#[test]
fn what_is_no_file_or_does_not_end_is_refused_at_once() {
    let folder = tempfile::tempdir().expect("a folder");
    let fifo = folder.path().join("fifo.toml");
    nix::unistd::mkfifo(&fifo, nix::sys::stat::Mode::S_IRWXU).expect("a FIFO");
    let long = folder.path().join("long.toml");
    let file = std::fs::File::create(&long).expect("a file");
    file.set_len(LONGEST + 1).expect("a hole");
    for (path, word) in [
        (fifo.as_path(), "no regular file"),
        (Path::new("/dev/zero"), "no regular file"),
        (folder.path(), "no regular file"),
        (long.as_path(), "1 MiB"),
    ] {
        let refused = Config::read(path).expect_err(word).to_string();
        assert!(
            refused.contains(word) && refused.contains("--config"),
            "{refused}"
        );
    }
}
