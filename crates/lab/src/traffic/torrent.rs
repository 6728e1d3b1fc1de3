//! A file of chance bytes and its torrent, for real BitTorrent clients.
//!
//! Format: BEP 3, "The BitTorrent Protocol Specification": a dictionary in bencoding, keys in order of their bytes.

use std::fs;
use std::path::PathBuf;

use anyhow::{Context, Result, ensure};
use rand::{RngCore, SeedableRng};
use rand_chacha::ChaCha8Rng;
use ring::digest;

/// What to make.
#[derive(Clone, Debug, clap::Args)]
pub struct TorrentArguments {
    /// Directory of the file.
    pub directory: PathBuf,
    /// The torrent.
    pub torrent: PathBuf,
    /// URL of the tracker.
    #[arg(long)]
    pub tracker: String,
    /// Size of the file.
    #[arg(long)]
    pub bytes: u32,
    /// Size of a piece.
    #[arg(long, default_value_t = 256 << 10)]
    pub piece: u32,
    /// Name of the file.
    #[arg(long, default_value = "file")]
    pub name: String,
    /// Decides its bytes.
    #[arg(long, default_value_t = 1)]
    pub seed: u64,
}

/// Writes both.
///
/// # Errors
/// If a piece is empty or a file cannot be written.
pub fn make(arguments: &TorrentArguments) -> Result<()> {
    ensure!(arguments.piece > 0, "a piece of no bytes");
    let mut content = vec![0; arguments.bytes as usize];
    ChaCha8Rng::seed_from_u64(arguments.seed).fill_bytes(&mut content);
    let torrent = torrent(&arguments.tracker, &arguments.name, &content, arguments.piece);
    let file = arguments.directory.join(&arguments.name);
    for (path, bytes) in [(&file, &content), (&arguments.torrent, &torrent)] {
        fs::write(path, bytes).with_context(|| format!("writing {}", path.display()))?;
    }
    Ok(())
}

fn torrent(tracker: &str, name: &str, content: &[u8], piece: u32) -> Vec<u8> {
    let hash = |piece: &[u8]| digest::digest(&digest::SHA1_FOR_LEGACY_USE_ONLY, piece).as_ref().to_vec();
    let pieces: Vec<u8> = content.chunks(piece as usize).flat_map(hash).collect();
    let mut text = Vec::new();
    text.push(b'd');
    string(&mut text, b"announce");
    string(&mut text, tracker.as_bytes());
    string(&mut text, b"info");
    text.push(b'd');
    string(&mut text, b"length");
    number(&mut text, content.len() as u64);
    string(&mut text, b"name");
    string(&mut text, name.as_bytes());
    string(&mut text, b"piece length");
    number(&mut text, piece.into());
    string(&mut text, b"pieces");
    string(&mut text, &pieces);
    text.extend(b"ee");
    text
}

/// Adds a string in bencoding.
pub(super) fn string(text: &mut Vec<u8>, value: &[u8]) {
    text.extend(format!("{}:", value.len()).as_bytes());
    text.extend(value);
}

/// Adds a number in bencoding.
pub(super) fn number(text: &mut Vec<u8>, value: u64) {
    text.extend(format!("i{value}e").as_bytes());
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_torrent_names_its_pieces_by_their_hashes() {
        // SHA-1 of "abc": FIPS 180-4's example; of "a": RFC 3174.
        let whole = torrent("http://t/announce", "f", b"abca", 3);
        let begin =
            b"d8:announce17:http://t/announce4:infod6:lengthi4e4:name1:f12:piece lengthi3e6:pieces40:";
        assert!(whole.starts_with(begin), "{}", String::from_utf8_lossy(&whole));
        let hashes = &whole[begin.len()..];
        assert_eq!(hashes[..4], [0xa9, 0x99, 0x3e, 0x36]);
        assert_eq!(hashes[20..24], [0x86, 0xf7, 0xe4, 0x37]);
        assert_eq!(&hashes[40..], b"ee");
    }
}
