//! Which code points marks have, as the command line says it.

use batchwise_core::burst::mark::CodePoints;
use clap::Args;
use clap::builder::{PossibleValue, PossibleValuesParser, TypedValueParser};

// no doc comment: clap would take it for what the subcommand does
#[derive(Debug, Args)]
pub struct PointsArgs {
    /// Code points of marks, by their lower two bits: the same wherever marks are written or read
    #[arg(long = "code-points", value_name = "BITS", default_value = CodePoints::default().name(), value_parser = parser())]
    pub points: CodePoints,
}

fn help(points: CodePoints) -> &'static str {
    match points {
        CodePoints::Pool2 => "For local use (RFC 2474, pool 2)",
        CodePoints::Pool3 => {
            "For standards (RFC 8436): has Lower Effort (LE, 000001) and NQB (101101). Not where either is used: \
             it would be taken for marks"
        }
    }
}

fn parser() -> impl TypedValueParser<Value = CodePoints> {
    let values = CodePoints::ALL.map(|points| PossibleValue::new(points.name()).help(help(points)));
    PossibleValuesParser::new(values).try_map(|name| {
        let mut all = CodePoints::ALL.into_iter();
        all.find(|p| p.name() == name).ok_or(name)
    })
}
