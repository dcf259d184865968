//! How sessions begin and end.

use wire::{ClientId, ErrorCode, EvictionReason, Op, Reply, SessionNumber, UserId};

use super::{Run, named, password, session_ended, time_of};
use crate::{Change, Limits, Operation, SecretHash, Session, SessionView};

const ROOT: UserId = UserId::ROOT;

#[test]
fn session_is_numbered_by_its_op() {
    let mut run = Run::new();
    let register = run.register(10, ROOT);
    let outcome = run.accept(register);
    assert_eq!(outcome.result, Ok(Reply::Done));
    assert_eq!(outcome.ended, []);
    let number = SessionNumber(2);
    assert_eq!(
        outcome.changes,
        [Change::SessionRegistered {
            client: ClientId(10),
            session: number,
            user: ROOT,
        }]
    );
    let session = Session {
        client: ClientId(10),
        number,
        user: ROOT,
        secret_hash: SecretHash([7; 32]),
        registered: time_of(Op(2)),
    };
    assert_eq!(run.catalog.session(ClientId(10), number), Some(&session));
    assert_eq!(run.catalog.session(ClientId(10), SessionNumber(1)), None);
    assert_eq!(run.catalog.session(ClientId(11), number), None);
    let view = SessionView { number, user: ROOT };
    assert_eq!(run.projection.session(ClientId(10)), Some(&view));
}

#[test]
fn client_that_logs_in_again_has_the_new_session_only() {
    let mut run = Run::new();
    let older = run.log_in(10, ROOT);
    let register = run.register(10, ROOT);
    let outcome = run.accept(register);
    let newer = SessionNumber(run.op().0);
    assert_eq!(
        outcome.changes[0],
        session_ended(10, older, EvictionReason::Replaced)
    );
    assert_eq!(outcome.changes.len(), 2);
    assert_eq!(outcome.ended, [], "the client has a session still");
    assert!(run.catalog.session(ClientId(10), older).is_none());
    assert!(run.catalog.session(ClientId(10), newer).is_some());
}

#[test]
fn login_with_a_password_changed_meanwhile_is_refused() {
    let mut run = Run::new();
    let register = run.register(10, ROOT);
    run.accept(Operation::ChangePassword {
        by: ROOT,
        user: ROOT.into(),
        password_hash: password("changed"),
        verified: Op(1),
    });
    run.refuse(ErrorCode::InvalidCredentials, register);
}

#[test]
fn login_of_a_user_deactivated_or_deleted_meanwhile_is_refused() {
    let mut run = Run::new();
    let ann = run.create_user("ann");
    let register = run.register(10, ann);
    run.accept(Operation::UpdateUser {
        by: ROOT,
        user: ann.into(),
        name: None,
        active: Some(false),
    });
    run.refuse(ErrorCode::UserInactive, register.clone());
    run.accept(Operation::DeleteUser {
        by: ROOT,
        user: ann.into(),
    });
    run.refuse(ErrorCode::Unauthenticated, register);
}

#[test]
fn refused_login_leaves_the_older_session() {
    let mut run = Run::new();
    let older = run.log_in(10, ROOT);
    let register = run.register(10, UserId(9));
    let outcome = run.apply(&register);
    assert!(outcome.result.is_err());
    assert_eq!(outcome.ended, []);
    assert!(run.catalog.session(ClientId(10), older).is_some());
}

#[test]
fn sessions_are_limited_but_a_client_may_replace_its_own() {
    let mut run = Run::new();
    let limit = |sessions| Operation::SetLimits {
        limits: Limits {
            sessions,
            ..Limits::INITIAL
        },
    };
    run.accept(limit(2));
    run.log_in(10, ROOT);
    run.log_in(11, ROOT);
    let third = run.register(12, ROOT);
    let text = run.refuse(ErrorCode::TooManySessions, third);
    assert_eq!(
        text,
        "this would make 3 sessions; the limit is 2 (cluster.limits.sessions)"
    );
    run.accept(limit(1));
    run.log_in(11, ROOT);
}

#[test]
fn logout_ends_the_session_named_and_no_other() {
    let mut run = Run::new();
    let session = run.log_in(10, ROOT);
    let logout = |session| Operation::Logout {
        client: ClientId(10),
        session,
    };
    let text = run.refuse(ErrorCode::SessionNotFound, logout(SessionNumber(1)));
    assert_eq!(text, "session 1 has ended");
    let outcome = run.accept(logout(session));
    assert_eq!(
        outcome.changes,
        [session_ended(10, session, EvictionReason::LoggedOut)]
    );
    assert_eq!(outcome.ended, [ClientId(10)]);
    run.refuse(ErrorCode::SessionNotFound, logout(session));
}

#[test]
fn sessions_replaced_since_are_not_ended_by_a_late_op() {
    let mut run = Run::new();
    let first = run.log_in(10, ROOT);
    let second = run.log_in(11, ROOT);
    let newer = run.log_in(10, ROOT);
    let outcome = run.accept(Operation::EndSessions {
        sessions: [(10, first), (11, second), (12, second)]
            .map(|(client, session)| (ClientId(client), session))
            .to_vec(),
        reason: EvictionReason::Expired,
    });
    assert_eq!(
        outcome.changes,
        [session_ended(11, second, EvictionReason::Expired)]
    );
    assert_eq!(outcome.ended, [ClientId(11)]);
    assert!(run.catalog.session(ClientId(10), newer).is_some());
}

#[test]
fn session_named_twice_ends_once() {
    let mut run = Run::new();
    let session = run.log_in(10, ROOT);
    let outcome = run.accept(Operation::EndSessions {
        sessions: [(ClientId(10), session); 2].to_vec(),
        reason: EvictionReason::Disconnected,
    });
    assert_eq!(
        outcome.changes,
        [session_ended(10, session, EvictionReason::Disconnected)]
    );
}

#[test]
fn debug_form_of_a_login_hides_what_is_secret() {
    let mut run = Run::new();
    run.log_in(10, ROOT);
    let shown = std::format!("{:?} {:?}", run.catalog, run.register(11, ROOT));
    assert!(!shown.contains("argon2id"), "{shown}");
    assert!(!shown.contains("7, 7, 7"), "{shown}");
    assert!(run.catalog.user_details(ROOT, &named("root")).is_ok());
}
