//! `batchwise burst` as its users meet it: a sender, a router, a receiver. Needs root.

mod admit;
mod mark;
mod own;
mod points;
mod site;
