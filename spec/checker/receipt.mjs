// Receipts: receipt.md.

import { Buffer } from 'node:buffer'
import { createHash } from 'node:crypto'
import { base64, hex, quote, refuse, text, within } from './bytes.mjs'
import { decode, encode, Tag } from './cbor.mjs'
import { readJSON } from './json.mjs'
import { checkInclusion, readProof, signedBy, signsAs } from './seal.mjs'

const MAX_RECEIPT = 1 << 20
const PAYLOAD_TYPE = 'application/vnd.in-toto+json'
const STATEMENT = 'https://in-toto.io/Statement/v1'
const COMPLETED = 'https://github.com/starling-host/starling/spec/receipt/v1'
const SCHEDULED = COMPLETED + '/scheduled'

// Section 2: members in their order. A question mark marks one that is absent if it is empty.
const SHAPES = {
  statement: '_type:t subject:[subject] predicateType:t predicate:predicate',
  subject: 'name:t digest:digest',
  digest: 'blake3?:h sha256?:h',
  predicate: 'issuer:t run:run tool:tool input?:digest caller?:caller policy?:policy outcome?:t errorType?:t evidence?:t attempts:n requests?:n denied?:n fuel?:n peakMemoryBytes?:n scheduledAt:t completedAt?:t',
  run: 'id:t callId:t parentCallId?:t scheduled:n ended?:n events?:n prevHash?:digest',
  tool: 'name:t digest?:digest source?:t',
  caller: 'keyId?:t client?:t version?:t session?:t issuer?:t subject?:t actor?:t traceparent?:t delegation?:[digest]',
  policy: 'operator?:digest tenant?:digest decision?:t',
}

const sha256 = (bytes) => createHash('sha256').update(bytes).digest()

/** shaped checks the members of an object, their order and their types. */
function shaped(value, shape) {
  if (shape === 't') return typeof value === 'string' || refuse('not a text')
  if (shape === 'n') return typeof value === 'bigint' && value >= 0n || refuse('not a number')
  if (shape === 'h') return hex(value, 32)
  if (shape.startsWith('[')) {
    if (!Array.isArray(value)) refuse('not an array')
    return value.forEach((v, i) => within(String(i), () => shaped(v, shape.slice(1, -1))))
  }
  if (!(value instanceof Map)) refuse('not an object')
  const names = [...value.keys()]
  for (const member of SHAPES[shape].split(' ')) {
    const [, name, optional, type] = /^([^?:]+)(\??):(.+)$/.exec(member)
    if (names[0] !== name) {
      if (!optional) refuse(`${name} is missing, or not in its place`)
      continue
    }
    names.shift()
    const v = value.get(name)
    if (optional && (v === '' || v === 0n || v.length === 0 || v.size === 0)) refuse(`${name} is empty`)
    within(name, () => shaped(v, type))
  }
  if (names.length > 0) refuse(`${quote(names[0])} does not belong here`)
}

/** written writes a value in the one form of a statement. */
function written(value) {
  if (value instanceof Map) return `{${[...value].map(([name, v]) => `${JSON.stringify(name)}:${written(v)}`).join(',')}}`
  if (Array.isArray(value)) return `[${value.map(written).join(',')}]`
  if (typeof value === 'bigint') return String(value)
  return JSON.stringify(value).replace(/[\u2028\u2029]/g, (c) => '\\u' + c.charCodeAt(0).toString(16))
}

function readStatement(payload) {
  const statement = readJSON(payload)
  shaped(statement, 'statement')
  if (written(statement) !== text(payload)) refuse('not written in its one form')
  const p = statement.get('predicate'), run = p.get('run')
  const subjects = new Map(statement.get('subject').map((s) => [s.get('name'), s.get('digest')]))
  for (const [name, digest] of subjects) if (digest.size !== 1 || !digest.has('sha256')) refuse(`subject ${quote(name)} has no SHA-256 alone`)
  const names = statement.get('subject').map((s) => s.get('name')).join()
  if (statement.get('_type') !== STATEMENT) refuse('_type')
  switch (statement.get('predicateType')) {
    case SCHEDULED:
      if (names !== 'input' || p.has('outcome') || run.has('events')) refuse('not the statement of a scheduled call')
      break
    case COMPLETED:
      if (names !== 'leaf' && names !== 'result,leaf') refuse('the subjects are not result and leaf, or leaf')
      if (!p.has('outcome') || run.get('id') === '' || !run.has('ended') || run.get('scheduled') === 0n || !run.has('events') || run.get('events') < 2n || run.get('ended') > run.get('events')) refuse('no call of a run that has ended')
      if (names !== 'leaf' && p.get('outcome') !== 'completed') refuse('a result of a call that did not complete')
      break
    default: refuse('predicateType')
  }
  return { subjects, issuer: p.get('issuer'), tool: p.get('tool').get('name'), outcome: p.get('outcome') ?? 'scheduled', evidence: p.get('evidence'), run }
}

/** keyID names a public key as SSH does: section 1. */
function keyID(key) {
  const part = (bytes) => [Buffer.from([0, 0, 0, bytes.length]), bytes]
  return 'SHA256:' + sha256(Buffer.concat([...part(Buffer.from('ssh-ed25519')), ...part(key)])).toString('base64').replace(/=+$/, '')
}

/** checkCOSE checks that a COSE receipt is that of section 4, and its signature by one of the keys. */
function checkCOSE(bytes, proof, keys) {
  const message = decode(bytes)
  if (!(message instanceof Tag) || message.number !== 18n || !Array.isArray(message.content) || message.content.length !== 4) refuse('not a COSE_Sign1')
  const [head, , , signature] = message.content
  if (!Buffer.isBuffer(head) || !Buffer.isBuffer(signature)) refuse('not a COSE_Sign1')
  const path = encode([proof.checkpoint.size, proof.index, proof.path])
  const signed = encode(['Signature1', head, Buffer.alloc(0), proof.checkpoint.root])
  const unprotected = new Map([[396n, new Map([[-1n, [path]]])]])
  const again = (h) => Buffer.concat([Buffer.from([0xd2]), encode([h, unprotected, null, signature])])
  if (proof.path.length === 0) refuse('a tree of one leaf has none')
  if (!again(head).equals(bytes)) refuse('another proof than tlogProof')
  if (keys.length === 0) return
  for (const { key } of keys) {
    const protectedHeader = encode(new Map([[1n, -8n], [4n, Buffer.from(keyID(key))], [395n, 1n]]))
    if (protectedHeader.equals(head) && signedBy(key, signed, signature)) return
  }
  refuse('no trusted key has signed it')
}

/** checkReceipt checks a receipt under keys of logs, and returns what it says and shows. */
export function checkReceipt(bytes, keys) {
  if (bytes.length > MAX_RECEIPT) refuse(`${bytes.length} bytes; a receipt has at most ${MAX_RECEIPT}`)
  const doc = readJSON(bytes)
  if (!(doc instanceof Map)) refuse('not an object')
  for (const name of doc.keys()) if (!['payloadType', 'payload', 'signatures', 'leaf', 'tlogProof', 'coseReceipt'].includes(name)) refuse(`member ${quote(name)} does not belong here`)
  if (doc.get('payloadType') !== PAYLOAD_TYPE) refuse('payloadType')
  const bytesOf = (name, of = doc) => within(name, () => typeof of.get(name) === 'string' ? base64(of.get(name)) : refuse('not a text'))
  const payload = bytesOf('payload')
  const statement = within('statement', () => readStatement(payload))
  const signed = Buffer.concat([Buffer.from(`DSSEv1 ${PAYLOAD_TYPE.length} ${PAYLOAD_TYPE} ${payload.length} `), payload])
  const signatures = doc.get('signatures')
  if (!Array.isArray(signatures) || signatures.length === 0) refuse('no signatures')
  let signer
  for (const s of signatures) {
    if (!(s instanceof Map) || s.size !== 2 || typeof s.get('keyid') !== 'string') refuse('a signature is not keyid and sig')
    const sig = bytesOf('sig', s)
    for (const { name, key } of keys.filter(({ key }) => keyID(key) === s.get('keyid'))) {
      if (!signedBy(key, signed, sig)) refuse(`the signature of ${quote(name)} is wrong`)
      if (!signsAs(statement.issuer, name)) refuse(`issued by ${quote(statement.issuer)}, signed by ${quote(name)}`)
      signer ??= name
    }
  }
  if (keys.length > 0 && signer === undefined) refuse('no trusted key has signed it')
  if (!doc.has('leaf') && !doc.has('tlogProof') && !doc.has('coseReceipt')) return { statement, signer }
  const leaf = bytesOf('leaf')
  const l = within('leaf', () => decode(leaf))
  if (!(l instanceof Map) || [...l.keys()].sort().join() !== 'events,merkle_root,run_id,seal,terminal_hash' || l.get('seal') !== 1n) refuse('leaf: not that of a run')
  if (statement.subjects.get('leaf')?.get('sha256') !== sha256(leaf).toString('hex') || l.get('run_id') !== statement.run.get('id') || l.get('events') !== statement.run.get('events')) refuse('the statement is about another leaf')
  const proof = within('tlogProof', () => readProof(Buffer.from(String(doc.get('tlogProof')))))
  checkInclusion(leaf, proof.index, proof.checkpoint.size, proof.path, proof.checkpoint.root)
  if (doc.has('coseReceipt')) within('coseReceipt', () => checkCOSE(bytesOf('coseReceipt'), proof, keys))
  return { statement, signer, proof }
}
