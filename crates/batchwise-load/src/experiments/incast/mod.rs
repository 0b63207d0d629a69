//! Incast: one asks many senders at the same moment, and all answer at once. This file owns what a question and
//! an answer are.

mod answer;
mod ask;

pub use answer::{AnswerConfig, answer};
pub use ask::{AskConfig, AskReport, ask};

/// Bytes of a question: how many are wanted. After the answer, 0 asks for how many segments were sent again, which
/// is as long.
const WORD: usize = 8;
/// That question.
const SENT_AGAIN: u64 = 0;
