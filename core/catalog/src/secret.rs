//! What must not be shown.

use alloc::string::String;
use core::{fmt, hint::black_box};

/// A password as a PHC string (argon2id). Its debug form hides it.
#[derive(Clone, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
#[serde(transparent)]
pub struct PasswordHash(pub String);

impl fmt::Debug for PasswordHash {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("PasswordHash(…)")
    }
}

impl From<String> for PasswordHash {
    fn from(phc: String) -> Self {
        Self(phc)
    }
}

/// A cryptographic hash of a session's secret. Its debug form hides it.
#[derive(Clone, Copy, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
#[serde(transparent)]
pub struct SecretHash(pub [u8; 32]);

impl SecretHash {
    /// Compares in a time that does not depend on the bytes.
    #[must_use]
    pub fn matches(&self, other: &Self) -> bool {
        let difference = self
            .0
            .iter()
            .zip(&other.0)
            .fold(0, |difference, (a, b)| black_box(difference | (a ^ b)));
        difference == 0
    }
}

impl fmt::Debug for SecretHash {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("SecretHash(…)")
    }
}

impl From<[u8; 32]> for SecretHash {
    fn from(hash: [u8; 32]) -> Self {
        Self(hash)
    }
}

#[cfg(test)]
mod tests {
    use std::{format, string::ToString};

    use super::{PasswordHash, SecretHash};

    #[test]
    fn secret_hash_matches_itself_and_nothing_that_differs_in_one_bit() {
        let hash = SecretHash([0x5A; 32]);
        assert!(hash.matches(&hash));
        for bit in 0..256 {
            let mut other = hash;
            other.0[bit / 8] ^= 1 << (bit % 8);
            assert!(!hash.matches(&other), "bit {bit}");
        }
    }

    #[test]
    fn debug_form_hides_secrets() {
        let password = PasswordHash("$argon2id$secret".to_string());
        assert_eq!(format!("{password:?}"), "PasswordHash(…)");
        assert_eq!(format!("{:?}", SecretHash([7; 32])), "SecretHash(…)");
    }
}
