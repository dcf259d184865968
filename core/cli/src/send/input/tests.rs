//! Lines and objects become messages.

use std::io::Write;

use super::{Chunk, InputFormat, KeyFrom, Line, Message, PathBuf, Rules, mpsc, read};

fn rules() -> Rules {
    Rules {
        format: InputFormat::Lines,
        key: None,
        key_from: None,
        partition: None,
        ignore_partitions: false,
    }
}

fn json() -> Rules {
    Rules {
        format: InputFormat::Json,
        ..rules()
    }
}

fn keyed(key_from: KeyFrom) -> Rules {
    Rules {
        key_from: Some(key_from),
        ..rules()
    }
}

#[test]
fn a_line_is_a_payload() {
    assert_eq!(
        rules().message(b"a line\r").unwrap(),
        Message::new("a line\r")
    );
    assert_eq!(rules().message(b"").unwrap(), Message::new(""));
    let with = Rules {
        key: Some("k".to_string()),
        partition: Some(3),
        ..rules()
    };
    assert_eq!(
        with.message(b"x").unwrap(),
        Message::new("x").key("k").partition(3)
    );
}

#[test]
fn keys_come_out_of_lines() {
    let prefix = keyed(KeyFrom::Prefix("::".to_string()));
    assert_eq!(
        prefix.message(b"k::v::w").unwrap(),
        Message::new("v::w").key("k")
    );
    assert_eq!(
        prefix.message(b"k").unwrap_err(),
        "there is no \"::\" behind a key"
    );
    let field = keyed(KeyFrom::Field(2, ",".to_string()));
    assert_eq!(
        field.message(b"a,b,c").unwrap(),
        Message::new("a,b,c").key("b")
    );
    assert_eq!(field.message(b"a,b").unwrap(), Message::new("a,b").key("b"));
    assert_eq!(
        field.message(b"a").unwrap_err(),
        "there is no field 2 between \",\""
    );
    let member = keyed(KeyFrom::Json("id".to_string()));
    assert_eq!(
        member.message(br#"{"id":7}"#).unwrap(),
        Message::new(r#"{"id":7}"#).key("7")
    );
    assert_eq!(
        member.message(br#"{"id":"x"}"#).unwrap(),
        Message::new(r#"{"id":"x"}"#).key("x")
    );
    assert_eq!(
        member.message(br#"{"id":[]}"#).unwrap_err(),
        "member \"id\" is neither text nor a number"
    );
    assert_eq!(
        member.message(b"{}").unwrap_err(),
        "there is no member \"id\""
    );
}

#[test]
fn objects_say_everything_about_a_message() {
    let line = br#"{"partition":1,"offset":9,"appended":5,"timestamp":77,"id":"340282366920938463463374607431768211455",
        "key_base64":"/w==","headers":[{"name":"a","value":"1"}],"payload":"text"}"#;
    let expected = Message::new("text")
        .partition(1)
        .timestamp(cohort::Timestamp(77))
        .id(u128::MAX)
        .key(vec![255])
        .header("a", "1")
        .unwrap();
    assert_eq!(json().message(line).unwrap(), expected);
    let anew = Rules {
        ignore_partitions: true,
        ..json()
    };
    assert_eq!(
        anew.message(br#"{"payload":"x","partition":1}"#).unwrap(),
        Message::new("x")
    );
}

#[test]
fn objects_that_say_something_else_are_refused() {
    let cases: [(&[u8], &str); 6] = [
        (b"{}", "the object has neither payload nor payload_base64"),
        (br#"{"paylod":"x"}"#, "unknown field `paylod`"),
        (
            br#"{"payload":"x","payload_base64":""}"#,
            "payload and payload_base64 exclude each other",
        ),
        (br#"{"payload_base64":"?"}"#, "payload_base64 is not base64"),
        (
            br#"{"payload":"x","id":"-1"}"#,
            "\"-1\" is not an id: a u128 is expected",
        ),
        (b"plain", "expected value at line 1 column 1"),
    ];
    for (line, problem) in cases {
        let error = json().message(line).unwrap_err();
        assert!(error.contains(problem), "{error}");
    }
}

fn collect(mut chunks: mpsc::Receiver<Chunk>) -> (Vec<Line>, Option<String>) {
    let mut lines = Vec::new();
    while let Some(chunk) = chunks.blocking_recv() {
        match chunk {
            Ok(chunk) => lines.extend(chunk),
            Err(problem) => return (lines, Some(problem.to_string())),
        }
    }
    (lines, None)
}

fn file(content: &[u8]) -> (tempfile::NamedTempFile, PathBuf) {
    let mut file = tempfile::NamedTempFile::new().unwrap();
    file.write_all(content).unwrap();
    let path = file.path().to_path_buf();
    (file, path)
}

#[test]
fn files_are_read_one_after_the_other_and_the_last_line_needs_no_end() {
    let (_first, one) = file(b"a\n\nb");
    let (_second, two) = file(b"c\n");
    let (lines, problem) = collect(read(vec![one, two], rules()));
    assert_eq!(problem, None);
    let found = lines
        .iter()
        .map(|line| (line.number, line.message.clone(), line.size));
    let expected = [(1, "a", 2), (2, "", 1), (3, "b", 1), (4, "c", 2)];
    assert!(found.eq(expected.map(|(number, text, size)| (number, Message::new(text), size))));
}

#[test]
fn a_bad_line_is_named_and_those_before_it_are_kept() {
    let mut content = "{\"payload\":\"x\"}\n".repeat(1_000).into_bytes();
    content.extend_from_slice(b"oops\n");
    let (_file, path) = file(&content);
    let (lines, problem) = collect(read(vec![path.clone()], json()));
    assert_eq!(lines.len(), 1_000);
    let problem = problem.unwrap();
    assert!(
        problem.starts_with(&format!("cohort: {}:1001: expected value", path.display())),
        "{problem}"
    );
    let (_, problem) = collect(read(vec![PathBuf::from("/nowhere/x")], json()));
    assert!(problem.unwrap().starts_with("cohort: /nowhere/x: "));
}
