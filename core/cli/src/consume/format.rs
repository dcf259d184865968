//! How messages are written.

use cohort::{PartitionId, Received};
use serde_json::{Map, Value};

use crate::{
    arguments::MessageFormat,
    output::json_line,
    text::{escaped, insert_bytes},
};

/// What is written of a message.
pub(super) struct Shown<'a> {
    pub(super) partition: PartitionId,
    pub(super) offset: u64,
    /// Under which a consumer group owns the partition; 0: no group reads it.
    pub(super) epoch: u64,
    pub(super) appended: u64,
    pub(super) timestamp: u64,
    pub(super) id: u128,
    pub(super) key: &'a [u8],
    pub(super) headers: Vec<(&'a str, &'a [u8])>,
    pub(super) payload: &'a [u8],
}

impl<'a> Shown<'a> {
    pub(super) fn of(message: &'a Received) -> Self {
        Self {
            partition: message.partition(),
            offset: message.offset().0,
            epoch: message.epoch().0,
            appended: message.appended().0,
            timestamp: message.timestamp().0,
            id: message.id(),
            key: message.key(),
            headers: message.headers().collect(),
            payload: message.payload(),
        }
    }

    /// With its line end.
    pub(super) fn write(&self, format: MessageFormat) -> Vec<u8> {
        match format {
            MessageFormat::Raw => [self.payload, b"\n"].concat(),
            MessageFormat::Text => {
                let (partition, offset) = (self.partition, self.offset);
                let (key, payload) = (escaped(self.key), escaped(self.payload));
                format!("{partition}:{offset}\t{key}\t{payload}\n").into_bytes()
            }
            MessageFormat::Json => {
                let mut line = json_line(&self.object());
                line.push('\n');
                line.into_bytes()
            }
        }
    }

    /// What is absent is left out.
    fn object(&self) -> Value {
        let mut object = Map::new();
        object.insert("partition".to_string(), Value::from(self.partition.0));
        object.insert("offset".to_string(), Value::from(self.offset));
        if self.epoch != 0 {
            object.insert("epoch".to_string(), Value::from(self.epoch));
        }
        object.insert("appended".to_string(), Value::from(self.appended));
        if self.timestamp != 0 {
            object.insert("timestamp".to_string(), Value::from(self.timestamp));
        }
        if self.id != 0 {
            object.insert("id".to_string(), Value::from(self.id.to_string()));
        }
        if !self.key.is_empty() {
            insert_bytes(&mut object, "key", self.key);
        }
        if !self.headers.is_empty() {
            let headers = self.headers.iter().map(|(name, value)| {
                let mut header = Map::new();
                header.insert("name".to_string(), Value::from(*name));
                insert_bytes(&mut header, "value", value);
                Value::Object(header)
            });
            object.insert("headers".to_string(), headers.collect());
        }
        insert_bytes(&mut object, "payload", self.payload);
        Value::Object(object)
    }
}

#[cfg(test)]
mod tests {
    use super::{MessageFormat, PartitionId, Shown};
    use crate::golden::assert_golden;

    fn messages() -> [Shown<'static>; 4] {
        let plain = |partition, offset, payload| Shown {
            partition: PartitionId(partition),
            offset,
            epoch: 0,
            appended: 1_772_366_400_250_000,
            timestamp: 0,
            id: 0,
            key: b"",
            headers: Vec::new(),
            payload,
        };
        let full = Shown {
            timestamp: 1_772_366_400_000_001,
            id: u128::MAX,
            key: b"customer\t9",
            headers: vec![("trace", b"5f3a"), ("raw", b"\xff")],
            ..plain(12, 3, "größe\n".as_bytes())
        };
        let of_a_group = Shown {
            epoch: 12,
            ..plain(2, 5, b"shared")
        };
        let binary = plain(1, 17, b"\x00\xfe");
        [plain(0, 0, b"a line"), full, binary, of_a_group]
    }

    #[test]
    fn messages_are_written_for_people_programs_and_pipes() {
        for (format, name) in [
            (MessageFormat::Text, "consume.txt"),
            (MessageFormat::Json, "consume.jsonl"),
        ] {
            let written = messages()
                .iter()
                .flat_map(|message| message.write(format))
                .collect();
            assert_golden(name, &String::from_utf8(written).unwrap());
        }
        let raw = messages()
            .iter()
            .flat_map(|message| message.write(MessageFormat::Raw))
            .collect::<Vec<_>>();
        assert_eq!(
            raw,
            [
                &b"a line\n"[..],
                "größe\n\n".as_bytes(),
                b"\x00\xfe\n",
                b"shared\n"
            ]
            .concat()
        );
    }
}
