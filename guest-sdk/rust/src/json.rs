use std::fmt::{self, Write};
use std::ops::Index;
use std::str::FromStr;

use crate::Error;

/// A JSON value. Members keep their order. [`Value::parse`] reads one, and `to_string` writes it.
#[derive(Clone, Debug, PartialEq)]
pub enum Value {
    Null,
    Bool(bool),
    Integer(i128),
    Float(f64),
    String(String),
    Array(Vec<Value>),
    Object(Vec<(String, Value)>),
}

const NULL: Value = Value::Null;

impl Value {
    /// Reads a complete document.
    pub fn parse(text: &str) -> Result<Value, Error> {
        let mut parser = Parser { text, at: 0 };
        let value = parser.value(0)?;
        parser.skip();
        if parser.at < text.len() {
            return Err(parser.wrong("the end"));
        }
        Ok(value)
    }

    /// Returns an object with these members.
    pub fn object<K: Into<String>, V: Into<Value>>(members: impl IntoIterator<Item = (K, V)>) -> Value {
        Value::Object(members.into_iter().map(|(key, value)| (key.into(), value.into())).collect())
    }

    /// Returns the member of an object, if there is one.
    pub fn get(&self, name: &str) -> Option<&Value> {
        self.as_object()?.iter().find(|(key, _)| key == name).map(|(_, value)| value)
    }

    pub fn is_null(&self) -> bool {
        *self == NULL
    }

    pub fn as_bool(&self) -> Option<bool> {
        match self {
            Value::Bool(value) => Some(*value),
            _ => None,
        }
    }

    /// Returns an integer. `5.0` is one.
    pub fn as_i64(&self) -> Option<i64> {
        i64::try_from(self.as_integer()?).ok()
    }

    pub(crate) fn as_integer(&self) -> Option<i128> {
        match self {
            Value::Integer(value) => Some(*value),
            Value::Float(value) if value.trunc() == *value && value.abs() < 1e30 => Some(*value as i128),
            _ => None,
        }
    }

    pub fn as_f64(&self) -> Option<f64> {
        match self {
            Value::Integer(value) => Some(*value as f64),
            Value::Float(value) => Some(*value),
            _ => None,
        }
    }

    pub fn as_str(&self) -> Option<&str> {
        match self {
            Value::String(value) => Some(value),
            _ => None,
        }
    }

    pub fn as_array(&self) -> Option<&[Value]> {
        match self {
            Value::Array(value) => Some(value),
            _ => None,
        }
    }

    pub fn as_object(&self) -> Option<&[(String, Value)]> {
        match self {
            Value::Object(value) => Some(value),
            _ => None,
        }
    }
}

/// `value["name"]` is the member, or `Null`.
impl Index<&str> for Value {
    type Output = Value;

    fn index(&self, name: &str) -> &Value {
        self.get(name).unwrap_or(&NULL)
    }
}

/// `value[0]` is the item, or `Null`.
impl Index<usize> for Value {
    type Output = Value;

    fn index(&self, at: usize) -> &Value {
        self.as_array().and_then(|items| items.get(at)).unwrap_or(&NULL)
    }
}

impl FromStr for Value {
    type Err = Error;

    fn from_str(text: &str) -> Result<Self, Error> {
        Value::parse(text)
    }
}

macro_rules! from_integers {
    ($($type:ty)*) => {$(
        impl From<$type> for Value {
            fn from(value: $type) -> Self {
                Value::Integer(value as i128)
            }
        }
    )*};
}
from_integers!(i8 i16 i32 i64 isize u8 u16 u32 u64 usize);

impl From<f64> for Value {
    fn from(value: f64) -> Self {
        Value::Float(value)
    }
}

impl From<bool> for Value {
    fn from(value: bool) -> Self {
        Value::Bool(value)
    }
}

impl From<&str> for Value {
    fn from(value: &str) -> Self {
        Value::String(value.into())
    }
}

impl From<String> for Value {
    fn from(value: String) -> Self {
        Value::String(value)
    }
}

impl<T: Into<Value>> From<Vec<T>> for Value {
    fn from(items: Vec<T>) -> Self {
        Value::Array(items.into_iter().map(Into::into).collect())
    }
}

impl<T: Into<Value>, const N: usize> From<[T; N]> for Value {
    fn from(items: [T; N]) -> Self {
        Value::Array(items.into_iter().map(Into::into).collect())
    }
}

/// Writes the value as JSON, without spaces. A number that JSON does not have is null.
impl fmt::Display for Value {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Value::Null => f.write_str("null"),
            Value::Bool(value) => write!(f, "{}", value),
            Value::Integer(value) => write!(f, "{}", value),
            Value::Float(value) if !value.is_finite() => f.write_str("null"),
            Value::Float(value) if *value == 0.0 || (1e-5..1e17).contains(&value.abs()) => write!(f, "{}", value),
            Value::Float(value) => write!(f, "{:e}", value),
            Value::String(value) => write_string(f, value),
            Value::Array(items) => {
                f.write_char('[')?;
                for (i, item) in items.iter().enumerate() {
                    f.write_str(if i > 0 { "," } else { "" })?;
                    item.fmt(f)?;
                }
                f.write_char(']')
            }
            Value::Object(members) => {
                f.write_char('{')?;
                for (i, (name, value)) in members.iter().enumerate() {
                    f.write_str(if i > 0 { "," } else { "" })?;
                    write_string(f, name)?;
                    f.write_char(':')?;
                    value.fmt(f)?;
                }
                f.write_char('}')
            }
        }
    }
}

fn write_string(f: &mut fmt::Formatter<'_>, text: &str) -> fmt::Result {
    f.write_char('"')?;
    let mut from = 0;
    for (i, byte) in text.bytes().enumerate() {
        if byte >= 0x20 && byte != b'"' && byte != b'\\' {
            continue;
        }
        f.write_str(&text[from..i])?;
        match byte {
            b'"' => f.write_str("\\\"")?,
            b'\\' => f.write_str("\\\\")?,
            b'\n' => f.write_str("\\n")?,
            _ => write!(f, "\\u{:04x}", byte)?,
        }
        from = i + 1;
    }
    f.write_str(&text[from..])?;
    f.write_char('"')
}

/// Values are nested no deeper than this.
const MAX_DEPTH: usize = 500;

struct Parser<'a> {
    text: &'a str,
    at: usize,
}

impl Parser<'_> {
    fn peek(&self) -> u8 {
        *self.text.as_bytes().get(self.at).unwrap_or(&0)
    }

    fn skip(&mut self) {
        while matches!(self.peek(), b' ' | b'\n' | b'\t' | b'\r') {
            self.at += 1
        }
    }

    fn wrong(&self, wanted: &str) -> Error {
        Error::new(format!("JSON: byte {} is not {}", self.at, wanted))
    }

    fn word(&mut self, word: &str, value: Value) -> Result<Value, Error> {
        if !self.text[self.at..].starts_with(word) {
            return Err(self.wrong("a value"));
        }
        self.at += word.len();
        Ok(value)
    }

    fn value(&mut self, depth: usize) -> Result<Value, Error> {
        self.skip();
        if depth > MAX_DEPTH {
            return Err(Error::new(format!("JSON: values are nested deeper than {}", MAX_DEPTH)));
        }
        match self.peek() {
            b'{' => {
                let mut members = Vec::new();
                while self.more(members.is_empty(), b'}')? {
                    self.skip();
                    let name = self.string()?;
                    self.skip();
                    if self.peek() != b':' {
                        return Err(self.wrong("a colon"));
                    }
                    self.at += 1;
                    members.push((name, self.value(depth + 1)?));
                }
                Ok(Value::Object(members))
            }
            b'[' => {
                let mut items = Vec::new();
                while self.more(items.is_empty(), b']')? {
                    items.push(self.value(depth + 1)?);
                }
                Ok(Value::Array(items))
            }
            b'"' => self.string().map(Value::String),
            b't' => self.word("true", Value::Bool(true)),
            b'f' => self.word("false", Value::Bool(false)),
            b'n' => self.word("null", Value::Null),
            _ => self.number(),
        }
    }

    /// Steps over the opening bracket or a comma, or over the end, and reports whether an
    /// item follows.
    fn more(&mut self, first: bool, end: u8) -> Result<bool, Error> {
        self.at += first as usize;
        self.skip();
        if self.peek() == end {
            self.at += 1;
            return Ok(false);
        }
        if !first {
            if self.peek() != b',' {
                return Err(self.wrong("a comma or the end of the list"));
            }
            self.at += 1;
        }
        Ok(true)
    }

    fn number(&mut self) -> Result<Value, Error> {
        let from = self.at;
        let digits = |parser: &mut Self| {
            let from = parser.at;
            while parser.peek().is_ascii_digit() {
                parser.at += 1
            }
            if parser.at > from { Ok(()) } else { Err(parser.wrong("a value")) }
        };
        self.at += (self.peek() == b'-') as usize;
        let leading = self.peek() == b'0';
        let start = self.at;
        digits(self)?;
        if leading && self.at > start + 1 {
            self.at = start + 1;
            return Err(self.wrong("part of a number"));
        }
        let mut integer = true;
        if self.peek() == b'.' {
            integer = false;
            self.at += 1;
            digits(self)?;
        }
        if matches!(self.peek(), b'e' | b'E') {
            integer = false;
            self.at += 1;
            self.at += matches!(self.peek(), b'+' | b'-') as usize;
            digits(self)?;
        }
        let text = &self.text[from..self.at];
        if let (true, Ok(value)) = (integer, text.parse()) {
            return Ok(Value::Integer(value));
        }
        Ok(Value::Float(text.parse()?))
    }

    fn string(&mut self) -> Result<String, Error> {
        if self.peek() != b'"' {
            return Err(self.wrong("a string"));
        }
        self.at += 1;
        let mut out = String::new();
        loop {
            let from = self.at;
            while self.peek() >= 0x20 && self.peek() != b'"' && self.peek() != b'\\' {
                self.at += 1
            }
            out.push_str(&self.text[from..self.at]);
            match self.peek() {
                b'"' => {
                    self.at += 1;
                    return Ok(out);
                }
                b'\\' => out.push(self.escape()?),
                _ => return Err(self.wrong("part of a string")),
            }
        }
    }

    fn escape(&mut self) -> Result<char, Error> {
        self.at += 1;
        let byte = self.peek();
        self.at += 1;
        Ok(match byte {
            b'"' | b'\\' | b'/' => byte as char,
            b'b' => '\u{8}',
            b'f' => '\u{c}',
            b'n' => '\n',
            b'r' => '\r',
            b't' => '\t',
            b'u' => {
                let unit = self.hex()?;
                if (0xd800..0xdc00).contains(&unit) && self.text[self.at..].starts_with("\\u") {
                    let before = self.at;
                    self.at += 2;
                    let low = self.hex()?;
                    if (0xdc00..0xe000).contains(&low) {
                        let code = 0x10000 + ((unit - 0xd800) << 10) + (low - 0xdc00);
                        return Ok(char::from_u32(code).unwrap_or('\u{fffd}'));
                    }
                    self.at = before;
                }
                char::from_u32(unit).unwrap_or('\u{fffd}') // half of a pair is no character
            }
            _ => {
                self.at -= 1;
                return Err(self.wrong("an escape"));
            }
        })
    }

    fn hex(&mut self) -> Result<u32, Error> {
        match self.text.as_bytes().get(self.at..self.at + 4) {
            Some(digits) if digits.iter().all(u8::is_ascii_hexdigit) => {
                let unit = u32::from_str_radix(&self.text[self.at..self.at + 4], 16)?;
                self.at += 4;
                Ok(unit)
            }
            _ => Err(self.wrong("a hexadecimal digit")),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reads_and_writes() {
        for (text, want) in [
            (r#" {"a": [1, -2.5, "b\n\u00e9\ud83d\ude00\ud800x", true, null, {}] } "#, "{\"a\":[1,-2.5,\"b\\né😀\u{fffd}x\",true,null,{}]}"),
            ("[]", "[]"),
            ("1.0", "1"),
            ("18446744073709551615", "18446744073709551615"),
            ("1e300", "1e300"),
            (r#""\u0000\"\\\/""#, r#""\u0000\"\\/""#),
        ] {
            assert_eq!(Value::parse(text).unwrap().to_string(), want, "{}", text);
        }
    }

    #[test]
    fn refuses() {
        for text in ["", "[1,]", "{\"a\":1,}", "{a:1}", "01", "1.", "-", "nul", "\"\u{1}\"", "\"\\x\"", "\"\\u12\"", "[1 2]", "1 2", "+1", "\"", "[", "{", "\"\\", "{\"a\"", ",1"] {
            assert!(Value::parse(text).is_err(), "{:?}", text);
        }
        assert!(Value::parse(&"[".repeat(100_000)).is_err());
    }

    #[test]
    fn indexes() {
        let value = Value::parse(r#"{"a":[{"b":5.0}]}"#).unwrap();
        assert_eq!(value["a"][0]["b"].as_i64(), Some(5));
        assert!(value["x"][3]["y"].is_null());
    }
}
