//! Who may do what to which user.

use std::vec::Vec;

use wire::{ErrorCode, EvictionReason, GetUsers, Identifier, Op, Reply, UserId};

use super::{Run, named, password, session_ended};
use crate::{Limits, Operation};

const ROOT: UserId = UserId::ROOT;

fn create(by: UserId, name: &str) -> Operation {
    Operation::CreateUser {
        by,
        name: name.into(),
        password_hash: password(name),
    }
}

fn delete(by: UserId, user: impl Into<Identifier>) -> Operation {
    Operation::DeleteUser {
        by,
        user: user.into(),
    }
}

fn rename(by: UserId, user: impl Into<Identifier>, name: &str) -> Operation {
    Operation::UpdateUser {
        by,
        user: user.into(),
        name: Some(name.into()),
        active: None,
    }
}

fn activate(by: UserId, user: impl Into<Identifier>, active: bool) -> Operation {
    Operation::UpdateUser {
        by,
        user: user.into(),
        name: None,
        active: Some(active),
    }
}

fn change_password(by: UserId, user: UserId, verified: Op) -> Operation {
    Operation::ChangePassword {
        by,
        user: user.into(),
        password_hash: password("changed"),
        verified,
    }
}

#[test]
fn root_is_user_1_and_is_created_once() {
    let mut run = Run::empty();
    let outcome = run.accept(Operation::CreateRoot {
        password_hash: password("root's"),
    });
    let Ok(Reply::User(root)) = outcome.result else {
        panic!("{outcome:?}");
    };
    assert_eq!(
        (root.id, root.name.as_str(), root.active),
        (ROOT, "root", true)
    );
    assert_eq!(run.catalog.user("root").unwrap().password_op, Op(1));

    let text = run.refuse(
        ErrorCode::UserAlreadyExists,
        Operation::CreateRoot {
            password_hash: password("another"),
        },
    );
    assert_eq!(text, "user \"root\" exists already, with id 1");
}

#[test]
fn nobody_can_do_anything_before_root_exists() {
    let mut run = Run::empty();
    run.refuse(ErrorCode::Unauthenticated, create(ROOT, "ann"));
    run.refuse(ErrorCode::Unauthenticated, super::create_stream("orders"));
}

#[test]
fn user_ids_rise_and_are_not_used_again() {
    let mut run = Run::new();
    assert_eq!(run.create_user("ann"), UserId(2));
    assert_eq!(run.create_user("bob"), UserId(3));
    run.accept(delete(ROOT, UserId(3)));
    assert_eq!(run.create_user("bob"), UserId(4));
}

#[test]
fn name_of_a_user_is_unique_and_legal() {
    let mut run = Run::new();
    run.create_user("ann");
    let text = run.refuse(ErrorCode::UserAlreadyExists, create(ROOT, "ann"));
    assert_eq!(text, "user \"ann\" exists already, with id 2");
    let text = run.refuse(ErrorCode::InvalidName, create(ROOT, "12"));
    assert_eq!(text, "\"12\": a name must not consist of digits only");
    run.refuse(
        ErrorCode::UserAlreadyExists,
        rename(ROOT, UserId(2), "root"),
    );
    run.refuse(ErrorCode::InvalidName, rename(ROOT, UserId(2), " ann"));
}

#[test]
fn users_are_limited() {
    let mut run = Run::new();
    run.accept(Operation::SetLimits {
        limits: Limits {
            users: 2,
            ..Limits::INITIAL
        },
    });
    run.create_user("ann");
    let text = run.refuse(ErrorCode::TooManyUsers, create(ROOT, "bob"));
    assert_eq!(
        text,
        "this would make 3 users; the limit is 2 (cluster.limits.users)"
    );
}

#[test]
fn root_can_neither_be_deleted_nor_deactivated() {
    let mut run = Run::new();
    run.refuse(ErrorCode::RootProtected, delete(ROOT, ROOT));
    run.refuse(ErrorCode::RootProtected, delete(ROOT, named("root")));
    let text = run.refuse(ErrorCode::RootProtected, activate(ROOT, ROOT, false));
    assert_eq!(text, "user root (id 1) cannot be deactivated");
}

#[test]
fn root_keeps_its_rights_under_another_name() {
    let mut run = Run::new();
    run.accept(rename(ROOT, ROOT, "admin"));
    assert!(run.catalog.user("root").is_none());
    let other = run.create_user("root");
    run.refuse(ErrorCode::Forbidden, create(other, "ann"));
    run.refuse(ErrorCode::RootProtected, delete(ROOT, named("admin")));
}

#[test]
fn other_users_manage_nobody_but_themselves() {
    let mut run = Run::new();
    let ann = run.create_user("ann");
    let bob = run.create_user("bob");
    run.refuse(ErrorCode::Forbidden, create(ann, "carl"));
    run.refuse(ErrorCode::Forbidden, delete(ann, bob));
    run.refuse(ErrorCode::Forbidden, delete(ann, ann));
    run.refuse(ErrorCode::Forbidden, rename(ann, bob, "bert"));
    run.refuse(ErrorCode::Forbidden, activate(ann, ann, false));
    let ann_op = run.catalog.user("ann").unwrap().password_op;
    run.refuse(ErrorCode::Forbidden, change_password(ann, bob, ann_op));

    run.accept(rename(ann, ann, "anna"));
    run.accept(change_password(ann, ann, ann_op));
    run.accept(Operation::CreateStream {
        by: ann,
        name: "orders".into(),
    });
}

#[test]
fn refusal_does_not_tell_who_exists() {
    let mut run = Run::new();
    let ann = run.create_user("ann");
    run.create_user("bob");
    let there = run.refuse(ErrorCode::Forbidden, rename(ann, named("bob"), "x"));
    let absent = run.refuse(ErrorCode::Forbidden, rename(ann, named("carl"), "x"));
    assert_eq!(there, absent);
    assert_eq!(
        run.catalog.user_details(ann, &named("bob")).unwrap_err(),
        run.catalog.user_details(ann, &named("carl")).unwrap_err(),
    );
}

#[test]
fn deleted_or_deactivated_user_can_ask_for_nothing() {
    let mut run = Run::new();
    let ann = run.create_user("ann");
    let bob = run.create_user("bob");
    run.accept(activate(ROOT, ann, false));
    run.accept(delete(ROOT, bob));
    for (user, code) in [
        (ann, ErrorCode::UserInactive),
        (bob, ErrorCode::Unauthenticated),
    ] {
        run.refuse(
            code,
            Operation::CreateStream {
                by: user,
                name: "orders".into(),
            },
        );
        run.refuse(code, create(user, "carl"));
        let page = GetUsers {
            after: UserId(0),
            limit: 0,
        };
        assert_eq!(run.catalog.users_page(user, &page).unwrap_err().code, code);
    }
    run.accept(activate(ROOT, ann, true));
    run.accept(rename(ann, ann, "anna"));
}

#[test]
fn deactivating_a_user_ends_its_sessions_only() {
    let mut run = Run::new();
    let ann = run.create_user("ann");
    let first = run.log_in(30, ann);
    let second = run.log_in(10, ann);
    let roots = run.log_in(20, ROOT);
    let outcome = run.accept(activate(ROOT, ann, false));
    assert_eq!(
        outcome.changes,
        [
            session_ended(10, second, EvictionReason::UserChanged),
            session_ended(30, first, EvictionReason::UserChanged),
        ]
    );
    assert_eq!(
        outcome
            .ended
            .iter()
            .map(|client| client.0)
            .collect::<Vec<_>>(),
        [10, 30]
    );
    assert!(run.catalog.session(20u128.into(), roots).is_some());
}

#[test]
fn deleting_a_user_ends_its_sessions() {
    let mut run = Run::new();
    let ann = run.create_user("ann");
    let session = run.log_in(10, ann);
    let outcome = run.accept(delete(ROOT, named("ann")));
    assert_eq!(
        outcome.changes,
        [session_ended(10, session, EvictionReason::UserChanged)]
    );
    run.refuse(ErrorCode::UserNotFound, delete(ROOT, named("ann")));
}

#[test]
fn changed_password_is_in_force_and_ends_the_sessions() {
    let mut run = Run::new();
    let ann = run.create_user("ann");
    let session = run.log_in(10, ann);
    let verified = run.catalog.user("ann").unwrap().password_op;
    let outcome = run.accept(change_password(ann, ann, verified));
    assert_eq!(
        outcome.changes,
        [session_ended(10, session, EvictionReason::UserChanged)]
    );
    let user = run.catalog.user("ann").unwrap();
    assert_eq!(user.password_hash, password("changed"));
    assert_eq!(user.password_op, run.op());
}

#[test]
fn root_changes_the_password_of_others_by_its_own() {
    let mut run = Run::new();
    let ann = run.create_user("ann");
    run.accept(change_password(ROOT, ann, Op(1)));
    assert_eq!(
        run.catalog.user("ann").unwrap().password_hash,
        password("changed")
    );
    assert_eq!(
        run.catalog.user("root").unwrap().password_hash,
        password("root's")
    );
}

#[test]
fn password_that_was_checked_must_still_be_the_askers() {
    let mut run = Run::new();
    let ann = run.create_user("ann");
    let verified = run.catalog.user("ann").unwrap().password_op;
    run.accept(change_password(ROOT, ann, Op(1)));
    let text = run.refuse(
        ErrorCode::InvalidCredentials,
        change_password(ann, ann, verified),
    );
    assert_eq!(
        text,
        "the password of user \"ann\" was changed in the meantime"
    );
}

#[test]
fn users_are_listed_for_root_only() {
    let mut run = Run::new();
    let ann = run.create_user("ann");
    let bob = run.create_user("bob");
    let page = |after: UserId, limit| GetUsers { after, limit };
    let first = run.catalog.users_page(ROOT, &page(UserId(0), 2)).unwrap();
    assert_eq!(
        first.users.iter().map(|user| user.id).collect::<Vec<_>>(),
        [ROOT, ann]
    );
    assert!(first.more);
    let second = run.catalog.users_page(ROOT, &page(ann, 2)).unwrap();
    assert_eq!(
        second.users.iter().map(|user| user.id).collect::<Vec<_>>(),
        [bob]
    );
    assert!(!second.more);

    let refused = run
        .catalog
        .users_page(ann, &page(UserId(0), 0))
        .unwrap_err();
    assert_eq!(refused.code, ErrorCode::Forbidden);
    assert_eq!(
        run.catalog.user_details(ann, &ann.into()).unwrap().name,
        "ann"
    );
}
