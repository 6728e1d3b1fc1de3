//! The RSN element: how a network is protected (IEEE 802.11-2020 section 9.4.2.24).

use super::FrameError;
use super::bytes::Reader;

/// The element's number.
pub const RSN_ELEMENT: u8 = 48;
/// The organisation that the standard's suites belong to.
const ORGANISATION: [u8; 3] = [0x00, 0x0f, 0xac];
const PROTECTION_REQUIRED: u16 = 1 << 6;
const PROTECTION_CAPABLE: u16 = 1 << 7;
/// More suites than any network has.
const MOST_SUITES: usize = 16;

/// How frames are encrypted (table 9-149).
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Cipher {
    /// As the group's.
    Group,
    /// The WEP cipher with TKIP's keys; out of use.
    Tkip,
    /// AES-CCM with 128 bits, of WPA2.
    Ccmp,
    /// AES-CMAC with 128 bits, which signs management frames to groups.
    Bip,
    /// Any other; number of the suite, 0 if it is of another organisation.
    Other(u8),
}

/// How keys are agreed on (table 9-151).
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum KeyManagement {
    /// A shared passphrase, with SHA-1.
    Psk,
    /// A shared passphrase, with SHA-256.
    PskSha256,
    /// A password by SAE (WPA3).
    Sae,
    /// A server that knows each user (802.1X).
    Enterprise,
    /// No secret, but encryption (OWE).
    Opportunistic,
    /// Any other; number of the suite, 0 if it is of another organisation.
    Other(u8),
}

impl Cipher {
    fn of(suite: [u8; 4]) -> Self {
        match number(suite) {
            0 if suite[..3] == ORGANISATION => Self::Group,
            2 => Self::Tkip,
            4 => Self::Ccmp,
            6 => Self::Bip,
            other => Self::Other(other),
        }
    }

    fn number(self) -> u8 {
        match self {
            Self::Group => 0,
            Self::Tkip => 2,
            Self::Ccmp => 4,
            Self::Bip => 6,
            Self::Other(number) => number,
        }
    }
}

impl KeyManagement {
    fn of(suite: [u8; 4]) -> Self {
        match number(suite) {
            1 | 5 => Self::Enterprise,
            2 => Self::Psk,
            6 => Self::PskSha256,
            8 => Self::Sae,
            18 => Self::Opportunistic,
            other => Self::Other(other),
        }
    }

    fn number(self) -> u8 {
        match self {
            Self::Enterprise => 1,
            Self::Psk => 2,
            Self::PskSha256 => 6,
            Self::Sae => 8,
            Self::Opportunistic => 18,
            Self::Other(number) => number,
        }
    }
}

/// What the element says, of a network or, in an association request, of what a station chose.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct RobustSecurity {
    /// For frames to groups.
    pub group: Cipher,
    /// For frames to one station, as offered.
    pub pairwise: Vec<Cipher>,
    /// How keys are agreed on, as offered.
    pub key_management: Vec<KeyManagement>,
    /// Management frames can be protected (802.11w).
    pub protection_offered: bool,
    /// They must be.
    pub protection_required: bool,
    /// What signs management frames to groups.
    pub group_management: Cipher,
}

impl RobustSecurity {
    /// Reads the element's body. Fields that are left out have the standard's defaults.
    ///
    /// # Errors
    /// Another version, lists that end behind the element, or too long ones.
    pub fn parse(body: &[u8]) -> Result<Self, FrameError> {
        let mut reader = Reader(body);
        if reader.little_16()? != 1 {
            return Err(FrameError::Value("RSN version"));
        }
        let mut security = Self {
            group: Cipher::Ccmp,
            pairwise: vec![Cipher::Ccmp],
            key_management: vec![KeyManagement::Enterprise],
            protection_offered: false,
            protection_required: false,
            group_management: Cipher::Bip,
        };
        if reader.0.is_empty() {
            return Ok(security);
        }
        security.group = Cipher::of(reader.array()?);
        if reader.0.is_empty() {
            return Ok(security);
        }
        security.pairwise = suites(&mut reader)?.into_iter().map(Cipher::of).collect();
        if reader.0.is_empty() {
            return Ok(security);
        }
        security.key_management = suites(&mut reader)?.into_iter().map(KeyManagement::of).collect();
        if reader.0.is_empty() {
            return Ok(security);
        }
        let capabilities = reader.little_16()?;
        security.protection_required = capabilities & PROTECTION_REQUIRED != 0;
        security.protection_offered = capabilities & (PROTECTION_CAPABLE | PROTECTION_REQUIRED) != 0;
        if reader.0.is_empty() {
            return Ok(security);
        }
        let known_keys = reader.little_16()?;
        reader.take(usize::from(known_keys) * 16)?;
        if !reader.0.is_empty() {
            security.group_management = Cipher::of(reader.array()?);
        }
        Ok(security)
    }

    /// The element's body.
    pub fn to_bytes(&self) -> Vec<u8> {
        let mut body = vec![1, 0];
        let write = |body: &mut Vec<u8>, number: u8| {
            body.extend_from_slice(&ORGANISATION);
            body.push(number);
        };
        write(&mut body, self.group.number());
        body.extend_from_slice(&(self.pairwise.len() as u16).to_le_bytes());
        self.pairwise.iter().for_each(|cipher| write(&mut body, cipher.number()));
        body.extend_from_slice(&(self.key_management.len() as u16).to_le_bytes());
        self.key_management.iter().for_each(|suite| write(&mut body, suite.number()));
        let required = if self.protection_required { PROTECTION_REQUIRED } else { 0 };
        let offered = if self.protection_offered { PROTECTION_CAPABLE } else { 0 };
        body.extend_from_slice(&(required | offered).to_le_bytes());
        if self.protection_offered {
            body.extend_from_slice(&[0, 0]);
            write(&mut body, self.group_management.number());
        }
        body
    }
}

/// The number of a suite of the standard's organisation; 0 of any other.
fn number(suite: [u8; 4]) -> u8 {
    if suite[..3] == ORGANISATION { suite[3] } else { 0 }
}

fn suites(reader: &mut Reader<'_>) -> Result<Vec<[u8; 4]>, FrameError> {
    let count = usize::from(reader.little_16()?);
    if count == 0 || count > MOST_SUITES {
        return Err(FrameError::Value("number of RSN suites"));
    }
    (0..count).map(|_| reader.array()).collect()
}
