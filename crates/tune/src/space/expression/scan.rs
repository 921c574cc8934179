//! Text to words.

/// A word and where it begins, in characters.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct Token {
    pub(super) kind: Kind,
    pub(super) at: usize,
}

#[derive(Debug, Clone, PartialEq)]
pub(super) enum Kind {
    Int(i64),
    Float(f64),
    Text(String),
    /// A name or a word of the language.
    Word(String),
    Sign(&'static str),
    End,
}

/// The longer sign comes first where one begins with another.
const SIGNS: [&str; 20] = [
    "**", "//", "==", "!=", "<=", ">=", "<", ">", "+", "-", "*", "/", "%", "(", ")", "[", "]", ",",
    "{", "}",
];

/// Words at most: nesting on the left is as deep as a chain of operators is long.
const LONGEST: usize = 2_000;

pub(super) fn scan(text: &str) -> Result<Vec<Token>, (usize, String)> {
    let chars: Vec<char> = text.chars().collect();
    let mut tokens = Vec::new();
    let mut at = 0;
    while let Some(&first) = chars.get(at) {
        if first.is_whitespace() {
            at += 1;
            continue;
        }
        if tokens.len() == LONGEST {
            return Err((at, format!("more than {LONGEST} words")));
        }
        let begin = at;
        let kind = if first.is_ascii_digit() || first == '.' {
            number(&chars, &mut at)?
        } else if first.is_alphabetic() || first == '_' {
            while chars
                .get(at)
                .is_some_and(|c| c.is_alphanumeric() || *c == '_')
            {
                at += 1;
            }
            Kind::Word(chars[begin..at].iter().collect())
        } else if first == '\'' || first == '"' {
            let length = chars[at + 1..].iter().position(|c| *c == first);
            let length = length.ok_or_else(|| (begin, format!("no closing {first}")))?;
            at += length + 2;
            Kind::Text(chars[begin + 1..at - 1].iter().collect())
        } else {
            let rest: String = chars[at..].iter().take(2).collect();
            let sign = SIGNS.into_iter().find(|sign| rest.starts_with(sign));
            let sign = sign.ok_or_else(|| (begin, unknown(&rest)))?;
            at += sign.len();
            Kind::Sign(sign)
        };
        tokens.push(Token { kind, at: begin });
    }
    tokens.push(Token {
        kind: Kind::End,
        at: chars.len(),
    });
    Ok(tokens)
}

fn number(chars: &[char], at: &mut usize) -> Result<Kind, (usize, String)> {
    let begin = *at;
    let mut whole = true;
    while let Some(&c) = chars.get(*at) {
        let exponent = matches!(chars.get(at.wrapping_sub(1)), Some('e' | 'E')) && !whole;
        match c {
            '0'..='9' => {}
            '.' | 'e' | 'E' => whole = false,
            '+' | '-' if exponent => {}
            _ => break,
        }
        *at += 1;
    }
    let text: String = chars[begin..*at].iter().collect();
    let wrong = || (begin, format!("`{text}` is not a number"));
    if whole && let Ok(number) = text.parse() {
        return Ok(Kind::Int(number));
    }
    let number = text.parse::<f64>().map_err(|_| wrong())?;
    Ok(Kind::Float(number))
}

fn unknown(rest: &str) -> String {
    match rest.chars().next() {
        Some('=') => "`=` sets nothing here: compare with `==`,".to_owned(),
        Some('&') => "`&` is unknown: write `and`,".to_owned(),
        Some('|') => "`|` is unknown: write `or`,".to_owned(),
        Some('!') => "`!` is unknown: write `not`,".to_owned(),
        first => format!("unknown sign `{}`", first.unwrap_or(' ')),
    }
}
