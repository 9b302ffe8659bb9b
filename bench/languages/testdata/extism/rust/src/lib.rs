//! The transform of guest-sdk/rust/examples with the functions of Extism's kit and serde_json. They
//! are what the kit's plugin_fn calls.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

#[allow(dead_code)]
mod extism; // from the kit

#[derive(Deserialize)]
struct Input {
    text: String,
}

#[derive(Serialize)]
struct Output {
    words: u32,
    upper: String,
    counts: BTreeMap<String, u32>,
}

fn transform(input: Input) -> Output {
    let mut counts = BTreeMap::new();
    for word in input.text.split(|c: char| !c.is_ascii_alphanumeric()).filter(|word| !word.is_empty()) {
        *counts.entry(word.to_ascii_lowercase()).or_insert(0) += 1;
    }
    Output { words: counts.values().sum(), upper: input.text.to_ascii_uppercase(), counts }
}

#[no_mangle]
pub extern "C" fn run() -> i32 {
    let output = serde_json::from_slice(&unsafe { extism::load_input() }).and_then(|input| serde_json::to_vec(&transform(input)));
    match output {
        Ok(output) => unsafe {
            let at = extism::alloc(output.len() as u64);
            extism::store(at, &output);
            extism::output_set(at, output.len() as u64);
            0
        },
        Err(_) => 1,
    }
}
