//! The thread that packets go through.

use std::fmt::Display;
use std::io;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::thread::{Builder, JoinHandle};

use linux::privileges::seccomp;
use tracing::warn;

/// A running packet thread.
pub struct PacketThread(JoinHandle<()>);

impl PacketThread {
    /// Starts `run` with punctual timers and under a filter of its own; `ended` is called with its outcome.
    ///
    /// # Errors
    /// If the system makes no thread.
    pub fn start<E: Display>(
        run: impl FnOnce() -> Result<(), E> + Send + 'static,
        ended: impl FnOnce(Result<(), String>) + Send + 'static,
    ) -> io::Result<Self> {
        let body = move || {
            linux::poll::be_punctual();
            if let Err(cause) = seccomp::allow_data_plane() {
                warn!("{cause}");
            }
            // Nobody else would hear of a panic: other threads go on.
            let outcome = catch_unwind(AssertUnwindSafe(run));
            ended(match outcome {
                Ok(outcome) => outcome.map_err(|error| error.to_string()),
                Err(_) => Err("the packet thread panicked".to_owned()),
            });
        };
        Builder::new().name("packets".to_owned()).spawn(body).map(Self)
    }

    /// Waits for its end.
    ///
    /// # Errors
    /// If it has panicked.
    pub fn join(self) -> Result<(), &'static str> {
        self.0.join().map_err(|_| "the packet thread panicked")
    }
}
