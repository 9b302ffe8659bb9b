;; Two parts that use the slots of context.get and context.set. Tool "run" returns the number of
;; the first thing that is wrong, or 0.
(component
  (component $Callee
    (core func $get (canon context.get i32 0))
    (core func $set (canon context.set i32 0))
    (core func $inc (canon backpressure.inc))
    (core func $dec (canon backpressure.dec))
    (core module $M
      (import "" "get" (func $get (result i32)))
      (import "" "set" (func $set (param i32)))
      (import "" "inc" (func $inc))
      (import "" "dec" (func $dec))
      (func (export "first") (result i32)
        (local $found i32)
        (local.set $found (call $get))
        (call $inc)
        (call $set (i32.const 7))
        (local.get $found))
      (func (export "post") (param i32)
        (call $dec)
        (if (i32.ne (call $get) (i32.const 7)) (then unreachable))
        (call $set (i32.const 8))))
    (core instance $m (instantiate $M (with "" (instance
      (export "get" (func $get)) (export "set" (func $set)) (export "inc" (func $inc)) (export "dec" (func $dec))))))
    (func (export "first") (result u32) (canon lift (core func $m "first") (post-return (core func $m "post")))))

  (component $Caller
    (import "first" (func $first (result u32)))
    (core func $callee (canon lower (func $first)))
    (core func $get (canon context.get i32 0))
    (core func $set (canon context.set i32 0))
    (core module $M
      (import "" "callee" (func $callee (result i32)))
      (import "" "get" (func $get (result i32)))
      (import "" "set" (func $set (param i32)))
      (func (export "run") (result i32)
        (call $set (i32.const 5))
        (if (i32.ne (call $callee) (i32.const 0)) (then (return (i32.const 1))))
        (if (i32.ne (call $get) (i32.const 5)) (then (return (i32.const 2))))
        (if (i32.ne (call $callee) (i32.const 0)) (then (return (i32.const 3))))
        (i32.const 0)))
    (core instance $m (instantiate $M (with "" (instance
      (export "callee" (func $callee)) (export "get" (func $get)) (export "set" (func $set))))))
    (func (export "run") (result u32) (canon lift (core func $m "run"))))

  (instance $callee (instantiate $Callee))
  (instance $caller (instantiate $Caller (with "first" (func $callee "first"))))
  (export "run" (func $caller "run")))
