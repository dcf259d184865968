//! A data directory as text that can be kept with the sources: what is alike is written once.

use std::{
    collections::BTreeMap,
    fmt::Write as _,
    fs::{self, File},
    io::Write as _,
    path::{Path, PathBuf},
};

/// Bytes that are compared: the smallest unit that a disk writes.
const BLOCK: usize = 512;

/// Writes down all files below `directory`: first every block that is there, then of which of them each file
/// consists. Zeros at the end of a block are left out.
///
/// # Panics
/// When a file cannot be read.
#[must_use]
pub fn pack(directory: &Path) -> String {
    let mut numbers: BTreeMap<Vec<u8>, usize> = BTreeMap::new();
    let (mut blocks, mut files) = (String::new(), String::new());
    for path in files_below(directory) {
        let bytes = fs::read(directory.join(&path)).expect("read a file");
        write_line(
            &mut files,
            format_args!("file {} {}", bytes.len(), path.display()),
        );
        let mut runs: Vec<(usize, usize)> = Vec::new();
        for block in bytes.chunks(BLOCK) {
            let used = block
                .iter()
                .rposition(|byte| *byte != 0)
                .map_or(0, |last| last + 1);
            let next = numbers.len();
            let number = *numbers.entry(block[..used].to_vec()).or_insert(next);
            if number == next {
                write_line(&mut blocks, format_args!("block {}", hex(&block[..used])));
            }
            match runs.last_mut() {
                Some((last, count)) if *last == number => *count += 1,
                _ => runs.push((number, 1)),
            }
        }
        let runs: Vec<String> = runs
            .iter()
            .map(|(number, count)| format!("{number}*{count}"))
            .collect();
        for line in runs.chunks(24) {
            write_line(&mut files, format_args!("  {}", line.join(" ")));
        }
    }
    blocks + &files
}

/// Makes the files again that [`pack`] has written down.
///
/// # Panics
/// When the text is not of that kind, or a file cannot be written.
pub fn unpack(text: &str, directory: &Path) {
    let mut blocks: Vec<[u8; BLOCK]> = Vec::new();
    let mut open: Option<(File, usize)> = None;
    for line in text.lines().filter(|line| !line.starts_with('#')) {
        let (kind, rest) = line.split_once(' ').expect("every line has a kind");
        match kind {
            "block" => blocks.push(block(rest)),
            "file" => {
                let (length, path) = rest.split_once(' ').expect("a length and a path");
                let path = directory.join(path);
                fs::create_dir_all(path.parent().expect("it lies below"))
                    .expect("make a directory");
                let length = length.parse().expect("a length");
                open = Some((File::create(path).expect("make a file"), length));
            }
            _ => {
                let (file, left) = open.as_mut().expect("a file comes first");
                for run in rest.split_whitespace() {
                    let (number, count) = run.split_once('*').expect("a block and how often");
                    let number: usize = number.parse().expect("a block");
                    for _ in 0..count.parse::<usize>().expect("how often") {
                        let size = BLOCK.min(*left);
                        file.write_all(&blocks[number][..size])
                            .expect("write a file");
                        *left -= size;
                    }
                }
            }
        }
    }
}

fn files_below(directory: &Path) -> Vec<PathBuf> {
    let (mut found, mut left) = (Vec::new(), vec![PathBuf::new()]);
    while let Some(inner) = left.pop() {
        for entry in fs::read_dir(directory.join(&inner)).expect("read a directory") {
            let entry = entry.expect("read a directory");
            let path = inner.join(entry.file_name());
            match entry.file_type().expect("read a directory").is_dir() {
                true => left.push(path),
                false => found.push(path),
            }
        }
    }
    found.sort();
    found
}

fn write_line(text: &mut String, line: std::fmt::Arguments<'_>) {
    writeln!(text, "{line}").expect("text takes everything");
}

fn hex(bytes: &[u8]) -> String {
    let mut text = String::with_capacity(2 * bytes.len());
    for byte in bytes {
        write!(text, "{byte:02x}").expect("text takes everything");
    }
    text
}

fn block(text: &str) -> [u8; BLOCK] {
    let mut block = [0; BLOCK];
    for (index, byte) in block.iter_mut().take(text.len() / 2).enumerate() {
        let digits = &text[2 * index..2 * index + 2];
        *byte = u8::from_str_radix(digits, 16).expect("hexadecimal digits");
    }
    block
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::{pack, unpack};

    #[test]
    fn what_is_packed_is_what_is_unpacked() {
        let (from, to) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
        let mut bytes = vec![0; 2_000];
        bytes[3] = 7;
        bytes[1_100..1_300].fill(9);
        fs::create_dir_all(from.path().join("a/b")).unwrap();
        fs::write(from.path().join("a/b/c"), &bytes).unwrap();
        fs::write(from.path().join("empty"), "").unwrap();
        fs::write(from.path().join("same"), &bytes).unwrap();
        let text = pack(from.path());
        unpack(&text, to.path());
        assert_eq!(pack(to.path()), text);
        assert_eq!(fs::read(to.path().join("a/b/c")).unwrap(), bytes);
    }
}
