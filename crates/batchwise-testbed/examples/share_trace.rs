//! Prints the trace of CPU shares that is committed as `traces/share.csv`.

use batchwise_testbed::cpu_share::trace::Trace;

fn main() -> anyhow::Result<()> {
    print!("{}", Trace::committed()?.csv());
    Ok(())
}
