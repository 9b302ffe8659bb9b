use std::collections::{BTreeMap, HashMap};

use crate::{Error, Value};

/// A Rust type with a schema and a JSON form. The macro `object!` implements it for structs.
pub trait Type: Sized {
    /// Whether a member of this type must be there.
    const REQUIRED: bool = true;

    fn schema() -> Value;

    /// Reads a value. Members that the type does not have are ignored.
    fn from_json(value: &Value) -> Result<Self, Error>;

    fn to_json(&self) -> Value;
}

/// A field of a struct, as the macro `object!` sees it.
pub struct Field {
    pub name: &'static str,
    pub schema: Value,
    pub required: bool,
    pub keywords: Vec<(&'static str, Value)>,
}

/// Returns the schema of a struct.
pub fn schema(fields: Vec<Field>) -> Value {
    let mut properties = Vec::new();
    let mut required = Vec::new();
    for field in fields {
        let name = field.name.trim_start_matches("r#").to_string();
        let mut members = match field.schema {
            Value::Object(members) => members,
            _ => Vec::new(),
        };
        let lines = field.keywords.iter().filter(|(key, _)| *key == "doc").filter_map(|(_, line)| line.as_str());
        let text = lines.map(str::trim).collect::<Vec<_>>().join(" ");
        if !text.is_empty() {
            members.push(("description".into(), text.into()));
        }
        for (key, value) in field.keywords.into_iter().filter(|(key, _)| *key != "doc") {
            members.retain(|(name, _)| name != key);
            members.push((key.into(), value));
        }
        if field.required {
            required.push(name.clone());
        }
        properties.push((name, Value::Object(members)));
    }
    Value::object([
        ("type", "object".into()),
        ("properties", Value::Object(properties)),
        ("required", required.into()),
        ("additionalProperties", false.into()),
    ])
}

/// Reads a member of a struct.
pub fn member<T: Type>(value: &Value, name: &str) -> Result<T, Error> {
    let name = name.trim_start_matches("r#");
    if value.as_object().is_none() {
        return Err(expected("an object", value));
    }
    T::from_json(&value[name]).map_err(|error| Error { message: format!("{}: {}", name, error.message), ..error })
}

fn expected(what: &str, got: &Value) -> Error {
    let text = got.to_string();
    let short: String = text.chars().take(60).collect();
    Error::new(format!("expected {}, got {}{}", what, short, if short.len() < text.len() { "..." } else { "" }))
}

fn typed(name: &str) -> Value {
    Value::object([("type", name)])
}

macro_rules! integers {
    ($($type:ty)*) => {$(
        impl Type for $type {
            fn schema() -> Value {
                let mut members = vec![("type", Value::from("integer"))];
                if <$type>::MIN == 0 || <$type>::BITS < 64 {
                    members.push(("minimum", <$type>::MIN.into()));
                }
                if <$type>::BITS < 64 {
                    members.push(("maximum", <$type>::MAX.into()));
                }
                Value::object(members)
            }

            fn from_json(value: &Value) -> Result<Self, Error> {
                let number = value.as_integer().and_then(|number| <$type>::try_from(number).ok());
                number.ok_or_else(|| expected(concat!("an integer (", stringify!($type), ")"), value))
            }

            fn to_json(&self) -> Value {
                (*self).into()
            }
        }
    )*};
}
integers!(i8 i16 i32 i64 u8 u16 u32 u64 usize);

macro_rules! plain {
    ($($type:ty, $name:literal, $wanted:literal, $get:ident;)*) => {$(
        impl Type for $type {
            fn schema() -> Value {
                typed($name)
            }

            fn from_json(value: &Value) -> Result<Self, Error> {
                value.$get().map(Into::into).ok_or_else(|| expected($wanted, value))
            }

            fn to_json(&self) -> Value {
                self.clone().into()
            }
        }
    )*};
}
plain! {
    bool, "boolean", "true or false", as_bool;
    f64, "number", "a number", as_f64;
    String, "string", "a string", as_str;
}

/// Any value.
impl Type for Value {
    fn schema() -> Value {
        Value::Object(Vec::new())
    }

    fn from_json(value: &Value) -> Result<Self, Error> {
        Ok(value.clone())
    }

    fn to_json(&self) -> Value {
        self.clone()
    }
}

/// An object without members.
impl Type for () {
    fn schema() -> Value {
        schema(Vec::new())
    }

    fn from_json(_: &Value) -> Result<Self, Error> {
        Ok(())
    }

    fn to_json(&self) -> Value {
        Value::Object(Vec::new())
    }
}

impl<T: Type> Type for Option<T> {
    const REQUIRED: bool = false;

    fn schema() -> Value {
        T::schema()
    }

    fn from_json(value: &Value) -> Result<Self, Error> {
        if value.is_null() { Ok(None) } else { T::from_json(value).map(Some) }
    }

    fn to_json(&self) -> Value {
        self.as_ref().map_or(Value::Null, Type::to_json)
    }
}

impl<T: Type> Type for Vec<T> {
    fn schema() -> Value {
        Value::object([("type", "array".into()), ("items", T::schema())])
    }

    fn from_json(value: &Value) -> Result<Self, Error> {
        value.as_array().ok_or_else(|| expected("a list", value))?.iter().map(T::from_json).collect()
    }

    fn to_json(&self) -> Value {
        Value::Array(self.iter().map(Type::to_json).collect())
    }
}

macro_rules! maps {
    ($($map:ident)*) => {$(
        impl<T: Type> Type for $map<String, T> {
            fn schema() -> Value {
                Value::object([("type", "object".into()), ("additionalProperties", T::schema())])
            }

            fn from_json(value: &Value) -> Result<Self, Error> {
                let members = value.as_object().ok_or_else(|| expected("an object", value))?;
                members.iter().map(|(name, value)| Ok((name.clone(), T::from_json(value)?))).collect()
            }

            fn to_json(&self) -> Value {
                let mut members: Vec<_> = self.iter().map(|(name, value)| (name.clone(), value.to_json())).collect();
                members.sort_by(|a, b| a.0.cmp(&b.0));
                Value::Object(members)
            }
        }
    )*};
}
maps!(BTreeMap HashMap);
