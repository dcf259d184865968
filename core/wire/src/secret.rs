//! Values that must not be shown.

use alloc::string::String;
use core::fmt;

use crate::{DecodeError, Reader, Writer, field::Field};

/// The fewest bytes of a password that a user is given.
pub const PASSWORD_SIZE_MIN: usize = 8;

/// The most bytes of a password.
pub const PASSWORD_SIZE_MAX: usize = u8::MAX as usize;

/// A password as the user typed it, 1 to 255 bytes. `Debug` does not show it.
#[derive(Clone, PartialEq, Eq)]
pub struct Password(pub String);

/// Proves a session to any node. `Debug` does not show it.
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct SessionSecret(pub [u8; 32]);

impl fmt::Debug for Password {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Password(hidden)")
    }
}

impl fmt::Debug for SessionSecret {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("SessionSecret(hidden)")
    }
}

impl Field for Password {
    const SIZE_MIN: usize = 1;

    fn read(reader: &mut Reader, field: &'static str) -> Result<Self, DecodeError> {
        reader.text8(field).map(Self)
    }

    fn write(&self, writer: &mut Writer) {
        writer.text8(&self.0);
    }
}

impl Field for SessionSecret {
    const SIZE_MIN: usize = 32;

    fn read(reader: &mut Reader, field: &'static str) -> Result<Self, DecodeError> {
        let mut secret = [0; 32];
        secret.copy_from_slice(&reader.bytes(field, 32)?);
        Ok(Self(secret))
    }

    fn write(&self, writer: &mut Writer) {
        writer.bytes(&self.0);
    }
}

#[cfg(test)]
mod tests {
    use std::format;

    use super::{Password, SessionSecret};
    use crate::{ChangePassword, Identifier, Login, Request};

    #[test]
    fn secrets_are_not_shown() {
        let password = Password("hush".into());
        let login = Login {
            name: "alice".into(),
            password: password.clone(),
        };
        let change = ChangePassword {
            user: Identifier::Number(2),
            current: password.clone(),
            new: password,
        };
        let shown = format!("{:?} {:?}", Request::from(login), Request::from(change));
        assert!(
            shown.contains("alice") && !shown.contains("hush"),
            "{shown}"
        );
        assert_eq!(
            format!("{:?}", SessionSecret([7; 32])),
            "SessionSecret(hidden)"
        );
    }
}
