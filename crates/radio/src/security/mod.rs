//! How frames are protected in a network with a passphrase: keys, encryption, handshakes (IEEE 802.11-2020 section 12).

pub mod bip;
pub mod ccmp;
mod keys;
mod supplicant;
#[cfg(test)]
mod tests;

pub use keys::{Passphrase, PassphraseError, SharedKey};
pub use supplicant::{GroupKey, IntegrityKey, KeyError, Progress, Supplicant};
