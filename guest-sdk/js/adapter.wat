;; Between the contract of spec/abi.md and QuickJS as the package quickjs-wasi
;; builds it. What can be said in JavaScript is said in runtime/; here is what
;; cannot: the exports, the imports, and the loop that runs promises to their end.
;;
;; QuickJS keeps its stack below its data, from 1 MiB down to 0. The bottom of
;; it is never reached (see $stack), so it holds what start-up reads, and the
;; scratch of the functions below:
;;
;;       8  a result: a length, or what a WASI function writes
;;      16  a list: the arguments of a call, or an area for fd_write and fd_read
;;      32  "host", and at 37 "tool", the name of the script
;;      64  a subscription and an event, for poll_oneoff
;;    1024  address and length of the compiled runtime, which engine.mjs adds as
;;          data, like the runtime itself
;;    2048  what hash.wat has
(module
  (import "qjs" "memory" (memory 1))
  (import "qjs" "qjs_init" (func $qjs_init (result i32)))
  (import "qjs" "qjs_set_max_stack_size" (func $set_max_stack_size (param i32)))
  (import "qjs" "qjs_get_gc_threshold" (func $get_gc_threshold (result i32)))
  (import "qjs" "qjs_set_gc_threshold" (func $set_gc_threshold (param i32)))
  (import "qjs" "qjs_set_promise_rejection_handler" (func $set_promise_rejection_handler (param i32)))
  (import "qjs" "qjs_eval_bytecode" (func $eval (param i32 i32) (result i32)))
  (import "qjs" "qjs_compile" (func $compile (param i32 i32 i32 i32 i32 i32) (result i32)))
  (import "qjs" "qjs_call" (func $qjs_call (param i32 i32 i32 i32) (result i32)))
  (import "qjs" "qjs_execute_pending_job" (func $execute_pending_job (result i32)))
  (import "qjs" "qjs_new_host_function" (func $new_host_function (param i32 i32 i32) (result i32)))
  (import "qjs" "qjs_get_global" (func $get_global (result i32)))
  (import "qjs" "qjs_set_prop_string" (func $set_prop_string (param i32 i32 i32) (result i32)))
  (import "qjs" "qjs_get_exception" (func $get_exception (result i32)))
  (import "qjs" "qjs_is_exception" (func $is_exception (param i32) (result i32)))
  (import "qjs" "qjs_is_undefined" (func $is_undefined (param i32) (result i32)))
  (import "qjs" "qjs_get_undefined" (func $undefined (result i32)))
  (import "qjs" "qjs_get_float64" (func $get_float64 (param i32) (result f64)))
  (import "qjs" "qjs_new_number" (func $new_number (param f64) (result i32)))
  (import "qjs" "qjs_new_big_int64" (func $new_big_int64 (param i32 i32) (result i32)))
  (import "qjs" "qjs_new_string" (func $new_string (param i32 i32) (result i32)))
  (import "qjs" "qjs_get_string_len" (func $get_string (param i32 i32) (result i32)))
  (import "qjs" "qjs_free_cstring" (func $free_string (param i32)))
  (import "qjs" "qjs_new_array_buffer" (func $new_array_buffer (param i32 i32) (result i32)))
  (import "qjs" "qjs_get_array_buffer" (func $get_array_buffer (param i32 i32) (result i32)))
  (import "qjs" "qjs_free_value" (func $free_value (param i32)))
  (import "qjs" "wasm_malloc" (func $malloc (param i32) (result i32)))
  (import "qjs" "wasm_free" (func $free (param i32)))

  (import "hash" "compress" (func $compress (param i32 i32 i32 i32)))
  (import "hash" "stretch" (func $stretch (param i32 i32)))

  (import "starling:v1" "now" (func $now (result i64)))
  (import "starling:v1" "random" (func $random (result i64)))
  (import "starling:v1" "http" (func $http (param i32 i32 i32 i32) (result i64)))
  (import "wasi_snapshot_preview1" "fd_write" (func $fd_write (param i32 i32 i32 i32) (result i32)))
  (import "wasi_snapshot_preview1" "random_get" (func $random_get (param i32 i32) (result i32)))
  (import "wasi_snapshot_preview1" "poll_oneoff" (func $poll_oneoff (param i32 i32 i32 i32) (result i32)))
  (import "wasi_snapshot_preview1" "fd_prestat_get" (func $fd_prestat_get (param i32 i32) (result i32)))
  (import "wasi_snapshot_preview1" "fd_prestat_dir_name" (func $fd_prestat_dir_name (param i32 i32 i32) (result i32)))
  (import "wasi_snapshot_preview1" "fd_close" (func $fd_close (param i32) (result i32)))
  (import "wasi_snapshot_preview1" "fd_read" (func $fd_read (param i32 i32 i32 i32) (result i32)))
  (import "wasi_snapshot_preview1" "fd_readdir" (func $fd_readdir (param i32 i32 i32 i64 i32) (result i32)))
  (import "wasi_snapshot_preview1" "fd_filestat_get" (func $fd_filestat_get (param i32 i32) (result i32)))
  (import "wasi_snapshot_preview1" "path_open" (func $path_open (param i32 i32 i32 i32 i32 i64 i64 i32 i32) (result i32)))
  (import "wasi_snapshot_preview1" "path_filestat_get" (func $path_filestat_get (param i32 i32 i32 i32 i32) (result i32)))
  (import "wasi_snapshot_preview1" "path_create_directory" (func $path_create_directory (param i32 i32 i32) (result i32)))
  (import "wasi_snapshot_preview1" "path_remove_directory" (func $path_remove_directory (param i32 i32 i32) (result i32)))
  (import "wasi_snapshot_preview1" "path_unlink_file" (func $path_unlink_file (param i32 i32 i32) (result i32)))
  (import "wasi_snapshot_preview1" "path_rename" (func $path_rename (param i32 i32 i32 i32 i32 i32) (result i32)))

  (data (i32.const 32) "host\00tool\00")

  ;; How deep JavaScript may recurse, in bytes of stack: less than the limit of
  ;; depth that the host sets, so that it is an error and not the end of the call.
  (global $stack i32 (i32.const 262144))

  ;; The bytes by which the memory of a call may grow before QuickJS looks for garbage: without them,
  ;; a short call would pay for that if start-up code happens to have come near the threshold.
  (global $garbage i32 (i32.const 1048576))

  ;; Where the packer of the host puts the script: engine.mjs writes the address,
  ;; which is behind the runtime.
  (global $source (export "starling_source") i32 (i32.const SOURCE))

  ;; The function that runtime/main.js evaluates to, and then the one that it
  ;; returns for the script: runtime/module.js.
  (global $tool (mut i32) (i32.const 0))

  ;; ---- exports ----

  ;; The constructors of QuickJS have run: it exports _initialize.
  (func (export "starling_warmup")
    (if (call $qjs_init) (then (unreachable)))
    (call $set_max_stack_size (global.get $stack))
    (drop (call $set_prop_string
      (call $get_global) (i32.const 32) (call $new_host_function (i32.const 32) (i32.const 4) (i32.const 3))))
    (global.set $tool (call $checked
      (call $eval (i32.load (i32.const 1024)) (i32.load (i32.const 1028)))))
    (i32.store (i32.const 16) (call $script))
    (global.set $tool (call $checked
      (call $qjs_call (global.get $tool) (call $undefined) (i32.const 1) (i32.const 16))))
    (call $set_promise_rejection_handler (i32.const 1))
    (call $run_jobs)
    (drop (call $call (i32.const 2) (call $undefined)))
    (call $set_gc_threshold (i32.add (call $get_gc_threshold) (global.get $garbage))))

  ;; What the script evaluates to. It lies behind the length of all that is packed,
  ;; its name and its length. It is in QuickJS's own form, or a text that begins
  ;; with a bracket, behind which there is a zero. The text is not kept.
  (func $script (result i32)
    (local $text i32) (local $len i32) (local $code i32) (local $value i32)
    (local.set $text (i32.add (global.get $source) (i32.add (i32.const 8) (i32.load offset=4 (global.get $source)))))
    (local.set $len (i32.load (local.get $text)))
    (local.set $text (i32.add (local.get $text) (i32.const 4)))
    (if (i32.ne (i32.load8_u (local.get $text)) (i32.const 40)) (then
      (return (call $checked (call $eval (local.get $text) (local.get $len))))))
    (local.set $code (call $compile (local.get $text) (local.get $len)
      (i32.const 37) (i32.const 0) (i32.const 16) (i32.const 8)))
    (if (i32.eqz (local.get $code)) (then (call $fail)))
    (local.set $value (call $eval (local.get $code) (i32.load (i32.const 8))))
    (call $free (local.get $code))
    (call $checked (local.get $value)))

  (func (export "starling_alloc") (param $n i32) (result i32) (call $malloc (local.get $n)))

  (func (export "starling_describe") (result i64)
    (call $document (call $call (i32.const 0) (call $undefined))))

  ;; Each turn runs every job that is pending, then asks whether there is an
  ;; answer. If not, a timer has fired, and there may be new jobs.
  (func (export "starling_execute") (param $ptr i32) (param $len i32) (result i64)
    (local $answer i32)
    (call $free_value (call $call (i32.const 1) (call $new_string (local.get $ptr) (local.get $len))))
    (loop $turn
      (call $run_jobs)
      (local.set $answer (call $call (i32.const 2) (call $undefined)))
      (br_if $turn (call $is_undefined (local.get $answer))))
    (call $document (local.get $answer)))

  ;; ---- calling JavaScript ----

  ;; A job that throws, such as one of queueMicrotask, has nobody to catch it.
  (func $run_jobs
    (local $result i32)
    (loop $next
      (local.set $result (call $execute_pending_job))
      (if (i32.lt_s (local.get $result) (i32.const 0)) (then
        (call $free_value (call $call (i32.const 3) (call $get_exception)))))
      (br_if $next (local.get $result))))

  ;; Calls the tool with a number, which says what for, and a value.
  (func $call (param $what i32) (param $value i32) (result i32)
    (i32.store (i32.const 16) (call $new_number (f64.convert_i32_u (local.get $what))))
    (i32.store (i32.const 20) (local.get $value))
    (call $checked (call $qjs_call (global.get $tool) (call $undefined) (i32.const 2) (i32.const 16))))

  ;; A promise was rejected, and nobody awaits it; or somebody does now.
  (func (export "host_promise_rejection") (param $promise i32) (param $reason i32) (param $awaited i32)
    (i32.store (i32.const 16) (call $new_number (f64.const 4)))
    (i32.store (i32.const 20) (local.get $promise))
    (i32.store (i32.const 24) (local.get $reason))
    (i32.store (i32.const 28) (call $new_number (f64.convert_i32_u (local.get $awaited))))
    (call $free_value (call $checked (call $qjs_call (global.get $tool) (call $undefined) (i32.const 4) (i32.const 16))))
    (call $free_value (local.get $promise))
    (call $free_value (local.get $reason)))

  ;; runtime/module.js catches what a tool throws. What comes here is start-up
  ;; code that throws, or a want of memory: the text goes to the log.
  (func $checked (param $value i32) (result i32)
    (if (call $is_exception (local.get $value)) (then (call $fail)))
    (local.get $value))

  (func $fail
    (call $log (call $get_string (call $get_exception) (i32.const 8)) (i32.load (i32.const 8)))
    (unreachable))

  ;; A string as the host takes a document. It stays where it is: nothing is
  ;; freed at the end of a call, whose memory is gone with it.
  (func $document (param $string i32) (result i64)
    (local $address i32)
    (local.set $address (call $get_string (local.get $string) (i32.const 8)))
    (if (i32.eqz (local.get $address)) (then (unreachable)))
    (i64.or
      (i64.shl (i64.extend_i32_u (local.get $address)) (i64.const 32))
      (i64.load32_u (i32.const 8))))

  (func $log (param $address i32) (param $len i32)
    (i32.store (i32.const 16) (local.get $address))
    (i32.store (i32.const 20) (local.get $len))
    (drop (call $fd_write (i32.const 2) (i32.const 16) (i32.const 1) (i32.const 8))))

  ;; ---- what JavaScript calls: host(what, ...), in runtime/host.js ----

  (func (export "host_call") (param $name i32) (param $name_len i32) (param $this i32) (param $argc i32) (param $argv i32) (result i32)
    (local $a i32) (local $b i32) (local $long i64)
    (local.set $a (i32.load offset=4 (local.get $argv)))
    (local.set $b (i32.load offset=8 (local.get $argv)))
    (block $file (block $stretch (block $hash (block $decode (block $encode (block $sleep (block $entropy (block $print (block $fetch (block $draw (block $time
      (br_table $time $draw $fetch $print $entropy $sleep $encode $decode $hash $stretch $file
        (i32.trunc_sat_f64_u (call $get_float64 (i32.load (local.get $argv))))))
      ;; now() -> BigInt
      (return (call $big (call $now))))
      ;; random() -> BigInt
      (return (call $big (call $random))))
      ;; http(request, buffer) -> number
      (local.set $a (call $get_array_buffer (local.get $a) (i32.const 8)))
      (local.set $long (i64.load32_u (i32.const 8)))
      (local.set $b (call $get_array_buffer (local.get $b) (i32.const 8)))
      (return (call $new_number (f64.convert_i64_s (call $http
        (local.get $a) (i32.wrap_i64 (local.get $long)) (local.get $b) (i32.load (i32.const 8)))))))
      ;; print(buffer)
      (local.set $a (call $get_array_buffer (local.get $a) (i32.const 8)))
      (call $log (local.get $a) (i32.load (i32.const 8)))
      (return (call $undefined)))
      ;; entropy(buffer)
      (local.set $a (call $get_array_buffer (local.get $a) (i32.const 8)))
      (drop (call $random_get (local.get $a) (i32.load (i32.const 8))))
      (return (call $undefined)))
      ;; sleep(nanoseconds): a subscription to the monotonic clock
      (memory.fill (i32.const 64) (i32.const 0) (i32.const 48))
      (i32.store (i32.const 80) (i32.const 1))
      (i64.store (i32.const 88) (i64.trunc_sat_f64_u (call $get_float64 (local.get $a))))
      (drop (call $poll_oneoff (i32.const 64) (i32.const 112) (i32.const 1) (i32.const 8)))
      (return (call $undefined)))
      ;; encode(string) -> ArrayBuffer
      (local.set $b (call $get_string (local.get $a) (i32.const 8)))
      (local.set $a (call $new_array_buffer (local.get $b) (i32.load (i32.const 8))))
      (call $free_string (local.get $b))
      (return (local.get $a)))
      ;; decode(buffer) -> string
      (local.set $a (call $get_array_buffer (local.get $a) (i32.const 8)))
      (return (call $new_string (local.get $a) (i32.load (i32.const 8)))))
      ;; compress(state, blocks)
      (local.set $a (call $get_array_buffer (local.get $a) (i32.const 8)))
      (local.set $long (i64.load32_u (i32.const 8)))
      (local.set $b (call $get_array_buffer (local.get $b) (i32.const 8)))
      (call $compress
        (local.get $a) (i32.wrap_i64 (local.get $long)) (local.get $b) (i32.add (local.get $b) (i32.load (i32.const 8))))
      (return (call $undefined)))
      ;; stretch(area, times)
      (call $stretch (call $get_array_buffer (local.get $a) (i32.const 8)) (i32.trunc_sat_f64_u (call $get_float64 (local.get $b))))
      (return (call $undefined)))
    ;; file(what, numbers, first, second) -> number
    (call $new_number (f64.convert_i32_u (call $file
      (i32.trunc_sat_f64_u (call $get_float64 (local.get $a)))
      (call $get_array_buffer (local.get $b) (i32.const 8))
      (i32.load offset=12 (local.get $argv))
      (i32.load offset=16 (local.get $argv))))))

  ;; The functions of WASI on files, for runtime/files.js. The numbers are 64 bytes: first a
  ;; descriptor and what else a function takes, then what it returns. The buffers are paths or
  ;; contents. The result is an errno.
  (func $file (param $what i32) (param $numbers i32) (param $first i32) (param $second i32) (result i32)
    (local $fd i32) (local $a i32) (local $a_len i32) (local $b i32)
    (local.set $fd (i32.load (local.get $numbers)))
    (local.set $a (call $get_array_buffer (local.get $first) (i32.const 8)))
    (local.set $a_len (i32.load (i32.const 8)))
    (local.set $b (call $get_array_buffer (local.get $second) (i32.const 8))) ;; its length is at 8
    (i32.store (i32.const 16) (local.get $a))
    (i32.store (i32.const 20) (local.get $a_len))
    (block $rename (block $unlink (block $rmdir (block $mkdir (block $stat (block $fstat (block $list (block $write (block $read (block $close (block $open (block $name (block $mount
      (br_table $mount $name $open $close $read $write $list $fstat $stat $mkdir $rmdir $unlink $rename (local.get $what)))
      (return (call $fd_prestat_get (local.get $fd) (local.get $numbers))))
      (return (call $fd_prestat_dir_name (local.get $fd) (local.get $a) (local.get $a_len))))
      ;; [folder, oflags, rights, fdflags] -> [descriptor]; a link at the end is followed
      (return (call $path_open (local.get $fd) (i32.const 1) (local.get $a) (local.get $a_len)
        (i32.load offset=4 (local.get $numbers)) (i64.load32_u offset=8 (local.get $numbers)) (i64.const 0)
        (i32.load offset=12 (local.get $numbers)) (local.get $numbers))))
      (return (call $fd_close (local.get $fd))))
      (return (call $fd_read (local.get $fd) (i32.const 16) (i32.const 1) (local.get $numbers))))
      (return (call $fd_write (local.get $fd) (i32.const 16) (i32.const 1) (local.get $numbers))))
      ;; [folder, cookie] -> [bytes used]
      (return (call $fd_readdir (local.get $fd) (local.get $a) (local.get $a_len)
        (i64.load32_u offset=4 (local.get $numbers)) (local.get $numbers))))
      (return (call $fd_filestat_get (local.get $fd) (local.get $numbers))))
      ;; [folder, lookupflags]
      (return (call $path_filestat_get (local.get $fd) (i32.load offset=4 (local.get $numbers))
        (local.get $a) (local.get $a_len) (local.get $numbers))))
      (return (call $path_create_directory (local.get $fd) (local.get $a) (local.get $a_len))))
      (return (call $path_remove_directory (local.get $fd) (local.get $a) (local.get $a_len))))
      (return (call $path_unlink_file (local.get $fd) (local.get $a) (local.get $a_len))))
    ;; [folder, folder]
    (call $path_rename (local.get $fd) (local.get $a) (local.get $a_len)
      (i32.load offset=4 (local.get $numbers)) (local.get $b) (i32.load (i32.const 8))))

  (func $big (param $n i64) (result i32)
    (call $new_big_int64
      (i32.wrap_i64 (local.get $n))
      (i32.wrap_i64 (i64.shr_u (local.get $n) (i64.const 32)))))

  ;; ---- what QuickJS asks of its host beside that ----

  (func (export "host_interrupt") (result i32) (i32.const 0)) ;; the meter stops a tool
  (func (export "host_get_timezone_offset") (param i32 i32) (result i32) (i32.const 0)) ;; UTC
  (func (export "host_module_normalize") (param i32 i32) (result i32) (i32.const 0)) ;; all is in one file
  (func (export "host_module_load") (param i32 i32) (result i32) (i32.const 0))
)
