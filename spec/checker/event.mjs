// Events and runs: event.md. A run is checked event by event, so memory does not grow with it
// but for the attempts that are open.

import { Buffer } from 'node:buffer'
import { blake3 } from './blake3.mjs'
import { Reader } from './cbor.mjs'
import { hex, quote, refuse, text, within } from './bytes.mjs'
import { renderJSON, showText } from './json.mjs'

// Section 5, with the payloads of section 6 in their order. A question mark marks a field that is
// absent if it has its zero value. Types: t text, b bytes, h hash, n hash or null, u and s
// unsigned and signed integers with their width, f float, o boolean, v any value, and others by name;
// brackets for an array.
const KINDS = [
  ['RunStarted', 'schema_version:u32 goal:t provider_id:t model_id:t api_version:t params_hash:n params:v system_prompt_hash:n system_prompt:t tool_registry_hash:n tool_schemas:[Tool] budget?:Budget starling_version?:t app_version?:t session_id?:t variables?:v max_turns?:u32 request?:Request caller?:Caller workspace?:Workspace'],
  ['UserMessageAppended', 'content:t'],
  ['TurnStarted', 'turn_id:t prompt_hash:n input_tokens:s64 images?:u32'],
  ['ReasoningEmitted', 'turn_id:t content:t sensitive:o signature?:b redacted?:o'],
  ['AssistantMessageCompleted', 'turn_id:t text:t tool_uses?:[Use] stop_reason:t input_tokens:s64 output_tokens:s64 cache_read_tokens?:s64 cache_create_tokens?:s64 cost_usd:f raw_response_hash:n provider_request_id?:t outcome?:t'],
  ['ToolCallScheduled', 'call_id:t turn_id:t tool:t args:v attempt:u32 idemp_key?:t parent_id?:t commitment?:b workspace?:Workspace'],
  ['ToolCallCompleted', 'call_id:t result:v duration_ms:s64 attempt:u32 fuel?:u64 peak_memory?:u64 log?:t workspace?:h'],
  ['ToolCallFailed', 'call_id:t error:t error_type:t duration_ms:s64 attempt:u32 final?:o wait_ms?:s64 fuel?:u64 peak_memory?:u64 log?:t workspace?:h'],
  ['SideEffectRecorded', 'name:t value:v call_id?:t request?:b error?:EffectError fuel?:u64 duration_us?:s64'],
  ['BudgetExceeded', 'limit:t cap:f actual:f where:t turn_id?:t call_id?:t partial_text?:t partial_tokens?:s64'],
  ['ContextTruncated', ''],
  ['RunCompleted', 'final_text:t turn_count:u32 tool_call_count:u32 total_cost_usd:f total_input_tokens:s64 total_output_tokens:s64 duration_ms:s64 merkle_root:h'],
  ['RunFailed', 'error:t error_type:t merkle_root:h duration_ms:s64'],
  ['RunCancelled', 'reason:t merkle_root:h duration_ms:s64'],
  ['RunResumed', 'at_seq:u64 extra_message?:t reissue_tools:o pending_calls:u32'],
  ['TurnFailed', ''],
]
const STRUCTS = {
  Tool: 'name:t schema_hash:h description_hash?:h sandbox?:Sandbox source?:t description?:t schema?:t position?:u32 attempts?:u32 in_code?:o',
  Sandbox: 'module:h abi:t cost_table:u32 limits:Limits rules?:u32 allow?:[t] policy?:Policy',
  Policy: 'operator?:h tenant?:h',
  Limits: 'fuel:u64 memory_pages:u32 depth:u32 timeout_ms:s64 input_bytes:u64 output_bytes:u64 log_bytes:u64 effects:u64 effect_bytes:u64',
  Budget: 'max_input_tokens?:s64 max_output_tokens?:s64 max_usd?:f max_wall_clock_ms?:s64 max_fuel?:u64 max_effects?:u64 max_egress_bytes?:u64',
  Request: 'tool_choice?:t stop_sequences?:[t] top_k?:s64 max_output_tokens?:s64',
  Caller: 'key_id?:t client?:t version?:t session?:t issuer?:t subject?:t actor?:t traceparent?:t delegation?:[h]',
  Use: 'call_id:t tool:t args:v malformed?:t',
  Workspace: 'root:h mounts:[Mount]',
  Mount: 'at:t writable?:o',
  EffectError: 'type:t message:t retry_after_ms?:s64',
  Encrypted: 'alg:t key:b data:b nonce:b merkle_root?:h',
}
const STATUS = { RunCompleted: 'completed', RunFailed: 'failed', RunCancelled: 'cancelled' }
const MAX_PAYLOAD = 16 << 20
const MAX_RUN_ID = 255

const integer = (value, least, bits) => typeof value === 'bigint' && value >= least && value < 1n << BigInt(bits)
const isHash = (value) => Buffer.isBuffer(value) && value.length === 32
const TYPES = {
  t: (v) => typeof v === 'string',
  b: Buffer.isBuffer,
  h: isHash,
  n: (v) => v === null || isHash(v),
  u32: (v) => integer(v, 0n, 32),
  u64: (v) => integer(v, 0n, 64),
  s64: (v) => integer(v, -(1n << 63n), 63),
  f: (v) => typeof v === 'number',
  o: (v) => typeof v === 'boolean',
  v: () => true,
}
const isZero = (v) => v === null || v === false || v === 0n || v === 0 || v?.length === 0

/** checkFields checks a map against a list of fields. Fields that are not listed are ignored (section 12). */
function checkFields(map, fields) {
  if (!(map instanceof Map)) refuse('not a map')
  for (const [, name, optional, type] of fields.matchAll(/(\w+)(\??):(\S+)/g)) {
    const value = map.get(name)
    if (value === undefined) {
      if (!optional) refuse(`${name} is missing`)
      continue
    }
    if (optional && isZero(value)) refuse(`${name} has its zero value and must be absent`)
    // The Starling runtime wrote null where there are no tools.
    if (name === 'tool_schemas' && value === null) continue
    within(name, () => checkType(value, type))
  }
}

function checkType(value, type) {
  if (type[0] === '[') {
    if (!Array.isArray(value)) refuse('not an array')
    value.forEach((v, i) => within(`${i}`, () => checkType(v, type.slice(1, -1))))
  } else if (STRUCTS[type]) {
    checkFields(value, STRUCTS[type])
  } else if (!TYPES[type](value)) {
    refuse('has the wrong type')
  }
}

/** readEvent reads an envelope: sections 1 and 2. It does not look into the payload. */
export function readEvent(envelope) {
  const reader = new Reader(envelope)
  const map = reader.head()
  if (map.major !== 5 || map.arg !== 6n) refuse('byte 0: not a map of six pairs')
  const field = (name, right, what) => {
    const at = reader.at
    if (reader.item(1) !== name) refuse(`byte ${at}: the key is not ${name}`)
    const start = reader.at
    const value = reader.item(1)
    if (!right(value)) refuse(`byte ${start}: ${name} is not ${what}`)
    return { value, bytes: envelope.subarray(start, reader.at) }
  }
  const ts = field('ts', TYPES.s64, 'an integer of 64 bits').value
  const seq = field('seq', TYPES.u64, 'an unsigned integer').value
  const kind = field('kind', (v) => integer(v, 0n, 8), 'a number up to 255').value
  const runID = field('run_id', TYPES.t, 'text').value
  // An empty payload is a map of text keys; one with other keys is no map of fields.
  const payload = field('payload', (v) => v instanceof Map || v?.list !== undefined, 'a map')
  const prevHash = field('prev_hash', TYPES.n, '32 bytes or null').value
  reader.end()
  return { ts, seq, kind: Number(kind), runID, payload: payload.value, payloadBytes: payload.bytes, prevHash, hash: blake3(envelope), envelope }
}

export const kindName = (kind) => KINDS[kind - 1]?.[0]
export const isTerminal = (kind) => kindName(kind) in STATUS

/** isEncrypted reports whether the payload is encrypted: exactly if its first key is alg (section 13). */
const isEncrypted = (payload) => payload instanceof Map && payload.keys().next().value === 'alg'

/** checkEvent checks what one event says for itself: sections 5, 6, 10 and 13. */
export function checkEvent(event) {
  const kind = KINDS[event.kind - 1] ?? refuse(`kind ${event.kind} is not known`)
  const id = Buffer.byteLength(event.runID)
  if (id < 1 || id > MAX_RUN_ID) refuse(`the run id has ${id} bytes, not 1 to ${MAX_RUN_ID}`)
  if (event.seq < 1n) refuse('events are numbered from 1')
  if ((event.seq === 1n) !== (event.prevHash === null)) refuse(event.seq === 1n ? 'the first event has a prev_hash' : 'prev_hash is null')
  if (event.payloadBytes.length > MAX_PAYLOAD) refuse(`the payload is larger than ${MAX_PAYLOAD} bytes`)
  if (isEncrypted(event.payload)) {
    checkFields(event.payload, STRUCTS.Encrypted)
    const { alg, key, nonce, data, merkle_root: root } = Object.fromEntries(event.payload)
    if (alg !== 'A256GCM' || key.length !== 16 || nonce.length !== 12 || data.length < 16) refuse('the payload is not encrypted with A256GCM')
    if ((root !== undefined) !== isTerminal(event.kind)) refuse('merkle_root belongs in the terminal event')
  } else {
    const version = event.kind === 1 && event.payload instanceof Map ? event.payload.get('schema_version') : 1n
    if (version > 1n) refuse(`schema version ${version} is newer than this program`)
    if (version < 1n) refuse('schema version 0')
    if (kind[1] !== '') within(kind[0], () => checkFields(event.payload, kind[1])) // else the kind is reserved
  }
}

/** exportLine is the line in which an export shows an event: section 11. */
export function exportLine(event) {
  return `{"envelope":"${event.envelope.toString('hex')}","hash":"${event.hash.toString('hex')}","kind":"${kindName(event.kind)}",` +
    `"payload":${renderJSON(event.payload)},"run_id":${showText(event.runID)},"seq":${event.seq},"ts":${event.ts}}`
}

/** RunChecker checks the events of one run, in order: sections 1, 4 and 5. */
export class RunChecker {
  constructor() {
    this.events = 0n
    this.hashes = [] // of all events but the terminal one
    this.attempts = new Map() // to whether the attempt was given files
    this.turn = null
    this.roots = [] // of files
    this.hidden = { turn: false, calls: 0 } // what is open in an encrypted run, by the kinds alone
  }

  add(event) {
    checkEvent(event)
    if (this.status) refuse('an event follows the terminal one')
    if (event.seq !== this.events + 1n) refuse(`event ${this.events + 1n} is missing`)
    if (this.events === 0n) {
      if (event.kind !== 1) refuse(`the first event is ${kindName(event.kind)}, not RunStarted`)
      this.runID = event.runID
      this.first = event.ts
      this.encrypted = isEncrypted(event.payload)
      this.modules = this.encrypted ? [] : modulesOf(event.payload)
    } else {
      if (event.kind === 1) refuse('a second RunStarted')
      if (event.runID !== this.runID) refuse(`the event is of run ${quote(event.runID)}`)
      if (!event.prevHash.equals(this.lastHash)) refuse(`prev_hash is not the hash of event ${this.events}`)
      if (isEncrypted(event.payload) !== this.encrypted) refuse('only some events of the run are encrypted')
    }
    if (this.encrypted) this.orderByKind(event)
    else this.order(event)
    if (isTerminal(event.kind)) {
      this.status = STATUS[kindName(event.kind)]
      if (!event.payload.get('merkle_root').equals(this.root())) refuse(`merkle_root is not that of the ${this.events} events before`)
    } else {
      this.hashes.push(event.hash)
    }
    this.events = event.seq
    this.last = event.ts
    this.lastHash = event.hash
  }

  root() {
    return merkleRoot(this.hashes)
  }

  /** give checks the files that the run or a call is given, and notes their root. */
  give(workspace) {
    if (!workspace) return
    checkMounts(workspace.get('mounts'))
    this.roots.push(workspace.get('root').toString('hex'))
  }

  /** order checks that turns and attempts at calls are closed: section 5. */
  order(event) {
    if (KINDS[event.kind - 1][1] === '') return
    const p = Object.fromEntries(event.payload)
    const attempt = `${p.attempt} ${p.call_id}`
    switch (kindName(event.kind)) {
      case 'RunStarted':
        this.give(p.workspace)
        break
      case 'TurnStarted':
        if (this.turn !== null) refuse(`a turn begins while turn ${quote(this.turn)} is open`)
        this.turn = p.turn_id
        break
      case 'AssistantMessageCompleted':
        if (this.turn !== p.turn_id) refuse(`turn ${quote(p.turn_id)} is not open`)
        this.turn = null
        break
      case 'BudgetExceeded':
        if (this.turn === p.turn_id) this.turn = null
        break
      case 'ToolCallScheduled':
        if (this.attempts.has(attempt)) refuse(`attempt ${p.attempt} of call ${quote(p.call_id)} is scheduled twice`)
        this.give(p.workspace)
        this.attempts.set(attempt, p.workspace !== undefined)
        break
      case 'ToolCallCompleted':
      case 'ToolCallFailed': {
        const left = this.attempts.get(attempt) && event.kind === 7
        if (!this.attempts.delete(attempt)) refuse(`attempt ${p.attempt} of call ${quote(p.call_id)} is not open`)
        if (left !== (p.workspace !== undefined)) refuse(`workspace is ${left ? 'missing' : 'not of this call'}`)
        if (left) this.roots.push(p.workspace.toString('hex'))
        break
      }
      case 'RunResumed':
        this.turn = null
        this.attempts.clear()
        break
      case 'RunCompleted':
      case 'RunFailed':
      case 'RunCancelled':
        if (this.turn !== null && event.kind === 12) refuse(`turn ${quote(this.turn)} is open`)
        if (this.attempts.size > 0) refuse(`${this.attempts.size} attempts at calls have no outcome`)
    }
  }

  /** orderByKind is order for an encrypted run. A budget may have closed the turn that is open. */
  orderByKind(event) {
    const open = this.hidden
    switch (kindName(event.kind)) {
      case 'TurnStarted':
        if (open.turn === true) refuse('a turn begins while another is open')
        open.turn = true
        break
      case 'AssistantMessageCompleted':
        if (!open.turn) refuse('no turn is open')
        open.turn = false
        break
      case 'BudgetExceeded':
        if (open.turn) open.turn = 'perhaps'
        break
      case 'ToolCallScheduled':
        open.calls++
        break
      case 'ToolCallCompleted':
      case 'ToolCallFailed':
        if (open.calls-- === 0) refuse('no attempt at a call is open')
        break
      case 'RunResumed':
        this.hidden = { turn: false, calls: 0 }
        break
      case 'RunCompleted':
      case 'RunFailed':
      case 'RunCancelled':
        if (open.turn === true && event.kind === 12) refuse('a turn is open')
        if (open.calls > 0) refuse(`${open.calls} attempts at calls have no outcome`)
    }
  }

  finish() {
    return {
      runID: this.runID, events: this.events, status: this.status ?? 'open', first: this.first, last: this.last, encrypted: this.encrypted,
      merkleRoot: this.root(), lastHash: this.lastHash, modules: this.modules, roots: this.roots,
    }
  }
}

/** checkMounts checks the mounts of a workspace: section 6. */
function checkMounts(mounts) {
  if (mounts.length < 1 || mounts.length > 64) refuse(`a workspace with ${mounts.length} mounts`)
  const paths = mounts.map((mount) => mount.get('at'))
  paths.forEach((at, i) => {
    const names = at.split('/')
    if (Buffer.byteLength(at) > 4096 || at.includes('\0') || names.shift() !== '' || names.length === 0 || names.some((name) => ['', '.', '..'].includes(name))) refuse(`a mount at ${quote(at)}`)
    for (const before of paths.slice(0, i)) {
      if (Buffer.compare(Buffer.from(before), Buffer.from(at)) >= 0 || at.startsWith(before + '/')) refuse(`a mount at ${quote(at)} after ${quote(before)}`)
    }
  })
}

/** modulesOf returns the digests of the modules that a RunStarted names, ascending. */
function modulesOf(payload) {
  const digests = (payload.get('tool_schemas') ?? []).map((tool) => tool.get('sandbox')?.get('module').toString('hex'))
  return [...new Set(digests.filter((d) => d !== undefined))].sort()
}

/** merkleRoot is the root over the hashes of events: section 4. */
export function merkleRoot(leaves) {
  if (leaves.length === 0) return Buffer.alloc(32)
  let level = leaves
  while (level.length > 1) {
    const above = []
    for (let i = 0; i < level.length; i += 2) above.push(blake3(Buffer.concat([level[i], level[i + 1] ?? level[i]])))
    level = above
  }
  return level[0]
}

/** checkPath checks an inclusion proof of that tree for leaf i of n. All siblings must be used. */
export function checkPath(leaf, i, n, path, root) {
  let node = leaf, used = 0
  for (; n > 1n; i /= 2n, n = (n + 1n) / 2n) {
    const sibling = (i ^ 1n) < n ? path[used++] ?? refuse('the path is too short') : node
    node = blake3(Buffer.concat(i % 2n === 1n ? [sibling, node] : [node, sibling]))
  }
  if (used !== path.length) refuse('the path is too long')
  if (!node.equals(root)) refuse('the path does not lead to merkle_root')
}

/** readExport checks the lines of runs.ndjson or of an export, and returns its runs in order. */
export function readExport(bytes, most = Infinity) {
  const runs = [], ids = new Set()
  let checker = null
  const finish = () => { if (checker) runs.push(checker.finish()) }
  for (let at = 0, number = 1; at < bytes.length; number++) {
    const end = bytes.indexOf(10, at)
    if (end < 0) refuse(`line ${number}: no line feed at the end`)
    const line = bytes.subarray(at, end)
    within(`line ${number}`, () => {
      const start = '{"envelope":"'.length
      const envelope = hex(text(line.subarray(start, Math.max(start, line.indexOf('"', start)))))
      const event = within('envelope', () => readEvent(envelope))
      if (checker?.runID !== event.runID) {
        finish()
        if (ids.has(event.runID)) refuse(`run ${quote(event.runID)} is there twice, or its events do not stand together`)
        if (runs.length === most) refuse(`more than ${most} runs`)
        ids.add(event.runID)
        checker = new RunChecker()
      }
      within(`event ${event.seq} of run ${quote(event.runID)}`, () => {
        checker.add(event)
        const want = Buffer.from(exportLine(event))
        let same = 0
        while (same < line.length && line[same] === want[same]) same++
        if (!line.equals(want)) refuse(`byte ${same} of the line is not as the envelope is exported`)
      })
    })
    at = end + 1
  }
  finish()
  return runs
}
