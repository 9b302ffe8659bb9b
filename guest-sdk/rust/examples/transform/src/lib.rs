use std::collections::BTreeMap;

use starling_tool::{object, tools, Error};

object! {
    struct Input {
        text: String,
    }
    struct Output {
        words: u32,
        upper: String,
        counts: BTreeMap<String, u32>,
    }
}

fn transform(input: Input) -> Result<Output, Error> {
    let mut counts = BTreeMap::new();
    for word in input.text.split(|c: char| !c.is_ascii_alphanumeric()).filter(|word| !word.is_empty()) {
        *counts.entry(word.to_ascii_lowercase()).or_insert(0) += 1;
    }
    Ok(Output { words: counts.values().sum(), upper: input.text.to_ascii_uppercase(), counts })
}

tools! {
    /// Counts the words of a text, and writes it in capital letters.
    transform { idempotent: true },
}
