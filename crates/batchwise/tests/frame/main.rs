//! What all subcommands share, as their users and their enemies see it. `usage` needs root.

mod hostile;
mod usage;
