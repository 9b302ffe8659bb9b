//! A tool whose types derive serde's traits.

use serde::{Deserialize, Serialize};
use starling_tool::{serde_types, tools, Error};

#[derive(Deserialize, Serialize)]
#[serde(rename_all = "camelCase")]
struct Input {
    first_name: String,
    #[serde(default)]
    times: u8,
}

#[derive(Deserialize, Serialize)]
#[serde(tag = "kind", rename_all = "lowercase")]
enum Output {
    Greeting { text: String },
}

serde_types! {
    Input = r#"{"type":"object","properties":{"firstName":{"type":"string"},"times":{"type":"integer"}},"required":["firstName"]}"#,
    Output,
}

fn greet(input: Input) -> Result<Output, Error> {
    Ok(Output::Greeting { text: format!("Hello, {} {}.", input.first_name, input.times) })
}

tools! {
    /// Greets.
    greet,
}

#[test]
fn greets() {
    let output = starling_tool::testing::Host::default().call(starling_tools(), "greet", r#"{"firstName":"Ada","times":2}"#);
    assert_eq!(output.unwrap(), r#"{"kind":"greeting","text":"Hello, Ada 2."}"#);
}
