// A host of a page for guests, and what an SDK has to do in it: abi.md, sections 2 to 7.
//
// It runs a module with the WebAssembly engine of Node, answers its imports with what a case
// wants, and records nothing. It trusts the module: use it for what you have built.

import { Buffer } from 'node:buffer'
import { isDeepStrictEqual } from 'node:util'
import { refuse } from '../checker/bytes.mjs'
import { readJSON } from '../checker/json.mjs'

const TOOL_EXPORTS = { memory: 'memory', starling_alloc: 'function', starling_describe: 'function', starling_execute: 'function' }
const NOTHING_HELD = -6n, EBADF = 8, ESPIPE = 70

/** Guest is one instance of a module, after its start-up. World answers now, random and http. */
class Guest {
  constructor(module, world) {
    this.log = ''
    this.virtual = 0n // the clock of WASI
    this.held = null
    this.world = null
    const imports = { 'starling:v1': this.effects(), wasi_snapshot_preview1: this.wasi(module) }
    this.exports = new WebAssembly.Instance(module, imports).exports
    this.exports._initialize?.()
    this.exports.starling_warmup?.()
    this.world = world
  }

  bytes(at, size) {
    if ((at >>> 0) + (size >>> 0) > this.exports.memory.buffer.byteLength) refuse(`${size >>> 0} bytes at ${at >>> 0} are outside of memory`)
    return Buffer.from(this.exports.memory.buffer, at >>> 0, size >>> 0)
  }

  effects() {
    const effect = (name, ...args) => (this.world?.[name] ?? refuse(`it calls ${name}, which has no place here`))(...args)
    return {
      now: () => effect('now'),
      random: () => BigInt.asIntN(64, effect('random')),
      http: (at, size, buf, cap) => {
        let status = 0n
        if (size !== 0) {
          const { response, failure, text } = effect('http', this.bytes(at, size).toString('latin1'))
          this.held = Buffer.from(response ?? text, 'latin1')
          status = BigInt(failure ?? 0)
        }
        const room = this.bytes(buf, cap)
        if (status < 0n) return status
        if (this.held === null) return NOTHING_HELD
        const held = this.held
        if (held.length <= room.length) {
          held.copy(room)
          this.held = null
        }
        return BigInt(held.length)
      },
    }
  }

  /** wasi is as much of section 7 as language runtimes use. The rest answers EBADF. */
  wasi(module) {
    const view = () => new DataView(this.exports.memory.buffer)
    const number = (at, value) => view().setUint32(at, value, true)
    const known = {
      args_sizes_get: (count, size) => { number(count, 1); number(size, 5); return 0 },
      args_get: (list, at) => { number(list, at); this.bytes(at, 5).write('tool\0'); return 0 },
      environ_sizes_get: (count, size) => { number(count, 0); number(size, 0); return 0 },
      environ_get: () => 0,
      clock_time_get: (id, _, at) => {
        this.virtual += 1000n
        if (id === 0) this.start ??= this.world ? this.world.now() - this.virtual : 946684800000000000n
        view().setBigUint64(at, this.virtual + (id === 0 ? this.start : 0n), true)
        return 0
      },
      clock_res_get: (_, at) => { view().setBigUint64(at, 1000n, true); return 0 },
      random_get: (at, size) => { this.bytes(at, size).fill(7); return 0 },
      fd_fdstat_get: (fd, at) => { this.bytes(at, 24).fill(0).writeUInt8(2); return fd < 3 ? 0 : EBADF },
      fd_filestat_get: (fd, at) => { this.bytes(at, 64).fill(0).writeUInt8(2, 16); return fd < 3 ? 0 : EBADF },
      fd_seek: (fd) => (fd < 3 ? ESPIPE : EBADF),
      fd_write: (fd, areas, count, at) => {
        let size = 0
        for (let i = 0; i < count; i++) {
          const area = this.bytes(view().getUint32(areas + 8 * i, true), view().getUint32(areas + 8 * i + 4, true))
          this.log += area.toString()
          size += area.length
        }
        number(at, size)
        return fd === 1 || fd === 2 ? 0 : EBADF
      },
      poll_oneoff: (subscriptions, events, count, at) => {
        for (let i = 0; i < count; i++) {
          this.bytes(events + 32 * i, 32).fill(0)
          this.bytes(subscriptions + 48 * i, 8).copy(this.bytes(events + 32 * i, 8))
          this.virtual += view().getBigUint64(subscriptions + 48 * i + 24, true)
        }
        number(at, count)
        return 0
      },
      sched_yield: () => 0,
      proc_exit: (code) => refuse(`it exits with code ${code}; its log: ${this.log}`),
    }
    const names = WebAssembly.Module.imports(module).filter((i) => i.module === 'wasi_snapshot_preview1').map((i) => i.name)
    return Object.fromEntries(names.map((name) => [name, known[name] ?? (() => EBADF)]))
  }

  document(slice) {
    const n = BigInt.asUintN(64, slice)
    return Buffer.from(this.bytes(Number(n >> 32n), Number(n & 0xffffffffn)))
  }

  describe() { return this.document(this.exports.starling_describe()) }

  execute(input) {
    const document = Buffer.from(input)
    const at = this.exports.starling_alloc(document.length)
    if (at === 0) refuse('starling_alloc has no room')
    document.copy(this.bytes(at, document.length))
    return this.document(this.exports.starling_execute(at, document.length))
  }
}

/** plain is a JSON document as JavaScript has it; readJSON is strict, and refuses what is no JSON. */
function plain(bytes) {
  readJSON(bytes)
  return JSON.parse(bytes.toString())
}

function same(what, got, want) {
  if (!isDeepStrictEqual(got, want)) refuse(`${what} is ${JSON.stringify(got)?.slice(0, 300)}, not ${JSON.stringify(want)?.slice(0, 300)}`)
}

const CONTEXT = '{"run_id":"r/1","call_id":"c","attempt":1}'
const message = (status, body, headers = '') => `HTTP/1.1 ${status}\r\nContent-Length: ${body.length}\r\n${headers}\r\n${body}`

/** checkRequest parses a request as section 5 wants it. */
function checkRequest(request, want) {
  const end = request.indexOf('\r\n\r\n')
  const [first, ...lines] = request.slice(0, end).split('\r\n'), body = request.slice(end + 4)
  if (end < 0 || /[^\r]\n|\r[^\n]/.test(request.slice(0, end))) refuse('the request has no lines that end in CRLF')
  same('the request line', first, want.line)
  const headers = lines.map((line) => /^([!#$%&'*+.^_`|~0-9A-Za-z-]+):[ \t]*(.*?)[ \t]*$/.exec(line)?.slice(1) ?? refuse(`the header line ${line}`))
  const values = (name) => headers.filter((h) => h[0].toLowerCase() === name).map((h) => h[1])
  same('the body', body, want.body)
  if (body !== '' || values('content-length').length > 0) same('Content-Length', values('content-length'), [`${body.length}`])
  same('Starling-Effect', values('starling-effect'), want.effect)
}

/** checkGuest returns the cases for a module with the tools of README.md. */
export function checkGuest(wasm) {
  const module = new WebAssembly.Module(wasm)
  const call = (tool, input, { world = {}, context = CONTEXT } = {}) => plain(new Guest(module, world).execute(`{"tool":"${tool}","input":${input},"context":${context}}`))
  const output = (document) => document.output ?? refuse(`no output: ${JSON.stringify(document)}`)
  const cases = []
  const add = (name, step) => cases.push([name, step])

  add('it has the exports of a tool', () => {
    const exports = Object.fromEntries(WebAssembly.Module.exports(module).map((e) => [e.name, e.kind]))
    for (const [name, kind] of Object.entries(TOOL_EXPORTS)) same(name, exports[name], kind)
  })
  add('it imports nothing but starling:v1 and WASI', () => {
    for (const { module: from, name, kind } of WebAssembly.Module.imports(module)) {
      const allowed = kind === 'function' && ((from === 'starling:v1' && ['now', 'random', 'http'].includes(name)) || from === 'wasi_snapshot_preview1')
      if (!allowed) refuse(`it imports ${kind} ${from} ${name}`)
    }
  })
  add('the description is as section 3 says, twice the same, without effects', () => {
    const text = new Guest(module, null).describe(), { tools, ...more } = plain(text)
    if (!text.equals(new Guest(module, null).describe())) refuse('the second time it is another one')
    same('other members', more, {})
    same('the names', tools.map((t) => t.name).sort(), ['echo', 'effects', 'fail', 'fetch'])
    for (const tool of tools) {
      for (const member of Object.keys(tool)) if (!['name', 'description', 'input_schema', 'output_schema', 'effects', 'idempotent', 'limits'].includes(member)) refuse(`${tool.name} has the member ${member}`)
      same('type in input_schema', tool.input_schema.type, 'object')
      if (typeof tool.description !== 'string' || Buffer.byteLength(tool.description) > 4096) refuse(`the description of ${tool.name}`)
    }
  })

  const echoed = (input, context = {}) => ({ input, run_id: 'r/1', call_id: 'c', attempt: 1, variables: null, ...context })
  for (const [what, input] of Object.entries({
    'nothing': '{}', 'values of each type': '{"a":[1,-2.5,true,null,{"b":"c"}],"":""}', 'characters of all planes': '{"t":"\\u0000\\n\\"\\\\é\u2028漢😀"}', 'escapes': '{"\\u0061":"\\ud83d\\ude00"}',
    'a hundred kilobytes': JSON.stringify({ t: 'x'.repeat(100_000) }), 'sixty levels': '{"a":'.repeat(59) + '{}' + '}'.repeat(59) })) {
    add(`echo returns its input: ${what}`, () => same('the output', output(call('echo', input)), echoed(JSON.parse(input))))
  }
  add('echo has the context', () => same('the output', output(call('echo', '{}', { context: '{"run_id":"r/2","call_id":"d","attempt":3,"variables":{"team":"a"}}' })),
    echoed({}, { run_id: 'r/2', call_id: 'd', attempt: 3, variables: { team: 'a' } })))
  add('members have any order, and those that are not known mean nothing', () => {
    const guest = new Guest(module, {})
    same('the output', output(plain(guest.execute(`{"more":{"tool":"fail"},"context":{"later":[1],"attempt":1,"call_id":"c","run_id":"r/1"},\n "input" : {"a":1}, "tool":"echo"}`))), echoed({ a: 1 }))
  })
  add('the same call gives the same bytes', () => {
    const once = () => new Guest(module, {}).execute(`{"tool":"echo","input":{"b":1,"a":2},"context":${CONTEXT}}`)
    if (!once().equals(once())) refuse('another document')
  })
  for (const kind of ['tool', 'transient', 'cancel', 'discard', 'snooze']) {
    add(`fail returns an error: ${kind}`, () => {
      const { error, ...more } = call('fail', `{"kind":"${kind}","message":"no \\"luck\\" é"}`)
      same('other members', more, {})
      same('the error', [error?.kind, error?.message], [kind, 'no "luck" é'])
      if (kind === 'snooze') same('retry_after_ms', error.retry_after_ms, 1500)
    })
  }
  add('effects reads the clock and draws a random number, once each', () => {
    const seen = []
    const world = { now: () => { seen.push('now'); return 1764000000123456789n }, random: () => { seen.push('random'); return 0xfedcba9876543210n } }
    same('the output', output(call('effects', '{}', { world })), { now_ms: 1764000000123, random: '18364758544493064720' })
    same('the effects', seen, ['now', 'random'])
  })

  const fetched = (answer, want, { input = '{"url":"https://example.com/a?b=c"}', request = { line: 'GET https://example.com/a?b=c HTTP/1.1', body: '', effect: [] } } = {}) => {
    let count = 0
    const http = (text) => { count++; checkRequest(text, request); return answer }
    same('the output', output(call('fetch', input, { world: { http } })), want)
    same('the number of exchanges', count, 1)
  }
  add('fetch returns a response', () => fetched({ response: message('200 OK', 'hello', 'Content-Type: text/plain\r\n') }, { status: 200, body: 'hello' }))
  add('fetch returns a response without a body', () => fetched({ response: 'HTTP/1.1 204 No Content\r\n\r\n' }, { status: 204, body: '' }))
  add('fetch returns a response of a server that fails', () => fetched({ response: message('503 Service Unavailable', 'later') }, { status: 503, body: 'later' }))
  add('fetch returns a response that is larger than any buffer', () => fetched({ response: message('200 OK', 'y'.repeat(500_000)) }, { status: 200, body: 'y'.repeat(500_000) }))
  add('fetch sends a body and names the effect', () => fetched({ response: message('201 Created', '{}') }, { status: 201, body: '{}' }, {
    input: '{"url":"http://127.0.0.1:8080/x","method":"POST","body":"{\\"a\\":1}","effect":"create x"}',
    request: { line: 'POST http://127.0.0.1:8080/x HTTP/1.1', body: '{"a":1}', effect: ['create x'] } }))
  for (const [failure, name] of [[-1, 'denied'], [-2, 'network'], [-3, 'timeout'], [-4, 'too_large'], [-5, 'malformed']]) {
    add(`fetch tells a failure: ${name}`, () => fetched({ failure, text: `it is ${name}` }, { failed: name }))
  }
  add('fetch takes an unknown status for a failure', () => {
    const document = call('fetch', '{"url":"https://example.com/"}', { world: { http: () => ({ failure: -77, text: 'of the future' }) } })
    if (document.output?.status !== undefined || (document.output === undefined && document.error === undefined)) refuse(`it returns ${JSON.stringify(document)}`)
  })
  return cases
}
