//! Choices of a test: drawn from a seed, or every one there is, in turn.

use ashlar_model::chance::Chance;

pub enum Choices {
    Seeded(Chance),
    /// The choices so far with their bounds, and how many of them this run has made.
    Every(Vec<(usize, usize)>, usize),
}

impl Choices {
    pub fn every() -> Choices {
        Choices::Every(Vec::new(), 0)
    }

    /// A number below `bound`, which is at least 1.
    pub fn below(&mut self, bound: usize) -> usize {
        match self {
            Choices::Seeded(chance) => chance.below(bound),
            Choices::Every(made, at) => {
                if *at == made.len() {
                    made.push((0, bound));
                }
                *at += 1;
                made[*at - 1].0
            }
        }
    }

    pub fn yes(&mut self) -> bool {
        self.below(2) == 1
    }

    /// Goes to the next run; false if there is none left.
    pub fn next_run(&mut self) -> bool {
        let Choices::Every(made, at) = self else { return true };
        *at = 0;
        while let Some((choice, bound)) = made.pop() {
            if choice + 1 < bound {
                made.push((choice + 1, bound));
                return true;
            }
        }
        false
    }
}
