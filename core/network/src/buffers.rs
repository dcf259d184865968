//! Buffers that are used again.
//!
//! Touching a page for the first time costs 3.2 µs per 4 KiB, more than copying it. A buffer whose frames
//! are still in use elsewhere is kept here as a handle of no length; once the last frame is dropped, on
//! whatever thread, the handle is the only one left and gets the whole allocation back.

use std::cell::{Cell, RefCell};

use bytes::BytesMut;

/// The smallest class; sizes are rounded up to a power of two or its half above.
const CLASS_MIN: usize = 4 * 1024;

/// Handles of one class that are tried before a new buffer is allocated.
const TRIES: usize = 4;

/// One shard's buffers.
#[derive(Debug)]
pub(crate) struct BufferPool {
    classes: RefCell<Vec<Class>>,
    /// Bytes of the buffers whose handles are kept.
    kept: Cell<usize>,
    kept_max: usize,
    /// Whether a buffer was taken or given since the last [`BufferPool::trim`].
    used: Cell<bool>,
}

#[derive(Debug)]
struct Class {
    size: usize,
    handles: Vec<BytesMut>,
}

impl BufferPool {
    /// A pool that keeps buffers of `kept_max` bytes in all.
    pub(crate) const fn new(kept_max: usize) -> Self {
        Self {
            classes: RefCell::new(Vec::new()),
            kept: Cell::new(0),
            kept_max,
            used: Cell::new(false),
        }
    }

    /// An empty buffer of at least `size` bytes.
    pub(crate) fn take(&self, size: usize) -> BytesMut {
        self.used.set(true);
        let size = class_of(size);
        let mut classes = self.classes.borrow_mut();
        let Some(class) = classes.iter_mut().find(|class| class.size == size) else {
            return BytesMut::with_capacity(size);
        };
        for _ in 0..TRIES.min(class.handles.len()) {
            let mut handle = class.handles.remove(0);
            if handle.try_reclaim(size) {
                self.kept.set(self.kept.get() - size);
                return handle;
            }
            class.handles.push(handle);
        }
        BytesMut::with_capacity(size)
    }

    /// Takes back a buffer that [`BufferPool::take`] gave for `size`; what is in it is discarded. Parts that
    /// were split off may be in use still.
    pub(crate) fn give(&self, size: usize, mut buffer: BytesMut) {
        self.used.set(true);
        let size = class_of(size);
        if self.kept.get() + size > self.kept_max {
            return;
        }
        buffer.clear();
        self.kept.set(self.kept.get() + size);
        let mut classes = self.classes.borrow_mut();
        if let Some(class) = classes.iter_mut().find(|class| class.size == size) {
            class.handles.push(buffer);
        } else {
            let handles = vec![buffer];
            classes.push(Class { size, handles });
        }
    }

    /// Lets go of everything if nothing was taken or given since the last call: an idle shard holds no
    /// buffers.
    pub(crate) fn trim(&self) {
        if !self.used.replace(false) {
            self.classes.borrow_mut().clear();
            self.kept.set(0);
        }
    }
}

/// Rounds up to 2^n or 3·2^(n-1): no buffer is more than half as large again as asked for.
const fn class_of(size: usize) -> usize {
    if size <= CLASS_MIN {
        return CLASS_MIN;
    }
    let above = size.next_power_of_two();
    let between = above / 4 * 3;
    if size <= between { between } else { above }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn classes_waste_at_most_half() {
        for size in [
            1,
            4096,
            4097,
            6144,
            6145,
            1 << 20,
            (1 << 20) + 64,
            8_454_144,
        ] {
            let class = class_of(size);
            assert!(class >= size);
            assert!(
                class <= CLASS_MIN.max(size + size / 2),
                "{size} got {class}"
            );
            assert_eq!(class_of(class), class);
        }
    }

    #[test]
    fn buffer_comes_back_once_its_last_part_is_dropped() {
        let pool = BufferPool::new(1 << 20);
        let mut buffer = pool.take(10_000);
        let address = buffer.as_ptr();
        buffer.extend_from_slice(&[7; 100]);
        let part = buffer.split().freeze();
        pool.give(10_000, buffer);

        let other = pool.take(10_000);
        assert_ne!(
            other.as_ptr(),
            address,
            "a part of the first is still in use"
        );
        drop(part);
        let again = pool.take(10_000);
        assert_eq!(again.as_ptr(), address);
        assert!(again.capacity() >= 10_000);
        assert!(again.is_empty());
    }

    #[test]
    fn pool_keeps_no_more_than_its_bound() {
        let pool = BufferPool::new(2 * CLASS_MIN);
        for _ in 0..5 {
            pool.give(CLASS_MIN, BytesMut::with_capacity(CLASS_MIN));
        }
        assert_eq!(pool.kept.get(), 2 * CLASS_MIN);
        pool.trim();
        assert_eq!(pool.kept.get(), 2 * CLASS_MIN, "used since the last trim");
        pool.trim();
        assert_eq!(pool.kept.get(), 0);
    }
}
