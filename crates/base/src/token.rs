//! A name for a connection that cannot be mistaken for its successor's.

/// Index of a slot plus the generation of its value: a token of an earlier value misses.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct Token {
    /// Which slot.
    pub index: u32,
    /// Which value of the slot, counted from the first.
    pub generation: u32,
}

impl Token {
    /// Packs the token into the user data of an event.
    #[must_use]
    pub fn to_bits(self) -> u64 {
        u64::from(self.generation) << 32 | u64::from(self.index)
    }

    /// The token that `to_bits` packed.
    #[must_use]
    pub fn from_bits(bits: u64) -> Self {
        Self {
            index: (bits & 0xffff_ffff) as u32,
            generation: (bits >> 32) as u32,
        }
    }
}
