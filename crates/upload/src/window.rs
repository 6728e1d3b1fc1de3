//! What is remembered of the chunks that are under way: a table that slides along the file.

use std::collections::VecDeque;

use wire::upload::Chunk;

/// A value for each chunk from `base` on, [`Window::limit`] of them at most.
#[derive(Clone, Debug)]
pub(crate) struct Window<T> {
    base: u32,
    limit: u32,
    slots: VecDeque<T>,
}

impl<T: Clone + Default> Window<T> {
    pub(crate) fn new(base: Chunk, limit: u32) -> Self {
        Self { base: base.0, limit, slots: VecDeque::new() }
    }

    /// The first chunk that it remembers.
    pub(crate) const fn base(&self) -> Chunk {
        Chunk(self.base)
    }

    /// The first chunk that is too far ahead.
    pub(crate) const fn end(&self) -> Chunk {
        Chunk(self.base.saturating_add(self.limit))
    }

    pub(crate) fn get(&self, chunk: Chunk) -> Option<&T> {
        self.slots.get(chunk.0.checked_sub(self.base)? as usize)
    }

    /// The value of a chunk, made if there is none yet; `None` in front of the table and too far ahead of it.
    pub(crate) fn reach(&mut self, chunk: Chunk) -> Option<&mut T> {
        let at = chunk.0.checked_sub(self.base).filter(|at| *at < self.limit)? as usize;
        if self.slots.len() <= at {
            self.slots.resize(at + 1, T::default());
        }
        self.slots.get_mut(at)
    }

    /// Forgets all chunks in front of `base`.
    pub(crate) fn advance(&mut self, base: Chunk) {
        let gone = base.0.saturating_sub(self.base);
        self.slots.drain(..(gone as usize).min(self.slots.len()));
        self.base = self.base.max(base.0);
    }

    /// How many chunks it remembers.
    pub(crate) fn len(&self) -> usize {
        self.slots.len()
    }

    /// Chunks with their values.
    pub(crate) fn iter_mut(&mut self) -> impl Iterator<Item = (Chunk, &mut T)> {
        let base = self.base;
        self.slots.iter_mut().enumerate().map(move |(at, value)| (Chunk(base + at as u32), value))
    }

    /// Bytes that it takes up.
    pub(crate) fn memory(&self) -> usize {
        self.slots.capacity() * size_of::<T>()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn it_slides_and_is_bounded() {
        let mut window: Window<u8> = Window::new(Chunk(10), 4);
        assert_eq!(window.reach(Chunk(9)), None);
        assert_eq!(window.reach(Chunk(14)), None);
        *window.reach(Chunk(13)).unwrap() = 7;
        window.advance(Chunk(12));
        assert_eq!((window.base(), window.end()), (Chunk(12), Chunk(16)));
        assert_eq!((window.get(Chunk(13)), window.get(Chunk(11))), (Some(&7), None));
        window.advance(Chunk(3));
        assert_eq!(window.base(), Chunk(12), "it never goes back");
        window.advance(Chunk(40));
        assert_eq!(window.get(Chunk(40)), None);
        assert_eq!(window.reach(Chunk(43)).copied(), Some(0));
    }
}
