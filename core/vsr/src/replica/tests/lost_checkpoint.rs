//! A replica whose newest checkpoint cannot be read any more (V3, V10, V11, V15).

use std::vec::Vec;

use wire::{Op, View};

use super::{Fixture, chain, config, disk_between, point, send, view_entered, vote};
use crate::{
    Checkpoint, DoViewChange, Effect, Ignore, Input, Message, Note, Prepare, Recovered, StartView,
    Status, Superblock,
};

fn checkpoint_of(prepare: &Prepare) -> Checkpoint {
    let header = &prepare.header;
    Checkpoint {
        op: header.op(),
        checksum: header.checksum,
        timestamp: header.timestamp(),
        view: header.view(),
        ..Checkpoint::default()
    }
}

/// The superblock of the disk names a checkpoint of the fourth of six ops. There is one of the second, and a quorum
/// has one of `quorum`: the journal has what is behind that.
fn disk_without_checkpoint(view: u32, prepares: &[Prepare], quorum: u64) -> Recovered {
    let mut disk = disk_between(4, view, &prepares[4..]);
    if let Some(superblock) = &mut disk.superblock {
        superblock.checkpoint = point(&prepares[3]);
        superblock.checkpoint_quorum = Op(quorum);
    }
    disk.checkpoint = Some(checkpoint_of(&prepares[1]));
    disk.prepares = prepares.to_vec();
    disk.prepares.retain(|it| it.header.op > quorum);
    disk
}

fn superblocks(effects: &[Effect]) -> Vec<Superblock> {
    let mut superblocks = Vec::new();
    for effect in effects {
        if let Effect::WriteSuperblock(superblock) = effect {
            superblocks.push(superblock.clone());
        }
    }
    superblocks
}

fn speaks(effects: &[Effect]) -> bool {
    effects.iter().any(|it| matches!(it, Effect::Send { .. }))
}

const fn lost(op: u64, is_bridged: bool) -> Effect {
    Effect::Note(Note::CheckpointLost {
        op: Op(op),
        is_bridged,
    })
}

/// The superblock goes back first; its suffix names the ops of older views that the lost one stood for.
#[test]
fn v10_journal_that_leads_to_the_lost_checkpoint_is_whole() {
    let prepares = chain(6);
    let disk = disk_without_checkpoint(6, &prepares, 2);
    let (mut backup, effects) = Fixture::starting(config(2, 3), disk.clone());
    assert!(effects.contains(&lost(4, true)));
    assert!(!speaks(&effects));
    let [superblock] = &superblocks(&effects)[..] else {
        panic!("{effects:?}");
    };
    assert_eq!(superblock.checkpoint, point(&prepares[1]));
    assert_eq!((superblock.head, superblock.suffix.len()), (Op(6), 4));
    // V15: what is given up is what it was, and grows no more.
    assert_eq!(superblock.recyclable(), Op(2));
    assert_eq!(backup.replica.lost_checkpoint(), Some(Op(4)));
    assert_eq!(backup.replica.commit_max(), Op(4));

    let written = Input::SuperblockWritten { sequence: 10 };
    let expected = DoViewChange {
        checkpoint: Op(2),
        ..vote(2, 6, 4, point(&prepares[3]), &prepares[4..])
    };
    assert_eq!(
        backup.handle(written),
        [send(0, Message::DoViewChange(expected))]
    );
    // Whatever the others have by now: the bridge stays.
    backup.replica.learn_checkpoint_quorum(Op(6));
    assert_eq!(backup.replica.promises.newest().recyclable(), Op(2));

    // It is stopped: the disk is one of which nothing is lost.
    let disk = Recovered {
        superblock: Some(superblock.clone()),
        ..disk
    };
    let (again, effects) = Fixture::starting(config(2, 3), disk);
    assert_eq!(again.replica.op(), Op(6));
    let expected = DoViewChange {
        checkpoint: Op(2),
        ..vote(2, 6, 4, point(&prepares[1]), &prepares[2..])
    };
    assert!(effects.contains(&send(0, Message::DoViewChange(expected))));
}

/// As soon as it has executed what was in the lost one it may have another.
#[test]
fn lost_checkpoint_is_taken_again() {
    let prepares = chain(6);
    let disk = disk_without_checkpoint(4, &prepares, 2);
    let (mut backup, _) = Fixture::starting(config(2, 3), disk);
    let effects = backup.handle(Input::SuperblockWritten { sequence: 10 });
    assert!(effects.contains(&view_entered(4)));
    assert_eq!(backup.replica.status(), Status::Normal);
    for op in 3..=4 {
        backup.applied(op, "");
    }
    assert_eq!(backup.replica.begin_checkpoint().op, Op(4));
    let effects = backup.handle(Input::CheckpointWritten { op: Op(4) });
    assert_eq!(superblocks(&effects)[0].checkpoint, point(&prepares[3]));
    assert_eq!(backup.replica.lost_checkpoint(), None);
}

/// The primary of view 4, with the fifth and the sixth op not committed.
fn start_view(prepares: &[Prepare], nonce: Option<u128>) -> Message {
    Message::StartView(StartView {
        replica: super::ReplicaId(1),
        view: View(4),
        op: Op(6),
        commit: point(&prepares[3]),
        checkpoint_quorum: Op(4),
        suffix: prepares[4..].iter().map(|it| it.header).collect(),
        nonce,
    })
}

/// V11: what was acknowledged follows from nothing that is here. It says nothing before it has another checkpoint and
/// the journal of a view, in this order; V3, V15: no checkpoint that is older than the lost one takes its place.
#[test]
fn v11_replica_that_lacks_its_checkpoint_has_another_first() {
    let prepares = chain(6);
    for view in [4, 6] {
        let disk = disk_without_checkpoint(view, &prepares, 4);
        let (mut out, effects) = Fixture::starting(config(2, 3), disk);
        let fetch = Effect::FetchCheckpoint {
            at_least: Op(4),
            from: super::ReplicaId(0),
        };
        assert!(effects.contains(&lost(4, false)) && effects.contains(&fetch));
        assert!(!speaks(&effects) && superblocks(&effects).is_empty());
        assert_eq!(out.replica.status(), Status::RecoveringHead);
        assert!(out.replica.lacks_checkpoint());
        let effects = out.message(start_view(&prepares, Some(99)));
        if view == 4 {
            let ignored = Effect::Note(Note::Ignored(Ignore::CheckpointLacking));
            assert_eq!(effects, [ignored]);
        }
        let older = Input::CheckpointFetched(checkpoint_of(&prepares[2]));
        let ignored = Effect::Note(Note::Ignored(Ignore::CheckpointUnknown));
        assert_eq!(out.handle(older), [ignored.clone(), fetch.clone()]);
        let other = Checkpoint {
            checksum: 1,
            ..checkpoint_of(&prepares[3])
        };
        assert!(superblocks(&out.handle(Input::CheckpointFetched(other))).is_empty());

        let effects = out.handle(Input::CheckpointFetched(checkpoint_of(&prepares[3])));
        let superblock = superblocks(&effects)[0].clone();
        assert_eq!(superblock.checkpoint, point(&prepares[3]));
        assert_eq!(superblock.suffix.len(), 2, "what was promised stays");
        out.handle(Input::SuperblockWritten { sequence: 10 });
        assert_eq!(out.replica.status(), Status::RecoveringHead);
        assert!(!out.replica.lacks_checkpoint());
        out.message(start_view(&prepares, Some(99)));
        assert_eq!(out.replica.view_change.target.is_some(), view == 4);
    }
}

/// A start behind the installed checkpoint finds all that was flushed before the loss, and is certain of its head.
#[test]
fn v10_what_was_promised_is_there_behind_the_checkpoint_that_took_the_place() {
    let prepares = chain(6);
    let mut disk = disk_without_checkpoint(6, &prepares, 4);
    if let Some(superblock) = &mut disk.superblock {
        superblock.checkpoint = point(&prepares[4]);
        superblock.suffix.remove(0);
    }
    disk.checkpoint = Some(checkpoint_of(&prepares[4]));
    let (_, effects) = Fixture::starting(config(2, 3), disk);
    let expected = DoViewChange {
        checkpoint: Op(5),
        ..vote(2, 6, 4, point(&prepares[4]), &prepares[5..])
    };
    assert!(effects.contains(&send(0, Message::DoViewChange(expected))));
}

/// A checkpoint that was installed without the head has others in its place than what was promised: those came to
/// nothing, and the replica is not out of service.
#[test]
fn v3_promised_ops_that_a_checkpoint_contradicts_came_to_nothing() {
    let prepares = chain(6);
    let mut disk = disk_without_checkpoint(6, &prepares, 4);
    let other = Checkpoint {
        checksum: 1,
        ..checkpoint_of(&prepares[4])
    };
    if let Some(superblock) = &mut disk.superblock {
        superblock.checkpoint.op = Op(5);
        superblock.checkpoint.checksum = 1;
        superblock.suffix.remove(0);
    }
    disk.checkpoint = Some(other);
    let (backup, _) = Fixture::starting(config(2, 3), disk);
    assert_eq!(backup.replica.status(), Status::ViewChange);
    assert_eq!(backup.replica.op(), Op(5));
}
