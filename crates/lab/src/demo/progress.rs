//! Progress bars while the demo runs; plain lines where the output is no terminal.

use crate::netbed::FetchReport;
use indicatif::{MultiProgress, ProgressBar, ProgressDrawTarget, ProgressStyle};
use std::io::IsTerminal;
use std::time::Duration;
use units::Bytes;

/// Where bars are drawn.
pub(super) struct Stage {
    bars: MultiProgress,
    is_terminal: bool,
}

/// One download's bar.
pub(super) struct Bar {
    bar: ProgressBar,
    label: String,
    notes: Vec<String>,
    is_terminal: bool,
}

const LABEL_WIDTH: usize = 38;

impl Stage {
    pub(super) fn new() -> Self {
        let is_terminal = std::io::stderr().is_terminal();
        let target =
            if is_terminal { ProgressDrawTarget::stderr_with_hz(15) } else { ProgressDrawTarget::hidden() };
        Self { bars: MultiProgress::with_draw_target(target), is_terminal }
    }

    /// A bar for a download of `bytes`.
    pub(super) fn bar(&self, label: &str, bytes: Bytes) -> Bar {
        let bar = self.bars.add(ProgressBar::new(bytes.0));
        bar.set_style(style("{prefix} [{bar:30.cyan/blue}] {bytes:>10} {binary_bytes_per_sec:>12} {msg}"));
        bar.set_prefix(format!("{label:LABEL_WIDTH$}"));
        Bar { bar, label: label.to_owned(), notes: Vec::new(), is_terminal: self.is_terminal }
    }

    /// A line for something whose length is not known.
    pub(super) fn spinner(&self, label: &str) -> Bar {
        let bar = self.bars.add(ProgressBar::new_spinner());
        bar.set_style(style("{spinner} {prefix}"));
        bar.set_prefix(label.to_owned());
        bar.enable_steady_tick(Duration::from_millis(100));
        Bar { bar, label: label.to_owned(), notes: Vec::new(), is_terminal: self.is_terminal }
    }
}

impl Bar {
    /// So many bytes are there.
    pub(super) fn advance(&mut self, bytes: u64) {
        self.bar.set_position(bytes);
    }

    /// Something happened meanwhile.
    pub(super) fn note(&mut self, note: &str) {
        self.notes.push(note.to_owned());
        self.bar.set_message(self.notes.join(", "));
    }

    /// The download is over.
    pub(super) fn finish_download(self, report: &FetchReport) {
        let (goodput, stall) = (report.goodput_mbps(), report.longest_stall_ms);
        self.finish(&format!("{goodput:.1} Mbit/s, longest stall {stall:.0} ms"));
    }

    /// The bar's last state.
    pub(super) fn finish(mut self, words: &str) {
        self.notes.push(words.to_owned());
        let words = self.notes.join(", ");
        self.bar.set_style(style("{prefix} {msg}"));
        self.bar.set_prefix(format!("{:LABEL_WIDTH$}", self.label));
        self.bar.finish_with_message(words.clone());
        if !self.is_terminal {
            eprintln!("{:LABEL_WIDTH$} {words}", self.label);
        }
    }
}

/// The templates of this module are right; one that were not would only look plain.
fn style(template: &str) -> ProgressStyle {
    ProgressStyle::with_template(template).unwrap_or_else(|_| ProgressStyle::default_bar())
}
