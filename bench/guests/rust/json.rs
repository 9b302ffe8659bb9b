//! Reads a JSON document into a tree, raises every number by a tenth, and writes
//! it again, with nothing but the standard library. Built with --cfg extism it
//! speaks to Extism, otherwise to this project's host.

use std::fmt::Write;

enum Value {
    Word(&'static str),
    Number(f64),
    Text(String),
    List(Vec<Value>),
    Object(Vec<(String, Value)>),
}

struct Parser<'a> {
    bytes: &'a [u8],
    at: usize,
}

impl<'a> Parser<'a> {
    fn peek(&self) -> u8 {
        *self.bytes.get(self.at).unwrap_or(&0)
    }

    fn skip(&mut self) {
        while matches!(self.peek(), b' ' | b'\n' | b'\t' | b'\r') {
            self.at += 1
        }
    }

    fn text(&mut self) -> String {
        self.at += 1;
        let from = self.at;
        while self.at < self.bytes.len() && self.peek() != b'"' {
            self.at += if self.peek() == b'\\' { 2 } else { 1 }
        }
        let end = self.at.min(self.bytes.len());
        self.at += 1;
        String::from_utf8_lossy(&self.bytes[from..end]).into_owned()
    }

    fn number(&mut self) -> Value {
        let from = self.at;
        while matches!(self.peek(), b'0'..=b'9' | b'.' | b'-' | b'+' | b'e' | b'E') {
            self.at += 1
        }
        if self.at == from {
            self.at += 1
        }
        let digits = std::str::from_utf8(&self.bytes[from..self.at.min(self.bytes.len())]);
        Value::Number(digits.unwrap_or("").parse().unwrap_or(0.0))
    }

    fn word(&mut self, word: &'static str) -> Value {
        self.at += word.len();
        Value::Word(word)
    }

    fn value(&mut self) -> Value {
        self.skip();
        match self.peek() {
            0 => Value::Word("null"),
            b'{' => {
                let mut members = Vec::new();
                self.at += 1;
                self.skip();
                while !matches!(self.peek(), b'}' | 0) {
                    let key = self.text();
                    self.skip();
                    self.at += 1;
                    members.push((key, self.value()));
                    self.comma();
                }
                self.at += 1;
                Value::Object(members)
            }
            b'[' => {
                let mut items = Vec::new();
                self.at += 1;
                self.skip();
                while !matches!(self.peek(), b']' | 0) {
                    items.push(self.value());
                    self.comma();
                }
                self.at += 1;
                Value::List(items)
            }
            b'"' => Value::Text(self.text()),
            b't' => self.word("true"),
            b'f' => self.word("false"),
            b'n' => self.word("null"),
            _ => self.number(),
        }
    }

    fn comma(&mut self) {
        self.skip();
        if self.peek() == b',' {
            self.at += 1
        }
        self.skip()
    }
}

fn write_value(v: &Value, out: &mut String) {
    match v {
        Value::Word(w) => out.push_str(w),
        Value::Number(n) => write!(out, "{}", n * 1.1).unwrap(),
        Value::Text(s) => {
            out.push('"');
            out.push_str(s);
            out.push('"')
        }
        Value::List(items) => {
            out.push('[');
            for (i, item) in items.iter().enumerate() {
                if i > 0 {
                    out.push(',')
                }
                write_value(item, out)
            }
            out.push(']')
        }
        Value::Object(members) => {
            out.push('{');
            for (i, (key, value)) in members.iter().enumerate() {
                if i > 0 {
                    out.push(',')
                }
                write!(out, "\"{}\":", key).unwrap();
                write_value(value, out)
            }
            out.push('}')
        }
    }
}

fn transform(input: &[u8]) -> String {
    let mut parser = Parser { bytes: input, at: 0 };
    let mut out = String::new();
    write_value(&parser.value(), &mut out);
    out
}

#[cfg(not(extism))]
mod abi {
    static mut INPUT: Vec<u8> = Vec::new();
    static mut OUTPUT: String = String::new();
    const DESCRIPTION: &str = r#"{"tools":[{"name":"guest","description":"A guest of the benchmark.","input_schema":{"type":"object"}}]}"#;

    fn pack(s: &str) -> u64 {
        (s.as_ptr() as u64) << 32 | s.len() as u64
    }

    #[no_mangle]
    pub unsafe extern "C" fn starling_alloc(n: u32) -> *mut u8 {
        INPUT = vec![0; n as usize];
        INPUT.as_mut_ptr()
    }

    #[no_mangle]
    pub unsafe extern "C" fn starling_describe() -> u64 {
        pack(DESCRIPTION)
    }

    /// Lets memory grow before the start of every call is kept.
    #[no_mangle]
    pub unsafe extern "C" fn starling_warmup() {
        INPUT = vec![0; 1024];
        OUTPUT = super::transform(br#"{"a":[1,-2.5,"b",true,null,{"c":{}}]}"#);
    }

    #[no_mangle]
    pub unsafe extern "C" fn starling_execute(_at: u32, _n: u32) -> u64 {
        OUTPUT = super::transform(&INPUT);
        pack(&OUTPUT)
    }
}

#[cfg(extism)]
mod abi {
    #[link(wasm_import_module = "extism:host/env")]
    extern "C" {
        fn input_length() -> u64;
        fn input_load_u64(at: u64) -> u64;
        fn input_load_u8(at: u64) -> u8;
        fn alloc(n: u64) -> u64;
        fn store_u64(at: u64, v: u64);
        fn store_u8(at: u64, v: u8);
        fn output_set(at: u64, n: u64);
    }

    #[no_mangle]
    pub unsafe extern "C" fn run() -> i32 {
        let n = input_length();
        let mut input = Vec::with_capacity(n as usize + 8);
        let mut i = 0;
        while i + 8 <= n {
            input.extend_from_slice(&input_load_u64(i).to_le_bytes());
            i += 8
        }
        while i < n {
            input.push(input_load_u8(i));
            i += 1
        }
        let out = super::transform(&input).into_bytes();
        let at = alloc(out.len() as u64);
        let mut i = 0;
        for word in out.chunks_exact(8) {
            store_u64(at + i, u64::from_le_bytes(word.try_into().unwrap()));
            i += 8
        }
        for &b in &out[i as usize..] {
            store_u8(at + i, b);
            i += 1
        }
        output_set(at, out.len() as u64);
        0
    }
}
