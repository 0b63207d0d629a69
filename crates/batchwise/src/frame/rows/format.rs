//! How intervals are shown: what is asked for, and what that comes to.

use std::io::{self, IsTerminal};

/// How intervals are shown.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, clap::ValueEnum)]
pub enum Format {
    /// Live on a terminal where there is a live view, text otherwise.
    #[default]
    Auto,
    /// A view that is redrawn every interval; needs a terminal.
    Live,
    /// Aligned columns.
    #[value(alias = "plain")]
    Text,
    /// One JSON object a line.
    Jsonl,
}

/// What a [`Format`] comes to on this standard output.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Form {
    Live,
    Text,
    Jsonl,
}

impl Format {
    /// Looks at what standard output is.
    pub fn resolve(self) -> anyhow::Result<Form> {
        let terminal = io::stdout().is_terminal() && io::stdin().is_terminal();
        Ok(match self {
            Self::Auto | Self::Live if terminal => Form::Live,
            Self::Auto | Self::Text => Form::Text,
            Self::Live => {
                anyhow::bail!("the live view needs a terminal; use --format text or --format jsonl")
            }
            Self::Jsonl => Form::Jsonl,
        })
    }

    /// For a command without a live view.
    pub fn without_live(self) -> anyhow::Result<Form> {
        match self {
            Self::Auto | Self::Text => Ok(Form::Text),
            Self::Jsonl => Ok(Form::Jsonl),
            Self::Live => {
                anyhow::bail!("there is no live view here; use --format text or --format jsonl")
            }
        }
    }
}
