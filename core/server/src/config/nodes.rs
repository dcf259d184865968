//! The list of a cluster's nodes, as it stands in a file or in one line of text.

use std::{fmt, net::Ipv6Addr};

use toml::{
    Spanned,
    de::{DeTable, DeValue},
};

use super::problem::did_you_mean;

/// What an entry of the list has.
const KEYS: [&str; 3] = ["id", "client", "peer"];

/// Bytes of the longest host name that there is.
const HOST_MAX: usize = 253;

/// One node of a cluster.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ClusterNode {
    /// Its number, from 0.
    pub id: u8,
    /// Where clients reach it, `host:port`.
    pub client: String,
    /// Where the other nodes reach it, `host:port`.
    pub peer: String,
}

/// A mistake in the list, and the position in the file of what is wrong.
pub(super) type Mistake = (usize, String);

impl fmt::Display for ClusterNode {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { id, client, peer } = self;
        write!(
            f,
            "{{ id = {id}, client = \"{client}\", peer = \"{peer}\" }}"
        )
    }
}

/// What the text of an environment variable or of the command line says: `ID CLIENT PEER, …`.
pub(super) fn parse(text: &str) -> Result<Vec<ClusterNode>, String> {
    text.split(',').map(parse_one).collect()
}

fn parse_one(text: &str) -> Result<ClusterNode, String> {
    let mut words = text.split_whitespace();
    let (Some(id), Some(client), Some(peer), None) =
        (words.next(), words.next(), words.next(), words.next())
    else {
        return Err(format!("\"{}\" is not ID CLIENT PEER", text.trim()));
    };
    let number = id.parse().map_err(|_| format!("id {id}: {ID_ALLOWED}"))?;
    Ok(ClusterNode {
        id: check_id(number)?,
        client: check_address("client", client)?,
        peer: check_address("peer", peer)?,
    })
}

/// What a file says.
pub(super) fn read(value: &Spanned<DeValue<'_>>) -> Result<Vec<ClusterNode>, Vec<Mistake>> {
    let DeValue::Array(entries) = value.get_ref() else {
        let text = "not a list of nodes; write [[cluster.nodes]] and its keys below, once for each";
        return Err(vec![(value.span().start, text.into())]);
    };
    let mut nodes = Vec::new();
    let mut mistakes = Vec::new();
    for entry in entries {
        match entry.get_ref() {
            DeValue::Table(table) => match read_one(entry.span().start, table) {
                Ok(node) => nodes.push(node),
                Err(found) => mistakes.extend(found),
            },
            _ => mistakes.push((
                entry.span().start,
                format!("an entry that is no table with {}", KEYS.join(", ")),
            )),
        }
    }
    if mistakes.is_empty() {
        Ok(nodes)
    } else {
        Err(mistakes)
    }
}

fn read_one(start: usize, table: &DeTable<'_>) -> Result<ClusterNode, Vec<Mistake>> {
    let mut mistakes = Vec::new();
    for (key, _) in table {
        if !KEYS.contains(&&**key.get_ref()) {
            let meant = did_you_mean(key.get_ref(), KEYS.into_iter());
            let text = format!(
                "unknown key {}{meant}; a node has: {}",
                key.get_ref(),
                KEYS.join(", ")
            );
            mistakes.push((key.span().start, text));
        }
    }
    let id = required(start, table, "id", number).and_then(|(at, number)| {
        let checked = check_id(number);
        checked.map_err(|refusal| (at, refusal))
    });
    let client = read_address(start, table, "client");
    let peer = read_address(start, table, "peer");
    match (id, client, peer) {
        (Ok(id), Ok(client), Ok(peer)) if mistakes.is_empty() => {
            Ok(ClusterNode { id, client, peer })
        }
        (id, client, peer) => {
            mistakes.extend([id.err(), client.err(), peer.err()].into_iter().flatten());
            Err(mistakes)
        }
    }
}

fn read_address(start: usize, table: &DeTable<'_>, key: &'static str) -> Result<String, Mistake> {
    let (at, text) = required(start, table, key, |value| match value {
        DeValue::String(text) => Some(text.to_string()),
        _ => None,
    })?;
    check_address(key, &text).map_err(|refusal| (at, refusal))
}

/// The value of a key with its position in the file.
fn required<T>(
    start: usize,
    table: &DeTable<'_>,
    key: &str,
    take: impl Fn(&DeValue<'_>) -> Option<T>,
) -> Result<(usize, T), Mistake> {
    let Some((found, value)) = table.iter().find(|(found, _)| found.get_ref() == key) else {
        return Err((start, format!("a node without {key}")));
    };
    let at = found.span().start;
    match take(value.get_ref()) {
        Some(value) => Ok((at, value)),
        None if key == "id" => Err((at, format!("id is not a whole number; {ID_ALLOWED}"))),
        None => Err((at, format!("{key} is not text; {ADDRESS_ALLOWED}"))),
    }
}

fn number(value: &DeValue<'_>) -> Option<i128> {
    match value {
        DeValue::Integer(integer) => i128::from_str_radix(integer.as_str(), integer.radix()).ok(),
        _ => None,
    }
}

const ID_ALLOWED: &str = "allowed: 0 to 4";
const ADDRESS_ALLOWED: &str =
    "allowed: host:port, such as 10.0.0.1:5100, [::1]:5100 or broker-1:5100";

fn check_id(number: i128) -> Result<u8, String> {
    match u8::try_from(number) {
        Ok(id) if id <= 4 => Ok(id),
        _ => Err(format!("id = {number}: out of range; {ID_ALLOWED}")),
    }
}

fn check_address(key: &str, text: &str) -> Result<String, String> {
    if is_address(text) {
        Ok(text.to_owned())
    } else {
        Err(format!("{key} = \"{text}\": {ADDRESS_ALLOWED}"))
    }
}

fn is_address(text: &str) -> bool {
    let Some((host, port)) = text.rsplit_once(':') else {
        return false;
    };
    let has_port = port.bytes().all(|byte| byte.is_ascii_digit())
        && port.parse::<u16>().is_ok_and(|port| port > 0);
    let is_name = |host: &str| {
        !host.is_empty()
            && host.len() <= HOST_MAX
            && host
                .bytes()
                .all(|byte| byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'.' | b'_'))
    };
    let inside = host
        .strip_prefix('[')
        .and_then(|rest| rest.strip_suffix(']'));
    has_port
        && match inside {
            Some(inside) => inside.parse::<Ipv6Addr>().is_ok(),
            None => is_name(host),
        }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn hosts_need_a_port_and_names_are_taken() {
        for text in ["127.0.0.1:1", "[::1]:5100", "broker-1.example:65535"] {
            assert!(is_address(text), "{text}");
        }
        for text in [
            "",
            "host",
            ":1",
            "host:",
            "host:0",
            "host:65536",
            "host:+1",
            "::1:5100",
            "a b:1",
            "[host]:1",
        ] {
            assert!(!is_address(text), "{text}");
        }
    }

    #[test]
    fn line_of_text_holds_a_list() {
        let nodes = parse("0 a:1 a:2, 1 b:1 b:2,2 c:1 c:2").unwrap();
        assert_eq!(nodes.len(), 3);
        assert_eq!(nodes[1].peer, "b:2");
        for (text, part) in [
            ("0 a:1", "ID CLIENT PEER"),
            ("5 a:1 a:2", "id = 5: out of range"),
            ("0 a a:2", "client = \"a\""),
            ("x a:1 a:2", "id x"),
        ] {
            let refusal = parse(text).unwrap_err();
            assert!(refusal.contains(part), "{refusal}");
        }
    }
}
