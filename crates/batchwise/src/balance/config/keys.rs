//! The keys of a configuration, for the reference in docs. Tests hold each against the rules: its
//! name is read, its default is what holds without it, and its bounds are where the rules have them.

use std::collections::BTreeSet;
use std::fmt::Write;
use std::path::Path;

use toml::{Table, Value};

use super::Config;

/// Its name, its type, what holds without it, its bounds, what it means.
type Key = (&'static str, &'static str, Unset, Bounds, &'static str);

enum Unset {
    Needed,
    /// As TOML has it.
    Is(&'static str),
    /// In words.
    Says(&'static str),
}

enum Bounds {
    /// The least, the most, and what is just beyond each; empty where there is nothing beyond.
    Range([&'static str; 2], [&'static str; 2]),
    /// These and no others.
    Words(&'static [&'static str]),
    /// In words; what holds, and what does not.
    Such(&'static str, &'static str, &'static str),
    /// Lists of tables.
    Tables(&'static str),
}

use Bounds::{Range, Such, Tables, Words};
use Unset::{Is, Needed, Says};

const NAME: &str = "1 to 64 letters, digits, `.`, `_`, `-`";

#[rustfmt::skip]
const KEYS: &[Key] = &[
    ("name", "string", Is(r#""default""#), Such("1 to 32 of a-z, 0-9 and -", r#""lb-1""#, r#""LB""#),
        "Names the pins and the control socket."),
    ("interfaces", "array of strings", Needed, Such("names of interfaces, at most 64", r#"["eth1"]"#, r#"["a b"]"#),
        "Where clients' packets arrive. Native XDP is needed there."),
    ("policy", "string", Is(r#""latency""#), Words(&["latency", "observe", "static"]),
        "`static`: the configured weights; the measuring part is not even loaded. `observe`: measures, decides and logs, but changes \
         nothing. `latency`: moves new connections away from slow backends. `--policy` wins."),
    ("interval", "time", Is(r#""500ms""#), Range([r#""50ms""#, r#""1m""#], [r#""49ms""#, r#""61s""#]),
        "Time between two decisions. `--interval` wins."),
    ("flows", "integer", Is("262144"), Range(["1024", "16777216"], ["1023", "16777217"]),
        "Settled flows that have room. Young ones get a quarter of it more. Under `latency` and `observe` the same number is measured."),
    ("drain_timeout", "time", Is(r#""60s""#), Range([r#""0s""#, r#""24h""#], ["", r#""25h""#]),
        "A backend that was taken out of the file keeps its connections until they end, and at most so long."),
    ("service", "array of tables", Needed, Tables("1 to 512"), "`[[service]]`: the virtual services."),
    ("service.name", "string", Needed, Such(NAME, r#""a.b_c-1""#, r#""a b""#), "What it is called."),
    ("service.address", "string", Needed, Such("a unicast IPv4 or IPv6 address", r#""10.0.0.9""#, r#""127.0.0.1""#),
        "The virtual address (VIP). No address of this machine."),
    ("service.port", "integer", Needed, Range(["0", "65535"], ["-1", "65536"]), "0: all ports that have no service of their own."),
    ("service.protocol", "string", Is(r#""tcp""#), Words(&["tcp", "udp"]), "What is forwarded."),
    ("service.method", "string", Is(r#""l2""#), Words(&["l2", "ipip"]),
        "How packets reach backends. `l2`: by MAC address, on a common link. `ipip`: inside another IP packet."),
    ("service.affinity", "string", Is(r#""connection""#), Words(&["connection", "client"]),
        "`client`: all connections of a client's address go to one backend, until weights or backends change. Use `static` or `observe` with it."),
    ("service.choices", "integer", Says("2 under `latency`, else 1; 1 for all ports and with `affinity = \"client\"`"), Range(["1", "2"], ["0", "3"]),
        "2: a new flow goes to the less busy of two backends."),
    ("service.tunnel_source", "string", Says("none"), Such("an IPv4 prefix of 8 to 31 bits; only with `ipip`", r#""10.99.0.0/16""#, r#""10.99.0.0/7""#),
        "Outer sources of packets to IPv4 backends. The host bits tell flows apart. Backends must accept it (`decap --from`, filters, rp_filter)."),
    ("service.allow_small_mtu", "boolean", Is("false"), Words(&[]),
        "Answer what does not fit on the way to a backend with ICMP, instead of refusing the configuration."),
    ("service.health", "table", Says("the defaults below"), Tables(""), "`[service.health]`: how backends are checked."),
    ("service.health.check", "string", Says("`\"tcp\"`; of UDP `\"none\"`"), Words(&["tcp", "http", "none"]),
        "`tcp`: the backend accepts a connection. `http`: it answers a GET (HTTP/1.1) with a good status."),
    ("service.health.port", "integer", Says("the service's; needed for UDP and for services of all ports"), Range(["1", "65535"], ["", "65536"]),
        "TCP port of the VIP that is asked."),
    ("service.health.path", "string", Is(r#""/""#), Such("visible ASCII from `/` on, at most 1024; only with `http`", r#""/health""#, r#""health""#), "What is asked for."),
    ("service.health.host", "string", Says("the VIP and the port"), Such("visible ASCII, at most 1024; only with `http`", r#""web""#, r#""""#), "The Host header."),
    ("service.health.status", "string", Is(r#""200-399""#), Such("a status or a range, 100 to 999; only with `http`", r#""200""#, r#""99-200""#), "Statuses of a healthy backend."),
    ("service.health.interval", "time", Is(r#""1s""#), Range([r#""10ms""#, r#""1h""#], [r#""9ms""#, r#""61m""#]), "Time between two checks, give or take 10 %."),
    ("service.health.timeout", "time", Is(r#""500ms""#), Range([r#""1ms""#, r#""1m""#], [r#""999us""#, r#""61s""#]), "A check that takes longer has failed."),
    ("service.health.rise", "integer", Is("2"), Range(["1", "100"], ["0", "101"]), "Checks in a row that must pass before a backend is up again."),
    ("service.health.fall", "integer", Is("3"), Range(["1", "100"], ["0", "101"]), "Checks in a row that must fail before it is down."),
    ("service.backend", "array of tables", Says("none"), Tables("0 to 4095, of all services together"),
        "`[[service.backend]]`: the servers. A service without one drops its packets."),
    ("service.backend.name", "string", Needed, Such(NAME, r#""s.1""#, r#""s 1""#),
        "Decides which slots are its own: a server that changes its name moves slots."),
    ("service.backend.address", "string", Needed, Such("a unicast IPv4 or IPv6 address", r#""10.0.0.8""#, r#""0.0.0.0""#), "Where the server is reached. Not the VIP."),
    ("service.backend.weight", "integer", Is("100"), Range(["0", "10000"], ["-1", "10001"]), "Its share against the others' of the service. 0 drains."),
];

/// All keys as a table.
pub fn table() -> String {
    let mut text =
        "| key | type | default | bounds | meaning |\n|---|---|---|---|---|\n".to_owned();
    for (name, kind, default, bounds, meaning) in KEYS {
        let default = match default {
            Needed => "needed".to_owned(),
            Is(value) => format!("`{value}`"),
            Says(words) => (*words).to_owned(),
        };
        let bounds = match bounds {
            Range([least, most], _) => {
                let plain = |value: &str| value.trim_matches('"').to_owned();
                format!("{} to {}", plain(least), plain(most))
            }
            Words(words) => {
                let words: Vec<String> = words.iter().map(|w| format!("`\"{w}\"`")).collect();
                words.join(", ")
            }
            Such(words, ..) | Tables(words) => (*words).to_owned(),
        };
        let _ = writeln!(
            text,
            "| `{name}` | {kind} | {default} | {bounds} | {meaning} |"
        );
    }
    text
}

/// A file with one service and one backend, in which a key can be set and taken out.
struct File(Table);

impl File {
    fn for_key(key: &str) -> Self {
        let table = r#"
            interfaces = ["eth0"]
            service = [{ name = "web", address = "10.79.9.1", port = 80, health = {},
                         backend = [{ name = "s1", address = "10.79.0.21" }] }]"#;
        let mut file = Self(table.parse().expect("TOML"));
        match key {
            "service.tunnel_source" => file.set("service.method", r#""ipip""#),
            "service.health.path" | "service.health.host" | "service.health.status" => {
                file.set("service.health.check", r#""http""#);
            }
            _ => {}
        }
        file
    }

    /// The table that holds a key, and the key's last name.
    fn place<'k>(&mut self, key: &'k str) -> (&mut Table, &'k str) {
        let mut names: Vec<&str> = key.split('.').collect();
        let last = names.pop().expect("a name");
        let place = names.iter().fold(&mut self.0, |table, name| {
            let inner = match table.get_mut(*name) {
                Some(Value::Array(list)) => list.first_mut(),
                other => other,
            };
            let inner = inner.and_then(Value::as_table_mut);
            inner.unwrap_or_else(|| panic!("{name} is no table"))
        });
        (place, last)
    }

    fn set(&mut self, key: &str, value: &str) {
        let parsed: Table = format!("v = {value}").parse().expect("TOML");
        let (place, name) = self.place(key);
        place.insert(name.to_owned(), parsed["v"].clone());
    }

    fn with(key: &str, value: &str) -> Self {
        let mut file = Self::for_key(key);
        file.set(key, value);
        // the file as it is needs a port below [service.health] once it is for all ports
        if key == "service.port" && value == "0" {
            file.set("service.health.port", "80");
        }
        file
    }

    fn read(&self) -> Result<Config, String> {
        let text = self.0.to_string();
        let config = Config::parse(Path::new("lb.toml"), &text).map_err(|wrong| wrong.to_string());
        config.map(|mut config| {
            // a key more moves the lines
            config.interfaces_line = 0;
            for service in &mut config.services {
                service.line = 0;
                service.backends.iter_mut().for_each(|b| b.line = 0);
            }
            config
        })
    }
}

/// The keys beside `key`, as the error of one that is unknown tells them.
fn beside(key: &str) -> Vec<String> {
    let (table, _) = key.rsplit_once('.').unwrap_or_default();
    let prefix = if table.is_empty() { "" } else { "." };
    let file = File::with(&format!("{table}{prefix}nosuch"), "1");
    let error = file.read().expect_err("no key");
    let names = error.split('`').skip(3).step_by(2);
    names.map(|name| format!("{table}{prefix}{name}")).collect()
}

#[test]
fn the_reference_has_every_key_that_is_read_and_no_other() {
    let read: BTreeSet<String> = KEYS.iter().flat_map(|key| beside(key.0)).collect();
    let told: BTreeSet<String> = KEYS.iter().map(|key| key.0.to_owned()).collect();
    assert_eq!(told, read);
    assert_eq!(told.len(), KEYS.len(), "one is there twice");
}

#[test]
fn the_reference_has_the_defaults_that_hold() {
    for (name, _, default, ..) in KEYS {
        let mut without = File::for_key(name);
        let (place, last) = without.place(name);
        place.remove(last);
        match default {
            Needed => assert!(without.read().is_err(), "{name} is not needed"),
            Is(value) => {
                let with = File::with(name, value).read();
                assert_eq!(without.read(), with, "{name}");
            }
            Says(_) => assert!(without.read().is_ok(), "{name} is needed"),
        }
    }
}

#[test]
fn the_reference_has_the_bounds_that_hold() {
    for (name, _, _, bounds, _) in KEYS {
        let texts = |values: &[&str]| -> Vec<String> {
            let given = values.iter().filter(|value| !value.is_empty());
            given.map(|value| (*value).to_owned()).collect()
        };
        let (good, bad) = match bounds {
            Range(within, beyond) => (texts(within), texts(beyond)),
            Words([]) | Tables(_) => continue,
            Words(words) => {
                let quoted = words.iter().map(|word| format!("{word:?}"));
                (quoted.collect(), texts(&[r#""other""#]))
            }
            Such(_, good, bad) => (texts(&[good]), texts(&[bad])),
        };
        for (values, hold) in [(good, true), (bad, false)] {
            for value in values {
                let read = File::with(name, &value).read();
                assert_eq!(read.is_ok(), hold, "{name} = {value}: {read:?}");
            }
        }
    }
}
