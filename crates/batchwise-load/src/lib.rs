//! batchwise-load
