//! The tools that spec/tck requires of an SDK.

use std::time::Duration;

use starling_tool::{call, http, now, object, random, tools, Error, Value};

object! {
    struct Failure {
        kind: String,
        message: String,
    }
    struct Fetch {
        url: String,
        method: Option<String>,
        body: Option<String>,
        effect: Option<String>,
    }
}

fn echo(input: Value) -> Result<Value, Error> {
    let call = call();
    Ok(Value::object([
        ("input", input),
        ("run_id", call.run_id.into()),
        ("call_id", call.call_id.into()),
        ("attempt", call.attempt.into()),
        ("variables", call.variables.unwrap_or(Value::Null)),
    ]))
}

fn fail(input: Failure) -> Result<Value, Error> {
    Err(match input.kind.as_str() {
        "transient" => Error::transient(input.message),
        "cancel" => Error::cancel(input.message),
        "discard" => Error::discard(input.message),
        "snooze" => Error::snooze(Duration::from_millis(1500), input.message),
        _ => Error::new(input.message),
    })
}

fn effects(_: ()) -> Result<Value, Error> {
    let now_ms = now().as_millis() as u64;
    Ok(Value::object([("now_ms", Value::from(now_ms)), ("random", random().to_string().into())]))
}

fn fetch(input: Fetch) -> Result<Value, Error> {
    let mut request = http::request(input.method.as_deref().unwrap_or("GET"), input.url);
    if let Some(body) = input.body {
        request = request.body(body);
    }
    if let Some(effect) = input.effect {
        request = request.effect(effect);
    }
    match request.send() {
        Ok(response) => Ok(Value::object([("status", Value::from(response.status)), ("body", response.text().into())])),
        Err(error) => match error.http {
            Some(reason) => Ok(Value::object([("failed", reason.name())])),
            None => Err(error),
        },
    }
}

const ANY: &str = r#"{"type":"object"}"#;

tools! {
    /// Returns its input and its context.
    echo { input_schema: ANY, output_schema: ANY },
    /// Fails as it is told.
    fail,
    /// Reads the clock and draws a random number.
    effects,
    /// Makes one request.
    fetch,
}
