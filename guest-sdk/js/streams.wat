;; What QuickJS's C library asks WASI about its streams. A tool has none but the
;; log, which is only written to.
(module
  (func (export "fd_fdstat_get") (param i32 i32) (result i32) (i32.const 8)) ;; EBADF
  (func (export "fd_seek") (param i32 i64 i32 i32) (result i32) (i32.const 70))) ;; ESPIPE
