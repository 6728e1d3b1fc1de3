//! Networks where everybody has a login of their own (802.1X): what is known of it, and what wpa_supplicant is told.

use data_encoding::{BASE64, HEXLOWER};
use serde::{Deserialize, Serialize};

/// How one shows who one is. The server shows first, by a certificate.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum LoginMethod {
    /// A password by MSCHAPv2 inside TLS (PEAP).
    Peap,
    /// The same inside EAP-TTLS, RFC 5281.
    Ttls,
    /// A certificate, EAP-TLS (RFC 5216).
    Tls,
}

impl LoginMethod {
    /// All of them, with their names.
    pub const ALL: [(&'static str, Self); 3] =
        [("peap", Self::Peap), ("ttls", Self::Ttls), ("tls", Self::Tls)];
}

/// A login. Holds secrets, so it is never shown.
#[derive(Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Login {
    /// How.
    pub method: LoginMethod,
    /// The user's name at the network, such as `me@example.org`.
    pub identity: String,
    /// The name that is told before the server has shown who it is; it can be read by anybody near.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub anonymous: Option<String>,
    /// For the methods with one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub password: Option<String>,
    /// The certificate of whoever vouches for the server, PEM. Without it anybody near could pose as the network.
    pub authority: String,
    /// How the server's name has to end.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub domain: Option<String>,
    /// Our certificate, PEM.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub certificate: Option<String>,
    /// Its private key, PEM, not encrypted.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub key: Option<String>,
}

/// A value that cannot be used: its key, and what would be right.
type Wrong = (&'static str, &'static str);

impl Login {
    /// Whether all that the method needs is there.
    ///
    /// # Errors
    /// [`Wrong`]; nothing of the value is shown.
    pub(super) fn check(&self) -> Result<(), Wrong> {
        let named = [("identity", Some(&self.identity)), ("anonymous", self.anonymous.as_ref())];
        for (key, text) in named {
            if text.is_some_and(|text| text.is_empty() || text.len() > LONGEST_NAME) {
                return Err((key, "expected a name of 1 to 253 bytes"));
            }
        }
        let is_host = |text: &String| {
            let legal = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'.');
            (1..=LONGEST_NAME).contains(&text.len()) && text.bytes().all(legal)
        };
        if !self.domain.as_ref().is_none_or(is_host) {
            return Err(("domain", "expected the end of the server's name, such as radius.example.org"));
        }
        if parts(&self.authority, &[CERTIFICATE]).is_empty() {
            return Err(("authority", "expected the PEM text of a certificate (BEGIN CERTIFICATE)"));
        }
        if self.method == LoginMethod::Tls {
            let has = |text: &Option<String>, labels| {
                text.as_ref().is_some_and(|text| !parts(text, labels).is_empty())
            };
            if !has(&self.certificate, &[CERTIFICATE]) {
                return Err(("certificate", "expected the PEM text of your certificate"));
            }
            if !has(&self.key, &KEYS) {
                return Err(("key", "expected the PEM text of its private key, not encrypted"));
            }
        } else if !self.password.as_ref().is_some_and(|text| (1..=LONGEST_NAME).contains(&text.len())) {
            return Err(("password", "expected one of 1 to 253 bytes"));
        }
        Ok(())
    }

    /// The lines of a block for a network, and those of the file, which hold certificates. All text is in hexadecimal digits, so none of it
    /// can pose as something else.
    pub(super) fn lines(&self) -> (Vec<String>, Vec<String>) {
        let (mut block, mut file) = (Vec::new(), Vec::new());
        let hexadecimal = |text: &str| HEXLOWER.encode(text.as_bytes());
        let mut blob = |name: &str, bytes: &[u8]| {
            file.push(format!("blob-base64-{name}={{"));
            let text = BASE64.encode(bytes);
            // Ours is ASCII.
            file.extend(text.as_bytes().chunks(64).map(|line| String::from_utf8_lossy(line).into_owned()));
            file.push("}".to_owned());
            format!("\"blob://{name}\"")
        };
        block.push("key_mgmt=WPA-EAP WPA-EAP-SHA256".to_owned());
        let (method, inner) = match self.method {
            LoginMethod::Peap => ("PEAP", Some("auth=MSCHAPV2")),
            LoginMethod::Ttls => ("TTLS", Some("auth=MSCHAPV2")),
            LoginMethod::Tls => ("TLS", None),
        };
        block.push(format!("eap={method}"));
        block.extend(inner.map(|inner| format!("phase2=\"{inner}\"")));
        block.push(format!("identity={}", hexadecimal(&self.identity)));
        block.extend(self.anonymous.as_ref().map(|name| format!("anonymous_identity={}", hexadecimal(name))));
        block.extend(self.domain.as_ref().map(|name| format!("domain_suffix_match=\"{name}\"")));
        block.push(format!("ca_cert={}", blob("authority", self.authority.as_bytes())));
        if self.method == LoginMethod::Tls {
            let first = |text: &Option<String>, labels: &[&str]| {
                text.as_ref().and_then(|text| parts(text, labels).into_iter().next()).unwrap_or_default()
            };
            let certificate = first(&self.certificate, &[CERTIFICATE]);
            block.push(format!("client_cert={}", blob("certificate", &certificate)));
            block.push(format!("private_key={}", blob("key", &first(&self.key, &KEYS))));
        } else if let Some(password) = &self.password {
            block.push(format!("password={}", hexadecimal(password)));
        }
        (block, file)
    }
}

/// What PEM text (RFC 7468) has under these labels, decoded.
fn parts(text: &str, labels: &[&str]) -> Vec<Vec<u8>> {
    let mut found = Vec::new();
    let mut rest = text;
    while let Some((_, after)) = rest.split_once("-----BEGIN ") {
        let Some((label, after)) = after.split_once("-----") else { break };
        let Some((body, after)) = after.split_once("-----END ") else { break };
        let body: String = body.split_ascii_whitespace().collect();
        if labels.contains(&label)
            && let Ok(bytes) = BASE64.decode(body.as_bytes())
            && !bytes.is_empty()
        {
            found.push(bytes);
        }
        rest = after;
    }
    found
}

const CERTIFICATE: &str = "CERTIFICATE";
const KEYS: [&str; 3] = ["PRIVATE KEY", "RSA PRIVATE KEY", "EC PRIVATE KEY"];
/// Of a network access identifier, RFC 7542 section 2.2.
const LONGEST_NAME: usize = 253;

#[cfg(test)]
mod tests {
    use super::*;

    const PEM: &str = "-----BEGIN CERTIFICATE-----\nAAEC\nAwQ=\n-----END CERTIFICATE-----\n";
    const KEY: &str = "-----BEGIN PRIVATE KEY-----\nBQYH\n-----END PRIVATE KEY-----\n";

    fn login(method: LoginMethod) -> Login {
        Login {
            method,
            identity: "me@example.org".into(),
            anonymous: None,
            password: Some("top\"secret\n".into()),
            authority: PEM.into(),
            domain: Some("radius.example.org".into()),
            certificate: Some(PEM.into()),
            key: Some(KEY.into()),
        }
    }

    #[test]
    fn what_is_told_holds_no_text_that_could_end_a_line() {
        for (_, method) in LoginMethod::ALL {
            let login = login(method);
            assert_eq!(login.check(), Ok(()));
            let (block, file) = login.lines();
            let all = [block, file].concat();
            assert!(all.iter().all(|line| !line.contains('\n') && !line.contains("secret")), "{all:?}");
            let has = |text: &str| all.iter().any(|line| line == text);
            assert!(has("identity=6d65406578616d706c652e6f7267") && has("blob-base64-authority={"));
            assert_eq!(
                has("password=746f7022736563726574 0a".replace(' ', "").as_str()),
                method != LoginMethod::Tls
            );
            assert_eq!(
                has("blob-base64-key={") && has("BQYH") && has("AAECAwQ="),
                method == LoginMethod::Tls
            );
        }
    }

    #[test]
    fn what_is_missing_is_named() {
        let base = || login(LoginMethod::Tls);
        let key = |login: Login| login.check().err().map(|(key, _)| key);
        assert_eq!(key(Login { identity: String::new(), ..base() }), Some("identity"));
        assert_eq!(
            key(Login { authority: "-----BEGIN CERTIFICATE-----".into(), ..base() }),
            Some("authority")
        );
        assert_eq!(key(Login { authority: KEY.into(), ..base() }), Some("authority"));
        assert_eq!(key(Login { domain: Some("a\"b".into()), ..base() }), Some("domain"));
        assert_eq!(key(Login { key: Some(PEM.into()), ..base() }), Some("key"));
        assert_eq!(key(Login { certificate: None, ..base() }), Some("certificate"));
        assert_eq!(key(Login { password: None, ..login(LoginMethod::Peap) }), Some("password"));
    }
}
