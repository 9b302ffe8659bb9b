// The checker's own tests: node --test spec/checker/check.test.mjs
//
// Known answers come from the specifications of others. Bundles and proofs are made here, with
// keys of this file, so that every byte of them can be tampered with.

import assert from 'node:assert/strict'
import { Buffer } from 'node:buffer'
import { createHash, createPrivateKey, createPublicKey, sign } from 'node:crypto'
import { mkdtempSync, readFileSync, rmSync, writeFileSync } from 'node:fs'
import { join } from 'node:path'
import { tmpdir } from 'node:os'
import test from 'node:test'
import { fileURLToPath } from 'node:url'
import { blake3 } from './blake3.mjs'
import { checkBundle } from './bundle.mjs'
import { Refused } from './bytes.mjs'
import { encode } from './cbor.mjs'
import { main } from './check.mjs'
import { exportLine, kindName, merkleRoot, readEvent } from './event.mjs'
import { canonicalJSON } from './json.mjs'
import { checkInclusion, checkPolicy, checkProofDocument, checkSignature, leafOf, readCheckpoint, readLogKey, readPolicy } from './seal.mjs'
import { checkVectors } from './vectors.mjs'

const VECTORS = fileURLToPath(new URL('../vectors', import.meta.url))
const sha256 = (...parts) => createHash('sha256').update(Buffer.concat(parts.map((p) => Buffer.from(p)))).digest()
const object = (fields) => new Map(Object.entries(fields))
const nothing = () => {}
const refused = (step, message) => assert.throws(step, (err) => err instanceof Refused && (!message || message.test(err.message)))

// Who signs here.

/** signer makes an Ed25519 key of 32 equal bytes and its vkey of a type. */
function signer(name, type, byte) {
  const pkcs8 = Buffer.concat([Buffer.from('302e020100300506032b657004220420', 'hex'), Buffer.alloc(32, byte)])
  const key = createPrivateKey({ key: pkcs8, format: 'der', type: 'pkcs8' })
  const typed = Buffer.concat([Buffer.from([type]), Buffer.from(createPublicKey(key).export({ format: 'jwk' }).x, 'base64url')])
  const hash = (as) => sha256(as, '\n', typed).subarray(0, 4)
  const line = (as, ...value) => `\u2014 ${as} ${Buffer.concat([hash(as), ...value]).toString('base64')}\n`
  return { name, vkey: `${name}+${hash(name).toString('hex')}+${typed.toString('base64')}`, sign: (text) => sign(null, Buffer.from(text), key), line }
}

const LOG = signer('example.com/runs', 1, 1), OTHER = signer('example.com/runs', 1, 2)
const WITNESSES = [signer('w.example/1', 4, 11), signer('w.example/2', 4, 12), signer('w.example/3', 4, 13)]
const ORIGIN = 'example.com/runs/0123456789abcdef'

function cosign(witness, text, time = 1764000000) {
  const at = Buffer.alloc(8)
  at.writeBigUInt64BE(BigInt(time))
  return witness.line(witness.name, at, witness.sign(`cosignature/v1\ntime ${time}\n${text}`))
}

function checkpoint(size, root, { origin = ORIGIN, key = LOG, witnesses = [] } = {}) {
  const text = `${origin}\n${size}\n${root.toString('base64')}\n`
  return text + '\n' + key.line(origin, key.sign(text)) + witnesses.map((w) => cosign(w, text)).join('')
}

// A tree by the definition of RFC 6962, section 2.1.

function split(n) {
  let k = 1
  while (2 * k < n) k *= 2
  return k
}
function tree(leaves) {
  if (leaves.length === 0) return sha256()
  if (leaves.length === 1) return sha256([0], leaves[0])
  const k = split(leaves.length)
  return sha256([1], tree(leaves.slice(0, k)), tree(leaves.slice(k)))
}
function inclusion(leaves, i) {
  if (leaves.length === 1) return []
  const k = split(leaves.length)
  return i < k ? [...inclusion(leaves.slice(0, k), i), tree(leaves.slice(k))] : [...inclusion(leaves.slice(k), i - k), tree(leaves.slice(0, k))]
}

// A run and a bundle.

const MODULE = Buffer.from('0061736d01000000', 'hex')
const EMPTY = blake3(Buffer.from([0x80])) // the folder without entries

function makeRun(runID, { end = true, module = MODULE } = {}) {
  const sandbox = object({ module: blake3(module), abi: 'starling:v1', cost_table: 1n, limits: object({
    fuel: 1n, memory_pages: 1n, depth: 1n, timeout_ms: 1n, input_bytes: 1n, output_bytes: 1n, log_bytes: 1n, effects: 1n, effect_bytes: 1n }) })
  const payloads = [
    [1, { schema_version: 1n, goal: 'dice', provider_id: '', model_id: '', api_version: '', params_hash: null, params: null, system_prompt_hash: null,
      system_prompt: '', tool_registry_hash: blake3(Buffer.from('registry')), tool_schemas: [object({ name: 'dice', schema_hash: blake3(Buffer.from('{}')), sandbox })] }],
    [6, { call_id: 'c', turn_id: 'direct', tool: 'dice', args: object({}), attempt: 1n }],
    [9, { name: 'rand', value: 7n, call_id: 'c', request: Buffer.from('GET /\u001b') }],
    [7, { call_id: 'c', result: object({ text: 'h\u00e9llo \u202e', n: 1.5 }), duration_ms: 1n, attempt: 1n }],
  ]
  if (end) payloads.push([12, { final_text: '1', turn_count: 0n, tool_call_count: 1n, total_cost_usd: 0, total_input_tokens: 0n, total_output_tokens: 0n, duration_ms: 1n, merkle_root: null }])
  const events = []
  for (const [i, [kind, fields]] of payloads.entries()) {
    if (kind === 12) fields.merkle_root = merkleRoot(events.map((e) => e.hash))
    events.push(readEvent(encode(object({ ts: 1764000000000000000n + BigInt(i), seq: BigInt(i + 1), kind: BigInt(kind), run_id: runID,
      payload: object(fields), prev_hash: i === 0 ? null : events[i - 1].hash }))))
  }
  const before = end ? events.slice(0, -1) : events
  return { runID, list: events, events: BigInt(events.length), merkleRoot: merkleRoot(before.map((e) => e.hash)), lastHash: events.at(-1).hash, status: end ? 'completed' : 'open' }
}

function crc32(bytes) {
  let crc = -1
  for (const b of bytes) {
    crc ^= b
    for (let i = 0; i < 8; i++) crc = crc & 1 ? (crc >>> 1) ^ 0xedb88320 : crc >>> 1
  }
  return ~crc >>> 0
}

function archive(entries) {
  const local = [], central = []
  let offset = 0
  for (const [name, content] of entries) {
    const common = Buffer.alloc(26)
    common.writeUInt16LE(20, 0)
    common.writeUInt16LE(0x21, 8)
    common.writeUInt32LE(crc32(content), 10)
    common.writeUInt32LE(content.length, 14)
    common.writeUInt32LE(content.length, 18)
    common.writeUInt16LE(name.length, 22)
    const rest = Buffer.alloc(14)
    rest.writeUInt32LE(offset, 10)
    const entry = Buffer.concat([Buffer.from('504b0304', 'hex'), common, Buffer.from(name), content])
    local.push(entry)
    central.push(Buffer.from('504b01021400', 'hex'), common, rest, Buffer.from(name))
    offset += entry.length
  }
  const end = Buffer.alloc(22)
  end.write('504b0506', 'hex')
  end.writeUInt16LE(entries.length, 8)
  end.writeUInt16LE(entries.length, 10)
  end.writeUInt32LE(Buffer.concat(central).length, 12)
  end.writeUInt32LE(offset, 16)
  return Buffer.concat([...local, ...central, end])
}

const README = readFileSync(join(VECTORS, 'bundle-readme.txt'))
const DIGEST = blake3(MODULE).toString('hex')

/** makeEntries makes the entries of a bundle of runs. Change says what is to be wrong. */
function makeEntries(runs, { sealed = true, change = nothing } = {}) {
  const leaves = runs.map(leafOf), root = tree(leaves)
  const note = checkpoint(runs.length, root)
  const certificate = canonicalJSON(object({
    format: 'starling-bundle/1',
    runs: runs.map((r) => object({ run_id: r.runID, events: r.events, status: r.status, first: String(r.list[0].ts), last: String(r.list.at(-1).ts), encrypted: false,
      merkle_root: r.merkleRoot.toString('hex'), last_hash: r.lastHash.toString('hex'), modules: [DIGEST] })),
    modules: [object({ digest: DIGEST, bytes: BigInt(MODULE.length) })],
    checkpoint: sealed ? object({ origin: ORIGIN, leaves: BigInt(runs.length), root: root.toString('base64') }) : null,
  })) + '\n'
  const lines = runs.flatMap((r) => r.list.map(exportLine))
  const entries = [['README.txt', README], ['certificate.json', Buffer.from(certificate)], ['runs.ndjson', Buffer.from(lines.join('\n') + '\n')], [`modules/${DIGEST}.wasm`, MODULE]]
  if (sealed) runs.forEach((_, i) => entries.push([`proofs/${i + 1}.tlog-proof`, Buffer.from(
    `c2sp.org/tlog-proof@v1\nindex ${i}\n${inclusion(leaves, i).map((h) => h.toString('base64') + '\n').join('')}\n${note}`)]))
  change(entries)
  return entries
}

const RUNS = [makeRun('r/1'), makeRun('r/2'), makeRun('r/3')]

function check(bytes, keys = [readLogKey(LOG.vkey)]) {
  const { checkpoint: c } = checkBundle(bytes, README, nothing)
  if (c) checkSignature(c, keys)
}

test('the vectors of the specification', () => checkVectors(VECTORS, nothing))

test('BLAKE3: test_vectors.json of its reference implementation', () => {
  const known = { 0: 'af1349b9f5f9a1a6a0404dea36dcc9499bcb25c9adc112b7cc9a93cae41f3262', 1: '2d3adedff11b61f14c886e35afa036736dcd87a74d27b5c1510225d0f592e213',
    1023: '10108970eeda3eb932baac1428c7a2163b0e924c9a9e25b35bba72b28f70bd11', 1024: '42214739f095a406f3fc83deb889744ac00df831c10daa55189b5d121c855af7',
    1025: 'd00278ae47eb27b34faecf67b4fe263f82d5412916c1ffd97c8cb7fb814b8444', 2048: 'e776b6028c7cd22a4d0ba182a8bf62205d2ef576467e838ed6f2529b85fba24a',
    31744: '62b6960e1a44bcc1eb1a611a8d6235b6b4b78f32e7abc4fb4c6cdcce94895c47', 102400: 'bc3e3d41a1146b069abffad3c0d44860cf664390afce4d9661f7902e7943e085' }
  for (const [size, hash] of Object.entries(known)) {
    assert.equal(blake3(Buffer.from(Array.from({ length: Number(size) }, (_, i) => i % 251))).toString('hex'), hash, size)
  }
})

test('RFC 6962: the tree of the reference implementation, and all proofs of small trees', () => {
  const leaves = ['', '00', '10', '2021', '3031', '40414243', '5051525354555657', '606162636465666768696a6b6c6d6e6f'].map((h) => Buffer.from(h, 'hex'))
  assert.equal(tree(leaves).toString('hex'), '5dc9da79a70659a9ad559cb701ded9a2ab9d823aad2f4960cfe370eff4604328')
  for (let n = 1; n <= 20; n++) {
    const all = Array.from({ length: n }, (_, i) => Buffer.from([i]))
    for (let i = 0; i < n; i++) {
      const path = inclusion(all, i), size = BigInt(n), root = tree(all)
      checkInclusion(all[i], BigInt(i), size, path, root)
      refused(() => checkInclusion(Buffer.from([n]), BigInt(i), size, path, root))
      refused(() => checkInclusion(all[i], BigInt(i), size, [...path, root], root))
      refused(() => checkInclusion(all[i], size, size, path, root))
      if (n > 1) refused(() => checkInclusion(all[i], BigInt(i), size, path.slice(1), root))
      if (n > 1) refused(() => checkInclusion(all[i], BigInt((i + 1) % n), size, path, root))
    }
  }
})

test('signed-note: the key and the note of golang.org/x/mod/sumdb/note', () => {
  const { name, key } = readLogKey('PeterNeumann+c74f20a3+ARpc2QcUPDhMQegwxbzhKqiBfsVkmqq/LDE4izWy10TW')
  const text = 'If you think cryptography is the answer to your problem,\nthen you don\'t know what your problem is.\n'
  const signature = Buffer.from('x08go/ZJkuBS9UG/SffcvIAQxVBtiFupLLr8pAcElZInNIuGUgYN1FFYC2pZSNXgKvqfqdngotpRZb6KE6RyyBwJnAM=', 'base64')
  const note = { origin: name, body: text, signatures: [{ name, hash: signature.readUInt32BE(), value: signature.subarray(4) }] }
  assert.equal(checkSignature(note, [{ name, key }]), name)
  refused(() => checkSignature({ ...note, body: text + ' ' }, [{ name, key }]), /is wrong/)
})

test('a good bundle, sealed, not sealed and of an open run', () => {
  check(archive(makeEntries(RUNS)))
  check(archive(makeEntries(RUNS.slice(0, 1))))
  check(archive(makeEntries(RUNS, { sealed: false })))
  check(archive(makeEntries([makeRun('o', { end: false })], { sealed: false })))
})

test('no byte of a bundle can be changed, removed or added', () => {
  const good = archive(makeEntries(RUNS))
  for (let i = 0; i < good.length; i++) {
    const bad = Buffer.from(good)
    bad[i] ^= 1 << i % 8
    refused(() => check(bad))
  }
  for (let i = 0; i < good.length; i += 97) {
    refused(() => check(good.subarray(0, i)))
    refused(() => check(Buffer.concat([good.subarray(0, i), Buffer.from([0]), good.subarray(i)])))
  }
})

test('tampered bundles whose archives are right', () => {
  const edit = (i, from, to) => (entries) => {
    const before = entries[i][1].toString()
    assert.ok(before.includes(from), from)
    entries[i][1] = Buffer.from(before.replace(from, to))
  }
  const lines = RUNS.flatMap((r) => r.list.map(exportLine))
  const events = (change) => (entries) => {
    const all = [...lines]
    change(all)
    entries[2][1] = Buffer.from(all.map((line) => line + '\n').join(''))
  }
  const cases = [
    [edit(0, 'offline', 'on line'), /README/],
    [(e) => e.push(['more.txt', MODULE]), /not the name that comes here/],
    [(e) => e.push(e[3]), /not the name that comes here/],
    [(e) => e.splice(3, 1), /is missing, which a run names/],
    [(e) => { e[3][1] = Buffer.concat([MODULE, MODULE]) }, /another digest/],
    [(e) => e.splice(4, 0, [`modules/${'f'.repeat(64)}.wasm`, MODULE]), /another digest/],
    [(e) => { const m = Buffer.from('more'); e.splice(4, 0, [`modules/${blake3(m).toString('hex')}.wasm`, m]) }, /not the name|named by no run/],
    [(e) => e.splice(1, 2, e[2], e[1]), /entry 2/],
    [(e) => e.pop(), /2 proofs of 3 runs/],
    [(e) => { [e[4][1], e[5][1]] = [e[5][1], e[4][1]] }, /not in the checkpoint/],
    [edit(1, '"events":5', '"events":6'), /certificate/],
    [edit(1, '{', '{ '), /certificate/],
    [edit(4, 'index 0', 'index 1'), /not in the checkpoint/],
    [edit(4, 'index 0', 'index 00'), /not a number/],
    [edit(4, 'index 0', 'index 3'), /in a tree of 3/],
    [edit(4, '@v1\n', '@v1\nextra AA==\n'), /line 2/],
    [edit(5, '\n\u2014', '\n\n\u2014'), /checkpoint/],
    [events((l) => l.splice(1, 1)), /event 2 is missing/],
    [events((l) => l.splice(4, 1)), /certificate/], // the run is open then
    [events((l) => l.splice(1, 2, l[2], l[1])), /event 2 is missing/],
    [events((l) => l.push(l[0])), /is there twice/],
    [events((l) => l.push(...l.splice(0, 5))), /certificate/],
    [events((l) => { l[3] = l[3].replace('1.5', '1.6') }), /not as the envelope is exported/],
    [events((l) => { l[3] = l[3].replace('\\u202e', '\u202e') }), /not as the envelope is exported/],
    [events((l) => { l[2] = l[2].replace('"hash":"', '"hash":"0') }), /not as the envelope is exported/],
    [events((l) => { l[0] = l[0].toUpperCase() }), /line 1/],
    [events((l) => l.splice(0, l.length)), /no run/],
    [(e) => { e[2][1] = e[2][1].subarray(0, -1) }, /no line feed/],
  ]
  for (const [change, message] of cases) refused(() => check(archive(makeEntries(RUNS, { change }))), message)
  const open = [makeRun('o', { end: false })]
  refused(() => check(archive(makeEntries(open))), /has not ended/)
})

test('tampered runs whose hashes are right', () => {
  /** forge makes a run again with some events changed: prev_hash and root follow. */
  const forge = (change) => {
    const events = makeRun('r').list.map((e) => ({ kind: e.kind, run_id: 'r', payload: new Map(e.payload), prev: undefined }))
    change(events)
    const made = []
    for (const [i, e] of events.entries()) {
      if (kindName(e.kind)?.startsWith('Run') && e.payload.has('merkle_root') && !e.keep) e.payload.set('merkle_root', merkleRoot(made.map((m) => m.hash)))
      made.push(readEvent(encode(object({ ts: 1n, seq: BigInt(e.seq ?? i + 1), kind: BigInt(e.kind), run_id: e.run_id, payload: e.payload,
        prev_hash: e.prev !== undefined ? e.prev : i === 0 ? null : made[i - 1].hash }))))
    }
    const run = makeRun('r')
    return archive(makeEntries([{ ...run, list: made, events: BigInt(made.length), merkleRoot: merkleRoot(made.slice(0, -1).map((m) => m.hash)), lastHash: made.at(-1).hash }]))
  }
  check(forge(nothing))
  check(forge((e) => e[1].payload.set('of_the_future', 1n)))
  const files = (e, ...paths) => {
    e[1].payload.set('workspace', object({ root: EMPTY, mounts: paths.map((at) => object({ at, writable: true })) }))
    e[3].payload.set('workspace', EMPTY)
  }
  const cases = [
    [(e) => { e[2].prev = blake3(MODULE) }, /prev_hash is not the hash/],
    [(e) => { e[2].prev = null }, /prev_hash is null/],
    [(e) => { e[0].prev = blake3(MODULE) }, /the first event has a prev_hash/],
    [(e) => { e[1].seq = 0 }, /numbered from 1|prev_hash/],
    [(e) => { e[2].seq = 4 }, /event 3 is missing/],
    [(e) => { e[4].keep = true; e[4].payload.set('merkle_root', blake3(MODULE)) }, /merkle_root is not that/],
    [(e) => { e[4].payload.delete('final_text') }, /final_text is missing/],
    [(e) => { e[1].payload.set('attempt', 1) }, /attempt: has the wrong type/],
    [(e) => { e[1].payload.set('attempt', 1n << 32n) }, /attempt: has the wrong type/],
    [(e) => { e[1].payload.set('parent_id', '') }, /zero value/],
    [(e) => { e[3].payload.set('attempt', 2n) }, /is not open/],
    [(e) => files(e, '/a', '/a/b'), /a mount at/],
    [(e) => files(e, '/b', '/a'), /a mount at/],
    [(e) => files(e, '/a', '/a'), /a mount at/],
    [(e) => files(e, '/a/../b'), /a mount at/],
    [(e) => files(e, '/'), /a mount at/],
    [(e) => files(e, 'a'), /a mount at/],
    [(e) => files(e), /0 mounts/],
    [(e) => e[0].payload.set('workspace', object({ root: EMPTY, mounts: [object({ at: '/b' }), object({ at: '/a' })] })), /a mount at/],
    [(e) => files(e, ...Array.from({ length: 65 }, (_, i) => `/${i + 10}`)), /65 mounts/],
    [(e) => { files(e, '/a'); e[3].payload.delete('workspace') }, /workspace is missing/],
    [(e) => { files(e, '/a'); e[1].payload.delete('workspace') }, /workspace is not of this call/],
    [(e) => { files(e, '/a'); e[1].payload.get('workspace').set('root', Buffer.alloc(31)) }, /root: has the wrong type/],
    [(e) => e.splice(3, 1), /have no outcome/],
    [(e) => e.splice(2, 0, e[1]), /scheduled twice/],
    [(e) => e.shift(), /not RunStarted/],
    [(e) => e.splice(1, 0, { ...e[0] }), /a second RunStarted/],
    [(e) => e.push({ ...e[2] }), /follows the terminal/],
    [(e) => { e[0].payload.set('schema_version', 2n) }, /newer than this program/],
    [(e) => { e[2].kind = 17 }, /kind 17 is not known/],
    [(e) => { e[2].kind = 0 }, /kind 0 is not known/],
    [(e) => { for (const one of e) one.run_id = '' }, /run id has 0 bytes/],
    [(e) => { for (const one of e) one.run_id = 'x'.repeat(256) }, /run id has 256 bytes/],
    [(e) => { e[2].payload = object({ alg: 'A256GCM', key: Buffer.alloc(16), data: Buffer.alloc(20), nonce: Buffer.alloc(12) }) }, /only some events/],
    [(e) => e.splice(1, 0, { kind: 5, run_id: 'r', payload: object({ turn_id: 't', text: '', stop_reason: '', input_tokens: 0n, output_tokens: 0n, cost_usd: 0, raw_response_hash: null }) }), /is not open/],
  ]
  for (const [change, message] of cases) refused(() => check(forge(change)), message)
})

test('signatures of checkpoints', () => {
  const root = tree([Buffer.from('leaf')]), read = (s) => readCheckpoint(Buffer.from(s))
  const good = checkpoint(1, root), key = readLogKey(LOG.vkey)
  assert.equal(checkSignature(read(good), [key]), LOG.name)
  refused(() => checkSignature(read(good), [readLogKey(OTHER.vkey)]), /no key that is trusted/)
  for (const origin of ['example.com/runs/0123456789ABCDEF', 'example.com/runs/0123456789abcde', 'example.com/runs2/0123456789abcdef', 'other/0123456789abcdef']) {
    refused(() => checkSignature(read(checkpoint(1, root, { origin })), [key]), /no key that is trusted/)
  }
  // The right hash of a key, and a signature that is not its.
  const text = good.slice(0, good.indexOf('\n\n') + 1)
  refused(() => checkSignature(read(text + '\n' + LOG.line(ORIGIN, OTHER.sign(text))), [key]), /is wrong/)
  refused(() => checkSignature(read(good + LOG.line(ORIGIN, OTHER.sign(text))), [key]), /is wrong/)
  checkSignature(read(good + OTHER.line('stranger', OTHER.sign('whatever'))), [key])
  const sixtyFour = text + '\n' + LOG.line(ORIGIN, LOG.sign(text).subarray(0, 63))
  refused(() => checkSignature(read(sixtyFour), [key]), /is wrong/)
  for (const bad of [good.replace('\n1\n', '\n01\n'), good.replace('\n1\n', '\n-1\n'), good.replace('\n1\n', '\n1 \n'), good.replace('\n1\n', '\n1\n1\n'),
    good.replace('\n1\n', '\n18446744073709551616\n'), good.replace('=\n', '\n'), good.replace('=\n', '==\n'), good.slice(0, -1), good + '\n', good.replace('\u2014', '-'),
    good.replaceAll('\n', '\r\n'), good.replace(ORIGIN, 'a+b'), good.replace(ORIGIN, ''), text, '', `${ORIGIN}\n0\n${root.toString('base64')}\n` + good.slice(text.length)]) refused(() => read(bad))
})

test('keys', () => {
  const [name, hash, key] = /^(.*?)\+(.*?)\+(.*)$/.exec(LOG.vkey).slice(1)
  for (const bad of ['', 'x', `${name}+${hash}`, `${name}+00000000+${key}`, `${name}+${hash.toUpperCase()}+${key}`, ` ${name}+${hash}+${key}`, `+${hash}+${key}`,
    `${name}+${hash}+${key.slice(0, -4)}`, `${name}+${hash}+${key}=`, `a b+${hash}+${key}`, WITNESSES[0].vkey]) refused(() => readLogKey(bad))
})

test('policies', () => {
  const [w1, w2, w3] = WITNESSES, root = tree([])
  const head = `log ${LOG.vkey} https://example.com # ours\n\nwitness a ${w1.vkey} https://w.example\nwitness b ${w2.vkey}\nwitness c ${w3.vkey}\n`
  const satisfied = (policy, witnesses, key) => checkPolicy(readCheckpoint(Buffer.from(checkpoint(0, root, { witnesses, key }))), readPolicy(Buffer.from(policy)))
  const two = head + 'group g 2 a b c\ngroup h all g a\nquorum '
  satisfied(two + 'none\n', [])
  satisfied(two + 'g\n', [w2, w3])
  satisfied(two + 'h\n', [w1, w3])
  satisfied(two + 'c', [w3])
  satisfied(head + 'group g any a b\nquorum g\n', [w2])
  refused(() => satisfied(two + 'g\n', [w3]), /the quorum "g" has not/)
  refused(() => satisfied(two + 'h\n', [w2, w3]), /the quorum "h" has not/)
  refused(() => satisfied(two + 'g\n', [w3, w3]), /the quorum "g" has not/)
  refused(() => satisfied(two + 'none\n', [], OTHER), /no key that is trusted/)
  const text = `${ORIGIN}\n0\n${root.toString('base64')}\n`
  const late = cosign(w1, text).replace(/\S+\n$/, (s) => { const b = Buffer.from(s, 'base64'); b[11] ^= 1; return b.toString('base64') + '\n' })
  refused(() => checkPolicy(readCheckpoint(Buffer.from(checkpoint(0, root) + late)), readPolicy(Buffer.from(two + 'none'))), /cosignature of "w.example\/1" is wrong/)
  for (const bad of ['', head, 'quorum none', head + 'quorum none\nquorum none', head + 'quorum x', head + 'group g 0 a\nquorum g', head + 'group g 2 a\nquorum g', head + 'group g any\nquorum g',
    head + 'group g any x\nquorum g', head + 'group g any g\nquorum g', head + 'group a any b\nquorum a', head + 'group none any b\nquorum none', head + 'group g any a a\nquorum g', head + 'group g 1.5 a b\nquorum g',
    head + `witness d ${w1.vkey}\nquorum d`, head + 'more\nquorum none', `log ${w1.vkey}\nquorum none`, head + `witness d ${LOG.vkey}\nquorum none`]) refused(() => readPolicy(Buffer.from(bad)))
})

test('proofs of events and runs', () => {
  const leaves = RUNS.map(leafOf), run = RUNS[1]
  const proof = `c2sp.org/tlog-proof@v1\nindex 1\n${inclusion(leaves, 1).map((h) => h.toString('base64') + '\n').join('')}\n${checkpoint(3, tree(leaves))}`
  const whole = { events: 5, merkle_root: run.merkleRoot.toString('hex'), terminal_hash: run.lastHash.toString('hex'), tlog_proof: proof }
  const hashes = run.list.slice(0, -1).map((e) => e.hash)
  const pair = (a, b) => blake3(Buffer.concat([a, b]))
  const paths = [[hashes[1], pair(hashes[2], hashes[3])], [hashes[0], pair(hashes[2], hashes[3])], [hashes[3], pair(hashes[0], hashes[1])], [hashes[2], pair(hashes[0], hashes[1])], []]
  const event = (i) => ({ format: 'starling-event-proof/1', ...whole, envelope: run.list[i].envelope.toString('hex'), path: paths[i].map((h) => h.toString('hex')) })
  const ofRun = { format: 'starling-run-proof/1', ...whole, run_id: run.runID }
  const checkDoc = (doc) => checkProofDocument(Buffer.from(typeof doc === 'string' ? doc : JSON.stringify(doc)))
  checkDoc(ofRun)
  for (let i = 0; i < 5; i++) checkDoc(event(i))
  const bad = [
    { ...event(1), envelope: event(2).envelope }, { ...event(1), path: event(2).path }, { ...event(1), path: [] }, { ...event(1), path: [...event(1).path, whole.merkle_root] },
    { ...event(4), path: [whole.merkle_root] }, { ...event(4), events: 6 }, { ...event(1), events: 4 }, { ...event(1), events: 1 }, { ...event(1), events: 0 }, { ...event(1), events: 5.5 }, { ...event(1), events: '5' },
    { ...event(1), merkle_root: whole.terminal_hash }, { ...event(1), terminal_hash: whole.merkle_root }, { ...event(1), more: 1 }, { ...event(1), run_id: run.runID }, { ...event(1), format: 'starling-event-proof/2' },
    { ...event(1), envelope: event(1).envelope.toUpperCase() }, { ...event(1), envelope: undefined }, { ...event(1), tlog_proof: proof + '\n' }, { ...event(1), tlog_proof: proof.replace('index 1', 'index 2') },
    { ...ofRun, run_id: 'r/1' }, { ...ofRun, run_id: 1 }, { ...ofRun, path: [] }, { ...ofRun, events: 4 }, [], null, '', '{', JSON.stringify(ofRun).replace('{', '{"events":5,'), JSON.stringify(ofRun) + ' x',
  ]
  for (const doc of bad) refused(() => checkDoc(doc))
})

test('the command', () => {
  const dir = mkdtempSync(join(tmpdir(), 'checker-'))
  try {
    const run = (...args) => {
      const lines = []
      const code = main(args, (l) => lines.push(l), (l) => lines.push(l))
      return { code, text: lines.join('\n') }
    }
    const file = (name, bytes) => {
      writeFileSync(join(dir, name), bytes)
      return join(dir, name)
    }
    const sealed = file('sealed.starling', archive(makeEntries(RUNS))), open = file('open.starling', archive(makeEntries(RUNS, { sealed: false })))
    const policy = file('policy', `log ${LOG.vkey}\nquorum none\n`)
    const says = (result, code, pattern) => {
      assert.equal(result.code, code, result.text)
      assert.match(result.text, pattern)
    }
    says(run('--key', LOG.vkey, sealed), 0, /signed by "example.com\/runs"[^]*executes nothing[^]*good$/)
    says(run('--policy', policy, sealed), 0, /signed by "example.com\/runs"/)
    says(run(sealed), 0, /NOT PROVEN that anybody signed it/)
    says(run(open), 0, /the bundle is not sealed/)
    says(run('--key', OTHER.vkey, sealed), 1, /REFUSED: no key that is trusted/)
    says(run('--key', LOG.vkey, open), 1, /REFUSED: the bundle is not sealed/)
    says(run('--key', LOG.vkey, file('bad', MODULE), sealed), 1, /bad: REFUSED[^]*sealed.starling: good/)
    says(run('--key', file('seal.vkey', LOG.vkey + '\n'), sealed), 0, /signed by[^]*any log of this key would do/)
    says(run('--key', file('log.vkey', `sealed: 3 runs\nlog ${signer(ORIGIN, 1, 1).vkey}\n`), sealed), 0, /signed by "example.com\/runs\/[^]*good$/)
    says(run('--key', 'x', sealed), 1, /--key: "x" is no vkey/)
    says(run(join(dir, 'absent')), 2, /ENOENT/)
    says(run(), 2, /usage/)
    says(run('--colour', sealed), 2, /usage/)
    says(run('--help'), 0, /usage/)
    says(run('--vectors', VECTORS), 0, /merkle.jsonl: 13 lines are right/)
    says(run('--vectors', dir), 1, /is missing/)
  } finally {
    rmSync(dir, { recursive: true })
  }
})
