//! I/O. Runs experiments in sim, in network namespaces and in the virtual machine; the demo.

pub mod bench;
pub mod bluetooth;
pub mod demo;
pub mod emulator;
pub mod experiment;
pub mod medium;
pub mod mishap;
pub mod netbed;
pub mod plot;
pub mod simbed;
pub mod traffic;
pub mod vm;
