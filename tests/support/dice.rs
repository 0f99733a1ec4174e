//! Pseudorandom numbers that are the same in every run (xorshift).

pub struct Dice(pub u64);

impl Dice {
    pub fn below(&mut self, sides: usize) -> usize {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        usize::try_from(self.0 % sides as u64).unwrap()
    }

    pub fn one_in(&mut self, sides: usize) -> bool {
        self.below(sides) == 0
    }

    /// One of these words; `_` means no word.
    pub fn word<'a>(&mut self, these: &'a str) -> &'a str {
        let words: Vec<&str> = these.split_whitespace().collect();
        words[self.below(words.len())].trim_matches('_')
    }
}
