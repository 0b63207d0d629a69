//! Thousands of connections opened and closed a second while another one is tuned.

use std::time::{Duration, Instant};

use batchwise_testbed::stage::connect_here;
use batchwise_testbed::stage::scene::Scene;
use batchwise_testbed::stage::tune::Agent;
use tempfile::TempDir;

use crate::tcp::tune::ALWAYS;
use crate::tcp::tune::application::{Application, Style, echo};

const THREADS: u32 = 4;
/// What each thread opens and closes at a thousandth of a second or a little more.
const EACH: u32 = 3_750;
/// Together 5,000 a second.
const PERIOD: Duration = Duration::from_micros(800);
const MIB: u64 = 1 << 20;

#[test]
fn connections_that_come_and_go_lose_no_reply_and_do_not_swell_the_agents() {
    let scene = Scene::build("churn");
    let logs = TempDir::new().expect("a folder");
    let mut server = Agent::start(scene.server(), logs.path(), &ALWAYS);
    let mut client = Agent::start(scene.client(), logs.path(), &ALWAYS);
    let application = Application::start(&scene, 1, Style::Many, Duration::from_micros(200));
    application.assert_goes_on();
    let address = scene.address();
    let begin = Instant::now();
    let thread = |id: u32| {
        for number in 0..EACH {
            let due = begin + number * PERIOD;
            std::thread::sleep(due.saturating_duration_since(Instant::now()));
            let mut stream = connect_here(address);
            stream.set_nodelay(number % 2 == 0).expect("TCP_NODELAY");
            echo(&mut stream, Style::Whole, &format!("short {id}-{number}"));
        }
    };
    let opened = scene.client().inside(|| {
        // threads have the network namespace of the one that starts them
        std::thread::scope(|scope| {
            let threads: Vec<_> = (0..THREADS)
                .map(|id| scope.spawn(move || thread(id)))
                .collect();
            Ok(threads.into_iter().all(|t| t.join().is_ok()))
        })
    });
    assert!(opened.expect("threads"), "every connection got its reply");
    let rate = f64::from(THREADS * EACH) / begin.elapsed().as_secs_f64();
    println!("{rate:.0} connections a second");
    application.assert_goes_on();
    for agent in [&mut server, &mut client] {
        agent.assert_alive();
        let used = agent.resident_bytes();
        println!("{} MiB in use", used / MIB);
        assert!(used < 128 * MIB, "{} MiB in use", used / MIB);
    }
    client.finish();
    server.finish();
    application.finish();
}
