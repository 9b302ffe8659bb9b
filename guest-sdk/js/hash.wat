;; The inner loops of SHA-1 and SHA-2 (FIPS 180-4) and of PBKDF2 (RFC 8018), for
;; runtime/hashes.js: in QuickJS they cost ninety times the fuel. What they use of
;; the memory is at the bottom of QuickJS's stack, as in adapter.wat:
;;
;;    2048  the constants of SHA-512. Their upper halves are those of SHA-256
;;    3072  the message schedule, of at most 80 words
(module
  (import "qjs" "memory" (memory 1))

  (data (i32.const 2048)
    "\22\ae\28\d7\98\2f\8a\42\cd\65\ef\23\91\44\37\71\2f\3b\4d\ec\cf\fb\c0\b5\bc\db\89\81\a5\db\b5\e9"
    "\38\b5\48\f3\5b\c2\56\39\19\d0\05\b6\f1\11\f1\59\9b\4f\19\af\a4\82\3f\92\18\81\6d\da\d5\5e\1c\ab"
    "\42\02\03\a3\98\aa\07\d8\be\6f\70\45\01\5b\83\12\8c\b2\e4\4e\be\85\31\24\e2\b4\ff\d5\c3\7d\0c\55"
    "\6f\89\7b\f2\74\5d\be\72\b1\96\16\3b\fe\b1\de\80\35\12\c7\25\a7\06\dc\9b\94\26\69\cf\74\f1\9b\c1"
    "\d2\4a\f1\9e\c1\69\9b\e4\e3\25\4f\38\86\47\be\ef\b5\d5\8c\8b\c6\9d\c1\0f\65\9c\ac\77\cc\a1\0c\24"
    "\75\02\2b\59\6f\2c\e9\2d\83\e4\a6\6e\aa\84\74\4a\d4\fb\41\bd\dc\a9\b0\5c\b5\53\11\83\da\88\f9\76"
    "\ab\df\66\ee\52\51\3e\98\10\32\b4\2d\6d\c6\31\a8\3f\21\fb\98\c8\27\03\b0\e4\0e\ef\be\c7\7f\59\bf"
    "\c2\8f\a8\3d\f3\0b\e0\c6\25\a7\0a\93\47\91\a7\d5\6f\82\03\e0\51\63\ca\06\70\6e\0e\0a\67\29\29\14"
    "\fc\2f\d2\46\85\0a\b7\27\26\c9\26\5c\38\21\1b\2e\ed\2a\c4\5a\fc\6d\2c\4d\df\b3\95\9d\13\0d\38\53"
    "\de\63\af\8b\54\73\0a\65\a8\b2\77\3c\bb\0a\6a\76\e6\ae\ed\47\2e\c9\c2\81\3b\35\82\14\85\2c\72\92"
    "\64\03\f1\4c\a1\e8\bf\a2\01\30\42\bc\4b\66\1a\a8\91\97\f8\d0\70\8b\4b\c2\30\be\54\06\a3\51\6c\c7"
    "\18\52\ef\d6\19\e8\92\d1\10\a9\65\55\24\06\99\d6\2a\20\71\57\85\35\0e\f4\b8\d1\bb\32\70\a0\6a\10"
    "\c8\d0\d2\b8\16\c1\a4\19\53\ab\41\51\08\6c\37\1e\99\eb\8e\df\4c\77\48\27\a8\48\9b\e1\b5\bc\b0\34"
    "\63\5a\c9\c5\b3\0c\1c\39\cb\8a\41\e3\4a\aa\d8\4e\73\e3\63\77\4f\ca\9c\5b\a3\b8\b2\d6\f3\6f\2e\68"
    "\fc\b2\ef\5d\ee\82\8f\74\60\2f\17\43\6f\63\a5\78\72\ab\f0\a1\14\78\c8\84\ec\39\64\1a\08\02\c7\8c"
    "\28\1e\63\23\fa\ff\be\90\e9\bd\82\de\eb\6c\50\a4\15\79\c6\b2\f7\a3\f9\be\2b\53\72\e3\f2\78\71\c6"
    "\9c\61\26\ea\ce\3e\27\ca\07\c2\c0\21\c7\b8\86\d1\1e\eb\e0\cd\d6\7d\da\ea\78\d1\6e\ee\7f\4f\7d\f5"
    "\ba\6f\17\72\aa\67\f0\06\a6\98\c8\a2\c5\7d\63\0a\ae\0d\f9\be\04\98\3f\11\1b\47\1c\13\35\0b\71\1b"
    "\84\7d\04\23\f5\77\db\28\93\24\c7\40\7b\ab\ca\32\bc\be\c9\15\0a\be\9e\3c\4c\0d\10\9c\c4\67\1d\43"
    "\b6\42\3e\cb\be\d4\c5\4c\2a\7e\65\fc\9c\29\7f\59\ec\fa\d6\3a\ab\6f\cb\5f\17\58\47\4a\8c\19\44\6c")

  ;; Takes the blocks up to $end, and one at least, into a state. It lies there as the bytes of the
  ;; hash, and its length says which function it is of.
  (func $compress (export "compress") (param $state i32) (param $length i32) (param $block i32) (param $end i32)
    (loop $next
      (if (i32.eq (local.get $length) (i32.const 20)) (then (call $sha1 (local.get $state) (local.get $block))))
      (if (i32.eq (local.get $length) (i32.const 32)) (then (call $sha256 (local.get $state) (local.get $block))))
      (if (i32.eq (local.get $length) (i32.const 64)) (then
        (call $sha512 (local.get $state) (local.get $block))
        (local.set $block (i32.add (local.get $block) (i32.const 64)))))
      (local.set $block (i32.add (local.get $block) (i32.const 64)))
      (br_if $next (i32.lt_u (local.get $block) (local.get $end)))))

  ;; The loop of PBKDF2, which signs what it has signed, so many times. It has an
  ;; area of its own: the lengths of the state and of a signature, the states that
  ;; HMAC begins with, the state, the sum, and the block with what is signed.
  (func (export "stretch") (param $area i32) (param $times i32)
    (local $length i32) (local $size i32) (local $state i32) (local $sum i32) (local $block i32) (local $i i32)
    (local.set $length (i32.load (local.get $area)))
    (local.set $size (i32.load offset=4 (local.get $area)))
    (local.set $area (i32.add (local.get $area) (i32.const 8)))
    (local.set $state (i32.add (local.get $area) (i32.shl (local.get $length) (i32.const 1))))
    (local.set $sum (i32.add (local.get $state) (local.get $length)))
    (local.set $block (i32.add (local.get $sum) (local.get $size)))
    (loop $next
      (memory.copy (local.get $state) (local.get $area) (local.get $length))
      (call $compress (local.get $state) (local.get $length) (local.get $block) (local.get $block))
      (memory.copy (local.get $block) (local.get $state) (local.get $size))
      (memory.copy (local.get $state) (i32.add (local.get $area) (local.get $length)) (local.get $length))
      (call $compress (local.get $state) (local.get $length) (local.get $block) (local.get $block))
      (memory.copy (local.get $block) (local.get $state) (local.get $size))
      (local.set $i (local.get $size))
      (loop $words
        (local.set $i (i32.sub (local.get $i) (i32.const 4)))
        (i32.store (i32.add (local.get $sum) (local.get $i)) (i32.xor
          (i32.load (i32.add (local.get $sum) (local.get $i)))
          (i32.load (i32.add (local.get $state) (local.get $i)))))
        (br_if $words (local.get $i)))
      (br_if $next (local.tee $times (i32.sub (local.get $times) (i32.const 1))))))

  (func $sha1 (param $state i32) (param $block i32)
    (local $i i32) (local $t i32) (local $f i32) (local $k i32)
    (local $a i32) (local $b i32) (local $c i32) (local $d i32) (local $e i32)
    (loop $next
      (if (i32.lt_u (local.get $i) (i32.const 64))
        (then (local.set $t (call $swap32 (i32.load (i32.add (local.get $block) (local.get $i))))))
        (else (local.set $t (i32.rotl
          (i32.xor
            (i32.xor (i32.load offset=3060 (local.get $i)) (i32.load offset=3040 (local.get $i)))
            (i32.xor (i32.load offset=3016 (local.get $i)) (i32.load offset=3008 (local.get $i))))
          (i32.const 1)))))
      (i32.store offset=3072 (local.get $i) (local.get $t))
      (br_if $next (i32.lt_u (local.tee $i (i32.add (local.get $i) (i32.const 4))) (i32.const 320))))
    (local.set $a (call $swap32 (i32.load offset=0 (local.get $state))))
    (local.set $b (call $swap32 (i32.load offset=4 (local.get $state))))
    (local.set $c (call $swap32 (i32.load offset=8 (local.get $state))))
    (local.set $d (call $swap32 (i32.load offset=12 (local.get $state))))
    (local.set $e (call $swap32 (i32.load offset=16 (local.get $state))))
    (local.set $i (i32.const 0))
    (loop $round
      (local.set $f (i32.xor (local.get $b) (i32.xor (local.get $c) (local.get $d))))
      (local.set $k (select (i32.const 0x6ed9eba1) (i32.const 0xca62c1d6) (i32.lt_u (local.get $i) (i32.const 160))))
      (if (i32.lt_u (local.get $i) (i32.const 80)) (then
        (local.set $f (i32.xor (local.get $d) (i32.and (local.get $b) (i32.xor (local.get $c) (local.get $d)))))
        (local.set $k (i32.const 0x5a827999))))
      (if (i32.lt_u (i32.sub (local.get $i) (i32.const 160)) (i32.const 80)) (then
        (local.set $f (i32.or (i32.and (local.get $b) (local.get $c)) (i32.and (local.get $d) (i32.or (local.get $b) (local.get $c)))))
        (local.set $k (i32.const 0x8f1bbcdc))))
      (local.set $t (i32.add
        (i32.add (i32.rotl (local.get $a) (i32.const 5)) (local.get $f))
        (i32.add (i32.add (local.get $e) (local.get $k)) (i32.load offset=3072 (local.get $i)))))
      (local.set $e (local.get $d))
      (local.set $d (local.get $c))
      (local.set $c (i32.rotl (local.get $b) (i32.const 30)))
      (local.set $b (local.get $a))
      (local.set $a (local.get $t))
      (br_if $round (i32.lt_u (local.tee $i (i32.add (local.get $i) (i32.const 4))) (i32.const 320))))
    (call $add32 (local.get $state) (local.get $a))
    (call $add32 (i32.add (local.get $state) (i32.const 4)) (local.get $b))
    (call $add32 (i32.add (local.get $state) (i32.const 8)) (local.get $c))
    (call $add32 (i32.add (local.get $state) (i32.const 12)) (local.get $d))
    (call $add32 (i32.add (local.get $state) (i32.const 16)) (local.get $e)))

  (func $sha256 (param $state i32) (param $block i32)
    (local $i i32) (local $t i32)
    (local $a i32) (local $b i32) (local $c i32) (local $d i32) (local $e i32) (local $f i32) (local $g i32) (local $h i32)
    (loop $next
      (if (i32.lt_u (local.get $i) (i32.const 64))
        (then (local.set $t (call $swap32 (i32.load (i32.add (local.get $block) (local.get $i))))))
        (else
          (local.set $a (i32.load offset=3012 (local.get $i)))
          (local.set $b (i32.load offset=3064 (local.get $i)))
          (local.set $t (i32.add
            (i32.add (i32.load offset=3008 (local.get $i)) (i32.load offset=3044 (local.get $i)))
            (i32.add
              (i32.xor (i32.xor (i32.rotr (local.get $a) (i32.const 7)) (i32.rotr (local.get $a) (i32.const 18))) (i32.shr_u (local.get $a) (i32.const 3)))
              (i32.xor (i32.xor (i32.rotr (local.get $b) (i32.const 17)) (i32.rotr (local.get $b) (i32.const 19))) (i32.shr_u (local.get $b) (i32.const 10))))))))
      (i32.store offset=3072 (local.get $i) (local.get $t))
      (br_if $next (i32.lt_u (local.tee $i (i32.add (local.get $i) (i32.const 4))) (i32.const 256))))
    (local.set $a (call $swap32 (i32.load offset=0 (local.get $state))))
    (local.set $b (call $swap32 (i32.load offset=4 (local.get $state))))
    (local.set $c (call $swap32 (i32.load offset=8 (local.get $state))))
    (local.set $d (call $swap32 (i32.load offset=12 (local.get $state))))
    (local.set $e (call $swap32 (i32.load offset=16 (local.get $state))))
    (local.set $f (call $swap32 (i32.load offset=20 (local.get $state))))
    (local.set $g (call $swap32 (i32.load offset=24 (local.get $state))))
    (local.set $h (call $swap32 (i32.load offset=28 (local.get $state))))
    (local.set $i (i32.const 0))
    (loop $round
      (local.set $t (i32.add
        (i32.add (local.get $h) (i32.add (i32.load offset=3072 (local.get $i)) (i32.load offset=2052 (i32.shl (local.get $i) (i32.const 1)))))
        (i32.add
          (i32.xor (i32.xor (i32.rotr (local.get $e) (i32.const 6)) (i32.rotr (local.get $e) (i32.const 11))) (i32.rotr (local.get $e) (i32.const 25)))
          (i32.xor (local.get $g) (i32.and (local.get $e) (i32.xor (local.get $f) (local.get $g)))))))
      (local.set $h (local.get $g))
      (local.set $g (local.get $f))
      (local.set $f (local.get $e))
      (local.set $e (i32.add (local.get $d) (local.get $t)))
      (local.set $t (i32.add (local.get $t) (i32.add
        (i32.xor (i32.xor (i32.rotr (local.get $a) (i32.const 2)) (i32.rotr (local.get $a) (i32.const 13))) (i32.rotr (local.get $a) (i32.const 22)))
        (i32.or (i32.and (local.get $a) (local.get $b)) (i32.and (local.get $c) (i32.or (local.get $a) (local.get $b)))))))
      (local.set $d (local.get $c))
      (local.set $c (local.get $b))
      (local.set $b (local.get $a))
      (local.set $a (local.get $t))
      (br_if $round (i32.lt_u (local.tee $i (i32.add (local.get $i) (i32.const 4))) (i32.const 256))))
    (call $add32 (local.get $state) (local.get $a))
    (call $add32 (i32.add (local.get $state) (i32.const 4)) (local.get $b))
    (call $add32 (i32.add (local.get $state) (i32.const 8)) (local.get $c))
    (call $add32 (i32.add (local.get $state) (i32.const 12)) (local.get $d))
    (call $add32 (i32.add (local.get $state) (i32.const 16)) (local.get $e))
    (call $add32 (i32.add (local.get $state) (i32.const 20)) (local.get $f))
    (call $add32 (i32.add (local.get $state) (i32.const 24)) (local.get $g))
    (call $add32 (i32.add (local.get $state) (i32.const 28)) (local.get $h)))

  (func $sha512 (param $state i32) (param $block i32)
    (local $i i32) (local $t i64)
    (local $a i64) (local $b i64) (local $c i64) (local $d i64) (local $e i64) (local $f i64) (local $g i64) (local $h i64)
    (loop $next
      (if (i32.lt_u (local.get $i) (i32.const 128))
        (then (local.set $t (call $swap64 (i64.load (i32.add (local.get $block) (local.get $i))))))
        (else
          (local.set $a (i64.load offset=2952 (local.get $i)))
          (local.set $b (i64.load offset=3056 (local.get $i)))
          (local.set $t (i64.add
            (i64.add (i64.load offset=2944 (local.get $i)) (i64.load offset=3016 (local.get $i)))
            (i64.add
              (i64.xor (i64.xor (i64.rotr (local.get $a) (i64.const 1)) (i64.rotr (local.get $a) (i64.const 8))) (i64.shr_u (local.get $a) (i64.const 7)))
              (i64.xor (i64.xor (i64.rotr (local.get $b) (i64.const 19)) (i64.rotr (local.get $b) (i64.const 61))) (i64.shr_u (local.get $b) (i64.const 6))))))))
      (i64.store offset=3072 (local.get $i) (local.get $t))
      (br_if $next (i32.lt_u (local.tee $i (i32.add (local.get $i) (i32.const 8))) (i32.const 640))))
    (local.set $a (call $swap64 (i64.load offset=0 (local.get $state))))
    (local.set $b (call $swap64 (i64.load offset=8 (local.get $state))))
    (local.set $c (call $swap64 (i64.load offset=16 (local.get $state))))
    (local.set $d (call $swap64 (i64.load offset=24 (local.get $state))))
    (local.set $e (call $swap64 (i64.load offset=32 (local.get $state))))
    (local.set $f (call $swap64 (i64.load offset=40 (local.get $state))))
    (local.set $g (call $swap64 (i64.load offset=48 (local.get $state))))
    (local.set $h (call $swap64 (i64.load offset=56 (local.get $state))))
    (local.set $i (i32.const 0))
    (loop $round
      (local.set $t (i64.add
        (i64.add (local.get $h) (i64.add (i64.load offset=3072 (local.get $i)) (i64.load offset=2048 (local.get $i))))
        (i64.add
          (i64.xor (i64.xor (i64.rotr (local.get $e) (i64.const 14)) (i64.rotr (local.get $e) (i64.const 18))) (i64.rotr (local.get $e) (i64.const 41)))
          (i64.xor (local.get $g) (i64.and (local.get $e) (i64.xor (local.get $f) (local.get $g)))))))
      (local.set $h (local.get $g))
      (local.set $g (local.get $f))
      (local.set $f (local.get $e))
      (local.set $e (i64.add (local.get $d) (local.get $t)))
      (local.set $t (i64.add (local.get $t) (i64.add
        (i64.xor (i64.xor (i64.rotr (local.get $a) (i64.const 28)) (i64.rotr (local.get $a) (i64.const 34))) (i64.rotr (local.get $a) (i64.const 39)))
        (i64.or (i64.and (local.get $a) (local.get $b)) (i64.and (local.get $c) (i64.or (local.get $a) (local.get $b)))))))
      (local.set $d (local.get $c))
      (local.set $c (local.get $b))
      (local.set $b (local.get $a))
      (local.set $a (local.get $t))
      (br_if $round (i32.lt_u (local.tee $i (i32.add (local.get $i) (i32.const 8))) (i32.const 640))))
    (call $add64 (local.get $state) (local.get $a))
    (call $add64 (i32.add (local.get $state) (i32.const 8)) (local.get $b))
    (call $add64 (i32.add (local.get $state) (i32.const 16)) (local.get $c))
    (call $add64 (i32.add (local.get $state) (i32.const 24)) (local.get $d))
    (call $add64 (i32.add (local.get $state) (i32.const 32)) (local.get $e))
    (call $add64 (i32.add (local.get $state) (i32.const 40)) (local.get $f))
    (call $add64 (i32.add (local.get $state) (i32.const 48)) (local.get $g))
    (call $add64 (i32.add (local.get $state) (i32.const 56)) (local.get $h)))

  ;; What lies in memory has its most significant byte first.

  (func $swap32 (param $x i32) (result i32)
    (i32.or
      (i32.and (i32.rotl (local.get $x) (i32.const 8)) (i32.const 0x00ff00ff))
      (i32.and (i32.rotr (local.get $x) (i32.const 8)) (i32.const 0xff00ff00))))

  (func $swap64 (param $x i64) (result i64)
    (i64.or
      (i64.shl (i64.extend_i32_u (call $swap32 (i32.wrap_i64 (local.get $x)))) (i64.const 32))
      (i64.extend_i32_u (call $swap32 (i32.wrap_i64 (i64.shr_u (local.get $x) (i64.const 32)))))))

  (func $add32 (param $at i32) (param $x i32)
    (i32.store (local.get $at)
      (call $swap32 (i32.add (call $swap32 (i32.load (local.get $at))) (local.get $x)))))

  (func $add64 (param $at i32) (param $x i64)
    (i64.store (local.get $at)
      (call $swap64 (i64.add (call $swap64 (i64.load (local.get $at))) (local.get $x))))))
