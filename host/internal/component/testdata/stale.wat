;; A part is called with an f64, and then another function of it with an option: the option's discriminant has the upper
;; half of the float behind it. The tool run returns 5.
(component
  (component $C
    (core module $M
      (func (export "f") (param f64) (result f64) local.get 0)
      (func (export "g") (param i32 i32) (result i32) local.get 1))
    (core instance $m (instantiate $M))
    (func (export "f") (param "x" f64) (result f64) (canon lift (core func $m "f")))
    (func (export "g") (param "v" (option u32)) (result u32) (canon lift (core func $m "g"))))
  (component $D
    (import "f" (func $f (param "x" f64) (result f64)))
    (import "g" (func $g (param "v" (option u32)) (result u32)))
    (core func $f' (canon lower (func $f)))
    (core func $g' (canon lower (func $g)))
    (core module $M
      (import "" "f" (func $f (param f64) (result f64)))
      (import "" "g" (func $g (param i32 i32) (result i32)))
      (func (export "run") (result i32)
        (drop (call $f (f64.const 0.1)))
        (call $g (i32.const 1) (i32.const 5))))
    (core instance $m (instantiate $M (with "" (instance (export "f" (func $f')) (export "g" (func $g'))))))
    (func (export "run") (result u32) (canon lift (core func $m "run"))))
  (instance $c (instantiate $C))
  (instance $d (instantiate $D (with "f" (func $c "f")) (with "g" (func $c "g"))))
  (func (export "run") (alias export $d "run")))
