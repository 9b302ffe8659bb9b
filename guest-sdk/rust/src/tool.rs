use std::cell::RefCell;

use crate::{http, Error, Type, Value};

/// A tool: a function with its description. The macro `tools!` makes it.
pub struct Tool {
    pub(crate) name: String,
    description: Vec<(&'static str, Value)>,
    pub(crate) execute: Box<dyn Fn(&Value) -> Result<Value, Error>>,
}

impl Tool {
    pub fn new<I: Type, O: Type, E: Into<Error>>(name: &str, description: &str, execute: impl Fn(I) -> Result<O, E> + 'static) -> Tool {
        let text = description.lines().map(str::trim).collect::<Vec<_>>().join(" ");
        Tool {
            name: name.trim_start_matches("r#").into(),
            description: vec![("description", text.trim().into()), ("input_schema", I::schema()), ("output_schema", O::schema())],
            execute: Box::new(move |input| execute(I::from_json(input)?).map(|output| output.to_json()).map_err(Into::into)),
        }
    }

    fn set(mut self, key: &'static str, value: Value) -> Self {
        self.description.retain(|(name, _)| *name != key);
        self.description.push((key, value));
        self
    }

    /// Gives the tool another name than that of its function.
    pub fn name(mut self, name: &str) -> Self {
        self.name = name.into();
        self
    }

    /// Lists the hosts that the tool wants to reach.
    pub fn effects<const N: usize>(self, hosts: [&str; N]) -> Self {
        self.set("effects", hosts.into())
    }

    /// Tells the host whether it may repeat a call.
    pub fn idempotent(self, idempotent: bool) -> Self {
        self.set("idempotent", idempotent.into())
    }

    /// Sets limits that the tool wants to have, as in `limits: [("memory_bytes", 33554432)]`.
    pub fn limits<const N: usize>(self, limits: [(&str, u64); N]) -> Self {
        self.set("limits", Value::object(limits))
    }

    /// Replaces the schema of the input by a JSON text.
    pub fn input_schema(self, text: &str) -> Self {
        self.set("input_schema", Value::parse(text).expect("input_schema"))
    }

    /// Replaces the schema of the output by a JSON text.
    pub fn output_schema(self, text: &str) -> Self {
        self.set("output_schema", Value::parse(text).expect("output_schema"))
    }
}

/// The context of a call.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Call {
    pub run_id: String,
    pub call_id: String,
    /// Counts from 1.
    pub attempt: u32,
    /// The object that the caller of the run passed to the tools, if any.
    pub variables: Option<Value>,
}

thread_local! {
    static CALL: RefCell<Call> = RefCell::default();
}

/// Returns the context of the call that runs.
pub fn call() -> Call {
    CALL.with(|call| call.borrow().clone())
}

/// Calls another tool of the same run. This tool needs the right to do so.
pub fn call_tool(name: &str, input: &impl Type) -> Result<Value, Error> {
    let body = Value::object([("tool", name.into()), ("input", input.to_json())]).to_string();
    let message = format!("POST starling:call HTTP/1.1\r\nContent-Length: {}\r\n\r\n{}", body.len(), body);
    let outcome: Value = http::exchange(message.as_bytes(), false)?.json()?;
    match outcome.get("output") {
        Some(output) => Ok(output.clone()),
        None => Err(Error::new(outcome["error"]["message"].as_str().unwrap_or("the call has no outcome"))),
    }
}

/// Runs the call that a document asks for, and returns the document of its outcome.
pub(crate) fn run(tools: Vec<Tool>, document: &str) -> String {
    let result = Value::parse(document).and_then(|document| {
        let (context, name) = (&document["context"], document["tool"].as_str().unwrap_or(""));
        let text = |name: &str| context[name].as_str().unwrap_or("").to_string();
        let call = Call {
            run_id: text("run_id"),
            call_id: text("call_id"),
            attempt: context["attempt"].as_i64().unwrap_or(1) as u32,
            variables: context.get("variables").cloned(),
        };
        CALL.with(|current| *current.borrow_mut() = call);
        let tool = tools.iter().find(|tool| tool.name == name).ok_or_else(|| Error::new(format!("there is no tool {:?}", name)))?;
        (tool.execute)(&document["input"])
    });
    match result {
        Ok(output) => Value::object([("output", output)]),
        Err(error) => Value::object([("error", error.to_json())]),
    }
    .to_string()
}

/// Returns memory for a document of the host.
pub fn alloc(n: u32) -> *mut u8 {
    Box::leak(vec![0; n as usize].into_boxed_slice()).as_mut_ptr()
}

fn document(text: String) -> u64 {
    let text = Box::leak(text.into_boxed_str());
    (text.as_ptr() as u64) << 32 | text.len() as u64
}

/// Returns the description document.
pub fn describe(tools: Vec<Tool>) -> u64 {
    let tools = tools.into_iter().map(|tool| {
        let name = [("name", Value::from(tool.name))];
        Value::object(name.into_iter().chain(tool.description))
    });
    document(Value::object([("tools", tools.collect::<Vec<_>>())]).to_string())
}

/// Runs a call.
///
/// # Safety
///
/// The n bytes must be memory that [`alloc`] returned.
pub unsafe fn execute(tools: Vec<Tool>, at: *mut u8, n: u32) -> u64 {
    let input = std::slice::from_raw_parts(at, n as usize);
    document(run(tools, &String::from_utf8_lossy(input)))
}
