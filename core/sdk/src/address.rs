//! Where to connect and as whom, in one line of text.

use std::{fmt, str::FromStr};

/// The port of an address that names none.
pub const DEFAULT_PORT: u16 = 5100;

const SCHEME: &str = "cohort://";

/// `cohort://user:password@host:port,host:port`: one host or several of the same cluster, of which any that
/// answers will do. User and password may be left out, to be given another way; characters other than
/// letters, digits, `-`, `.`, `_` and `~` in them are percent-encoded. The port is 5100 unless given.
///
/// ```
/// let address: cohort::Address = "cohort://ann:p%40ss@10.0.0.1,10.0.0.2:5101".parse()?;
/// assert_eq!(address.hosts(), ["10.0.0.1:5100", "10.0.0.2:5101"]);
/// assert_eq!(address.user(), Some("ann"));
/// assert_eq!(address.to_string(), "cohort://ann@10.0.0.1:5100,10.0.0.2:5101");
/// # Ok::<(), cohort::AddressError>(())
/// ```
#[derive(Clone, PartialEq, Eq)]
pub struct Address {
    hosts: Vec<String>,
    user: Option<String>,
    password: Option<String>,
}

/// What is wrong with an address. Never shows a password, and so no text that could hold one.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum AddressError {
    /// It does not begin with `cohort://`.
    #[error("an address begins with cohort://")]
    Scheme,
    /// It has no host.
    #[error("the address has no host")]
    NoHost,
    /// A host is empty, or holds a character that no host has.
    #[error("{host:?} is not a host")]
    Host {
        /// The host.
        host: String,
    },
    /// A port is not a number from 1 to 65535.
    #[error("{port:?} is not a port: a number from 1 to 65535 is expected")]
    Port {
        /// The port.
        port: String,
    },
    /// Something stands behind the hosts.
    #[error(
        "the address goes on behind the hosts with {rest:?}; only user, password, hosts and ports belong in it"
    )]
    Trailing {
        /// What stands there.
        rest: String,
    },
    /// User or password is not percent-encoded text.
    #[error(
        "the {part} is not percent-encoded UTF-8: write % as %25, @ as %40, : as %3A, / as %2F"
    )]
    Encoding {
        /// `user` or `password`.
        part: &'static str,
    },
    /// There is a password but no user.
    #[error("the address has a password but no user")]
    NoUser,
}

impl Address {
    /// The hosts, each `host:port`.
    #[must_use]
    pub fn hosts(&self) -> &[String] {
        &self.hosts
    }

    /// The user, decoded.
    #[must_use]
    pub fn user(&self) -> Option<&str> {
        self.user.as_deref()
    }

    /// The password, decoded.
    #[must_use]
    pub fn password(&self) -> Option<&str> {
        self.password.as_deref()
    }
}

impl FromStr for Address {
    type Err = AddressError;

    fn from_str(text: &str) -> Result<Self, AddressError> {
        let rest = text.strip_prefix(SCHEME).ok_or(AddressError::Scheme)?;
        // The last @ ends the user: one in a password that was not encoded is then not taken for a host.
        let (user_part, rest) = match rest.rsplit_once('@') {
            Some((user, hosts)) => (Some(user), hosts),
            None => (None, rest),
        };
        let (user, password) = user_part.map_or(Ok((None, None)), parse_user)?;
        let (hosts, behind) = match rest.find(['/', '?', '#']) {
            Some(end) => rest.split_at(end),
            None => (rest, ""),
        };
        if !matches!(behind, "" | "/") {
            return Err(AddressError::Trailing {
                rest: behind.to_string(),
            });
        }
        if hosts.is_empty() {
            return Err(AddressError::NoHost);
        }
        let hosts = hosts
            .split(',')
            .map(parse_host)
            .collect::<Result<Vec<_>, _>>()?;
        Ok(Self {
            hosts,
            user,
            password,
        })
    }
}

/// Without the password.
impl fmt::Display for Address {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(SCHEME)?;
        if let Some(user) = &self.user {
            write!(f, "{}@", encode(user))?;
        }
        f.write_str(&self.hosts.join(","))
    }
}

/// Without the password.
impl fmt::Debug for Address {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Address({self})")
    }
}

fn parse_user(text: &str) -> Result<(Option<String>, Option<String>), AddressError> {
    let (user, password) = match text.split_once(':') {
        Some((user, password)) => (user, Some(password)),
        None => (text, None),
    };
    if user.is_empty() {
        return if password.is_some() {
            Err(AddressError::NoUser)
        } else {
            Ok((None, None))
        };
    }
    let user = decode(user).ok_or(AddressError::Encoding { part: "user" })?;
    let password = match password {
        Some(password) => {
            Some(decode(password).ok_or(AddressError::Encoding { part: "password" })?)
        }
        None => None,
    };
    Ok((Some(user), password))
}

/// `host`, `host:port`, `[v6]` or `[v6]:port`, with the port filled in.
fn parse_host(text: &str) -> Result<String, AddressError> {
    let invalid = || AddressError::Host {
        host: text.to_string(),
    };
    let (host, port) = if let Some(inside) = text.strip_prefix('[') {
        let (address, behind) = inside.split_once(']').ok_or_else(invalid)?;
        address
            .parse::<std::net::Ipv6Addr>()
            .map_err(|_| invalid())?;
        let port = match behind {
            "" => None,
            _ => Some(behind.strip_prefix(':').ok_or_else(invalid)?),
        };
        (format!("[{address}]"), port)
    } else {
        match text.split_once(':') {
            Some((host, port)) => (host.to_string(), Some(port)),
            None => (text.to_string(), None),
        }
    };
    let named = |c: char| c.is_alphanumeric() || matches!(c, '.' | '-' | '_' | '[' | ']' | ':');
    if host.is_empty() || !host.chars().all(named) {
        return Err(invalid());
    }
    let port = match port {
        None => DEFAULT_PORT,
        Some(port) => match port.parse::<u16>() {
            Ok(number) if number > 0 && port.bytes().all(|byte| byte.is_ascii_digit()) => number,
            Ok(_) | Err(_) => {
                return Err(AddressError::Port {
                    port: port.to_string(),
                });
            }
        },
    };
    Ok(format!("{host}:{port}"))
}

fn decode(text: &str) -> Option<String> {
    let mut bytes = Vec::with_capacity(text.len());
    let mut rest = text.as_bytes();
    while let Some((first, behind)) = rest.split_first() {
        rest = behind;
        if *first != b'%' {
            bytes.push(*first);
            continue;
        }
        let (digits, behind) = rest.split_at_checked(2)?;
        rest = behind;
        if !digits.iter().all(u8::is_ascii_hexdigit) {
            return None;
        }
        bytes.push(u8::from_str_radix(std::str::from_utf8(digits).ok()?, 16).ok()?);
    }
    String::from_utf8(bytes).ok()
}

fn encode(text: &str) -> String {
    let mut encoded = String::new();
    for byte in text.bytes() {
        if byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'.' | b'_' | b'~') {
            encoded.push(char::from(byte));
        } else {
            encoded.push_str(&format!("%{byte:02X}"));
        }
    }
    encoded
}

#[cfg(test)]
mod tests {
    use super::{Address, AddressError};

    fn parse(text: &str) -> Result<Address, AddressError> {
        text.parse()
    }

    #[test]
    fn all_parts_are_read() {
        let address = parse("cohort://root:secret@127.0.0.1:5100").unwrap();
        assert_eq!(address.hosts(), ["127.0.0.1:5100"]);
        assert_eq!(
            (address.user(), address.password()),
            (Some("root"), Some("secret"))
        );

        let address = parse("cohort://a.example,[::1],[::1]:7,b-2:8/").unwrap();
        assert_eq!(
            address.hosts(),
            ["a.example:5100", "[::1]:5100", "[::1]:7", "b-2:8"]
        );
        assert_eq!((address.user(), address.password()), (None, None));
    }

    #[test]
    fn user_and_password_are_decoded() {
        let address = parse("cohort://a%20b:p%40%3A%2f%25%C3%A9@h").unwrap();
        assert_eq!(
            (address.user(), address.password()),
            (Some("a b"), Some("p@:/%é"))
        );
        // Only what ends a part has to be encoded.
        let address = parse("cohort://u:p@ss@h").unwrap();
        assert_eq!(
            (address.password(), address.hosts()),
            (Some("p@ss"), &["h:5100".to_string()][..])
        );
        assert_eq!(parse("cohort://u:@h").unwrap().password(), Some(""));
    }

    #[test]
    fn errors_name_what_is_wrong() {
        let host = |host: &str| AddressError::Host {
            host: host.to_string(),
        };
        let port = |port: &str| AddressError::Port {
            port: port.to_string(),
        };
        let cases = [
            ("127.0.0.1:5100", AddressError::Scheme),
            ("http://h", AddressError::Scheme),
            ("cohort://", AddressError::NoHost),
            ("cohort://u:p@", AddressError::NoHost),
            ("cohort://h,", host("")),
            ("cohort://h h", host("h h")),
            ("cohort://[::1", host("[::1")),
            ("cohort://[zz]", host("[zz]")),
            ("cohort://[::1]5", host("[::1]5")),
            ("cohort://h:", port("")),
            ("cohort://h:0", port("0")),
            ("cohort://h:+5", port("+5")),
            ("cohort://h:65536", port("65536")),
            ("cohort://h:1:2", port("1:2")),
            (
                "cohort://h/path",
                AddressError::Trailing {
                    rest: "/path".to_string(),
                },
            ),
            (
                "cohort://h?tls=1",
                AddressError::Trailing {
                    rest: "?tls=1".to_string(),
                },
            ),
            ("cohort://u%4:p@h", AddressError::Encoding { part: "user" }),
            (
                "cohort://u:p%zz@h",
                AddressError::Encoding { part: "password" },
            ),
            (
                "cohort://u:p%ff@h",
                AddressError::Encoding { part: "password" },
            ),
            ("cohort://:p@h", AddressError::NoUser),
        ];
        for (text, error) in cases {
            assert_eq!(parse(text), Err(error), "{text}");
        }
    }

    #[test]
    fn the_password_is_never_shown() {
        let address = parse("cohort://ann:hunter2@h").unwrap();
        assert_eq!(
            format!("{address} {address:?}"),
            "cohort://ann@h:5100 Address(cohort://ann@h:5100)"
        );
        let wrong = [
            "root:hunter2@h",
            "http://root:hunter2@h",
            "cohort://root:hunter2%@h",
            "cohort://root:hunter2@",
            "cohort://root:hunter2@h:x",
            "cohort://root:hunter2@h/x",
            "cohort://:hunter2@h",
        ];
        for text in wrong {
            let error = parse(text).unwrap_err();
            assert!(!format!("{error} {error:?}").contains("hunter2"), "{text}");
        }
    }
}
