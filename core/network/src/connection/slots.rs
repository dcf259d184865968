//! Connections by id.

use std::rc::Rc;

use super::{Connection, ConnectionId};

/// A table whose places are used again and whose ids are not: an id is a place and how often it was taken.
#[derive(Debug, Default)]
pub(super) struct Slots {
    slots: Vec<Slot>,
    free: Vec<u32>,
    len: usize,
}

#[derive(Debug)]
struct Slot {
    taken: u32,
    connection: Option<Rc<Connection>>,
}

impl Slots {
    pub(super) const fn len(&self) -> usize {
        self.len
    }

    pub(super) fn insert(
        &mut self,
        make: impl FnOnce(ConnectionId) -> Connection,
    ) -> Rc<Connection> {
        let place = self.free.pop().unwrap_or_else(|| {
            self.slots.push(Slot {
                taken: 0,
                connection: None,
            });
            u32::try_from(self.slots.len() - 1).expect("descriptors end long before 2^32")
        });
        let slot = &mut self.slots[index(place)];
        slot.taken = slot.taken.wrapping_add(1);
        let connection = Rc::new(make(ConnectionId(
            u64::from(slot.taken) << 32 | u64::from(place),
        )));
        slot.connection = Some(Rc::clone(&connection));
        self.len += 1;
        connection
    }

    pub(super) fn find(&self, id: ConnectionId) -> Option<&Rc<Connection>> {
        let slot = self.slots.get(index(place_of(id)))?;
        slot.connection
            .as_ref()
            .filter(|connection| connection.id == id)
    }

    /// Whether it was there.
    pub(super) fn remove(&mut self, id: ConnectionId) -> bool {
        if self.find(id).is_none() {
            return false;
        }
        let place = place_of(id);
        self.slots[index(place)].connection = None;
        self.free.push(place);
        self.len -= 1;
        true
    }

    pub(super) fn iter(&self) -> impl Iterator<Item = &Rc<Connection>> {
        self.slots
            .iter()
            .filter_map(|slot| slot.connection.as_ref())
    }
}

fn place_of(id: ConnectionId) -> u32 {
    u32::try_from(id.0 & u64::from(u32::MAX)).expect("masked")
}

fn index(place: u32) -> usize {
    usize::try_from(place).expect("a u32 fits a usize")
}
