//! The key pair of this machine.

use std::fmt;
use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::str::FromStr;

use data_encoding::BASE32_NOPAD;
use snow::params::{DHChoice, NoiseParams};
use snow::resolvers::{CryptoResolver, DefaultResolver};
use thiserror::Error;
use zeroize::{Zeroize, Zeroizing};

use crate::atomic_file::{self, Existing, WriteError};
use crate::state::StateDirectory;

const FILE_NAME: &str = "key";
const FIRST_LINE: &str = "anabranch key 1";
/// Far more than a key file has; a larger one is none.
const MAX_FILE: u64 = 1_024;
const KEY_LENGTH: usize = 32;

/// An X25519 public key: who a far end is. As text 52 characters of base32 in lower case.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct PublicKey(pub [u8; KEY_LENGTH]);

/// A text that is no public key.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Error)]
#[error("not a public key: expected 52 letters and digits (base32)")]
pub struct PublicKeyError;

impl fmt::Display for PublicKey {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str(&BASE32_NOPAD.encode(&self.0).to_ascii_lowercase())
    }
}

impl fmt::Debug for PublicKey {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "PublicKey({self})")
    }
}

impl FromStr for PublicKey {
    type Err = PublicKeyError;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        decode(text).map(|bytes| Self(*bytes)).ok_or(PublicKeyError)
    }
}

/// The key pair of this machine. The private half is wiped when dropped and never shown.
#[derive(Clone)]
pub struct KeyPair {
    private: Zeroizing<[u8; KEY_LENGTH]>,
    public: PublicKey,
}

impl fmt::Debug for KeyPair {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.debug_struct("KeyPair").field("public", &self.public).finish_non_exhaustive()
    }
}

/// Why there is no key pair.
#[derive(Debug, Error)]
pub enum KeyError {
    /// There is no key file yet.
    #[error("there is no key in {}: run `anabranch join -` on a device, `anabranch gateway init` on a gateway", .0.display())]
    Missing(PathBuf),
    /// The file cannot be read.
    #[error("cannot read the key file {}: {source}", path.display())]
    Read {
        /// The file.
        path: PathBuf,
        /// The system's reason.
        source: io::Error,
    },
    /// The file is not a key file, or damaged.
    #[error("the key file {} is damaged; put back a copy, or move it away and join again", .0.display())]
    Damaged(PathBuf),
    /// The file cannot be written.
    #[error(transparent)]
    Write(#[from] WriteError),
    /// The system gives no randomness, or the cryptography is missing.
    #[error("no key can be made: {0}")]
    Generate(#[from] snow::Error),
}

impl KeyPair {
    /// A new key pair from the system's randomness.
    ///
    /// # Errors
    /// [`KeyError::Generate`].
    pub fn generate() -> Result<Self, KeyError> {
        let params: NoiseParams = "Noise_IK_25519_ChaChaPoly_BLAKE2s".parse()?;
        let mut pair = snow::Builder::new(params).generate_keypair()?;
        let mut private = Zeroizing::new([0; KEY_LENGTH]);
        private.copy_from_slice(&pair.private);
        pair.private.zeroize();
        Self::of_private(private)
    }

    /// The key pair of a private key.
    ///
    /// # Errors
    /// [`KeyError::Generate`] if the cryptography is missing.
    pub fn from_private(private: [u8; KEY_LENGTH]) -> Result<Self, KeyError> {
        Self::of_private(Zeroizing::new(private))
    }

    fn of_private(private: Zeroizing<[u8; KEY_LENGTH]>) -> Result<Self, KeyError> {
        let missing = snow::Error::Init(snow::error::InitStage::GetDhImpl);
        let mut curve = DefaultResolver.resolve_dh(&DHChoice::Curve25519).ok_or(missing)?;
        curve.set(private.as_slice());
        let mut public = [0; KEY_LENGTH];
        public.copy_from_slice(curve.pubkey());
        Ok(Self { private, public: PublicKey(public) })
    }

    /// Reads the key pair of a state directory.
    ///
    /// # Errors
    /// Any [`KeyError`] of reading.
    pub fn load(state: &StateDirectory) -> Result<Self, KeyError> {
        let path = state.file(FILE_NAME);
        let text = read(&path)?;
        let damaged = || KeyError::Damaged(path.clone());
        let mut lines = text.lines();
        if lines.next() != Some(FIRST_LINE) {
            return Err(damaged());
        }
        let mut value = |name| {
            let (found, value) = lines.next()?.split_once(' ')?;
            if found == name { decode(value) } else { None }
        };
        let private = value("private").ok_or_else(damaged)?;
        let public = value("public").ok_or_else(damaged)?;
        let pair = Self::of_private(private)?;
        // The stored public half is a checksum: a key with a flipped bit must not pass as another identity.
        if pair.public.0 != *public { Err(damaged()) } else { Ok(pair) }
    }

    /// Reads the key pair of a state directory, or makes and stores one if there is none.
    ///
    /// Two processes that do so at once end with the same pair.
    ///
    /// # Errors
    /// Any [`KeyError`].
    pub fn load_or_create(state: &StateDirectory) -> Result<Self, KeyError> {
        match Self::load(state) {
            Err(KeyError::Missing(_)) => {}
            other => return other,
        }
        let pair = Self::generate()?;
        let contents = pair.file_contents();
        match atomic_file::write(&state.file(FILE_NAME), contents.as_bytes(), Existing::Keep) {
            Ok(()) => Ok(pair),
            Err(WriteError::Io { source, .. }) if source.kind() == io::ErrorKind::AlreadyExists => {
                Self::load(state)
            }
            Err(error) => Err(error.into()),
        }
    }

    /// The half that everybody may know.
    pub fn public(&self) -> PublicKey {
        self.public
    }

    /// What only this key pair and that of `other` can work out together (X25519), to derive keys from; `None` for a key
    /// with which anybody could.
    pub fn shared_secret(&self, other: PublicKey) -> Option<Zeroizing<[u8; KEY_LENGTH]>> {
        let mut curve = DefaultResolver.resolve_dh(&DHChoice::Curve25519)?;
        curve.set(self.private.as_slice());
        let mut secret = Zeroizing::new([0; KEY_LENGTH]);
        curve.dh(&other.0, secret.as_mut_slice()).ok()?;
        (*secret != [0; KEY_LENGTH]).then_some(secret)
    }

    /// The half that nobody else may know. Do not copy it where it is not wiped.
    pub fn private_bytes(&self) -> &[u8; KEY_LENGTH] {
        &self.private
    }

    fn file_contents(&self) -> Zeroizing<String> {
        let private = Zeroizing::new(lower_case_base32(self.private.as_slice()));
        Zeroizing::new(format!("{FIRST_LINE}\nprivate {}\npublic {}\n", *private, self.public))
    }
}

fn read(path: &Path) -> Result<Zeroizing<String>, KeyError> {
    let failed = |source: io::Error| match source.kind() {
        io::ErrorKind::NotFound => KeyError::Missing(path.to_owned()),
        io::ErrorKind::InvalidData => KeyError::Damaged(path.to_owned()),
        _ => KeyError::Read { path: path.to_owned(), source },
    };
    if fs::metadata(path).map_err(failed)?.len() > MAX_FILE {
        return Err(KeyError::Damaged(path.to_owned()));
    }
    fs::read_to_string(path).map(Zeroizing::new).map_err(failed)
}

fn lower_case_base32(bytes: &[u8]) -> String {
    let mut text = BASE32_NOPAD.encode(bytes);
    text.make_ascii_lowercase();
    text
}

/// Reads 32 bytes of base32 in either case.
fn decode(text: &str) -> Option<Zeroizing<[u8; KEY_LENGTH]>> {
    let upper = Zeroizing::new(text.trim().to_ascii_uppercase());
    let mut decoded = BASE32_NOPAD.decode(upper.as_bytes()).ok()?;
    let bytes = <[u8; KEY_LENGTH]>::try_from(decoded.as_slice()).ok().map(Zeroizing::new);
    decoded.zeroize();
    bytes
}
