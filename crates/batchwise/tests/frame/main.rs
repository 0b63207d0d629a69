//! What all subcommands share, as their users and their enemies see it. Nothing here needs root.

mod hostile;
