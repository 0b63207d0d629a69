//! `--hints` as its users meet it: an application that gives hints, a real Redis, and what comes out
//! at both ends. Needs root. One binary, whose tests take turns.

mod lines;
mod peers;
