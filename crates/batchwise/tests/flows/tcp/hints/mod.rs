//! `--hints` as its users meet it: an application that gives hints, a real Redis, and what comes out
//! at both ends. Needs root.

mod lines;
mod peers;
