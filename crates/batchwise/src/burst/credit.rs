//! Whose credit bursts draw on, as the command line says it.

use batchwise_core::burst::Prefix;
use clap::Args;

// no doc comment: clap would take it for what the subcommand does
#[derive(Debug, Args)]
pub struct CreditArgs {
    /// Hosts of an IPv6 prefix of this length share a credit, 64 to 128; 128 where all senders are trusted
    #[arg(long = "ipv6-prefix", value_name = "BITS", default_value = "64", value_parser = parse)]
    pub prefix: Prefix,
}

fn parse(text: &str) -> Result<Prefix, String> {
    let bits = text.parse().ok().and_then(Prefix::new);
    bits.ok_or_else(|| "a number from 64 to 128".to_owned())
}
