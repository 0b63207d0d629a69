//! What `--hold` asks for instead of deciding between Nagle on and off.

use batchwise_core::tune::{Arm, Command};

/// What sockets are held at.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Hold {
    /// Nagle's algorithm on or off.
    Arm(Arm),
    /// A batching limit, bytes.
    Limit(u32),
    /// A batching limit that moves by additive increase and multiplicative decrease.
    Gradual,
}

impl Hold {
    /// The arm that is in force whatever happens; none where the limit moves.
    pub fn arm(self) -> Option<Arm> {
        match self {
            Self::Arm(arm) => Some(arm),
            Self::Limit(_) => Some(Arm::On),
            Self::Gradual => None,
        }
    }
}

pub fn parse(text: &str) -> Result<Hold, String> {
    match text {
        "off" => Ok(Hold::Arm(Arm::Off)),
        "on" => Ok(Hold::Arm(Arm::On)),
        "aimd" => Ok(Hold::Gradual),
        bytes => match bytes.parse() {
            Ok(limit) if limit > 0 => Ok(Hold::Limit(limit)),
            _ => Err("on, off, aimd, or a number of bytes above 0".to_owned()),
        },
    }
}

/// The arm and the limit in bytes (0: none) that sockets are to have, where the service's decider
/// says `command` and, if it moves a limit, `limit`.
pub fn setting(hold: Option<Hold>, command: &Command, limit: u32) -> (Option<Arm>, u32) {
    match hold {
        None => (command.arm, 0),
        Some(Hold::Arm(arm)) => (Some(arm), 0),
        Some(Hold::Limit(limit)) => (Some(Arm::On), limit),
        Some(Hold::Gradual) if command.arm == Some(Arm::On) => (command.arm, limit),
        Some(Hold::Gradual) => (command.arm, 0),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn hold_is_an_arm_a_limit_or_aimd() {
        assert_eq!(parse("on"), Ok(Hold::Arm(Arm::On)));
        assert_eq!(parse("off"), Ok(Hold::Arm(Arm::Off)));
        assert_eq!(parse("4096"), Ok(Hold::Limit(4096)));
        assert_eq!(parse("aimd"), Ok(Hold::Gradual));
        for bad in ["", "0", "-1", "4k", "AIMD "] {
            assert!(parse(bad).is_err(), "{bad}");
        }
    }

    #[test]
    fn a_limit_goes_with_nagle_on_only() {
        let command = |arm| Command {
            arm,
            sensing: true,
            probing: false,
            pulse: false,
        };
        let gradual = |arm| setting(Some(Hold::Gradual), &command(arm), 1448);
        assert_eq!(gradual(Some(Arm::On)), (Some(Arm::On), 1448));
        assert_eq!(gradual(Some(Arm::Off)), (Some(Arm::Off), 0));
        assert_eq!(gradual(None), (None, 0));
    }
}
