//! What disciplines, TCP and the network do, as behaviours.
