//! The experiments of `batchwise balance`, and the process that they share.

mod agent;
pub(crate) mod cost;
pub mod faults;
pub(crate) mod policies;
mod site;
pub(crate) mod tail;

use serde::Serialize;

/// What results call a variant without fields.
fn name(variant: impl Serialize) -> String {
    let text = serde_json::to_string(&variant);
    text.unwrap_or_default().trim_matches('"').to_owned()
}
