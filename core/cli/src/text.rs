//! Bytes as text: base64, and lines for people.

use serde_json::{Map, Value};

const ALPHABET: &[u8; 64] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";

/// Base64 with padding (RFC 4648).
pub(crate) fn to_base64(bytes: &[u8]) -> String {
    let mut text = String::with_capacity(bytes.len().div_ceil(3) * 4);
    for chunk in bytes.chunks(3) {
        let mut group = 0_u32;
        for index in 0..3 {
            group = group << 8 | u32::from(chunk.get(index).copied().unwrap_or(0));
        }
        for index in 0..4 {
            if index <= chunk.len() {
                let digit = group >> (18 - 6 * index) & 63;
                text.push(char::from(ALPHABET[usize::try_from(digit).unwrap_or(0)]));
            } else {
                text.push('=');
            }
        }
    }
    text
}

/// Reads base64 with padding; `None` when it is not.
pub(crate) fn from_base64(text: &str) -> Option<Vec<u8>> {
    let digits = text.trim_end_matches('=');
    let padding = text.len() - digits.len();
    if !text.len().is_multiple_of(4) || padding > 2 {
        return None;
    }
    let mut bytes = Vec::with_capacity(digits.len() * 3 / 4);
    let mut group = 0_u32;
    let mut bits = 0;
    for digit in digits.bytes() {
        let value = ALPHABET.iter().position(|other| *other == digit)?;
        group = group << 6 | u32::try_from(value).ok()?;
        bits += 6;
        if bits >= 8 {
            bits -= 8;
            bytes.push(u8::try_from(group >> bits & 255).ok()?);
        }
    }
    (group & ((1 << bits) - 1) == 0).then_some(bytes)
}

/// Adds bytes to an object: as text under `name` if they are UTF-8, else under `name_base64`.
pub(crate) fn insert_bytes(object: &mut Map<String, Value>, name: &str, bytes: &[u8]) {
    match std::str::from_utf8(bytes) {
        Ok(text) => object.insert(name.to_string(), Value::from(text)),
        Err(_) => object.insert(format!("{name}_base64"), Value::from(to_base64(bytes))),
    };
}

/// Bytes on one line for people: control characters and what is not UTF-8 are escaped as in `\n`, `\t`,
/// `\\`, `\x1b`.
pub(crate) fn escaped(bytes: &[u8]) -> String {
    let mut text = String::with_capacity(bytes.len());
    for chunk in bytes.utf8_chunks() {
        for c in chunk.valid().chars() {
            match c {
                '\n' => text.push_str("\\n"),
                '\r' => text.push_str("\\r"),
                '\t' => text.push_str("\\t"),
                '\\' => text.push_str("\\\\"),
                c if c.is_control() => {
                    let mut bytes = [0; 4];
                    for byte in c.encode_utf8(&mut bytes).bytes() {
                        text.push_str(&format!("\\x{byte:02x}"));
                    }
                }
                c => text.push(c),
            }
        }
        for byte in chunk.invalid() {
            text.push_str(&format!("\\x{byte:02x}"));
        }
    }
    text
}

#[cfg(test)]
mod tests {
    use super::{escaped, from_base64, to_base64};

    #[test]
    fn base64_is_that_of_rfc_4648() {
        let cases = [
            ("", ""),
            ("f", "Zg=="),
            ("fo", "Zm8="),
            ("foo", "Zm9v"),
            ("foobar", "Zm9vYmFy"),
        ];
        for (bytes, text) in cases {
            assert_eq!(to_base64(bytes.as_bytes()), text);
            assert_eq!(from_base64(text).unwrap(), bytes.as_bytes());
        }
        let all = (0..=255).collect::<Vec<u8>>();
        assert_eq!(from_base64(&to_base64(&all)).unwrap(), all);
        for text in ["Z", "Zg", "Zg=", "Z===", "Zh==", "Zm9v!", "Zg==Zg=="] {
            assert_eq!(from_base64(text), None, "{text}");
        }
    }

    #[test]
    fn one_message_stays_on_one_line() {
        assert_eq!(
            escaped("größe a\tb\r\n\\".as_bytes()),
            "größe a\\tb\\r\\n\\\\"
        );
        assert_eq!(escaped(b"\x1b[31m\xff\x00"), "\\x1b[31m\\xff\\x00");
        assert_eq!(escaped("\u{85}".as_bytes()), "\\xc2\\x85");
    }
}
