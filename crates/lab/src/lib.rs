//! I/O. Runs experiments in sim, in network namespaces and in the virtual machine; the demo.

pub mod experiment;
pub mod plot;
pub mod simbed;
pub mod vm;
