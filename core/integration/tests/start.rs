//! What keeps a server from starting: each is refused with a sentence that helps, and a code of its own.

use std::{
    fs,
    net::TcpListener,
    os::unix::fs::{MetadataExt, PermissionsExt},
    time::Duration,
};

use integration::{Connection, Ended, Site, until};

const CONFIGURATION: i32 = 3;
const CANNOT_START: i32 = 4;
const DAMAGED: i32 = 5;

/// Longer than a refusal takes on a busy machine.
const SOON: Duration = Duration::from_secs(10);

fn refused(site: &Site, code: i32, parts: &[&str]) -> Ended {
    let ended = site.try_start().expect_err("it must not start");
    assert_eq!(ended.code, Some(code), "{}", ended.stderr);
    assert!(ended.took < SOON, "{:?}", ended.took);
    for part in parts {
        assert!(
            ended.stderr.contains(part),
            "no {part:?} in: {}",
            ended.stderr
        );
    }
    ended
}

#[test]
fn second_server_on_the_directory_is_refused_and_the_first_goes_on() {
    let site = Site::new();
    let first = site.start();
    let data = site.data().display().to_string();
    let process = format!("process {}", first.id());
    let second = Site::new().with_data(site.data());
    refused(
        &second,
        CANNOT_START,
        &[&data, "in use", &process, "stop it"],
    );
    Connection::login(first.address()).ping();
    // `recover` reads what the first one writes.
    let ended = second.run(&["recover"]);
    assert_eq!(ended.code, Some(CANNOT_START), "{}", ended.stderr);
    first.stop();
    second.start().stop();
}

#[test]
fn killed_server_leaves_no_lock_behind() {
    let site = Site::new();
    let _ = site.start().kill();
    site.start().stop();
}

#[test]
fn first_start_can_be_interrupted_at_any_moment() {
    for name in [
        "lock",
        "journal",
        "journal/0000000001.new",
        "journal/0000000001.journal",
        "node.toml",
        "journal/0000000002.new",
    ] {
        let site = Site::new();
        let starting = site.launch();
        let path = site.data().join(name);
        until(name, || path.exists().then_some(()));
        let _ = starting.kill();
        let server = site.start();
        Connection::login(server.address()).create_topic("orders", 1);
        server.stop();
    }
}

#[test]
fn port_in_use_is_refused_with_the_address() {
    let taken = TcpListener::bind("127.0.0.1:0").expect("a free port");
    let address = taken.local_addr().expect("it has one").to_string();
    let site = Site::new().with("node.address", &format!("\"{address}\""));
    refused(&site, CANNOT_START, &[&address, "in use"]);
    drop(taken);
    site.start().stop();
}

/// A process that was killed may have it a moment longer than it lives.
#[test]
fn port_that_is_in_use_for_a_moment_is_waited_for() {
    let taken = TcpListener::bind("127.0.0.1:0").expect("a free port");
    let address = taken.local_addr().expect("it has one").to_string();
    let site = Site::new().with("node.address", &format!("\"{address}\""));
    let process = site.launch();
    let said = process.log().wait_for("the port is in use");
    said.expect("it says so");
    drop(taken);
    let said = process.log().wait_for(&format!("ready address={address}"));
    said.expect("it serves");
    let ended = process.terminate();
    assert_eq!(ended.code, Some(0), "{}", ended.stderr);
}

#[test]
fn port_of_another_server_is_refused_and_the_other_goes_on() {
    let other_site = Site::new();
    let other = other_site.start();
    let address = other.address().to_string();
    let site = Site::new().with("node.address", &format!("\"{address}\""));
    refused(&site, CANNOT_START, &[&address, "in use"]);
    Connection::login(other.address()).ping();
    other.stop();
}

#[test]
fn address_of_another_machine_is_refused() {
    // Set aside for documentation: nobody has it.
    let site = Site::new().with("node.address", "\"192.0.2.1:5100\"");
    refused(&site, CANNOT_START, &["192.0.2.1:5100"]);
}

#[test]
fn directory_without_permission_is_refused_with_its_path() {
    let mut site = Site::new();
    let path = site.path().join("locked");
    fs::create_dir(&path).expect("make a directory");
    if fs::metadata(&path).expect("it is there").uid() == 0 {
        // Permissions do not hold root back: the server runs as somebody else, to whom all but this is open.
        let everybody = fs::Permissions::from_mode(0o755);
        fs::set_permissions(site.path(), everybody).expect("open the directory");
        site = site.as_user(65_534);
    }
    let nobody = fs::Permissions::from_mode(0o000);
    fs::set_permissions(&path, nobody.clone()).expect("lock the directory");
    let data = path.join("data");
    let site = site.with_data(&data);
    if !site.can_run() {
        eprintln!("SKIPPED: another user cannot run the program where it was built");
        return;
    }
    refused(
        &site,
        CANNOT_START,
        &[&path.display().to_string(), "ermission"],
    );
    let owner = fs::Permissions::from_mode(0o700);
    fs::set_permissions(&path, owner).expect("unlock the directory");
    assert_eq!(fs::read_dir(&path).expect("list it").count(), 0);
}

#[test]
fn directory_that_holds_something_else_is_refused_and_left_alone() {
    let site = Site::new();
    fs::create_dir(site.data()).expect("make a directory");
    fs::write(site.data().join("thesis.txt"), "chapter 1").expect("write a file");
    let data = site.data().display().to_string();
    refused(&site, CANNOT_START, &[&data, "thesis.txt"]);
    let text = fs::read_to_string(site.data().join("thesis.txt"));
    assert_eq!(text.expect("it is there"), "chapter 1");
    assert!(!site.data().join("node.toml").exists());
}

#[test]
fn file_in_place_of_the_directory_is_refused() {
    let site = Site::new();
    fs::write(site.data(), "x").expect("write a file");
    let data = site.data().display().to_string();
    refused(&site, CANNOT_START, &[&data]);
    assert_eq!(fs::read(site.data()).expect("it is there"), b"x");
}

#[test]
fn unknown_key_is_refused_with_file_and_line() {
    let site = Site::new().with("node.hartbeat_timeout", "\"3 s\"");
    let line = site.line_of("node.hartbeat_timeout");
    let place = format!("cohort.toml:{line}");
    let ended = refused(
        &site,
        CONFIGURATION,
        &[&place, "hartbeat_timeout", "unknown key"],
    );
    assert!(ended.stdout.is_empty());
    assert!(!site.data().exists(), "nothing is created");
}

#[test]
fn other_number_of_groups_than_formatted_is_refused_with_both() {
    let site = Site::new().with("cluster.data_groups", "2");
    site.start().stop();
    let site = site.with("cluster.data_groups", "3");
    refused(&site, CONFIGURATION, &["data_groups = 3", "2", "formatted"]);
    site.with("cluster.data_groups", "2").start().stop();
}

#[test]
fn damaged_record_of_the_directory_is_refused_with_its_path() {
    let site = Site::new();
    site.start().stop();
    let record = site.data().join("node.toml");
    let text = fs::read_to_string(&record).expect("it is there");
    fs::write(&record, text.replace("data_groups = 2", "data_groups = 3")).expect("write it");
    let path = record.display().to_string();
    refused(&site, DAMAGED, &[&path, "checksum"]);
    fs::write(&record, "").expect("write it");
    refused(&site, DAMAGED, &[&path]);
    fs::write(&record, text).expect("write it");
    site.start().stop();
}
