use std::fmt;
use std::time::Duration;

use crate::http::Reason;
use crate::Value;

/// What the host does about a failed call.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// The tool failed.
    Tool,
    /// Another attempt may succeed.
    Transient,
    /// Do not retry. The input is not at fault.
    Cancel,
    /// Do not retry. This input can never succeed.
    Discard,
    /// Retry after a delay, without using up an attempt.
    Snooze(Duration),
}

/// The failure of a tool. Every `std::error::Error` converts into one of [`Kind::Tool`] by `?`.
#[derive(Clone, Debug, PartialEq)]
pub struct Error {
    pub kind: Kind,
    /// The text that the caller sees.
    pub message: String,
    /// The reason, if an HTTP request had no response.
    pub http: Option<Reason>,
}

impl Error {
    fn of(kind: Kind, message: impl Into<String>) -> Self {
        Error { kind, message: message.into(), http: None }
    }

    /// A failure of the tool.
    pub fn new(message: impl Into<String>) -> Self {
        Error::of(Kind::Tool, message)
    }

    /// A failure after which another attempt may succeed.
    pub fn transient(message: impl Into<String>) -> Self {
        Error::of(Kind::Transient, message)
    }

    /// A final failure, for which the input is not at fault.
    pub fn cancel(message: impl Into<String>) -> Self {
        Error::of(Kind::Cancel, message)
    }

    /// A final failure: this input can never succeed.
    pub fn discard(message: impl Into<String>) -> Self {
        Error::of(Kind::Discard, message)
    }

    /// A temporary failure. The host retries after the delay.
    pub fn snooze(after: Duration, message: impl Into<String>) -> Self {
        Error::of(Kind::Snooze(after), message)
    }

    pub(crate) fn from_http(reason: Reason, text: impl fmt::Display) -> Self {
        let kind = match reason {
            Reason::Network | Reason::Timeout => Kind::Transient,
            Reason::Denied => Kind::Cancel,
            _ => Kind::Tool,
        };
        Error { kind, message: format!("http: {}: {}", reason.name(), text), http: Some(reason) }
    }

    pub(crate) fn to_json(&self) -> Value {
        let kind = match self.kind {
            Kind::Tool => "tool",
            Kind::Transient => "transient",
            Kind::Cancel => "cancel",
            Kind::Discard => "discard",
            Kind::Snooze(_) => "snooze",
        };
        let mut members = vec![("kind", Value::from(kind)), ("message", Value::from(self.message.as_str()))];
        if let Kind::Snooze(after) = self.kind {
            members.push(("retry_after_ms", Value::from(after.as_millis() as u64)));
        }
        Value::object(members)
    }
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.message)
    }
}

impl<E: std::error::Error> From<E> for Error {
    fn from(error: E) -> Self {
        Error::new(error.to_string())
    }
}
