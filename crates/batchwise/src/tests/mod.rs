//! Tests of the whole command, without root: documents and `packaging/` against the code.

mod reference;
