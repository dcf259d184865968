//! Things found by id and by name; names are unique.

use alloc::{borrow::ToOwned, collections::BTreeMap, string::String};
use core::ops::Bound;

use wire::Identifier;

/// What a directory holds: it knows its own name.
pub(crate) trait Named {
    /// The name under which it is found.
    fn name(&self) -> &str;
    /// Takes another name; the directory keeps its index in step.
    fn set_name(&mut self, name: String);
}

/// An ordered map by id with an index by name.
/// Invariant: `ids` holds exactly the names of `entries`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Directory<I, T> {
    entries: BTreeMap<I, T>,
    ids: BTreeMap<String, I>,
}

impl<I, T> Default for Directory<I, T> {
    fn default() -> Self {
        Self {
            entries: BTreeMap::new(),
            ids: BTreeMap::new(),
        }
    }
}

impl<I: Copy + Ord + From<u64>, T: Named> Directory<I, T> {
    pub(crate) fn len(&self) -> usize {
        self.entries.len()
    }

    pub(crate) fn get(&self, id: I) -> Option<&T> {
        self.entries.get(&id)
    }

    /// Names are changed by [`Directory::rename`] only.
    pub(crate) fn get_mut(&mut self, id: I) -> Option<&mut T> {
        self.entries.get_mut(&id)
    }

    pub(crate) fn id_of_name(&self, name: &str) -> Option<I> {
        self.ids.get(name).copied()
    }

    /// The id of what `identifier` names. A number is only ever an id and a name only ever a name.
    pub(crate) fn id_of(&self, identifier: &Identifier) -> Option<I> {
        match identifier {
            Identifier::Number(number) => {
                let id = I::from(*number);
                self.entries.contains_key(&id).then_some(id)
            }
            Identifier::Name(name) => self.id_of_name(name),
        }
    }

    pub(crate) fn find(&self, identifier: &Identifier) -> Option<&T> {
        self.id_of(identifier).and_then(|id| self.get(id))
    }

    /// Whether neither id nor name is taken.
    pub(crate) fn has_room(&self, id: I, name: &str) -> bool {
        !self.entries.contains_key(&id) && !self.ids.contains_key(name)
    }

    /// # Panics
    /// When id or name is taken: the caller has looked.
    pub(crate) fn insert(&mut self, id: I, value: T) {
        let taken = self.ids.insert(value.name().to_owned(), id);
        assert!(taken.is_none(), "a name is taken twice");
        let replaced = self.entries.insert(id, value);
        assert!(replaced.is_none(), "an id is used twice");
    }

    pub(crate) fn remove(&mut self, id: I) -> Option<T> {
        let value = self.entries.remove(&id)?;
        let indexed = self.ids.remove(value.name());
        assert!(indexed == Some(id), "the index by name is out of step");
        Some(value)
    }

    /// # Panics
    /// When the id is unknown or the name is another one's: the caller has looked.
    pub(crate) fn rename(&mut self, id: I, name: &str) {
        let value = self.entries.get_mut(&id).expect("renames what is there");
        let indexed = self.ids.remove(value.name());
        assert!(indexed == Some(id), "the index by name is out of step");
        value.set_name(name.to_owned());
        let taken = self.ids.insert(name.to_owned(), id);
        assert!(taken.is_none(), "a name is taken twice");
    }

    /// In order of ids.
    pub(crate) fn iter(&self) -> impl ExactSizeIterator<Item = (I, &T)> {
        self.entries.iter().map(|(id, value)| (*id, value))
    }

    /// Those with ids above `after`, in order of ids.
    pub(crate) fn iter_after(&self, after: I) -> impl Iterator<Item = (I, &T)> {
        self.entries
            .range((Bound::Excluded(after), Bound::Unbounded))
            .map(|(id, value)| (*id, value))
    }
}
