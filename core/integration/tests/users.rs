//! The command line about users, for one who may do little.

use std::{fs, process::Command};

use integration::{Ended, Process, ROOT_PASSWORD, Site, binary};
use tempfile::TempDir;

#[test]
fn refusal_about_another_user_says_what_was_asked_for() {
    const PASSWORD: &str = "battery-staple";
    let site = Site::new();
    let server = site.start();
    let address = server.address().to_string();
    let scratch = TempDir::with_prefix("cohort-").expect("make a temporary directory");
    let file = scratch.path().join("password");
    fs::write(&file, PASSWORD).expect("write the file");
    let file = file.display().to_string();
    let run = |user: &str, password: &str, arguments: &[&str]| -> Ended {
        let mut command = Command::new(binary("cohort"));
        command
            .args(["--address", &address, "--user", user])
            .args(arguments)
            .env_clear()
            .env("COHORT_PASSWORD", password);
        Process::start(command).wait()
    };
    let new_password = ["--new-password-file", &file];
    for name in ["ann", "bob"] {
        let arguments = [&["user", "create", name][..], &new_password].concat();
        let created = run("root", ROOT_PASSWORD, &arguments);
        assert_eq!(created.code, Some(0), "{}", created.stderr);
    }
    let change_password = ["user", "password", "bob", new_password[0], new_password[1]];
    for (arguments, what) in [
        (&["user", "delete", "bob"][..], "delete users"),
        (&["user", "delete", "nobody"], "delete users"),
        (&change_password, "change the passwords of other users"),
        (&["user", "rename", "bob", "rob"], "change other users"),
        (&["user", "deactivate", "#1"], "change other users"),
    ] {
        let refused = run("ann", PASSWORD, arguments);
        assert_eq!(refused.code, Some(1), "{arguments:?}: {}", refused.stdout);
        let said = format!("user \"ann\" may not {what} (");
        assert!(
            refused.stderr.contains(&said),
            "no {said:?} in {}",
            refused.stderr
        );
    }
    // What is allowed is carried out, and told with name and id.
    let own = ["user", "password", "ann", new_password[0], new_password[1]];
    let changed = run("ann", PASSWORD, &own);
    assert_eq!(changed.code, Some(0), "{}", changed.stderr);
    let deleted = run("root", ROOT_PASSWORD, &["user", "delete", "bob"]);
    assert!(
        deleted.stdout.contains("user bob (#") && deleted.stdout.contains("is deleted"),
        "{}",
        deleted.stdout
    );
    server.stop();
}
