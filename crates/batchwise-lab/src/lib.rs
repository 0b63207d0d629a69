//! batchwise-lab
