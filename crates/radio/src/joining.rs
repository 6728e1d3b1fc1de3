//! How a network is joined, judged from what it says of itself: with which keys and ciphers, or why not.

use thiserror::Error;

use crate::frame::{Cipher, KeyManagement, RobustSecurity};
use crate::scan::Protection;

/// Why a network is not joined by this radio.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Error)]
pub enum Unjoinable {
    /// It wants a passphrase, and none is configured.
    #[error("it wants a passphrase; give it one with `anabranch radio add`")]
    PassphraseMissing,
    /// A passphrase is configured, and it wants none: perhaps somebody else's network of the same name.
    #[error("it is open, but a passphrase is configured for this name; another network may pretend to be it")]
    OpenInstead,
    /// Keys that this radio does not agree on.
    #[error(
        "it wants WPA3 or a login (802.1X, OWE), which need a card that holds several networks by itself; see `anabranch radio probe`"
    )]
    KeyManagement,
    /// Another network of the radio is in the same set of access points, under the same address.
    #[error(
        "another network of this radio has the same name: its access points would send what is for us to one of the two only, and this card acknowledges no further address"
    )]
    SameSet,
    /// Nobody may begin to send on its channel (no-IR, radar): the kernel drops what a monitor interface sends there.
    #[error(
        "its channel is one on which this card may only listen here; set the right country (`iw reg set`), or let the access point take another channel"
    )]
    ListenOnly,
    /// Ciphers that are out of use.
    #[error(
        "it is protected by a cipher that is out of use (TKIP or WEP) or unknown; let its access point offer WPA2 with AES only"
    )]
    Cipher,
}

/// What to say in the association request; `None` for an open network.
///
/// # Errors
/// A network that is not joined, with the reason.
pub fn choose(protection: &Protection, has_passphrase: bool) -> Result<Option<RobustSecurity>, Unjoinable> {
    let announced = match protection {
        Protection::Open if has_passphrase => return Err(Unjoinable::OpenInstead),
        Protection::Open => return Ok(None),
        Protection::Unsupported => return Err(Unjoinable::Cipher),
        Protection::Robust(announced) => announced,
    };
    let offers = |suite| announced.key_management.contains(&suite);
    // With protected management frames the standard wants SHA-256 where it is offered (section 12.6.3).
    let management = [KeyManagement::PskSha256, KeyManagement::Psk].into_iter().find(|suite| offers(*suite));
    let management = management.ok_or(Unjoinable::KeyManagement)?;
    if !has_passphrase {
        return Err(Unjoinable::PassphraseMissing);
    }
    if announced.group != Cipher::Ccmp || !announced.pairwise.contains(&Cipher::Ccmp) {
        return Err(Unjoinable::Cipher);
    }
    let protect = announced.protection_offered && announced.group_management == Cipher::Bip;
    if announced.protection_required && !protect {
        return Err(Unjoinable::Cipher);
    }
    Ok(Some(RobustSecurity {
        group: Cipher::Ccmp,
        pairwise: vec![Cipher::Ccmp],
        key_management: vec![management],
        protection_offered: protect,
        protection_required: protect,
        group_management: Cipher::Bip,
    }))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn network(key_management: &[KeyManagement], group: Cipher, protected: bool) -> Protection {
        Protection::Robust(RobustSecurity {
            group,
            pairwise: vec![Cipher::Ccmp],
            key_management: key_management.to_vec(),
            protection_offered: protected,
            protection_required: false,
            group_management: Cipher::Bip,
        })
    }

    #[test]
    fn the_best_that_both_have_is_chosen() {
        use KeyManagement::{Enterprise, Psk, PskSha256, Sae};
        let chosen = |suites: &[_], protected| choose(&network(suites, Cipher::Ccmp, protected), true);
        assert_eq!(choose(&Protection::Open, false), Ok(None));
        let plain = chosen(&[Psk], false).unwrap().unwrap();
        assert_eq!((plain.key_management.as_slice(), plain.protection_required), ([Psk].as_slice(), false));
        let mixed = chosen(&[Sae, Psk, PskSha256], true).unwrap().unwrap();
        assert_eq!(
            (mixed.key_management.as_slice(), mixed.protection_required),
            ([PskSha256].as_slice(), true)
        );
        assert_eq!(chosen(&[Sae], true), Err(Unjoinable::KeyManagement));
        assert_eq!(chosen(&[Enterprise], true), Err(Unjoinable::KeyManagement));
    }

    #[test]
    fn what_is_not_safe_is_not_joined() {
        let psk = [KeyManagement::Psk];
        assert_eq!(choose(&Protection::Open, true), Err(Unjoinable::OpenInstead));
        assert_eq!(choose(&network(&psk, Cipher::Tkip, false), true), Err(Unjoinable::Cipher));
        assert_eq!(choose(&network(&psk, Cipher::Ccmp, false), false), Err(Unjoinable::PassphraseMissing));
        assert_eq!(choose(&Protection::Unsupported, true), Err(Unjoinable::Cipher));
    }
}
