// Seals: the log of runs, its checkpoints, proofs and policies. seal.md says all of it.

import { Buffer } from 'node:buffer'
import { createHash, createPublicKey, verify } from 'node:crypto'
import { encode } from './cbor.mjs'
import { base64, decimal, hex, quote, refuse, text, within } from './bytes.mjs'
import { checkEvent, checkPath, isTerminal, readEvent } from './event.mjs'
import { readJSON } from './json.mjs'

const LOG = 1, WITNESS = 4 // types of keys
const MAX_SIGNATURES = 100
const MAX_PATH = 63

const sha256 = (...parts) => {
  const hash = createHash('sha256')
  for (const part of parts) hash.update(Array.isArray(part) ? Uint8Array.from(part) : part)
  return hash.digest()
}

// Leaf and tree: sections 1 and 2.

/** leafOf encodes the leaf of a run. */
export function leafOf({ runID, events, merkleRoot, lastHash }) {
  return encode(new Map([['seal', 1n], ['events', events], ['run_id', runID], ['merkle_root', merkleRoot], ['terminal_hash', lastHash]]))
}

/** removalOf encodes the leaf of a removal. */
export function removalOf({ runID, at, by, why, leaf }) {
  return encode(new Map([['seal', 1n], ['run_id', runID], ['removed_at', at], ['removed_by', by], ['removed_why', why], ['removed_leaf', leaf]]))
}

export const leafHash = (leaf) => sha256([0], leaf)

/** checkInclusion checks that leaf number i is in the tree of n leaves (RFC 9162, section 2.1.3.2, which is the tree of RFC 6962). */
export function checkInclusion(leaf, i, n, path, root) {
  if (i >= n) refuse(`the leaf has the index ${i} in a tree of ${n}`)
  let fn = i, sn = n - 1n, node = leafHash(leaf)
  for (const sibling of path) {
    if (sn === 0n) refuse('the inclusion proof is too long')
    if (fn % 2n === 1n || fn === sn) {
      node = sha256([1], sibling, node)
      while (fn % 2n === 0n && fn !== 0n) { fn /= 2n; sn /= 2n }
    } else {
      node = sha256([1], node, sibling)
    }
    fn /= 2n
    sn /= 2n
  }
  if (sn !== 0n) refuse('the inclusion proof is too short')
  if (!node.equals(root)) refuse('the run is not in the checkpoint: the inclusion proof does not lead to its root')
}

// Keys: section 3.

const keyHash = (name, type, key) => sha256(name, '\n', [type], key).readUInt32BE()

function checkName(name) {
  if (name === '' || /[+\s\p{C}]/u.test(name)) refuse(`${quote(name)} is no name of a key`)
}

/** readKey reads a vkey of the given type. */
export function readKey(vkey, type) {
  const [, name, hash, encoded] = /^([^+]*)\+([0-9a-f]{8})\+(.*)$/s.exec(vkey) ?? refuse(`${quote(vkey)} is no vkey NAME+HASH+BASE64`)
  checkName(name)
  const bytes = base64(encoded)
  if (bytes.length !== 33 || bytes[0] !== type) refuse(`vkey ${quote(name)} is no Ed25519 key of type ${type}, which a ${type === LOG ? 'log' : 'witness'} has`)
  const key = bytes.subarray(1)
  if (keyHash(name, type, key) !== parseInt(hash, 16)) refuse(`the hash in vkey ${quote(name)} is not that of its key`)
  return { name, key }
}

export const readLogKey = (vkey) => readKey(vkey, LOG)

export function signedBy(key, message, signature) {
  const jwk = { kty: 'OKP', crv: 'Ed25519', x: key.toString('base64url') }
  return signature.length === 64 && verify(null, Buffer.from(message), createPublicKey({ key: jwk, format: 'jwk' }), signature)
}

// Checkpoints: section 4.

/** readCheckpoint reads a signed note. It checks no signature. */
export function readCheckpoint(bytes) {
  const note = text(bytes)
  if (/[\u0000-\u0009\u000b-\u001f]/.test(note)) refuse('checkpoint: a control character')
  const end = note.lastIndexOf('\n\n')
  if (end < 0 || !note.endsWith('\n')) refuse('checkpoint: no text, empty line and signatures')
  const body = note.slice(0, end + 1)
  const lines = body.split('\n')
  if (lines.length !== 4) refuse(`checkpoint: ${lines.length - 1} lines of text, not 3`)
  const root = within('checkpoint: line 3', () => base64(lines[2]))
  if (root.length !== 32) refuse('checkpoint: line 3: the root has not 32 bytes')
  const size = within('checkpoint: line 2', () => decimal(lines[1]))
  if (size >= 1n << 62n) refuse('checkpoint: line 2: a log has fewer leaves')
  const origin = lines[0]
  within('checkpoint: line 1', () => checkName(origin))
  const signatures = note.slice(end + 2, -1).split('\n').map((line, i) => within(`checkpoint: signature ${i + 1}`, () => {
    const [, name, encoded] = /^\u2014 ([^ ]+) ([^ ]+)$/.exec(line) ?? refuse('not — NAME BASE64')
    checkName(name)
    const value = base64(encoded)
    if (value.length < 5) refuse('too short')
    return { name, hash: value.readUInt32BE(), value: value.subarray(4) }
  }))
  if (signatures.length > MAX_SIGNATURES) refuse(`checkpoint: more than ${MAX_SIGNATURES} signatures`)
  if (signatures[0].name !== origin) refuse('checkpoint: the first signature is not that of the log')
  if (size === 0n && !root.equals(sha256())) refuse('checkpoint: the root is not that of an empty tree')
  return { origin, size, root, body, signatures }
}

/** speaksFor reports whether a key of a log, or a seal key, signs for an origin: section 3. */
function speaksFor(name, origin) {
  return origin === name || (origin.startsWith(name + '/') && /^[0-9a-f]{16}$/.test(origin.slice(name.length + 1)))
}

/** signsAs reports whether a key of a log, or a seal key, is that of a seal key of a name: receipt.md. */
export const signsAs = (issuer, name) => speaksFor(issuer, name)

/** checkSignature checks the signature of the log under one of the keys. One must have signed, and none wrongly. */
export function checkSignature(checkpoint, keys) {
  const { origin, body, signatures } = checkpoint
  let signer
  for (const { name, key } of keys) {
    const hash = speaksFor(name, origin) && keyHash(origin, LOG, key)
    for (const s of signatures.filter((s) => s.name === origin && s.hash === hash)) {
      if (!signedBy(key, body, s.value)) refuse(`the signature of ${quote(origin)} is wrong`)
      if (signer === undefined || name === origin) signer = name
    }
  }
  return signer ?? refuse(`no key that is trusted has signed for ${quote(origin)}`)
}

/** cosignedAt returns when a witness cosigned, in seconds, or undefined if it did not. */
function cosignedAt({ body, signatures }, { name, key }) {
  const hash = keyHash(name, WITNESS, key)
  let at
  for (const s of signatures.filter((s) => s.name === name && s.hash === hash)) {
    if (s.value.length !== 72) refuse(`the cosignature of ${quote(name)} has ${s.value.length} bytes, not 72`)
    at = s.value.readBigUInt64BE()
    if (!signedBy(key, `cosignature/v1\ntime ${at}\n${body}`, s.value.subarray(8))) refuse(`the cosignature of ${quote(name)} is wrong`)
  }
  return at
}

// Policies: section 7.

/** readPolicy reads a policy. Its groups are checked to be possible. */
export function readPolicy(bytes) {
  const policy = { logs: [], witnesses: new Map(), groups: new Map(), quorum: undefined }
  const known = (name) => name === 'none' || policy.witnesses.has(name) || policy.groups.has(name)
  const define = (name) => known(name) && refuse(`the name ${quote(name)} is taken`)
  text(bytes).split('\n').forEach((line, i) => within(`line ${i + 1}`, () => {
    const words = line.replace(/#.*/s, '').replace(/^[ \t\r]+|[ \t\r]+$/g, '').split(/[ \t\r]+/)
    const [word, ...rest] = words
    const url = (word) => word !== undefined && !word.includes('://') && refuse(`${quote(word)} is no URL`)
    const count = (least, most) => (rest.length < least || rest.length > most) && refuse(`${word} has ${rest.length} words after it`)
    switch (word) {
      case '': return
      case 'log':
        count(1, 2)
        url(rest[1])
        policy.logs.push(readKey(rest[0], LOG))
        return
      case 'witness':
        count(2, 3)
        url(rest[2])
        define(rest[0])
        policy.witnesses.set(rest[0], readKey(rest[1], WITNESS))
        return
      case 'group': {
        count(3, Infinity)
        const [name, wanted, ...members] = rest
        define(name)
        for (const m of members) if (m === 'none' || !known(m)) refuse(`${quote(m)} is not defined`)
        if (new Set(members).size !== members.length) refuse('a member is named twice')
        const least = wanted === 'any' ? 1n : wanted === 'all' ? BigInt(members.length) : decimal(wanted)
        if (least < 1n || least > members.length) refuse(`${least} of ${members.length} members`)
        policy.groups.set(name, { least: Number(least), members })
        return
      }
      case 'quorum':
        count(1, 1)
        if (policy.quorum !== undefined) refuse('a second quorum')
        if (!known(rest[0])) refuse(`${quote(rest[0])} is not defined`)
        policy.quorum = rest[0]
        return
      default: refuse(`${quote(word)} is not log, witness, group or quorum`)
    }
  }))
  if (policy.logs.length === 0) refuse('no log')
  if (policy.quorum === undefined) refuse('no quorum')
  const keys = [...policy.witnesses.values()].map((w) => w.key.toString('hex'))
  if (new Set(keys).size !== keys.length) refuse('one key has two names, and would count twice')
  return policy
}

/** checkPolicy checks a checkpoint against a policy, and says who has signed. */
export function checkPolicy(checkpoint, policy) {
  const said = [`signed by ${quote(checkSignature(checkpoint, policy.logs))}`]
  const present = new Map()
  for (const [name, witness] of policy.witnesses) {
    const at = cosignedAt(checkpoint, witness)
    present.set(name, at !== undefined)
    if (at !== undefined) said.push(`cosigned by ${quote(name)} at ${at}`)
  }
  // Names are defined before they are used, so the members of a group are decided.
  for (const [name, { least, members }] of policy.groups) present.set(name, members.filter((m) => present.get(m)).length >= least)
  if (policy.quorum !== 'none' && !present.get(policy.quorum)) refuse(`the quorum ${quote(policy.quorum)} has not cosigned the checkpoint`)
  return said.join(', ')
}

// Proofs: sections 5 and 6.

/** readProof reads a tlog-proof. */
export function readProof(bytes) {
  const lines = text(bytes).split('\n')
  if (lines[0] !== 'c2sp.org/tlog-proof@v1') refuse('line 1 is not c2sp.org/tlog-proof@v1')
  const index = within('line 2', () => decimal(/^index (.*)$/.exec(lines[1] ?? '')?.[1] ?? refuse('not index N')))
  const empty = lines.indexOf('')
  if (empty < 2 || empty - 2 > MAX_PATH) refuse(`not 0 to ${MAX_PATH} hashes before an empty line`)
  const path = lines.slice(2, empty).map((line, i) => within(`line ${i + 3}`, () => {
    const hash = base64(line)
    return hash.length === 32 ? hash : refuse('the hash has not 32 bytes')
  }))
  const note = Buffer.from(lines.slice(empty + 1).join('\n'))
  return { index, path, note, checkpoint: readCheckpoint(note) }
}

/** checkRunProof checks that a run is in the checkpoint of a proof. */
export function checkRunProof(run, proof) {
  checkInclusion(leafOf(run), proof.index, proof.checkpoint.size, proof.path, proof.checkpoint.root)
}

const EVENT_PROOF = ['format', 'envelope', 'events', 'merkle_root', 'terminal_hash', 'path', 'tlog_proof']
const RUN_PROOF = ['format', 'run_id', 'events', 'merkle_root', 'terminal_hash', 'tlog_proof']

/** checkProofDocument checks the proof of an event or of a run, and returns what it is about. */
export function checkProofDocument(bytes) {
  const doc = readJSON(bytes)
  if (!(doc instanceof Map)) refuse('not an object')
  const format = doc.get('format')
  const members = new Map([['starling-event-proof/1', EVENT_PROOF], ['starling-run-proof/1', RUN_PROOF]]).get(format) ?? refuse('format is not starling-event-proof/1 or starling-run-proof/1')
  for (const name of doc.keys()) if (!members.includes(name)) refuse(`member ${quote(name)} does not belong here`)
  for (const name of members) if (!doc.has(name)) refuse(`member ${name} is missing`)
  const value = (name, read) => within(name, () => read(doc.get(name)))
  const string = (v) => typeof v === 'string' && v !== '' ? v : refuse('not a string, or empty')

  const run = {
    events: value('events', (v) => typeof v === 'bigint' && v >= 1n && v < 1n << 63n ? v : refuse('not a number from 1')),
    merkleRoot: value('merkle_root', (v) => hex(v, 32)),
    lastHash: value('terminal_hash', (v) => hex(v, 32)),
  }
  let event
  if (members === RUN_PROOF) {
    run.runID = value('run_id', string)
  } else {
    event = value('envelope', (v) => {
      const e = readEvent(hex(v))
      checkEvent(e)
      return e
    })
    run.runID = event.runID
    const path = value('path', (v) => Array.isArray(v) && v.length <= MAX_PATH ? v.map((h) => hex(h, 32)) : refuse(`not an array of at most ${MAX_PATH} hashes`))
    if (event.seq > run.events) refuse(`event ${event.seq} of a run of ${run.events}`)
    if (isTerminal(event.kind) !== (event.seq === run.events)) refuse('the terminal event is the last of its run')
    if (event.seq < run.events) {
      within('path', () => checkPath(event.hash, event.seq - 1n, run.events - 1n, path, run.merkleRoot))
    } else {
      if (path.length > 0) refuse('path: not empty for the terminal event')
      if (!event.hash.equals(run.lastHash)) refuse('terminal_hash is not the hash of the event')
      if (!event.payload.get('merkle_root').equals(run.merkleRoot)) refuse('merkle_root is not that of the event')
    }
  }
  const proof = value('tlog_proof', (v) => readProof(Buffer.from(string(v))))
  checkRunProof(run, proof)
  return { run, event, proof }
}
