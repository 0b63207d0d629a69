//! Histogram files for the HdrHistogram tools.

use std::fs::File;
use std::io::{self, BufWriter, Write};
use std::path::Path;
use std::time::{Duration, UNIX_EPOCH};

use anyhow::{Context, Result};
use hdrhistogram::Histogram;
use hdrhistogram::serialization::V2DeflateSerializer;
use hdrhistogram::serialization::interval_log::{IntervalLogWriterBuilder, Tag};

use crate::Outcome;

/// Writes the latency histograms of the window. A name that ends in `.hgrm` gets the percentile
/// distribution of the main latency in µs, as text; any other name an interval log (V2, deflate)
/// in ns with two lines, tagged `intended` (in a closed loop absent) and `send`.
pub fn write_hdr(path: &Path, outcome: &Outcome) -> Result<()> {
    let main = match outcome.report.closed {
        true => &outcome.from_send,
        false => &outcome.from_intended,
    };
    let write = || {
        let mut out = BufWriter::new(File::create(path)?);
        match path.extension() {
            Some(extension) if extension == "hgrm" => write_percentiles(&mut out, main)?,
            _ => write_log(&mut out, outcome)?,
        }
        out.flush()
    };
    write().with_context(|| format!("cannot write {}", path.display()))
}

fn write_percentiles(out: &mut impl Write, histogram: &Histogram<u64>) -> io::Result<()> {
    writeln!(
        out,
        "{:>12} {:>14} {:>10} {:>14}\n",
        "Value", "Percentile", "TotalCount", "1/(1-Perc"
    )?;
    let mut below = 0;
    for step in histogram.iter_quantiles(5) {
        below += step.count_since_last_iteration();
        let (value, quantile) = (
            step.value_iterated_to() as f64 / 1e3,
            step.quantile_iterated_to(),
        );
        write!(out, "{value:12.3} {quantile:14.12} {below:10}")?;
        if quantile < 1.0 {
            write!(out, " {:14.2}", 1.0 / (1.0 - quantile))?;
        }
        writeln!(out)?;
    }
    let (mean, deviation) = (histogram.mean() / 1e3, histogram.stdev() / 1e3);
    writeln!(
        out,
        "#[Mean    = {mean:12.3}, StdDeviation   = {deviation:12.3}]"
    )?;
    let (max, total) = (histogram.max() as f64 / 1e3, histogram.len());
    writeln!(out, "#[Max     = {max:12.3}, Total count    = {total:12}]")?;
    let (buckets, sub) = (histogram.buckets(), histogram.distinct_values());
    writeln!(out, "#[Buckets = {buckets:12}, SubBuckets     = {sub:12}]")
}

fn write_log(out: &mut impl Write, outcome: &Outcome) -> io::Result<()> {
    let report = &outcome.report;
    let from = Duration::from_nanos(report.measured_from_ts_ns);
    let length = Duration::from_nanos(report.measured_to_ts_ns) - from;
    let mut serializer = V2DeflateSerializer::new();
    let mut log = IntervalLogWriterBuilder::new()
        .add_comment("batchwise load redis; latency in ns")
        .with_start_time(UNIX_EPOCH + from)
        .with_max_value_divisor(1.0)
        .begin_log_with(out, &mut serializer)?;
    let intended = (!report.closed).then_some((&outcome.from_intended, "intended"));
    for (histogram, tag) in intended.into_iter().chain([(&outcome.from_send, "send")]) {
        log.write_histogram(histogram, from, length, Tag::new(tag))
            .map_err(|why| io::Error::other(format!("{why:?}")))?;
    }
    Ok(())
}
