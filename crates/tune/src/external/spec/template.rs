//! Arguments with places for values: `-DTILE={tile}`.
//!
//! A program gets a list of arguments, never a line for a shell, so no value has to be quoted and none can become a
//! command. `{{` and `}}` stand for braces.

use std::fmt;

use crate::nearest;

/// Where and why a text is no template.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{problem} at character {} of `{text}`", at + 1)]
pub struct PlaceholderError {
    /// The whole text.
    pub text: String,
    /// Where the trouble is: characters before it.
    pub at: usize,
    /// What it is, with the remedy.
    pub problem: String,
}

/// One argument or value of the environment.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Template {
    text: String,
    parts: Vec<Part>,
}

#[derive(Debug, Clone, PartialEq, Eq)]
enum Part {
    Text(String),
    /// The value of a name.
    Name(String),
}

impl Template {
    /// Reads a text in which these names may stand between braces.
    pub(crate) fn parse(text: &str, names: &[&str]) -> Result<Self, PlaceholderError> {
        let error = |at: usize, problem: String| PlaceholderError {
            text: text.to_owned(),
            at,
            problem,
        };
        let mut parts = Vec::new();
        let mut plain = String::new();
        let mut rest = text.chars().enumerate().peekable();
        while let Some((at, c)) = rest.next() {
            match c {
                '{' | '}' if rest.next_if(|(_, next)| *next == c).is_some() => plain.push(c),
                '}' => {
                    return Err(error(
                        at,
                        "a brace closes what none opened: write `}}`".into(),
                    ));
                }
                '{' => {
                    let mut name = String::new();
                    loop {
                        match rest.next() {
                            Some((_, '}')) => break,
                            Some((_, c)) => name.push(c),
                            None => {
                                let problem = "a brace is not closed: write `{{` for a brace";
                                return Err(error(at, problem.into()));
                            }
                        }
                    }
                    if !names.contains(&name.as_str()) {
                        let hint = nearest::hint(&name, names.iter().copied());
                        let known = names.join("}, {");
                        let problem = format!(
                            "`{{{name}}}` is unknown{hint} (there are {{{known}}}; `{{{{` is a brace)"
                        );
                        return Err(error(at, problem));
                    }
                    if !plain.is_empty() {
                        parts.push(Part::Text(std::mem::take(&mut plain)));
                    }
                    parts.push(Part::Name(name));
                }
                c => plain.push(c),
            }
        }
        if !plain.is_empty() {
            parts.push(Part::Text(plain));
        }
        Ok(Self {
            text: text.to_owned(),
            parts,
        })
    }

    /// The names that occur.
    pub(crate) fn names(&self) -> impl Iterator<Item = &str> {
        self.parts.iter().filter_map(|part| match part {
            Part::Name(name) => Some(name.as_str()),
            Part::Text(_) => None,
        })
    }

    /// The text with values in their places.
    pub(crate) fn fill(&self, value: &dyn Fn(&str) -> String) -> String {
        let parts = self.parts.iter().map(|part| match part {
            Part::Text(text) => text.clone(),
            Part::Name(name) => value(name),
        });
        parts.collect()
    }

    /// As an argument: none if it is nothing but a value, and that is empty. So `""` among the values of a switch means "without".
    pub(crate) fn argument(&self, value: &dyn Fn(&str) -> String) -> Option<String> {
        let filled = self.fill(value);
        let only_a_value = matches!(self.parts.as_slice(), [Part::Name(_)]);
        (!(filled.is_empty() && only_a_value)).then_some(filled)
    }
}

impl fmt::Display for Template {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.text)
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn fill(text: &str) -> Option<String> {
        let template = Template::parse(text, &["tile", "flag"]).unwrap();
        template.argument(&|name| match name {
            "tile" => "32".into(),
            _ => String::new(),
        })
    }

    #[test]
    fn values_take_the_places_of_names() {
        assert_eq!(fill("-DT={tile}x{tile}").as_deref(), Some("-DT=32x32"));
        assert_eq!(fill("{{tile}} {{}}").as_deref(), Some("{tile} {}"));
        assert_eq!(fill("{flag}"), None);
        assert_eq!(fill("-{flag}").as_deref(), Some("-"));
        assert_eq!(fill("").as_deref(), Some(""));
    }

    #[test]
    fn what_is_wrong_is_said_with_its_place() {
        let problem = |text: &str| Template::parse(text, &["tile", "work"]).unwrap_err();
        let unknown = problem("é-D{tiel}");
        assert_eq!(unknown.at, 3);
        assert!(
            unknown.to_string().contains("did you mean `tile`?"),
            "{unknown}"
        );
        assert!(unknown.to_string().contains("at character 4"), "{unknown}");
        assert_eq!(problem("ab{tile").at, 2);
        assert_eq!(problem("a}b").at, 1);
    }

    proptest! {
        #[test]
        fn doubled_braces_are_braces(text in "[a-z{}]{0,20}") {
            let doubled = text.replace('{', "{{").replace('}', "}}");
            let template = Template::parse(&doubled, &["tile"]).unwrap();
            prop_assert_eq!(template.fill(&|_| "32".into()), text);
        }

        #[test]
        fn no_text_is_too_strange(text in "\\PC{0,40}") {
            let _ = Template::parse(&text, &["tile"]);
        }
    }
}
