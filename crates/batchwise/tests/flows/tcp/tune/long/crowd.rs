//! More services than can be switched.

use std::net::{Ipv4Addr, SocketAddr, TcpListener, TcpStream};

use batchwise_testbed::redis::PORT;
use batchwise_testbed::stage::eventually;
use batchwise_testbed::stage::scene::Scene;
use batchwise_testbed::stage::scrape::{METRICS, scrape};
use batchwise_testbed::stage::tune::Agent;
use tempfile::TempDir;

/// Each is two services: seen from its client, and from its server.
const ADDRESSES: u16 = 700;
const ROOM: f64 = 1_024.0;

#[test]
fn services_without_room_are_left_alone_and_counted_and_the_agent_goes_on() {
    let scene = Scene::build("crowd");
    let logs = TempDir::new().expect("a folder");
    let args = ["--hold", "on", "--metrics", METRICS];
    let mut agent = Agent::start(scene.client(), logs.path(), &args);
    let guard = agent.guard();
    let mut open: Vec<TcpStream> = Vec::new();
    let connected = scene.client().inside(|| {
        let all = TcpListener::bind((Ipv4Addr::UNSPECIFIED, PORT))?;
        for number in 0..ADDRESSES {
            let [high, low] = number.to_be_bytes();
            let to = SocketAddr::from(([127, 1, high, low], PORT));
            open.push(TcpStream::connect(to)?);
            open.push(all.accept()?.0);
        }
        Ok(())
    });
    connected.expect("connections to many addresses");
    let told = |scraped: &str, name: &str| -> f64 {
        let samples = scraped.lines().filter(|line| line.starts_with(name));
        let values = samples.filter_map(|line| line.rsplit(' ').next()?.parse::<f64>().ok());
        values.sum()
    };
    eventually(
        "all connections to be known",
        || {
            let scraped = scrape(scene.client(), METRICS);
            let switched = told(&scraped, "batchwise_tune_connections{");
            let left = told(&scraped, "batchwise_tune_connections_left_alone ");
            ((switched, left) == (ROOM, open.len() as f64 - ROOM)).then_some(())
        },
        || scrape(scene.client(), METRICS),
    );
    agent.assert_alive();
    assert_eq!(agent.guard(), guard, "the guard of the beginning");
    agent.finish();
    let switched = open.iter().filter(|s| s.nodelay().expect("a setting"));
    assert_eq!(switched.count(), 0, "all have their own settings again");
}
