;; A command that succeeds if its environment is A=b=c alone.
(component
  (import "wasi:cli/environment@0.2.0" (instance $env (export "get-environment" (func (result (list (tuple string string)))))))
  (core module $Memory
    (memory (export "memory") 1)
    (global $heap (mut i32) (i32.const 1024))
    (func (export "cabi_realloc") (param i32 i32 i32 i32) (result i32)
      (local $p i32)
      (local.set $p (global.get $heap))
      (global.set $heap (i32.and (i32.add (i32.add (global.get $heap) (local.get 3)) (i32.const 31)) (i32.const -16)))
      (local.get $p)))
  (core instance $memory (instantiate $Memory))
  (core func $get (canon lower (func $env "get-environment")
    (memory (core memory $memory "memory")) (realloc (core func $memory "cabi_realloc"))))
  (core module $Main
    (import "memory" "memory" (memory 1))
    (import "env" "get" (func $get (param i32)))
    (func (export "run") (result i32)
      (call $get (i32.const 0))
      (i32.or
        (i32.ne (i32.load (i32.const 4)) (i32.const 1))
        (i32.or
          (i32.ne (i32.load8_u (i32.load (i32.load (i32.const 0)))) (i32.const 0x41))
          (i32.ne (i32.load16_u (i32.load offset=8 (i32.load (i32.const 0)))) (i32.const 0x3d62))))))
  (core instance $main (instantiate $Main (with "memory" (instance $memory)) (with "env" (instance (export "get" (func $get))))))
  (func $run (result (result)) (canon lift (core func $main "run")))
  (instance $exported (export "run" (func $run)))
  (export "wasi:cli/run@0.2.0" (instance $exported)))
