//! Write tools for starling-host in Rust.
//!
//! ```
//! use starling_tool::{object, tools, Error};
//!
//! object! {
//!     struct Input {
//!         /// Whom to greet
//!         name: String,
//!     }
//!     struct Output {
//!         greeting: String,
//!     }
//! }
//!
//! fn hello(input: Input) -> Result<Output, Error> {
//!     Ok(Output { greeting: format!("Hello, {}.", input.name) })
//! }
//!
//! tools! {
//!     /// Greets somebody by name.
//!     hello,
//! }
//! ```
//!
//! The crate has no dependencies. [`serde_types!`] takes types that derive serde's traits.

mod error;
mod host;
pub mod http;
mod json;
#[cfg(not(target_arch = "wasm32"))]
pub mod testing;
mod tool;
mod types;

pub use error::{Error, Kind};
pub use host::{log, now, random};
pub use json::Value;
pub use tool::{call, call_tool, Call, Tool};
pub use types::Type;

/// What the macros expand to. It is not for direct use.
#[doc(hidden)]
pub mod macros {
    pub use crate::host::start;
    pub use crate::tool::{alloc, describe, execute};
    pub use crate::types::{member, schema, Field};
}

/// Writes a line to the log of the call. It takes the arguments of [`println!`], which itself
/// writes nowhere in a module.
#[macro_export]
macro_rules! log {
    ($($argument:tt)*) => { $crate::log(&format!($($argument)*)) };
}

/// Defines structs that have a schema and a JSON form: [`Type`].
///
/// A comment on a field is its description. `#[KEYWORD = value]` adds a keyword of JSON
/// Schema, as in `#[minimum = 1]`, `#[pattern = "^[0-9]+$"]` or `#[enum = ["free", "paid"]]`.
/// A field of type `Option` may be missing.
#[macro_export]
macro_rules! object {
    ($(
        $(#[$meta:meta])*
        $vis:vis struct $name:ident {
            $($(#[$key:ident = $value:expr])* $fvis:vis $field:ident : $type:ty),* $(,)?
        }
    )*) => {$(
        $(#[$meta])*
        $vis struct $name { $($fvis $field: $type),* }

        impl $crate::Type for $name {
            fn schema() -> $crate::Value {
                $crate::macros::schema(vec![$($crate::macros::Field {
                    name: stringify!($field),
                    schema: <$type as $crate::Type>::schema(),
                    required: <$type as $crate::Type>::REQUIRED,
                    keywords: vec![$((stringify!($key), $crate::Value::from($value))),*],
                }),*])
            }

            fn from_json(value: &$crate::Value) -> Result<Self, $crate::Error> {
                Ok($name { $($field: $crate::macros::member(value, stringify!($field))?),* })
            }

            fn to_json(&self) -> $crate::Value {
                $crate::Value::object([$((
                    stringify!($field).trim_start_matches("r#"),
                    $crate::Type::to_json(&self.$field),
                    <$type as $crate::Type>::REQUIRED,
                )),*].into_iter().filter(|(_, value, required)| *required || !value.is_null()).map(|(name, value, _)| (name, value)))
            }
        }
    )*};
}

/// Implements [`Type`] for types that derive serde's traits, with the `serde_json` of the tool:
/// `serde_types! { Input = r#"{"type":"object"}"#, Output }`. The text is the schema. Without
/// one it is that of any object.
#[macro_export]
macro_rules! serde_types {
    ($($type:ty $(= $schema:expr)?),* $(,)?) => {$(
        impl $crate::Type for $type {
            fn schema() -> $crate::Value {
                let texts: &[&str] = &[$($schema,)? r#"{"type":"object"}"#];
                $crate::Value::parse(texts[0]).expect("the schema of a type")
            }

            fn from_json(value: &$crate::Value) -> Result<Self, $crate::Error> {
                Ok(::serde_json::from_str(&value.to_string())?)
            }

            fn to_json(&self) -> $crate::Value {
                let text = ::serde_json::to_string(self).expect("a value without a JSON form");
                $crate::Value::parse(&text).expect("serde_json writes JSON")
            }
        }
    )*};
}

/// Makes functions the tools of the module. Each takes one [`Type`] and returns a `Result` of
/// another. The comment describes the tool to a model. Braces call methods of [`Tool`], as in
/// `lookup { idempotent: true, effects: ["api.example.com"] }`.
///
/// The macro also defines `starling_tools()`, which returns the tools to a test.
#[macro_export]
macro_rules! tools {
    ($($(#[doc = $doc:expr])* $function:ident $({ $($key:ident : $value:expr),* $(,)? })?),* $(,)?) => {
        /// The tools of this module.
        pub fn starling_tools() -> Vec<$crate::Tool> {
            vec![$($crate::Tool::new(stringify!($function), concat!($($doc, "\n"),*), $function)$($(.$key($value))*)?),*]
        }

        #[cfg(target_arch = "wasm32")]
        mod starling_exports {
            #[no_mangle]
            extern "C" fn starling_alloc(n: u32) -> *mut u8 {
                $crate::macros::alloc(n)
            }

            #[no_mangle]
            extern "C" fn starling_describe() -> u64 {
                $crate::macros::describe(super::starling_tools())
            }

            #[no_mangle]
            extern "C" fn starling_warmup() {
                $crate::macros::start()
            }

            #[no_mangle]
            unsafe extern "C" fn starling_execute(at: *mut u8, n: u32) -> u64 {
                $crate::macros::execute(super::starling_tools(), at, n)
            }
        }
    };
}
