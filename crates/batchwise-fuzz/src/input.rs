//! Numbers from an input; 0 when it is used up.

pub struct Input<'a>(pub &'a [u8]);

impl<'a> Input<'a> {
    pub fn bytes(&mut self, most: usize) -> &'a [u8] {
        let (taken, rest) = self.0.split_at(most.min(self.0.len()));
        self.0 = rest;
        taken
    }

    pub fn number<const N: usize>(&mut self) -> u32 {
        let bytes = self.bytes(N).iter();
        bytes.fold(0, |n, byte| n << 8 | u32::from(*byte))
    }
}
