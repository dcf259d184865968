//! Outputs that must stay as they are.

use std::{env, fs, path::Path};

/// Compares with `tests/golden/<name>`; with `UPDATE_GOLDEN` set it writes the file instead.
pub(crate) fn assert_golden(name: &str, actual: &str) {
    let path = Path::new(env!("CARGO_MANIFEST_DIR"))
        .join("tests/golden")
        .join(name);
    if env::var_os("UPDATE_GOLDEN").is_some() {
        fs::write(&path, actual).expect("the golden file can be written");
        return;
    }
    let expected = fs::read_to_string(&path).unwrap_or_default();
    assert_eq!(
        actual,
        expected,
        "{} differs; UPDATE_GOLDEN=1 writes it",
        path.display()
    );
}
