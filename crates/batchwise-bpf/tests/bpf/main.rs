//! The BPF programs in the kernel, packet in and packet out (needs root), and their helper-free C against
//! its references.

mod admit;
mod admit_program;
mod asks;
mod balance;
mod decap;
mod endpoint;
mod frames;
mod gaps;
mod kernel;
mod layers;
mod mount;
mod packet;
mod passive;
mod probe;
mod queues;
mod sides;
mod slots;
mod space;
mod traffic;
mod turns;
mod verify;
mod windows;
