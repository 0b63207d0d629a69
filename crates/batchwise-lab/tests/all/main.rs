//! Results that older versions recorded, and what breaks: faults of the balancer, drills.

mod long;
mod replay;
