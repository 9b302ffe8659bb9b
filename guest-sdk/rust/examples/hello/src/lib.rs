use starling_tool::{object, tools, Error};

object! {
    struct Input {
        /// Whom to greet
        name: String,
    }
    struct Output {
        greeting: String,
    }
}

fn hello(input: Input) -> Result<Output, Error> {
    Ok(Output { greeting: format!("Hello, {}.", input.name) })
}

tools! {
    /// Greets somebody by name.
    hello { idempotent: true },
}
