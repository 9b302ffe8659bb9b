// The source of the golden modules beside it: node spec/tck/modules/build.mjs writes them.
//
// Each is one tool, or one WASI command, in the text format of WebAssembly, and does one thing
// that abi.md or determinism.md promises. The .wasm files are what hosts are tested with; this
// file says what is in them. It needs the packages of guest-sdk/js (npm ci).

import { readFileSync, writeFileSync } from 'node:fs'
import { fileURLToPath } from 'node:url'


// Memory: the description at 16, texts from 4096, answers from 8192, the input from 32768.
const DESCRIBE = 16, TEXT = 4096, OUT = 8192, INPUT = 32768

const string = (text) => '"' + [...Buffer.from(text)].map((b) => '\\' + b.toString(16).padStart(2, '0')).join('') + '"'
const data = (at, text) => `(data (i32.const ${at}) ${string(text)})`
const slice = (at, length) => `(i64.const ${(BigInt(at) << 32n) | BigInt(length)})`
const IMPORT = {
  now: '(import "starling:v1" "now" (func $now (result i64)))',
  random: '(import "starling:v1" "random" (func $random (result i64)))',
  http: '(import "starling:v1" "http" (func $http (param i32 i32 i32 i32) (result i64)))',
  clock: '(import "wasi_snapshot_preview1" "clock_time_get" (func $clock (param i32 i64 i32) (result i32)))',
  seeded: '(import "wasi_snapshot_preview1" "random_get" (func $seeded (param i32 i32) (result i32)))',
  write: '(import "wasi_snapshot_preview1" "fd_write" (func $write (param i32 i32 i32 i32) (result i32)))',
  read: '(import "wasi_snapshot_preview1" "fd_read" (func $read (param i32 i32 i32 i32) (result i32)))',
  exit: '(import "wasi_snapshot_preview1" "proc_exit" (func $exit (param i32)))',
}

/** tool is a module with one tool. Code is the body of starling_execute. */
function tool(name, code, { imports = [], more = '', alloc = `(i32.const ${INPUT})`, description, pages = 1 } = {}) {
  const text = description ?? JSON.stringify({ tools: [{ name, description: `The tool ${name} of the kit.`, input_schema: { type: 'object' } }] })
  return `(module
  ${imports.map((i) => IMPORT[i]).join('\n  ')}
  (memory (export "memory") ${pages})
  ${data(DESCRIBE, text)}
  (func (export "starling_alloc") (param $size i32) (result i32) ${alloc})
  (func (export "starling_describe") (result i64) ${slice(DESCRIBE, Buffer.byteLength(text))})
  (func (export "starling_execute") (param $at i32) (param $size i32) (result i64) (local $i i32) (local $n i64)
    ${code})
  ${more})`
}

/** says is a tool that returns a document whatever its input is. */
const says = (name, document) => tool(name, slice(TEXT, Buffer.byteLength(document)), { more: data(TEXT, document) })

/** shows is a tool that returns numbers of 64 bits, which its code has put on the stack, in hexadecimal. */
function shows(name, numbers, options = {}) {
  const document = `{"output":"${'0'.repeat(16 * numbers.length)}"}`
  const stores = numbers.map((n, i) => `(call $hex (i32.const ${TEXT + 11 + 16 * i}) ${n})`).join('\n    ')
  return tool(name, `${stores}\n    ${slice(TEXT, document.length)}`, { ...options, more: `${data(TEXT, document)}
  (func $hex (param $at i32) (param $n i64) (local $i i32) (local $digit i32)
    (local.set $i (i32.const 15))
    (loop $next
      (local.set $digit (i32.wrap_i64 (i64.and (local.get $n) (i64.const 15))))
      (i32.store8 (i32.add (local.get $at) (local.get $i))
        (i32.add (local.get $digit) (select (i32.const 87) (i32.const 48) (i32.gt_u (local.get $digit) (i32.const 9)))))
      (local.set $n (i64.shr_u (local.get $n) (i64.const 4)))
      (local.set $i (i32.sub (local.get $i) (i32.const 1)))
      (br_if $next (i32.ge_s (local.get $i) (i32.const 0)))))
  ${options.more ?? ''}` })
}

/** clock and seeded read from WASI into memory, and are a number of 64 bits. */
const clock = (id) => `(block (result i64) (drop (call $clock (i32.const ${id}) (i64.const 0) (i32.const ${OUT}))) (i64.load (i32.const ${OUT})))`
const seeded = `(block (result i64) (drop (call $seeded (i32.const ${OUT}) (i32.const 8))) (i64.load (i32.const ${OUT})))`
const request = 'GET https://tck.invalid/ HTTP/1.1\r\n\r\n', malformed = 'GET https://tck.invalid/ HTTP/1.1\n\n'
const http = (at, size) => `(call $http (i32.const ${at}) (i32.const ${size}) (i32.const ${OUT}) (i32.const 0))`

/** command is a WASI command. Its streams are written with $say. */
function command(code, texts) {
  return `(module
  ${IMPORT.read}\n  ${IMPORT.write}\n  ${IMPORT.exit}
  (memory (export "memory") 1)
  ${texts.map((t, i) => data(TEXT + 256 * i, t)).join('\n  ')}
  (func $say (param $fd i32) (param $at i32) (param $size i32)
    (i32.store (i32.const 0) (local.get $at))
    (i32.store (i32.const 4) (local.get $size))
    (drop (call $write (local.get $fd) (i32.const 0) (i32.const 1) (i32.const 8))))
  (func (export "_start") ${code}))`
}
const say = (fd, texts, i) => `(call $say (i32.const ${fd}) (i32.const ${TEXT + 256 * i}) (i32.const ${Buffer.byteLength(texts[i])}))`

const logged = Buffer.from('one\n\xfftwo\n', 'latin1')
const answer = '{"output":{"answer":42,"exact":1.50,"big":123456789012345678901234567890,"text":"\\u0041"}}'
const streams = ['{"from":"a command"}', 'to the log', '{"in":', '}']

const MODULES = {
  // Documents
  answer: says('answer', answer),
  echo: tool('echo', `
    (memory.copy (i32.const ${OUT + 10}) (local.get $at) (local.get $size))
    (i32.store8 (i32.add (i32.const ${OUT + 10}) (local.get $size)) (i32.const 125))
    (i64.or (i64.const ${BigInt(OUT) << 32n}) (i64.extend_i32_u (i32.add (local.get $size) (i32.const 11))))`,
    { more: data(OUT, '{"output":') }),
  transient: says('transient', '{"error":{"kind":"transient","message":"the service is busy","retry_after_ms":500}}'),
  unknown_kind: says('unknown_kind', '{"error":{"kind":"of the future","message":"no such kind"}}'),
  both: says('both', '{"output":1,"error":{"kind":"tool","message":"and an output"}}'),
  neither: says('neither', '{}'),
  not_json: says('not_json', '{"output":01}'),
  // How a call ends
  trap: tool('trap', '(unreachable)'),
  divide: tool('divide', '(i64.div_s (i64.const 1) (local.get $n))'),
  bounds: tool('bounds', '(i64.load (i32.const 65529))'),
  bad_address: tool('bad_address', slice(65530, 100)),
  no_room: tool('no_room', slice(TEXT, 0), { alloc: '(i32.const 0)' }),
  exit: tool('exit', `(call $exit (i32.const 0)) ${slice(TEXT, 0)}`, { imports: ['exit'] }),
  refused_sealed: tool('refused', slice(TEXT, 0), { imports: ['now'], more: '(func (export "_initialize") (drop (call $now)))' }),
  spin: tool('spin', '(loop $again (br $again)) (unreachable)'),
  deep: tool('deep', '(call $deep (i64.const 0))', { more: '(func $deep (param i64) (result i64) (i64.add (i64.const 1) (call $deep (local.get 0))))' }),
  long: tool('long', `(drop (memory.grow (i32.const 17))) (memory.fill (i32.const ${TEXT + 11}) (i32.const 120) (i32.const 1048577))
    (i32.store16 (i32.const ${TEXT + 11 + 1048577}) (i32.const 32034)) ${slice(TEXT, 11 + 1048577 + 2)}`, { more: data(TEXT, '{"output":"') }),
  grow: tool('grow', '(drop (i32.eq (memory.grow (i32.const 60000)) (i32.const -1))) (unreachable)'),
  many: tool('many', '(loop $again (drop (call $now)) (br $again)) (unreachable)', { imports: ['now'] }),
  // State and order
  order: shows('order', ['(i64.load (i32.const 0))'], { more: `(start $start)
  (func $put (param i64) (i64.store (i32.const 0) (i64.or (i64.shl (i64.load (i32.const 0)) (i64.const 8)) (local.get 0))))
  (func $start (call $put (i64.const 1)))
  (func (export "_initialize") (call $put (i64.const 2)))
  (func (export "starling_warmup") (call $put (i64.const 3)))` }),
  once: shows('once', ['(i64.add (i64.load (i32.const 0)) (i64.const 1))', '(block (result i64) (i64.store (i32.const 0) (i64.const 7)) (i64.load (i32.const 0)))']),
  memory: shows('memory', ['(i64.extend_i32_s (memory.grow (i32.const 1)))', '(i64.extend_i32_s (memory.grow (i32.const 60000)))', '(i64.extend_i32_s (memory.size))']),
  // Effects
  effects: shows('effects', ['(call $now)', '(call $random)', '(call $now)'], { imports: ['now', 'random'] }),
  http: shows('http', [http(0, 0), http(TEXT + 256, request.length), http(TEXT + 512, malformed.length)],
    { imports: ['http'], more: data(TEXT + 256, request) + data(TEXT + 512, malformed) }),
  clock: shows('clock', [clock(1), clock(1), clock(0), seeded, seeded, '(call $now)', clock(0)], { imports: ['clock', 'seeded', 'now'] }),
  log: tool('log', `(i32.store (i32.const 0) (i32.const ${TEXT + 256})) (i32.store (i32.const 4) (i32.const ${logged.length}))
    (drop (call $write (i32.const 1) (i32.const 0) (i32.const 1) (i32.const 8)))
    (drop (call $write (i32.const 2) (i32.const 0) (i32.const 1) (i32.const 8))) ${slice(TEXT, 13)}`,
    { imports: ['write'], more: data(TEXT, '{"output":{}}') + `(data (i32.const ${TEXT + 256}) ${'"' + [...logged].map((b) => '\\' + b.toString(16).padStart(2, '0')).join('') + '"'})` }),
  // Fuel: a price of each kind
  fuel: shows('fuel', ['(local.get $n)'].map(() => `(block (result i64)
      (local.set $i (i32.const 10))
      (loop $next
        (local.set $n (i64.add (local.get $n) (call $leaf (i64.extend_i32_u (local.get $i)))))
        (local.set $n (i64.add (local.get $n) (call_indirect (type $one) (i64.const 3) (i32.const 0))))
        (if (i32.and (local.get $i) (i32.const 1))
          (then (local.set $n (i64.rem_u (i64.mul (local.get $n) (i64.const 7)) (i64.const 1000003))))
          (else (local.set $n (i64.div_u (i64.mul (local.get $n) (i64.const 9)) (i64.const 5)))))
        (local.set $i (i32.sub (local.get $i) (i32.const 1)))
        (br_if $next (local.get $i)))
      (memory.fill (i32.const ${OUT}) (i32.const 7) (i32.const 1001))
      (memory.copy (i32.const ${OUT + 2000}) (i32.const ${OUT}) (i32.const 999))
      (drop (memory.grow (i32.const 2)))
      (f64.store (i32.const ${OUT}) (f64.sqrt (f64.div (f64.const 10) (f64.const 3))))
      (block $out (block $one (block $two (br_table $one $two $out (i32.const 1))) (nop)) (nop))
      (i64.xor (local.get $n) (i64.load (i32.const ${OUT}))))`), { more: `(type $one (func (param i64) (result i64)))
  (table 2 2 funcref) (elem (i32.const 0) $leaf $recursive)
  (func $leaf (param i64) (result i64) (i64.mul (local.get 0) (local.get 0)))
  (func $recursive (param i64) (result i64) (if (result i64) (i64.eqz (local.get 0)) (then (i64.const 1)) (else (call $recursive (i64.sub (local.get 0) (i64.const 1))))))` }),
  // WASI commands
  command: command(`${say(2, streams, 1)} ${say(1, streams, 0)}`, streams),
  command_input: command(`${say(1, streams, 2)}
    (i32.store (i32.const 0) (i32.const ${OUT})) (i32.store (i32.const 4) (i32.const 1024))
    (drop (call $read (i32.const 0) (i32.const 0) (i32.const 1) (i32.const 8)))
    (call $say (i32.const 1) (i32.const ${OUT}) (i32.load (i32.const 8))) ${say(1, streams, 3)} (call $exit (i32.const 0))`, streams),
  command_fails: command(`${say(2, streams, 1)} (call $exit (i32.const 3))`, streams),
  // What a host refuses to load
  refused_import: tool('refused', slice(TEXT, 0)).replace('(module', '(module (import "env" "system" (func (param i32) (result i32)))'),
  refused_type: tool('refused', slice(TEXT, 0)).replace('(module', '(module (import "starling:v1" "now" (func (result i32)))'),
  refused_global: tool('refused', slice(TEXT, 0)).replace('(module', '(module (import "env" "base" (global i32))'),
  refused_vector: tool('refused', slice(TEXT, 0), { more: '(func (export "v") (drop (v128.const i32x4 1 2 3 4)))' }),
  refused_passive: tool('refused', slice(TEXT, 0), { more: '(data $p "x") (func (export "p") (memory.init $p (i32.const 0) (i32.const 0) (i32.const 1)))' }),
  refused_table: tool('refused', slice(TEXT, 0), { more: '(table $t 1 funcref) (func (export "t") (drop (table.grow $t (ref.null func) (i32.const 1))))' }),
  refused_tail: tool('refused', slice(TEXT, 0), { more: '(func $f (export "f") (return_call $f))' }),
  refused_memory: tool('refused', slice(TEXT, 0), { pages: 2000 }),
  refused_half: tool('refused', slice(TEXT, 0)).replace('(export "starling_describe")', ''),
  refused_nothing: '(module)',
  refused_name: tool('Refused', slice(TEXT, 0)),
  refused_member: tool('refused', slice(TEXT, 0), { description: '{"tools":[{"name":"refused","description":"","input_schema":{"type":"object"},"colour":"red"}]}' }),
  refused_schema: tool('refused', slice(TEXT, 0), { description: '{"tools":[{"name":"refused","description":""}]}' }),
  refused_twice: tool('refused', slice(TEXT, 0), { description: '{"tools":[{"name":"refused","description":"","input_schema":{"type":"object"}},{"name":"refused","description":"","input_schema":{"type":"object"}}]}' }),
}

/** assembler returns the function that makes a module of its text. */
async function assembler() {
  const { default: binaryen } = await import(new URL('../../../guest-sdk/js/node_modules/binaryen/index.js', import.meta.url))
  const { MVP, BulkMemory, SignExt, Multivalue, ReferenceTypes, SIMD128, TailCall } = binaryen.Features
  return (text) => {
    const module = binaryen.parseText(text)
    module.setFeatures(MVP | BulkMemory | SignExt | Multivalue | ReferenceTypes | SIMD128 | TailCall)
    const bytes = module.emitBinary()
    module.dispose()
    return Buffer.from(bytes)
  }
}

// With --check, the files are compared and not written.
if (process.argv[1] === fileURLToPath(import.meta.url)) {
  const assemble = await assembler()
  for (const [name, text] of Object.entries(MODULES)) {
    const file = new URL(`${name}.wasm`, import.meta.url), bytes = assemble(text)
    if (process.argv[2] !== '--check') {
      writeFileSync(file, bytes)
    } else if (!readFileSync(file).equals(bytes)) {
      console.log(`${name}.wasm is not what its source says`)
      process.exitCode = 1
    }
  }
}
