//! Tests of tools: a host that a test describes. `cargo test` runs them without a module.
//!
//! ```
//! use starling_tool::{http, testing::Host, Error};
//!
//! fn status() -> Result<u16, Error> {
//!     Ok(http::get("https://api.example.com/").send()?.status)
//! }
//!
//! let host = Host { http: Box::new(|request| Ok(Host::response(204, &request.body))), ..Host::default() };
//! assert_eq!(host.run(status), Ok(204));
//! ```

use std::cell::RefCell;
use std::time::Duration;

use crate::http::{Reason, Request, Response};
use crate::{tool, Error, Tool, Value};

/// The host of a test.
pub struct Host {
    /// The time of day.
    pub now: Duration,
    /// The random bits.
    pub random: u64,
    /// Answers requests. By default there is no network.
    pub http: Box<Answer>,
    /// The context of a call.
    pub call: crate::Call,
}

type Answer = dyn Fn(&Request) -> Result<Response, (Reason, String)>;

impl Default for Host {
    fn default() -> Self {
        Host {
            now: Duration::from_secs(1_767_323_045),
            random: 4,
            http: Box::new(|request| Err((Reason::Denied, format!("the test answers no request: {}", request.url)))),
            call: crate::Call { run_id: "run".into(), call_id: "call".into(), attempt: 1, variables: None },
        }
    }
}

thread_local! {
    static HOST: RefCell<Option<Host>> = RefCell::new(None);
}

pub(crate) fn with<T>(use_host: impl FnOnce(&Host) -> T) -> T {
    HOST.with(|host| use_host(host.borrow().as_ref().expect("the test calls the tool outside of Host::run and Host::call")))
}

impl Host {
    /// Runs a function, such as a tool, with this host.
    pub fn run<T>(self, function: impl FnOnce() -> T) -> T {
        HOST.with(|host| *host.borrow_mut() = Some(self));
        function()
    }

    /// Calls a tool as the host does, from JSON to JSON: `Host::default().call(starling_tools(), "hello", r#"{"name":"Ada"}"#)`.
    pub fn call(self, tools: Vec<Tool>, name: &str, input: &str) -> Result<String, Error> {
        let (call, input) = (self.call.clone(), Value::parse(input)?);
        let mut context = vec![("run_id", call.run_id.into()), ("call_id", call.call_id.into()), ("attempt", call.attempt.into())];
        context.extend(call.variables.map(|variables| ("variables", variables)));
        let document = Value::object([("tool", name.into()), ("input", input), ("context", Value::object(context))]);
        let outcome = Value::parse(&self.run(|| tool::run(tools, &document.to_string())))?;
        match outcome.get("output") {
            Some(output) => Ok(output.to_string()),
            None => Err(Error::new(outcome["error"].to_string())),
        }
    }

    /// Returns a response with this status and body.
    pub fn response(status: u16, body: impl AsRef<[u8]>) -> Response {
        Response { status, headers: Vec::new(), body: body.as_ref().to_vec() }
    }
}

pub(crate) fn answer(message: &[u8]) -> Result<Vec<u8>, (i64, Vec<u8>)> {
    let end = message.windows(4).position(|four| four == b"\r\n\r\n").expect("a head");
    let head = String::from_utf8_lossy(&message[..end]);
    let mut lines = head.split("\r\n");
    let mut words = lines.next().unwrap_or("").split(' ');
    let mut request = crate::http::request(words.next().unwrap_or(""), words.next().unwrap_or("")).body(&message[end + 4..]);
    for (name, value) in lines.filter_map(|line| line.split_once(": ")) {
        request = request.header(name, value);
    }
    match with(|host| (host.http)(&request)) {
        Ok(response) => {
            let mut out = format!("HTTP/1.1 {}\r\n", response.status);
            for (name, value) in &response.headers {
                out.push_str(&format!("{}: {}\r\n", name, value));
            }
            Ok([out.as_bytes(), b"\r\n", &response.body].concat())
        }
        Err((reason, text)) => Err((-1 - reason as i64, text.into_bytes())),
    }
}
