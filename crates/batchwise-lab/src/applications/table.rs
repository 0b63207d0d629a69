//! The applications: servers, their clients, and what a client tells. Commands are the shell's; `NAME` is the
//! application's, `DIR` the run's folder, with what `scripts/` holds, `ADDR` the server's address, `LOAD` what differs between loads,
//! `TIME` the seconds of a load, `LOG` the beginning of the names of its log's files.

use super::truths::Asks;

/// How a client says what it measured.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Says {
    /// A log of each request.
    Log,
    /// redis-benchmark, which wants to know how many requests: `REQUESTS`.
    Benchmark,
    /// `batchwise load`.
    Generator,
}

/// A server and a client that people use, or a pattern that they have.
#[derive(Debug)]
pub struct Application {
    pub name: &'static str,
    /// Programs without which it is left out.
    pub needs: &'static str,
    /// What is done before the first time.
    pub prepare: &'static str,
    /// With their ports: the last is watched.
    pub servers: &'static [(&'static str, u16)],
    pub client: &'static str,
    pub says: Says,
    pub loads: &'static [u32],
    /// Loads of which a capture is a second truth, without the client's own time before a write and from a read to its note.
    /// A server is held against it.
    pub captured: &'static [u32],
    /// How the capture tells requests apart.
    pub asks: Asks,
}

impl Application {
    /// The port that is watched.
    pub fn port(&self) -> u16 {
        self.servers.last().map_or(0, |(_, port)| *port)
    }
}

/// Which of these programs this machine lacks, in words; `None`: it has all.
pub fn lacking(needs: &str) -> Option<String> {
    let path = std::env::var_os("PATH").unwrap_or_default();
    let is_there =
        |program: &&str| std::env::split_paths(&path).any(|folder| folder.join(program).is_file());
    let lacks = needs
        .split_whitespace()
        .filter(|program| !is_there(program));
    let lacks: Vec<_> = lacks.collect();
    (!lacks.is_empty()).then(|| format!("there is no {}", lacks.join(", no ")))
}

const REDIS: (&str, u16) = (
    "redis-server --port 6379 --bind 0.0.0.0 --save '' --protected-mode no",
    6379,
);
const NGINX: (&str, u16) = ("nginx -p $DIR -c nginx.conf -e stderr", 8080);
const NGINX_NEEDS: &str = "nginx h2load openssl";
/// Its files and its certificate.
const SITE: &str = "mkdir -p $DIR/site; head -c 1024 /dev/zero >$DIR/site/1k; head -c 1048576 /dev/zero >$DIR/site/1m
    openssl req -x509 -newkey rsa:2048 -nodes -subj /CN=lab -keyout $DIR/key.pem -out $DIR/certificate.pem";
const PATTERNS: &str = "python3 $DIR/patterns.py serve 8083";
const GRPC_BUILD: &str = "cd $DIR/grpc; go build -o ../grpc-peer .";
const GRPC_CALL: &str = "$DIR/grpc-peer call $ADDR:8084 $LOAD $TIME $LOG";
/// The cluster, and pgbench's tables.
const POSTGRES: &str = "ln -sfn $(ls -d /usr/lib/postgresql/*/bin | tail -n 1) $DIR/pgbin
    as() { setpriv --reuid=postgres --regid=postgres --clear-groups \"$@\"; }
    install -d -o postgres -g postgres $DIR/pg
    as $DIR/pgbin/initdb -D $DIR/pg -U postgres -A trust --no-sync
    echo 'host all all all trust' >>$DIR/pg/pg_hba.conf
    as $DIR/pgbin/pg_ctl -D $DIR/pg -l $DIR/pg/log -o \"-k $DIR/pg -c listen_addresses=\" -w start
    pgbench -h $DIR/pg -U postgres -i -q postgres; as $DIR/pgbin/pg_ctl -D $DIR/pg -w stop";

/// What most have.
const PLAIN: Application = Application {
    name: "",
    needs: "",
    prepare: "",
    servers: &[],
    client: "",
    says: Says::Log,
    loads: &[1, 10],
    captured: &[],
    asks: Asks::Turns,
};
const OF_REDIS: Application = Application {
    needs: "redis-server redis-benchmark",
    servers: &[REDIS],
    says: Says::Benchmark,
    ..PLAIN
};
const OF_NGINX: Application = Application {
    needs: NGINX_NEEDS,
    prepare: SITE,
    servers: &[NGINX],
    ..PLAIN
};
const OF_GRPC: Application = Application {
    needs: "go",
    prepare: GRPC_BUILD,
    client: GRPC_CALL,
    loads: &[1, 8, 64],
    captured: &[1, 8, 64],
    asks: Asks::Streams,
    ..PLAIN
};

/// A pattern of `patterns.py`.
const fn pattern(name: &'static str, loads: &'static [u32]) -> Application {
    Application {
        name,
        needs: "python3",
        servers: &[(PATTERNS, 8083)],
        client: "python3 $DIR/patterns.py ask $NAME $ADDR 8083 $LOAD $TIME $LOG",
        loads,
        ..PLAIN
    }
}

/// All of them.
pub const APPLICATIONS: &[Application] = &[
    Application {
        name: "redis",
        client: "redis-benchmark -h $ADDR -t get -c $LOAD -n $REQUESTS --csv",
        loads: &[1, 50],
        captured: &[1, 50],
        ..OF_REDIS
    },
    Application {
        name: "redis-pipeline",
        client: "redis-benchmark -h $ADDR -t get -P 16 -c $LOAD -n $REQUESTS --csv",
        captured: &[1, 10],
        ..OF_REDIS
    },
    Application {
        name: "redis-rs",
        needs: "redis-server",
        client: "$BATCHWISE load multiplexed --addr $ADDR:6379 --tasks $LOAD --duration ${TIME}s --format json",
        says: Says::Generator,
        loads: &[4, 64],
        captured: &[4, 64],
        // SET of 64 bytes to task:0000, and +OK
        asks: Asks::Equal {
            request: 4 + 9 + 15 + 71,
            answer: 5,
        },
        ..OF_REDIS
    },
    Application {
        name: "memcached",
        needs: "memcached",
        servers: &[("memcached -u root -t 1 -U 0 -p 11211 -l 0.0.0.0", 11211)],
        client: "$BATCHWISE load memcached --addr $ADDR:11211 --connections $LOAD --value-size 500 \
                 --duration ${TIME}s --format json",
        says: Says::Generator,
        captured: &[1, 10],
        ..PLAIN
    },
    Application {
        name: "nginx-1k",
        client: "h2load --h1 -c $LOAD -D $TIME --log-file=$LOG http://$ADDR:8080/1k",
        captured: &[1, 10],
        ..OF_NGINX
    },
    Application {
        name: "nginx-1m",
        client: "h2load --h1 -c $LOAD -D $TIME --log-file=$LOG http://$ADDR:8080/1m",
        loads: &[1, 4],
        captured: &[1, 4],
        ..OF_NGINX
    },
    Application {
        name: "nginx-http2",
        servers: &[(NGINX.0, 8081)],
        client: "h2load -c 4 -m $LOAD -D $TIME --log-file=$LOG http://$ADDR:8081/1k",
        captured: &[1, 10],
        asks: Asks::Streams,
        ..OF_NGINX
    },
    Application {
        name: "nginx-tls",
        servers: &[(NGINX.0, 8443)],
        client: "h2load --h1 -c $LOAD -D $TIME --log-file=$LOG https://$ADDR:8443/1k",
        captured: &[1, 10],
        ..OF_NGINX
    },
    Application {
        name: "haproxy",
        needs: "haproxy nginx h2load openssl",
        servers: &[NGINX, ("haproxy -db -f $DIR/haproxy.cfg", 8000)],
        client: "h2load --h1 -c $LOAD -D $TIME --log-file=$LOG http://$ADDR:8000/1k",
        captured: &[1, 10],
        ..OF_NGINX
    },
    Application {
        name: "grpc",
        servers: &[("$DIR/grpc-peer serve :8084 0s", 8084)],
        ..OF_GRPC
    },
    Application {
        name: "grpc-2ms",
        servers: &[("$DIR/grpc-peer serve :8084 2ms", 8084)],
        ..OF_GRPC
    },
    Application {
        name: "node-two-writes",
        needs: "node h2load",
        servers: &[("node $DIR/two-writes.js", 8082)],
        client: "h2load --h1 -c $LOAD -D $TIME --log-file=$LOG http://$ADDR:8082/",
        captured: &[1, 10],
        ..PLAIN
    },
    Application {
        servers: &[("python3 $DIR/patterns.py serve 8083 nagle", 8083)],
        captured: &[1, 4],
        ..pattern("nagle", &[1, 4])
    },
    Application {
        captured: &[1, 10],
        ..pattern("header-body", &[1, 10])
    },
    pattern("serial-pipelined", &[4, 10]),
    pattern("appends", &[8, 64]),
    pattern("long-poll", &[1, 10]),
    pattern("unanswered", &[2, 10]),
    Application {
        name: "postgres",
        needs: "pgbench setpriv",
        prepare: POSTGRES,
        servers: &[(
            "setpriv --reuid=postgres --regid=postgres --clear-groups --pdeathsig=KILL \
             $DIR/pgbin/postgres -D $DIR/pg -k $DIR/pg -c 'listen_addresses=*'",
            5432,
        )],
        client: "pgbench -h $ADDR -U postgres -n -S -T $TIME -c $LOAD -l --log-prefix=$LOG postgres",
        loads: &[1, 8],
        captured: &[1, 8],
        ..PLAIN
    },
];
