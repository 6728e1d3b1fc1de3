//! The cpio "newc" format: what a kernel unpacks as its initramfs, and what the guest sends its results in.
//!
//! Layout, from the kernel's `Documentation/driver-api/early-userspace/buffer-format.rst`:
//!
//! ```text
//! "070701" ino mode uid gid nlink mtime filesize devmajor devminor rdevmajor rdevminor namesize check
//!          (13 fields of 8 hexadecimal digits), name with a zero byte, padding to 4, contents, padding to 4
//! ```

use std::collections::BTreeMap;

use anyhow::{Context, Result, bail, ensure};

/// A cpio archive under construction. Directories above an entry are added by themselves.
#[derive(Debug, Default)]
pub struct Archive {
    bytes: Vec<u8>,
    names: BTreeMap<String, ()>,
}

impl Archive {
    /// Adds a file at `path` (absolute, in the guest) with permission bits `mode`; a second one at the same path is left out.
    pub fn add_file(&mut self, path: &str, mode: u32, contents: &[u8]) {
        self.add(path, REGULAR | mode, contents);
    }

    /// Adds a symbolic link at `path` that points to `target`.
    pub fn add_link(&mut self, path: &str, target: &str) {
        self.add(path, SYMBOLIC_LINK | 0o777, target.as_bytes());
    }

    /// Adds an empty directory.
    pub fn add_directory(&mut self, path: &str) {
        self.add(path, DIRECTORY | 0o755, &[]);
    }

    /// The finished archive.
    pub fn finish(mut self) -> Vec<u8> {
        self.write_entry("TRAILER!!!", 0, &[]);
        self.bytes
    }

    fn add(&mut self, path: &str, mode: u32, contents: &[u8]) {
        let name = path.trim_matches('/');
        if name.is_empty() || self.names.contains_key(name) {
            return;
        }
        if let Some((parent, _)) = name.rsplit_once('/') {
            self.add(parent, DIRECTORY | 0o755, &[]);
        }
        self.names.insert(name.to_owned(), ());
        self.write_entry(name, mode, contents);
    }

    fn write_entry(&mut self, name: &str, mode: u32, contents: &[u8]) {
        let inode = self.names.len();
        let links = 1;
        let header = format!(
            "070701{inode:08x}{mode:08x}{:08x}{:08x}{links:08x}{:08x}{:08x}{:08x}{:08x}{:08x}{:08x}{:08x}{:08x}",
            0,
            0,
            0,
            contents.len(),
            0,
            0,
            0,
            0,
            name.len() + 1,
            0
        );
        self.bytes.extend_from_slice(header.as_bytes());
        self.bytes.extend_from_slice(name.as_bytes());
        self.bytes.push(0);
        self.pad();
        self.bytes.extend_from_slice(contents);
        self.pad();
    }

    fn pad(&mut self) {
        self.bytes.resize(self.bytes.len().next_multiple_of(4), 0);
    }
}

/// The regular files of a cpio archive by their names.
///
/// # Errors
/// If the archive is cut short or is not in the newc format.
pub fn read_files(archive: &[u8]) -> Result<BTreeMap<String, Vec<u8>>> {
    let mut files = BTreeMap::new();
    let mut rest = archive;
    loop {
        let header = rest.get(..HEADER_LENGTH).context("the archive ends within a header")?;
        ensure!(header.starts_with(b"070701"), "this is not a cpio archive in the newc format");
        let mode = header_field(header, 1)?;
        let length = header_field(header, 6)?;
        let name_length = header_field(header, 11)?;
        let contents_at = (HEADER_LENGTH + name_length).next_multiple_of(4);
        let name =
            rest.get(HEADER_LENGTH..HEADER_LENGTH + name_length).context("the archive ends within a name")?;
        let name = String::from_utf8_lossy(name.strip_suffix(&[0]).unwrap_or(name)).into_owned();
        if name == "TRAILER!!!" {
            return Ok(files);
        }
        let Some(contents) = rest.get(contents_at..contents_at + length) else {
            bail!("the archive ends within {name}");
        };
        if mode as u32 & FILE_TYPE == REGULAR {
            files.insert(name, contents.to_vec());
        }
        rest =
            rest.get((contents_at + length).next_multiple_of(4)..).context("the archive has no trailer")?;
    }
}

fn header_field(header: &[u8], index: usize) -> Result<usize> {
    let digits = &header[6 + 8 * index..14 + 8 * index];
    let digits = std::str::from_utf8(digits).context("a header field is not text")?;
    usize::from_str_radix(digits, 16).with_context(|| format!("a header field is {digits:?}, not a number"))
}

const HEADER_LENGTH: usize = 110;
const FILE_TYPE: u32 = 0o170_000;
const REGULAR: u32 = 0o100_000;
const DIRECTORY: u32 = 0o040_000;
const SYMBOLIC_LINK: u32 = 0o120_000;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn files_come_back_as_they_were_put_in() {
        let mut archive = Archive::default();
        archive.add_file("/a/b/odd", 0o644, b"12345");
        archive.add_link("/a/link", "b/odd");
        archive.add_file("/empty", 0o755, b"");
        archive.add_file("/a/b/odd", 0o644, b"a second one");
        let files = read_files(&archive.finish()).unwrap();
        assert_eq!(files.len(), 2);
        assert_eq!(files["a/b/odd"], b"12345");
        assert!(files["empty"].is_empty());
    }

    #[test]
    fn damaged_archives_are_refused() {
        let mut archive = Archive::default();
        archive.add_file("/file", 0o644, &[7; 100]);
        let whole = archive.finish();
        for length in 0..whole.len() - 20 {
            assert!(read_files(&whole[..length]).is_err(), "cut to {length} bytes");
        }
        assert!(read_files(&[b'x'; 200]).is_err());
    }
}
