//! A library that binds the sockets of an unmodified program to network cards.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, anyhow};

use super::initramfs::unique_number;
use super::{MachineError, not_installed};

/// The library, compiled; its files go with this value.
///
/// For [`Job::programs`](super::Job::programs): in the guest it is `/usr/local/bin/cards.so`, to be preloaded with `CARDS` in the
/// environment ("198.51.100.2=a,*=b": destination and interface).
#[derive(Debug)]
pub struct Library {
    directory: PathBuf,
}

/// Compiles it.
///
/// # Errors
/// [`MachineError::Missing`] without a C compiler.
pub fn library() -> Result<Library, MachineError> {
    let directory = std::env::temp_dir().join(format!("ab-cards-{}", unique_number()));
    fs::create_dir(&directory).with_context(|| format!("making {}", directory.display()))?;
    let library = Library { directory };
    let source = library.directory.join("cards.c");
    fs::write(&source, SOURCE).with_context(|| format!("writing {}", source.display()))?;
    let mut compiler = Command::new("cc");
    compiler.args(["-shared", "-fPIC", "-O2", "-o"]).arg(library.directory.join("cards.so")).arg(&source);
    let output = compiler.output().map_err(|_| not_installed("cc", "gcc"))?;
    let said = String::from_utf8_lossy(&output.stderr);
    if !output.status.success() {
        return Err(anyhow!("the C compiler refuses {}: {said}", source.display()).into());
    }
    Ok(library)
}

impl Library {
    /// Its file.
    pub fn path(&self) -> PathBuf {
        self.directory.join("cards.so")
    }
}

impl Drop for Library {
    fn drop(&mut self) {
        remove(&self.directory);
    }
}

fn remove(directory: &Path) {
    if let Err(error) = fs::remove_dir_all(directory) {
        tracing::warn!("{} stays behind: {error}", directory.display());
    }
}

const SOURCE: &str = include_str!("cards.c");
