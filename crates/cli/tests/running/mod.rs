//! A program beside the test.

use std::process::Child;

/// A program that ends with the test.
pub struct Running(pub Child);

impl Drop for Running {
    fn drop(&mut self) {
        // SIGKILL.
        drop(self.0.kill());
        drop(self.0.wait());
    }
}
