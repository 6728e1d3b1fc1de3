//! I/O. Runs experiments in sim, in network namespaces and in the virtual machine; the demo.

pub mod simbed;
pub mod traffic;
pub mod vm;
