//! Breadth-first search of every state that can be reached.

use super::{
    mutation::{Floor, violation},
    state::{Packed, State},
    step::{Action, Model, Steps, Successor},
};

/// What a search has come to.
pub(crate) struct Found {
    pub(crate) states: usize,
    pub(crate) transitions: u64,
    /// Steps from the first state to the farthest.
    pub(crate) depth: u32,
    /// How often each floor was reached.
    pub(crate) reached: [u64; Floor::ALL.len()],
    /// The first violation, and the shortest way to it.
    pub(crate) violation: Option<(&'static str, Vec<Action>)>,
}

/// Every state that was seen, in the order in which it was found: the queue of the search as well.
struct Seen {
    states: Vec<Packed>,
    parents: Vec<u32>,
    /// Indices of states plus 1, by hash; open addressing.
    slots: Vec<u32>,
}

impl Seen {
    fn new() -> Self {
        Self {
            states: Vec::new(),
            parents: Vec::new(),
            slots: vec![0; 1 << 16],
        }
    }

    /// Where a state is, or the free slot that it goes to.
    fn slot(&self, state: Packed) -> usize {
        let mut hash = state[0];
        for word in &state[1..] {
            hash = (hash.wrapping_mul(0x9e37_79b9_7f4a_7c15) ^ word).rotate_left(29);
        }
        hash = hash.wrapping_mul(0x9e37_79b9_7f4a_7c15);
        hash ^= hash >> 32;
        let mask = self.slots.len() - 1;
        let mut slot = usize::try_from(hash).expect("64 bits") & mask;
        loop {
            match self.slots[slot] {
                0 => return slot,
                at if self.states[at as usize - 1] == state => return slot,
                _ => slot = (slot + 1) & mask,
            }
        }
    }

    fn insert(&mut self, state: Packed, parent: u32) {
        let slot = self.slot(state);
        if self.slots[slot] > 0 {
            return;
        }
        self.states.push(state);
        self.parents.push(parent);
        self.slots[slot] = u32::try_from(self.states.len()).expect("fewer than 2^32 states");
        if self.states.len() * 2 > self.slots.len() {
            self.grow();
        }
    }

    fn grow(&mut self) {
        self.slots = vec![0; self.slots.len() * 2];
        for index in 0..self.states.len() {
            let slot = self.slot(self.states[index]);
            self.slots[slot] = u32::try_from(index + 1).expect("fewer than 2^32 states");
        }
    }
}

fn expand(
    model: &Model<'_>,
    from: State,
    successors: &mut Vec<Successor>,
    reached: &mut [u64; Floor::ALL.len()],
) -> bool {
    successors.clear();
    let mut steps = Steps {
        model,
        from,
        latest: model.plane.node(from.node),
        copy: model.plane.copy(from.node, from.copy),
        successors,
        reached,
    };
    steps.all();
    steps.converges()
}

/// Searches until everything is seen or something is wrong.
pub(crate) fn search(model: &Model<'_>) -> Found {
    let mut seen = Seen::new();
    seen.insert(State::first(model.plane).pack(), 0);
    let mut found = Found {
        states: 0,
        transitions: 0,
        depth: 0,
        reached: [0; Floor::ALL.len()],
        violation: None,
    };
    let mut successors = Vec::new();
    let (mut at, mut layer) = (0, 1);
    while at < seen.states.len() {
        if at == layer {
            found.depth += 1;
            layer = seen.states.len();
        }
        let from = State::unpack(seen.states[at]);
        let parent = u32::try_from(at).expect("fewer than 2^32 states");
        let converges = expand(model, from, &mut successors, &mut found.reached);
        if !converges && model.minds(violation::STUCK) {
            found.violation = Some((violation::STUCK, way(model, &seen, at)));
            break;
        }
        found.transitions += successors.len() as u64;
        if let Some(wrong) = successors
            .iter()
            .find(|it| it.violation.is_some_and(|it| model.minds(it)))
        {
            let mut way = way(model, &seen, at);
            way.push(wrong.action);
            found.violation = wrong.violation.map(|violation| (violation, way));
            break;
        }
        for successor in &successors {
            seen.insert(successor.state.pack(), parent);
        }
        at += 1;
    }
    found.states = seen.states.len();
    found
}

/// The steps that lead to a state.
fn way(model: &Model<'_>, seen: &Seen, mut at: usize) -> Vec<Action> {
    let mut way = Vec::new();
    let mut successors = Vec::new();
    let mut reached = [0; Floor::ALL.len()];
    while at > 0 {
        let parent = seen.parents[at] as usize;
        let from = State::unpack(seen.states[parent]);
        expand(model, from, &mut successors, &mut reached);
        let step = successors
            .iter()
            .find(|it| it.state.pack() == seen.states[at]);
        way.push(step.expect("it was found so").action);
        at = parent;
    }
    way.reverse();
    way
}
