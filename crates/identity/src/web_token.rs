//! The secret that lets a browser or a monitoring program in at the daemon's web page.

use std::fmt;
use std::fs;
use std::io;
use std::path::PathBuf;

use data_encoding::BASE32_NOPAD;
use rand::TryRngCore;
use rand::rngs::OsRng;
use ring::digest::{SHA256, digest};
use thiserror::Error;
use zeroize::{Zeroize, Zeroizing};

use crate::atomic_file::WriteError;
use crate::state::StateDirectory;

const FILE_NAME: &str = "web-token";
const LENGTH: usize = 20;
/// 20 bytes in base32.
const TEXT_LENGTH: usize = 32;

/// A token: 32 letters and digits that stand for 160 random bits. Wiped when dropped, shown only by [`WebToken::text`].
#[derive(Clone)]
pub struct WebToken(Zeroizing<String>);

/// Why there is no token.
#[derive(Debug, Error)]
pub enum WebTokenError {
    /// None was made yet.
    #[error(
        "there is no web page here yet: set `web = \"127.0.0.1:4680\"` in the configuration and start the daemon again"
    )]
    Missing,
    /// The file cannot be read.
    #[error("cannot read {}: {source}", path.display())]
    Read {
        /// The file.
        path: PathBuf,
        /// The system's reason.
        source: io::Error,
    },
    /// The file holds something else.
    #[error("{} holds no token; remove it and start the daemon again, which makes a new one", .0.display())]
    Damaged(PathBuf),
    /// The file cannot be written.
    #[error(transparent)]
    Write(#[from] WriteError),
    /// The system gives no randomness.
    #[error("no token can be made: {0}")]
    Randomness(#[source] rand::rand_core::OsError),
}

impl WebToken {
    /// The token of a state directory; a new one if there is none.
    ///
    /// # Errors
    /// Any [`WebTokenError`] but `Missing`.
    pub fn load_or_create(state: &StateDirectory) -> Result<Self, WebTokenError> {
        match Self::load(state) {
            Err(WebTokenError::Missing) => {}
            outcome => return outcome,
        }
        let mut random = Zeroizing::new([0; LENGTH]);
        OsRng.try_fill_bytes(&mut *random).map_err(WebTokenError::Randomness)?;
        let token = Self(Zeroizing::new(BASE32_NOPAD.encode(&*random).to_ascii_lowercase()));
        state.replace(FILE_NAME, format!("{}\n", token.text()).as_bytes())?;
        Ok(token)
    }

    /// The token of a state directory.
    ///
    /// # Errors
    /// Any [`WebTokenError`].
    pub fn load(state: &StateDirectory) -> Result<Self, WebTokenError> {
        let path = state.file(FILE_NAME);
        let read = |source: io::Error| match source.kind() {
            io::ErrorKind::NotFound => WebTokenError::Missing,
            _ => WebTokenError::Read { path: path.clone(), source },
        };
        if fs::metadata(&path).map_err(read)?.len() > MAX_FILE {
            return Err(WebTokenError::Damaged(path));
        }
        let mut bytes = fs::read(&path).map_err(read)?;
        let text = std::str::from_utf8(&bytes).map(|text| Zeroizing::new(text.trim().to_owned()));
        let is_token = |text: &str| text.len() == TEXT_LENGTH && text.bytes().all(is_base32);
        let token = text.ok().filter(|text| is_token(text)).map(Self);
        bytes.zeroize();
        token.ok_or(WebTokenError::Damaged(path))
    }

    /// What a browser has to show.
    pub fn text(&self) -> &str {
        &self.0
    }

    /// Whether `shown` is the token. How long the answer takes does not tell how much of it is right.
    pub fn admits(&self, shown: &[u8]) -> bool {
        digest(&SHA256, shown).as_ref() == digest(&SHA256, self.0.as_bytes()).as_ref()
    }
}

impl fmt::Debug for WebToken {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str("WebToken(..)")
    }
}

fn is_base32(byte: u8) -> bool {
    byte.is_ascii_lowercase() || (b'2'..=b'7').contains(&byte)
}

/// Far more than a token.
const MAX_FILE: u64 = 1_024;

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt;

    use super::*;

    #[test]
    fn a_token_stays_what_it_is_and_is_for_its_owner_only() {
        let directory = tempfile::tempdir().unwrap();
        let state = StateDirectory::create(directory.path().join("state")).unwrap();
        assert!(matches!(WebToken::load(&state), Err(WebTokenError::Missing)));
        let token = WebToken::load_or_create(&state).unwrap();
        assert_eq!(WebToken::load_or_create(&state).unwrap().text(), token.text());
        assert_eq!(fs::metadata(state.file(FILE_NAME)).unwrap().permissions().mode() & 0o777, 0o600);
        assert!(token.admits(token.text().as_bytes()));
        assert!(!token.admits(&token.text().as_bytes()[1..]) && !token.admits(b""));
        assert!(!format!("{token:?}").contains(token.text()));
    }

    #[test]
    fn what_is_no_token_is_not_taken_for_one() {
        let directory = tempfile::tempdir().unwrap();
        let state = StateDirectory::create(directory.path().join("state")).unwrap();
        for text in [b"".as_slice(), b"short\n", &[b'a'; 33], &[0xff; 32], &[b'1'; 32], &[b'a'; 5_000]] {
            fs::write(state.file(FILE_NAME), text).unwrap();
            assert!(matches!(WebToken::load_or_create(&state), Err(WebTokenError::Damaged(_))), "{text:?}");
        }
    }
}
