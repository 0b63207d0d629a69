//! A running tuner tells Prometheus what it does.

use std::time::Duration;

use batchwise_core::tune::report::Decision;
use batchwise_testbed::stage::eventually;
use batchwise_testbed::stage::scene::Scene;
use batchwise_testbed::stage::scrape::{METRICS, scrape};
use batchwise_testbed::stage::tune::Agent;
use tempfile::TempDir;

use crate::tcp::tune::application::{Application, Style};

/// The value of the sample of this name and with these labels.
fn sample(scraped: &str, name: &str, labels: &str) -> Option<f64> {
    let line = scraped
        .lines()
        .find(|l| l.starts_with(&format!("{name}{{")) && l.contains(labels))?;
    line.rsplit(' ').next()?.parse().ok()
}

#[test]
fn a_scrape_of_a_running_tuner_counts_the_tests_that_its_log_shows() {
    let scene = Scene::build("tmet");
    let logs = TempDir::new().expect("a folder");
    let client = Agent::start(scene.client(), logs.path(), &["--metrics", METRICS]);
    let application = Application::start(&scene, 4, Style::Many, Duration::ZERO);
    // with Nagle's algorithm there is at most a segment under way, and nothing to test
    application.set_nodelay(true);
    let ended = |all: &[Decision]| all.iter().any(|d| d.event.ends_test());
    client.until("a test and its end", 0, ended);
    let ends = |s: &str| {
        let outcome = |o| {
            let label = format!("outcome=\"{o}\"");
            sample(s, "batchwise_tune_trials_total", &label)
        };
        ["adopt", "keep", "abort"]
            .into_iter()
            .filter_map(outcome)
            .sum::<f64>()
    };
    let mut scraped = String::new();
    eventually(
        "a test that has ended",
        || {
            scraped = scrape(scene.client(), METRICS);
            (ends(&scraped) > 0.0).then_some(())
        },
        || format!("{:?}", client.decisions()),
    );
    assert!(scraped.starts_with("HTTP/1.1 200"), "{scraped}");
    assert!(scraped.trim_end().ends_with("# EOF"), "{scraped}");
    let service = format!("service=\"{}\",side=\"client\"", scene.address());
    let of = |name| sample(&scraped, name, &service).unwrap_or_else(|| panic!("{name}: {scraped}"));
    assert_eq!(of("batchwise_tune_connections"), 4.0);
    assert!(of("batchwise_tune_switches_total") >= 1.0, "{scraped}");
    assert!(of("batchwise_tune_load_per_second") > 0.0, "{scraped}");
    let latency = of("batchwise_tune_latency_seconds");
    assert!((1e-6..1.0).contains(&latency), "{scraped}");
    assert!((0.0..=1.0).contains(&of("batchwise_tune_confidence")));
    assert!((0.0..=1.2).contains(&of("batchwise_tune_budget_left_seconds")));
    assert!(of("batchwise_tune_messages_per_second") > 0.0, "{scraped}");
    assert!(of("batchwise_tune_gain") > 0.0, "{scraped}");
    let state = |s| sample(&scraped, "batchwise_tune_nagle", &format!("state=\"{s}\""));
    assert_eq!(state("on").zip(state("off")).map(|(a, b)| a + b), Some(1.0));
    client.finish();
    application.finish();
}
