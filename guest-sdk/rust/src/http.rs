//! HTTP requests. The policy of the caller decides which of them may leave.

use std::time::Duration;

use crate::{host, Error, Type, Value};

/// Why a request had no response.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Reason {
    /// The policy does not allow the request.
    Denied,
    /// The connection failed, or the peer broke the protocol.
    Network,
    /// The exchange took too long.
    Timeout,
    /// The request or the response is too large.
    TooLarge,
    /// The request is malformed.
    Malformed,
}

const REASONS: [Reason; 5] = [Reason::Denied, Reason::Network, Reason::Timeout, Reason::TooLarge, Reason::Malformed];

impl Reason {
    /// Returns the name that the contract between host and guest gives the reason.
    pub fn name(self) -> &'static str {
        ["denied", "network", "timeout", "too_large", "malformed"][self as usize]
    }
}

/// A request that [`Request::send`] sends.
#[derive(Clone, Debug)]
pub struct Request {
    pub method: String,
    /// The address. Characters other than printable ASCII are percent-encoded.
    pub url: String,
    pub headers: Vec<(String, String)>,
    pub body: Vec<u8>,
    retries: u32,
}

/// Starts a GET request.
pub fn get(url: impl Into<String>) -> Request {
    request("GET", url)
}

/// Starts a POST request.
pub fn post(url: impl Into<String>, body: impl Into<Vec<u8>>) -> Request {
    request("POST", url).body(body)
}

/// Starts a request with any method.
pub fn request(method: &str, url: impl Into<String>) -> Request {
    Request { method: method.into(), url: url.into(), headers: Vec::new(), body: Vec::new(), retries: 0 }
}

impl Request {
    pub fn header(mut self, name: &str, value: impl Into<String>) -> Self {
        self.headers.push((name.into(), value.into()));
        self
    }

    pub fn body(mut self, body: impl Into<Vec<u8>>) -> Self {
        self.body = body.into();
        self
    }

    /// Sends a JSON document.
    pub fn json(self, value: &impl Type) -> Self {
        self.header("Content-Type", "application/json").body(value.to_json().to_string())
    }

    /// Gives the exchange its name in the record.
    pub fn effect(self, name: impl Into<String>) -> Self {
        self.header("Starling-Effect", name)
    }

    /// Bounds the time of one exchange.
    pub fn timeout(self, timeout: Duration) -> Self {
        self.header("Starling-Timeout", timeout.as_millis().to_string())
    }

    /// Sends the request up to `times` more if the connection fails, takes too long, or the
    /// status is 429, 502, 503 or 504. The next request leaves at once. If the method is not
    /// GET or HEAD, make sure that the server tolerates repeats.
    pub fn retries(mut self, times: u32) -> Self {
        self.retries = times;
        self
    }

    /// Makes the exchange. Redirects are responses like any other.
    pub fn send(&self) -> Result<Response, Error> {
        let message = self.message()?;
        let mut left = self.retries;
        loop {
            let result = exchange(&message, self.method == "HEAD");
            let again = match &result {
                Ok(response) => matches!(response.status, 429 | 502 | 503 | 504),
                Err(error) => matches!(error.http, Some(Reason::Network | Reason::Timeout)),
            };
            if left == 0 || !again {
                return result;
            }
            left -= 1;
        }
    }

    fn message(&self) -> Result<Vec<u8>, Error> {
        let malformed = |text: String| Error::from_http(Reason::Malformed, text);
        let mut url = String::with_capacity(self.url.len());
        for byte in self.url.split('#').next().unwrap_or("").bytes() {
            match byte {
                b'!'..=b'~' => url.push(byte as char),
                _ => url.push_str(&format!("%{:02X}", byte)),
            }
        }
        let mut head = format!("{} {} HTTP/1.1\r\n", self.method, url);
        for (name, value) in &self.headers {
            if name.is_empty() || !name.bytes().all(|b| b.is_ascii_graphic() && b != b':') || value.bytes().any(|b| b < 0x20 && b != b'\t' || b == 0x7f) {
                return Err(malformed(format!("the header {:?} has a character that it must not have", name)));
            }
            head.push_str(&format!("{}: {}\r\n", name, value));
        }
        if self.method.is_empty() || !self.method.bytes().all(|b| b.is_ascii_alphabetic()) {
            return Err(malformed(format!("the method {:?} is not a word", self.method)));
        }
        if !self.body.is_empty() || matches!(self.method.as_str(), "POST" | "PUT" | "PATCH") {
            head.push_str(&format!("Content-Length: {}\r\n", self.body.len()));
        }
        head.push_str("\r\n");
        let mut message = head.into_bytes();
        message.extend_from_slice(&self.body);
        Ok(message)
    }
}

pub(crate) fn exchange(message: &[u8], head_only: bool) -> Result<Response, Error> {
    let answer = host::http(message).map_err(|(status, text)| {
        let reason = REASONS.get((-1 - status) as usize).copied().unwrap_or(Reason::Network);
        Error::from_http(reason, String::from_utf8_lossy(&text))
    })?;
    Response::read(&answer, head_only).ok_or_else(|| Error::from_http(Reason::Network, "the response is not in the form of HTTP"))
}

/// A response.
#[derive(Clone, Debug, PartialEq)]
pub struct Response {
    pub status: u16,
    pub headers: Vec<(String, String)>,
    pub body: Vec<u8>,
}

impl Response {
    fn read(answer: &[u8], head_only: bool) -> Option<Response> {
        let end = answer.windows(4).position(|four| four == b"\r\n\r\n")?;
        let head = String::from_utf8_lossy(&answer[..end]);
        let mut lines = head.split("\r\n");
        let mut words = lines.next()?.splitn(3, ' ');
        if !words.next()?.starts_with("HTTP/") {
            return None;
        }
        let status = words.next()?.parse().ok()?;
        let headers = lines.map(|line| line.split_once(':').map(|(name, value)| (name.to_string(), value.trim().to_string())));
        let response = Response { status, headers: headers.collect::<Option<_>>()?, body: answer[end + 4..].to_vec() };
        let length = response.header("Content-Length").map_or(Ok(response.body.len()), str::parse);
        let whole = head_only || status == 304 || length == Ok(response.body.len());
        Some(response).filter(|_| whole)
    }

    /// Reports whether the status is from 200 to 299.
    pub fn ok(&self) -> bool {
        (200..300).contains(&self.status)
    }

    /// Returns the first header with this name, in any case.
    pub fn header(&self, name: &str) -> Option<&str> {
        self.headers.iter().find(|(key, _)| key.eq_ignore_ascii_case(name)).map(|(_, value)| value.as_str())
    }

    /// Returns the body as text. Bytes that are not UTF-8 become U+FFFD.
    pub fn text(&self) -> String {
        String::from_utf8_lossy(&self.body).into_owned()
    }

    /// Reads the body as JSON into a [`Type`], for instance a [`Value`].
    pub fn json<T: Type>(&self) -> Result<T, Error> {
        T::from_json(&Value::parse(&self.text())?)
    }
}

/// Returns text as one segment of a path, or as a value of a query: all but letters, digits
/// and `-._~` is percent-encoded.
pub fn escape(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    for byte in text.bytes() {
        match byte {
            b'a'..=b'z' | b'A'..=b'Z' | b'0'..=b'9' | b'-' | b'.' | b'_' | b'~' => out.push(byte as char),
            _ => out.push_str(&format!("%{:02X}", byte)),
        }
    }
    out
}
