//! What a mistyped word was meant to be.

/// Likeness from which on a word is worth naming (Jaro and Winkler's measure): below it hints are guesses.
const ALIKE: f64 = 0.7;

/// `: did you mean …?`, if some known word is alike; nothing otherwise.
pub(crate) fn hint<'a>(word: &str, known: impl IntoIterator<Item = &'a str>) -> String {
    let likeness = |name: &str| strsim::jaro_winkler(&word.to_lowercase(), &name.to_lowercase());
    let best = known
        .into_iter()
        .map(|name| (likeness(name), name))
        .max_by(|a, b| a.0.total_cmp(&b.0));
    match best {
        Some((likeness, name)) if likeness >= ALIKE => format!(": did you mean `{name}`?"),
        _ => String::new(),
    }
}
