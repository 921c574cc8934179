//! The words after the dot: `reduce.sum`, `norm.layer`.

use std::fmt;

/// Declares the variants of an operation as an enum whose members know their words. An empty word is
/// what the operation does when no variant is written.
macro_rules! variants {
    ($(#[$doc:meta])* $name:ident { $($(#[$member_doc:meta])* $member:ident = $word:literal,)* }) => {
        $(#[$doc])*
        #[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
        pub enum $name {
            $($(#[$member_doc])* $member,)*
        }

        impl $name {
            /// Every one of them, in the order of declaration.
            pub const ALL: &[Self] = &[$(Self::$member),*];

            /// The words of [`ALL`](Self::ALL).
            const WORDS: &[&str] = &[$($word),*];

            /// The word for it in workload text.
            pub const fn name(self) -> &'static str {
                match self { $(Self::$member => $word,)* }
            }

            /// Whether the word is one of them.
            #[allow(dead_code)] // asked of some enums only
            pub(super) fn is_word(word: &str) -> bool {
                Self::WORDS.contains(&word)
            }

            /// Reads the word, or says which ones `op` knows.
            fn parse(op: &'static str, word: &str) -> Result<Self, $crate::op::WorkloadError> {
                let position = Self::WORDS.iter().position(|known| *known == word);
                position
                    .and_then(|position| Self::ALL.get(position).copied())
                    .ok_or_else(|| $crate::op::WorkloadError::UnknownVariant {
                        op,
                        word: word.to_owned(),
                        known: Self::WORDS,
                    })
            }
        }
    };
}

pub(super) use variants;

/// Writes the dot and the word, or nothing for an empty word.
pub(super) fn write_word(f: &mut fmt::Formatter<'_>, word: &str) -> fmt::Result {
    match word {
        "" => Ok(()),
        word => write!(f, ".{word}"),
    }
}
