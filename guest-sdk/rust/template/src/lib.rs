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

fn example_tool(input: Input) -> Result<Output, Error> {
    if input.name.is_empty() {
        return Err(Error::discard("name is empty"));
    }
    Ok(Output { greeting: format!("Hello, {}.", input.name) })
}

tools! {
    /// Greets somebody by name.
    example_tool { idempotent: true },
}

#[cfg(test)]
mod tests {
    use super::*;
    use starling_tool::testing::Host;

    #[test]
    fn greets() {
        let output = Host::default().call(starling_tools(), "example_tool", r#"{"name":"Ada"}"#);
        assert_eq!(output.unwrap(), r#"{"greeting":"Hello, Ada."}"#);
    }

    #[test]
    fn refuses_an_empty_name() {
        assert!(example_tool(Input { name: String::new() }).is_err());
    }
}
