//! Words to a tree, by recursive descent; the functions stand in the order in which operators bind, the weakest first.

use super::ExpressionError;
use super::evaluate::{Arithmetic, Comparison, Function, Node, Scalar};
use super::scan::{Kind, Token, scan};
use crate::nearest;
use crate::space::Value;

/// Parentheses within parentheses at most.
const DEEPEST: usize = 64;

/// What a word of the language means cannot be the name of a parameter.
const RESERVED: [&str; 6] = ["and", "or", "not", "in", "if", "else"];

pub(super) fn parse(text: &str, names: &[&str]) -> Result<Node, ExpressionError> {
    let error = |(at, problem): (usize, String)| ExpressionError {
        text: text.to_owned(),
        at,
        problem,
    };
    let tokens = scan(text).map_err(error)?;
    let mut parser = Parser {
        tokens: &tokens,
        next: 0,
        names,
        depth: 0,
    };
    let whole = parser.either().and_then(|node| match parser.peek() {
        Kind::End => Ok(node),
        _ => Err(parser.unexpected("an operator")),
    });
    whole.map_err(error)
}

type Parsed = Result<Node, (usize, String)>;

struct Parser<'a> {
    tokens: &'a [Token],
    next: usize,
    names: &'a [&'a str],
    depth: usize,
}

impl Parser<'_> {
    fn peek(&self) -> &Kind {
        // The last word is the end, and nothing steps over it.
        &self.tokens[self.next.min(self.tokens.len() - 1)].kind
    }

    fn at(&self) -> usize {
        self.tokens[self.next.min(self.tokens.len() - 1)].at
    }

    fn take_sign(&mut self, signs: &[&str]) -> Option<&'static str> {
        match self.peek() {
            Kind::Sign(sign) if signs.contains(sign) => {
                let sign = *sign;
                self.next += 1;
                Some(sign)
            }
            _ => None,
        }
    }

    fn take_word(&mut self, word: &str) -> bool {
        let there = matches!(self.peek(), Kind::Word(found) if found == word);
        self.next += usize::from(there);
        there
    }

    fn unexpected(&self, wanted: &str) -> (usize, String) {
        let found = match self.peek() {
            Kind::End => "the end".to_owned(),
            Kind::Int(number) => format!("`{number}`"),
            Kind::Float(number) => format!("`{number}`"),
            Kind::Text(text) => format!("`'{text}'`"),
            Kind::Word(word) => format!("`{word}`"),
            Kind::Sign(sign) => format!("`{sign}`"),
        };
        (self.at(), format!("{wanted} belongs here, not {found},"))
    }

    /// One level deeper, up to a limit.
    fn nested(&mut self, parse: impl FnOnce(&mut Self) -> Parsed) -> Parsed {
        if self.depth == DEEPEST {
            return Err((self.at(), format!("nested deeper than {DEEPEST} levels")));
        }
        self.depth += 1;
        let parsed = parse(self);
        self.depth -= 1;
        parsed
    }

    fn either(&mut self) -> Parsed {
        let mut parts = vec![self.both()?];
        while self.take_word("or") {
            parts.push(self.both()?);
        }
        Ok(single_or(parts, Node::Any))
    }

    fn both(&mut self) -> Parsed {
        let mut parts = vec![self.negation()?];
        while self.take_word("and") {
            parts.push(self.negation()?);
        }
        Ok(single_or(parts, Node::All))
    }

    fn negation(&mut self) -> Parsed {
        if self.take_word("not") {
            let inner = self.nested(Self::negation)?;
            return Ok(Node::Not(Box::new(inner)));
        }
        self.comparison()
    }

    fn comparison(&mut self) -> Parsed {
        let first = self.sum()?;
        let mut rest = Vec::new();
        loop {
            if let Some(sign) = self.take_sign(&["==", "!=", "<=", ">=", "<", ">"]) {
                rest.push((Comparison::of(sign), self.sum()?));
                continue;
            }
            let negated = self.take_word("not");
            if self.take_word("in") {
                let among = self.members()?;
                // `a < b in (c, d)` would mean `a < b and b in (c, d)`: nobody writes it, nobody reads it right.
                if !rest.is_empty() {
                    return Err((
                        self.at(),
                        "`in` after a comparison: use parentheses".to_owned(),
                    ));
                }
                let found = Node::Among(Box::new(first), among);
                return Ok(match negated {
                    true => Node::Not(Box::new(found)),
                    false => found,
                });
            }
            if negated {
                return Err(self.unexpected("`in`"));
            }
            return Ok(match rest.is_empty() {
                true => first,
                false => Node::Compare(Box::new(first), rest),
            });
        }
    }

    fn members(&mut self) -> Result<Vec<Node>, (usize, String)> {
        let close = match self.take_sign(&["(", "[", "{"]) {
            Some("(") => ")",
            Some("[") => "]",
            Some(_) => "}",
            None => return Err(self.unexpected("a list in parentheses")),
        };
        self.list(close)
    }

    /// Expressions up to a sign; a comma may follow the last.
    fn list(&mut self, close: &'static str) -> Result<Vec<Node>, (usize, String)> {
        let mut nodes = Vec::new();
        loop {
            if self.take_sign(&[close]).is_some() {
                return Ok(nodes);
            }
            nodes.push(self.nested(Self::either)?);
            if self.take_sign(&[","]).is_none()
                && !matches!(self.peek(), Kind::Sign(sign) if *sign == close)
            {
                return Err(self.unexpected(&format!("`,` or `{close}`")));
            }
        }
    }

    fn sum(&mut self) -> Parsed {
        let mut left = self.product()?;
        while let Some(sign) = self.take_sign(&["+", "-"]) {
            let right = self.product()?;
            left = Node::Compute(Arithmetic::of(sign), Box::new((left, right)));
        }
        Ok(left)
    }

    fn product(&mut self) -> Parsed {
        let mut left = self.signed()?;
        while let Some(sign) = self.take_sign(&["*", "/", "//", "%"]) {
            let right = self.signed()?;
            left = Node::Compute(Arithmetic::of(sign), Box::new((left, right)));
        }
        Ok(left)
    }

    fn signed(&mut self) -> Parsed {
        match self.take_sign(&["-", "+"]) {
            Some("-") => Ok(Node::Negative(Box::new(self.nested(Self::signed)?))),
            Some(_) => self.nested(Self::signed),
            None => self.power(),
        }
    }

    /// `**` binds to the right, and more tightly than a sign before it, less than one after it.
    fn power(&mut self) -> Parsed {
        let base = self.atom()?;
        if self.take_sign(&["**"]).is_none() {
            return Ok(base);
        }
        let exponent = self.nested(Self::signed)?;
        Ok(Node::Compute(Arithmetic::Power, Box::new((base, exponent))))
    }

    fn atom(&mut self) -> Parsed {
        let at = self.at();
        let node = match self.peek() {
            Kind::Int(number) => Node::Literal(Value::Int(*number)),
            Kind::Float(number) => Node::Literal(Value::Float(*number)),
            Kind::Text(text) => Node::Literal(Value::Text(text.clone())),
            Kind::Word(word) => {
                let word = word.clone();
                return self.word(&word, at);
            }
            Kind::Sign("(") => {
                self.next += 1;
                let inner = self.nested(Self::either)?;
                if self.take_sign(&[")"]).is_none() {
                    return Err(self.unexpected("`)`"));
                }
                return Ok(inner);
            }
            _ => return Err(self.unexpected("a value")),
        };
        self.next += 1;
        Ok(node)
    }

    fn word(&mut self, word: &str, at: usize) -> Parsed {
        if RESERVED.contains(&word) {
            return Err(self.unexpected("a value"));
        }
        self.next += 1;
        if let Some(slot) = self.names.iter().position(|name| *name == word) {
            return Ok(Node::Name(slot));
        }
        match word {
            "True" | "true" => return Ok(Node::Literal(Value::Bool(true))),
            "False" | "false" => return Ok(Node::Literal(Value::Bool(false))),
            _ => {}
        }
        if let Some(function) = Function::of(word) {
            if self.take_sign(&["("]).is_none() {
                return Err(self.unexpected("`(`"));
            }
            let arguments = self.list(")")?;
            return match function.takes(arguments.len()) {
                true => Ok(Node::Call(function, arguments)),
                false => Err((at, format!("`{word}` of {} values", arguments.len()))),
            };
        }
        let known = self.names.iter().copied().chain(Function::NAMES);
        let hint = nearest::hint(word, known);
        Err((at, format!("no parameter is called `{word}`{hint}")))
    }
}

fn single_or(mut parts: Vec<Node>, join: impl FnOnce(Vec<Node>) -> Node) -> Node {
    match parts.len() {
        1 => parts.swap_remove(0),
        _ => join(parts),
    }
}

impl<'a> From<&'a Value> for Scalar<'a> {
    fn from(value: &'a Value) -> Self {
        match value {
            Value::Bool(yes) => Self::Bool(*yes),
            Value::Int(number) => Self::Int(*number),
            Value::Float(number) => Self::Float(*number),
            Value::Text(text) => Self::Text(text),
        }
    }
}
