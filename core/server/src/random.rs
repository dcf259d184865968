//! Numbers that nobody can guess.

/// Letters and digits that are not taken for one another when a password is copied by hand.
const ALPHABET: &[u8; 32] = b"abcdefghjkmnpqrstuvwxyz23456789+";

/// Letters of a password that is made here: 120 bits.
const PASSWORD_LENGTH: usize = 24;

/// Fresh random bytes.
///
/// # Panics
/// When the kernel has no source of randomness: nothing may be kept secret then.
#[must_use]
pub fn bytes<const N: usize>() -> [u8; N] {
    let mut bytes = [0; N];
    getrandom::fill(&mut bytes).expect("the kernel gives random bytes");
    bytes
}

/// A random id, never 0.
#[must_use]
pub fn id() -> u128 {
    loop {
        let id = u128::from_le_bytes(bytes());
        if id != 0 {
            return id;
        }
    }
}

/// A random password for people to copy.
#[must_use]
pub fn password() -> String {
    let letter = |byte: u8| char::from(ALPHABET[usize::from(byte) % ALPHABET.len()]);
    bytes::<PASSWORD_LENGTH>().into_iter().map(letter).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn passwords_are_long_and_differ() {
        let (first, second) = (password(), password());
        assert_eq!(first.len(), PASSWORD_LENGTH);
        assert_ne!(first, second);
        assert_ne!(id(), id());
    }
}
