//! A tool with everything, as a user of the crate writes it.

use std::collections::BTreeMap;
use std::time::Duration;

use starling_tool::http::{self, Reason};
use starling_tool::testing::Host;
use starling_tool::{call, call_tool, now, object, random, tools, Error, Type, Value};

object! {
    #[derive(Clone, Debug, PartialEq)]
    pub struct Input {
        /// What to do,
        /// in one word
        #[enum = ["time", "random", "get", "tool", "context", "parse"]]
        what: String,
        #[minimum = 1]
        r#type: Option<u8>,
        list: Option<Vec<f64>>,
    }

    struct Output {
        result: Value,
        left: Option<String>,
        counts: BTreeMap<String, u64>,
    }
}

fn everything(input: Input) -> Result<Output, Error> {
    let result: Value = match input.what.as_str() {
        "time" => (now().as_millis() as u64).into(),
        "random" => random().into(),
        "get" => http::get("https://h/é b#x").header("A", "b").effect("look").timeout(Duration::from_secs(2)).retries(2).send()?.json()?,
        "tool" => call_tool("dice", &())?,
        "context" => call().variables.unwrap_or(Value::Null),
        _ => "x".parse::<i32>().map(Value::from)?,
    };
    Ok(Output { result, left: None, counts: BTreeMap::from([("n".to_string(), input.r#type.unwrap_or(7).into())]) })
}

tools! {
    /// Does everything.
    everything { idempotent: true, effects: ["h"], limits: [("timeout_ms", 1000)] },
}

fn run(host: Host, input: &str) -> String {
    match host.call(starling_tools(), "everything", input) {
        Ok(output) => output,
        Err(error) => error.message,
    }
}

#[test]
fn calls() {
    for (input, want) in [
        (r#"{"what":"time"}"#, r#"{"result":1767323045000,"counts":{"n":7}}"#),
        (r#"{"what":"random","type":5.0}"#, r#"{"result":4,"counts":{"n":5}}"#),
        (r#"{"what":"context"}"#, r#"{"result":null,"counts":{"n":7}}"#),
        (r#"{"what":"parse"}"#, r#"{"kind":"tool","message":"invalid digit found in string"}"#),
        (r#"{"what":"parse","type":256}"#, r#"{"kind":"tool","message":"type: expected an integer (u8), got 256"}"#),
        (r#"{"what":"get"}"#, r#"{"kind":"cancel","message":"http: denied: the test answers no request: https://h/%C3%A9%20b"}"#),
    ] {
        assert_eq!(run(Host::default(), input), want, "{}", input);
    }
    let called = Host { http: Box::new(|request| Ok(Host::response(200, format!(r#"{{"output":{}}}"#, String::from_utf8_lossy(&request.body))))), ..Host::default() };
    assert_eq!(run(called, r#"{"what":"tool"}"#), r#"{"result":{"tool":"dice","input":{}},"counts":{"n":7}}"#);
}

#[test]
fn retries() {
    let tries = std::rc::Rc::new(std::cell::Cell::new(0));
    let seen = tries.clone();
    let host = Host {
        http: Box::new(move |request| {
            seen.set(seen.get() + 1);
            assert_eq!(request.headers[0], ("A".to_string(), "b".to_string()));
            match seen.get() {
                1 => Err((Reason::Timeout, "slow".into())),
                2 => Ok(Host::response(503, "")),
                _ => Ok(Host::response(200, "[1]")),
            }
        }),
        ..Host::default()
    };
    assert_eq!(run(host, r#"{"what":"get"}"#), r#"{"result":[1],"counts":{"n":7}}"#);
    assert_eq!(tries.get(), 3);
}

#[test]
fn schema() {
    assert_eq!(
        Input::schema().to_string(),
        concat!(
            r#"{"type":"object","properties":{"what":{"type":"string","description":"What to do, in one word","enum":["time","random","get","tool","context","parse"]},"#,
            r#""type":{"type":"integer","maximum":255,"minimum":1},"list":{"type":"array","items":{"type":"number"}}},"required":["what"],"additionalProperties":false}"#
        )
    );
}

#[test]
fn kinds() {
    fn fails(input: Input) -> Result<Value, Error> {
        Err(match input.what.as_str() {
            "transient" => Error::transient("busy"),
            "cancel" => Error::cancel("no"),
            "discard" => Error::discard("never"),
            _ => Error::snooze(Duration::from_millis(1500), "later"),
        })
    }
    for (what, want) in [
        ("transient", r#"{"kind":"transient","message":"busy"}"#),
        ("cancel", r#"{"kind":"cancel","message":"no"}"#),
        ("discard", r#"{"kind":"discard","message":"never"}"#),
        ("snooze", r#"{"kind":"snooze","message":"later","retry_after_ms":1500}"#),
    ] {
        let tool = starling_tool::Tool::new("everything", "", fails);
        assert_eq!(Host::default().call(vec![tool], "everything", &format!(r#"{{"what":"{}"}}"#, what)).unwrap_err().message, want);
    }
}
