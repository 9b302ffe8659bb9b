//! The functions of the host: imports in a module, and a [`crate::testing::Host`] in a test.

use std::time::Duration;

/// Returns the time of day, as the time since 1970-01-01T00:00:00Z. Each call is recorded.
pub fn now() -> Duration {
    Duration::from_nanos(imports::now())
}

/// Returns 64 random bits. Each call is recorded.
pub fn random() -> u64 {
    imports::random()
}

/// Writes a line to the log of the call.
pub fn log(text: &str) {
    imports::write(format!("{}\n", text).as_bytes())
}

pub(crate) use imports::http;

/// Makes a panic write its place and its message to the log.
pub fn start() {
    std::panic::set_hook(Box::new(|info| {
        let payload = info.payload();
        let message = payload.downcast_ref::<&str>().copied().or_else(|| payload.downcast_ref::<String>().map(String::as_str));
        let place = info.location().map_or(String::new(), |at| format!(" at {}:{}:{}", at.file(), at.line(), at.column()));
        log(&format!("panic{}: {}", place, message.unwrap_or("a value without a text")))
    }));
}

#[cfg(target_arch = "wasm32")]
mod imports {
    #[link(wasm_import_module = "starling:v1")]
    extern "C" {
        #[link_name = "now"]
        fn host_now() -> u64;
        #[link_name = "random"]
        fn host_random() -> u64;
        #[link_name = "http"]
        fn host_http(request: *const u8, request_len: usize, buffer: *mut u8, capacity: usize) -> i64;
    }

    #[link(wasm_import_module = "wasi_snapshot_preview1")]
    extern "C" {
        fn fd_write(descriptor: u32, areas: *const Area, count: usize, written: *mut usize) -> u16;
    }

    #[repr(C)]
    struct Area {
        at: *const u8,
        len: usize,
    }

    pub fn now() -> u64 {
        unsafe { host_now() }
    }

    pub fn random() -> u64 {
        unsafe { host_random() }
    }

    pub fn write(text: &[u8]) {
        let mut written = 0;
        unsafe {
            fd_write(2, &Area { at: text.as_ptr(), len: text.len() }, 1, &mut written);
        }
    }

    /// Makes an exchange, and returns the response, or the status and its text.
    pub fn http(request: &[u8]) -> Result<Vec<u8>, (i64, Vec<u8>)> {
        let mut answer = vec![0; 32 << 10];
        let n = unsafe { host_http(request.as_ptr(), request.len(), answer.as_mut_ptr(), answer.len()) };
        if n >= 0 {
            return Ok(take(n, answer));
        }
        let m = unsafe { host_http(std::ptr::null(), 0, answer.as_mut_ptr(), answer.len()) };
        Err((n, take(m.max(0), answer)))
    }

    /// Returns the answer of n bytes. If the buffer was too small, the host still holds it.
    fn take(n: i64, mut answer: Vec<u8>) -> Vec<u8> {
        let n = n as usize;
        if n > answer.len() {
            answer = vec![0; n];
            unsafe { host_http(std::ptr::null(), 0, answer.as_mut_ptr(), n) };
        }
        answer.truncate(n);
        answer
    }
}

#[cfg(not(target_arch = "wasm32"))]
mod imports {
    use crate::testing::with;

    pub fn now() -> u64 {
        with(|host| host.now.as_nanos() as u64)
    }

    pub fn random() -> u64 {
        with(|host| host.random)
    }

    pub fn write(text: &[u8]) {
        eprint!("{}", String::from_utf8_lossy(text))
    }

    pub fn http(request: &[u8]) -> Result<Vec<u8>, (i64, Vec<u8>)> {
        crate::testing::answer(request)
    }
}
