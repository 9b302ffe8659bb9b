// Bundles: bundle.md. The archive has one way to be written, so it is not read as a ZIP file but
// compared with what it has to be.

import { Buffer } from 'node:buffer'
import { createHash } from 'node:crypto'
import { blake3 } from './blake3.mjs'
import { quote, refuse, text, within } from './bytes.mjs'
import { decode } from './cbor.mjs'
import { readExport } from './event.mjs'
import { canonicalJSON } from './json.mjs'
import { checkReceipt } from './receipt.mjs'
import { checkRunProof, leafOf, readProof } from './seal.mjs'

const MAX_RUNS = 10_000
const MAX_DEPTH = 200 // of folders inside one another
const LOCAL = 30, CENTRAL = 46, END = 22 // sizes of headers without names

const CRC = Array.from({ length: 256 }, (_, n) => {
  for (let i = 0; i < 8; i++) n = n & 1 ? 0xedb88320 ^ (n >>> 1) : n >>> 1
  return n
})

function crc32(bytes) {
  let crc = -1
  for (let i = 0; i < bytes.length; i++) crc = CRC[(crc ^ bytes[i]) & 255] ^ (crc >>> 8)
  return ~crc >>> 0
}

/** header writes little-endian integers, given as [size, value]. */
function header(...fields) {
  return Buffer.concat(fields.map(([size, value]) => {
    const out = Buffer.alloc(size)
    out.writeUIntLE(value, 0, size)
    return out
  }))
}

// What a local and a central header have in common, from the version on.
const shared = (name, content, crc) => [[2, 20], [2, 0], [2, 0], [2, 0], [2, 0x21], [4, crc], [4, content.length], [4, content.length], [2, name.length], [2, 0]]

function compare(bytes, at, want, what) {
  for (let i = 0; i < want.length; i++) {
    if (bytes[at + i] !== want[i]) refuse(`byte ${at + i}, in ${what}: ${at + i < bytes.length ? `${bytes[at + i]} where ${want[i]} is due` : 'the archive ends early'}`)
  }
}

/** readArchive returns the entries of the archive, and refuses every byte that section 3 does not want. */
export function readArchive(bytes) {
  if (bytes.length >= 2 ** 32) refuse('the archive has 4 GiB or more')
  const entries = []
  let at = 0
  while (at + LOCAL <= bytes.length && bytes.readUInt32LE(at) === 0x04034b50) {
    const size = bytes.readUInt32LE(at + 18), nameLength = bytes.readUInt16LE(at + 26), start = at + LOCAL + nameLength
    if (start + size > bytes.length) refuse(`byte ${at}: the entry goes on after the end of the archive`)
    const name = bytes.subarray(at + LOCAL, start), content = bytes.subarray(start, start + size)
    if (name.some((c) => c < 0x20 || c > 0x7e)) refuse(`byte ${at + LOCAL}: a name that is not ASCII`)
    const crc = crc32(content), shown = name.toString('latin1')
    compare(bytes, at, header([4, 0x04034b50], ...shared(name, content, crc)), `the local header of ${quote(shown)}`)
    entries.push({ name: shown, content, crc, at })
    at = start + size
  }
  const directory = at
  for (const { name, content, crc, at: local } of entries) {
    const want = Buffer.concat([header([4, 0x02014b50], [2, 20], ...shared(name, content, crc), [2, 0], [2, 0], [2, 0], [4, 0], [4, local]), Buffer.from(name)])
    compare(bytes, at, want, `the central header of ${quote(name)}`)
    at += CENTRAL + name.length
  }
  compare(bytes, at, header([4, 0x06054b50], [2, 0], [2, 0], [2, entries.length], [2, entries.length], [4, at - directory], [4, directory], [2, 0]), 'the end of the archive')
  if (bytes.length !== at + END) refuse(`byte ${at + END}: ${bytes.length - at - END} bytes after the end of the archive`)
  return entries
}

/** checkBundle makes the checks of section 4, says each, and returns the runs and their proofs. */
export function checkBundle(bytes, readme, say, keys = []) {
  const entries = readArchive(bytes)
  say(`archive: ${entries.length} entries, every byte is as the format wants it`)
  for (const [i, name] of ['README.txt', 'certificate.json', 'runs.ndjson'].entries()) {
    if (entries[i]?.name !== name) refuse(`entry ${i + 1} is ${entries[i] ? quote(entries[i].name) : 'missing'}, not ${name}`)
  }
  const [about, certificate, events] = entries
  if (!about.content.equals(readme)) refuse('README.txt is not the text of this version')
  const modules = [], files = [], proofs = []
  let receipts = []
  for (const [i, entry] of entries.slice(3).entries()) {
    const digest = /^modules\/([0-9a-f]{64})\.wasm$/.exec(entry.name)?.[1], file = /^files\/([0-9a-f]{64})$/.exec(entry.name)?.[1]
    if (digest && files.length + proofs.length === 0 && (modules.length === 0 || digest > modules.at(-1).digest)) modules.push({ digest, ...entry })
    else if (file && proofs.length === 0 && (files.length === 0 || file > files.at(-1).digest)) files.push({ digest: file, ...entry })
    else if (entry.name === `proofs/${proofs.length + 1}.tlog-proof`) proofs.push(entry)
    else if (entry.name === 'receipts.ndjson' && i + 4 === entries.length && text(entry.content).endsWith('\n')) receipts = text(entry.content).slice(0, -1).split('\n')
    else refuse(`entry ${i + 4}, ${quote(entry.name)}, is not the name that comes here`)
  }

  const runs = within('runs.ndjson', () => readExport(events.content, MAX_RUNS))
  if (runs.length === 0) refuse('runs.ndjson: no run')
  if (proofs.length > 0 && proofs.length !== runs.length) refuse(`${proofs.length} proofs of ${runs.length} runs`)
  for (const run of runs) say(`run ${quote(run.runID)}: ${run.status}, ${run.events} events${run.encrypted ? ', encrypted' : ''}, chain and root are right`)

  for (const m of [...modules, ...files]) if (blake3(m.content).toString('hex') !== m.digest) refuse(`${m.name}: the content has another digest`)
  const named = [...new Set(runs.flatMap((run) => run.modules))].sort(), held = modules.map((m) => m.digest)
  for (const digest of named) if (!held.includes(digest)) refuse(`modules/${digest}.wasm is missing, which a run names`)
  for (const digest of held) if (!named.includes(digest)) refuse(`modules/${digest}.wasm is named by no run`)
  say(`modules: ${modules.length}, with the digests that the runs recorded`)

  const used = reachable(runs, new Map(files.map((f) => [f.digest, f.content])))
  for (const f of files) if (!used.has(f.digest)) refuse(`${f.name} is used by no run`)
  if (files.length > 0) say(`files: ${files.length}, everything that the roots in the runs lead to`)

  const seals = proofs.map((entry) => within(entry.name, () => readProof(entry.content)))
  const want = Buffer.from(makeCertificate(runs, modules, files, seals[0]?.checkpoint) + '\n')
  if (!certificate.content.equals(want)) refuse('certificate.json is not what the other entries say')
  say('certificate: says what the other entries say')

  seals.forEach((proof, i) => within(proofs[i].name, () => {
    if (runs[i].status === 'open') refuse(`run ${quote(runs[i].runID)} has not ended`)
    if (!proof.note.equals(seals[0].note)) refuse('the checkpoint is not that of the first proof')
    checkRunProof(runs[i], proof)
  }))
  receipts.forEach((line, i) => within(`receipts.ndjson: line ${i + 1}`, () => {
    const { statement } = checkReceipt(Buffer.from(line), keys)
    const run = runs.find((r) => r.runID === statement.run.get('id')) ?? refuse('of a run that is not here')
    if (statement.subjects.get('leaf')?.get('sha256') !== createHash('sha256').update(leafOf(run)).digest('hex')) refuse('about another leaf')
  }))
  if (receipts.length > 0) say(`receipts: ${receipts.length}, of the leaves of the runs; NOT PROVEN that they say what the runs say`)
  return { runs, checkpoint: seals[0]?.checkpoint }
}

/** reachable returns the digests of all files and folders that the roots of the runs lead to: workspace.md. */
function reachable(runs, files) {
  const used = new Set(), folders = new Set()
  const sizeOf = (digest) => files.get(digest)?.length ?? refuse(`files/${digest} is missing, which a run uses`)
  const visit = (digest, depth) => {
    if (folders.has(digest)) return
    sizeOf(digest)
    folders.add(digest)
    used.add(digest)
    if (depth > MAX_DEPTH) refuse('folders are too deep')
    for (const { kind, size, digest: below } of within(`files/${digest}`, () => folderOf(files.get(digest)))) {
      if (kind === 'folder') visit(below, depth + 1)
      else if (sizeOf(below) !== size) refuse(`files/${below} has another size in the folder ${digest}`)
      used.add(below)
    }
  }
  for (const root of runs.flatMap((run) => run.roots)) visit(root, 0)
  return used
}

/** folderOf reads the list of a folder: workspace.md, section 2. */
export function folderOf(bytes) {
  const list = decode(bytes)
  if (!Array.isArray(list) || list.length > 100_000) refuse('a folder is not a list of at most 100,000 entries')
  return list.map((entry, i) => {
    if (!Array.isArray(entry) || entry.length !== 4) refuse(`entry ${i} does not have four parts`)
    const [name, kind, size, digest] = entry
    if (typeof name !== 'string' || ['', '.', '..'].includes(name) || /[/\0]/.test(name) || Buffer.byteLength(name) > 255) refuse(`entry ${i} has no valid name`)
    if (i > 0 && Buffer.compare(Buffer.from(list[i - 1][0]), Buffer.from(name)) >= 0) refuse(`entry ${i} is not in order`)
    if (typeof kind !== 'bigint' || kind < 1n || kind > 3n) refuse(`entry ${i} has no valid kind`)
    const [least, most] = { 1: [0n, 64n << 20n], 2: [0n, 0n], 3: [1n, 4096n] }[kind]
    if (typeof size !== 'bigint' || size < least || size > most) refuse(`entry ${i} has no valid size`)
    if (!Buffer.isBuffer(digest) || digest.length !== 32) refuse(`entry ${i} has no digest`)
    return { name, kind: { 1: 'file', 2: 'folder', 3: 'link' }[kind], size: Number(size), digest: digest.toString('hex') }
  })
}

/** makeCertificate makes certificate.json of the other entries: section 2. */
function makeCertificate(runs, modules, files, checkpoint) {
  const object = (fields) => new Map(Object.entries(fields))
  const facts = (part) => object({ digest: part.digest, bytes: BigInt(part.content.length) })
  return canonicalJSON(object({
    format: 'starling-bundle/1',
    runs: runs.map((run) => object({
      run_id: run.runID, events: run.events, status: run.status, first: String(run.first), last: String(run.last), encrypted: run.encrypted,
      merkle_root: run.merkleRoot.toString('hex'), last_hash: run.lastHash.toString('hex'), modules: run.modules,
    })),
    modules: modules.map(facts),
    ...(files.length > 0 ? { files: files.map(facts) } : {}),
    checkpoint: checkpoint ? object({ origin: checkpoint.origin, leaves: checkpoint.size, root: checkpoint.root.toString('base64') }) : null,
  }))
}
