// The vectors of spec/vectors: vectors/README.md says what a file asks.

import { Buffer } from 'node:buffer'
import { createDecipheriv, hkdfSync } from 'node:crypto'
import { existsSync, readFileSync } from 'node:fs'
import { join } from 'node:path'
import { blake3 } from './blake3.mjs'
import { checkBundle, folderOf } from './bundle.mjs'
import { base64, hex, refuse, Refused, within } from './bytes.mjs'
import { decode, encode } from './cbor.mjs'
import { checkReceipt } from './receipt.mjs'
import { canonicalJSON, readJSON, renderJSON } from './json.mjs'
import { checkPath, kindName, merkleRoot, readEvent, RunChecker } from './event.mjs'
import { checkPolicy, checkProofDocument, leafHash, leafOf, readCheckpoint, removalOf, readPolicy } from './seal.mjs'

function same(what, got, want) {
  if (Buffer.isBuffer(got)) got = got.toString('hex')
  if (String(got) !== String(want)) refuse(`${what} is ${got}, not ${want}`)
}

function mustRefuse(step) {
  try {
    step()
  } catch (err) {
    if (err instanceof Refused) return
    throw err
  }
  refuse('was accepted')
}

function event(line) {
  const e = readEvent(hex(line.envelope))
  same('run_id', e.runID, line.run_id)
  same('seq', e.seq, line.seq)
  same('ts', e.ts, line.ts)
  same('kind', e.kind, line.kind)
  same('prev_hash', e.prevHash ?? '', line.prev_hash)
  same('payload', e.payloadBytes, line.payload)
  same('hash', e.hash, line.hash)
  if (kindName(e.kind)) same('kind_name', kindName(e.kind), line.kind_name)
  const fields = [['ts', e.ts], ['seq', e.seq], ['kind', BigInt(e.kind)], ['run_id', e.runID], ['payload', e.payload], ['prev_hash', e.prevHash]]
  same('the envelope, written again', encode(new Map(fields)), line.envelope)
  // payload_json was read as JSON, which forgets the digits of numbers: compare what is left.
  same('payload_json', JSON.stringify(JSON.parse(renderJSON(e.payload))), JSON.stringify(line.payload_json))
  return e
}

/** openEncrypted decrypts an event of an encrypted run: event.md, section 13. */
function openEncrypted(line) {
  const stored = readEvent(hex(line.envelope)), plain = readEvent(hex(line.plain))
  const derive = (info, size) => Buffer.from(hkdfSync('sha256', hex(line.data_key, 32), '', info, size))
  const key = derive('starling-host run key 1\0' + stored.runID, 32)
  same('key_id', derive('starling-host data key id 1\0', 16), line.key_id)
  same('key', stored.payload.get('key'), line.key_id)
  same('run_key', key, line.run_key)
  const bare = new Map([...stored.payload, ['data', Buffer.alloc(0)], ['nonce', Buffer.alloc(0)]])
  const additional = encode(new Map([['ts', stored.ts], ['seq', stored.seq], ['kind', BigInt(stored.kind)], ['run_id', stored.runID], ['payload', bare], ['prev_hash', stored.prevHash]]))
  same('additional', additional, line.additional)
  const data = stored.payload.get('data')
  const cipher = createDecipheriv('aes-256-gcm', key, stored.payload.get('nonce'), { authTagLength: 16 })
  cipher.setAAD(additional)
  cipher.setAuthTag(data.subarray(-16))
  const content = Buffer.concat([cipher.update(data.subarray(0, -16)), cipher.final()])
  same('content', content, line.content)
  const inner = decode(content)
  same('the plain payload', encode(inner.get('payload')), plain.payloadBytes.toString('hex'))
  same('the plain prev_hash', inner.get('prev_hash')?.toString('hex'), plain.prevHash?.toString('hex'))
  return [stored, plain]
}

function oneRun(events) {
  const checker = new RunChecker()
  for (const e of events) checker.add(e)
  const run = checker.finish()
  if (run.status === 'open') refuse('the run is open')
}

/** removal reads the leaf of a removal and makes it again: seal.md, section 1. */
function removal(line) {
  const bytes = hex(line.leaf), m = Object.fromEntries(decode(bytes))
  same('run_id', m.run_id, line.run_id)
  same('the leaf, written again', removalOf({ runID: m.run_id, at: m.removed_at, by: m.removed_by, why: m.removed_why, leaf: m.removed_leaf }), line.leaf)
  same('hash', leafHash(bytes).toString('base64'), line.hash)
}

/** leaf reads a leaf and makes it again: seal.md, section 1. */
function leaf(line) {
  const bytes = hex(line.leaf), { seal, events, run_id: runID, merkle_root: merkleRoot, terminal_hash: lastHash } = Object.fromEntries(decode(bytes))
  same('seal', seal, 1)
  same('run_id', runID, line.run_id)
  same('the leaf, written again', leafOf({ runID, events, merkleRoot, lastHash }), line.leaf)
  same('hash', leafHash(bytes).toString('base64'), line.hash)
}

/** sealOrBundle checks a line of seal.jsonl or bundle.jsonl, and of what is refused. */
const sealOrBundle = (folder) => (line) => {
  const text = Buffer.from(line.text ?? '')
  const policy = line.policy === undefined ? undefined : readPolicy(Buffer.from(line.policy))
  let checkpoint
  switch (line.type) {
    case 'leaf': return leaf(line)
    case 'removal': return removal(line)
    case 'policy': return undefined
    case 'checkpoint':
      checkpoint = readCheckpoint(text)
      break
    case 'proof':
      checkpoint = checkProofDocument(text).proof.checkpoint
      break
    case 'bundle':
      checkpoint = checkBundle(base64(line.file), readFileSync(join(folder, 'bundle-readme.txt')), () => {}).checkpoint
      break
    default: throw new Error(`a vector of the type ${line.type}`)
  }
  if (policy) checkPolicy(checkpoint, policy)
}

/** receipt checks a line of receipt.jsonl, or of what is refused. */
function receipt(line) {
  const policy = readPolicy(Buffer.from(line.policy))
  const { proof } = checkReceipt(base64(line.receipt), policy.logs)
  if (proof) checkPolicy(proof.checkpoint, policy)
}

const each = (step) => (lines) => lines.forEach((line, i) => within(`line ${i + 1}, ${line.name}`, () => step(line)))

const FILES = {
  'json.jsonl': each((line) => {
    const value = readJSON(Buffer.from(line.input))
    same('canonical', canonicalJSON(value), line.canonical)
    same('cbor', encode(value), line.cbor)
    same('canonical of cbor', canonicalJSON(decode(hex(line.cbor))), line.canonical)
  }),
  'json-refused.jsonl': each((line) => mustRefuse(() => readJSON(line.input_hex ? hex(line.input_hex) : Buffer.from(line.input ?? '')))),
  'cbor.jsonl': each((line) => {
    const value = decode(hex(line.cbor))
    same('rendered', renderJSON(value), line.rendered)
    same('the item, written again', encode(value), line.cbor)
  }),
  'cbor-refused.jsonl': each((line) => mustRefuse(() => decode(hex(line.cbor)))),
  'event.jsonl': each(event),
  'event-refused.jsonl': each((line) => mustRefuse(() => readEvent(hex(line.envelope)))),
  'run.jsonl': (lines) => oneRun(lines.map(event)),
  'encrypted.jsonl': (lines) => {
    const pairs = lines.map((line) => within(line.name, () => openEncrypted(line)))
    within('the stored events', () => oneRun(pairs.map((p) => p[0])))
    within('the plain events', () => oneRun(pairs.map((p) => p[1])))
  },
  'merkle.jsonl': each((line) => {
    const leaves = line.leaves.map((h) => hex(h, 32)), root = merkleRoot(leaves)
    same('root', root, line.root)
    line.proofs.forEach((path, i) => within(`proof ${i}`, () => {
      const hashes = path.map((h) => hex(h, 32)), n = BigInt(leaves.length)
      checkPath(leaves[i], BigInt(i), n, hashes, root)
      mustRefuse(() => checkPath(leaves[i], BigInt(i), n, [...hashes, root], root))
      if (hashes.length > 0) mustRefuse(() => checkPath(leaves[i], BigInt(i), n, hashes.slice(1), root))
    }))
  }),
  'seal.jsonl': (lines, folder) => each(sealOrBundle(folder))(lines),
  'seal-refused.jsonl': (lines, folder) => each((line) => mustRefuse(() => sealOrBundle(folder)(line)))(lines),
  'receipt.jsonl': each(receipt),
  'receipt-refused.jsonl': each((line) => mustRefuse(() => receipt(line))),
  'workspace.jsonl': each((line) => {
    same('entries', JSON.stringify(folderOf(hex(line.cbor))), JSON.stringify(line.entries))
    same('digest', blake3(hex(line.cbor)), line.digest)
  }),
  'workspace-refused.jsonl': each((line) => mustRefuse(() => folderOf(hex(line.cbor)))),
  'bundle.jsonl': (lines, folder) => each(sealOrBundle(folder))(lines),
  'bundle-refused.jsonl': (lines, folder) => each((line) => mustRefuse(() => sealOrBundle(folder)(line)))(lines),
}

/** checkVectors checks all files of a folder of vectors, and says what it checked. */
export function checkVectors(folder, say) {
  for (const [name, check] of Object.entries(FILES)) {
    const file = join(folder, name)
    if (!existsSync(file)) refuse(`${file} is missing`)
    const lines = readFileSync(file, 'utf8').trimEnd().split('\n').map((line) => JSON.parse(line))
    within(file, () => check(lines, folder))
    say(`${file}: ${lines.length} lines are right`)
  }
}
