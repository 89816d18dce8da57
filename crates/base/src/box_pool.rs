//! Boxes that are used again, so that what is boxed for a while costs no allocation.

/// Boxes that wait to be used again, `MAX` of them at most.
#[allow(clippy::vec_box, reason = "the boxes themselves are what is kept")]
#[derive(Debug)]
pub struct BoxPool<T, const MAX: usize>(Vec<Box<T>>);

impl<T, const MAX: usize> Default for BoxPool<T, MAX> {
    fn default() -> Self {
        Self(Vec::new())
    }
}

impl<T: Default, const MAX: usize> BoxPool<T, MAX> {
    /// One that was given back, as it was then, or a new one.
    pub fn take(&mut self) -> Box<T> {
        self.0.pop().unwrap_or_default()
    }

    /// Keeps one for later, if there are not enough.
    pub fn give(&mut self, one: Box<T>) {
        if self.0.len() < MAX {
            self.0.push(one);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn boxes_come_back_up_to_the_bound() {
        let mut pool = BoxPool::<u32, 2>::default();
        assert_eq!(*pool.take(), 0);
        for number in 1..=3 {
            pool.give(Box::new(number));
        }
        assert_eq!(
            [pool.take(), pool.take(), pool.take()].map(|it| *it),
            [2, 1, 0]
        );
    }
}
