#!/usr/bin/env node
// An independent checker of bundles and proofs. It shares no code with starling-host: it was
// written from event.md, seal.md and bundle.md, and needs Node 20 or later and nothing else.
// README.md says how to use and how to read it.

import { Buffer } from 'node:buffer'
import { existsSync, readFileSync, realpathSync, statSync } from 'node:fs'
import { pathToFileURL } from 'node:url'
import { parseArgs } from 'node:util'
import { quote, Refused, within } from './bytes.mjs'
import { checkBundle } from './bundle.mjs'
import { checkReceipt } from './receipt.mjs'
import { checkPolicy, checkProofDocument, checkSignature, readLogKey, readPolicy } from './seal.mjs'
import { checkVectors } from './vectors.mjs'

const USAGE = `usage: node check.mjs [--key VKEY]... [--policy FILE] FILE...
       node check.mjs --vectors FOLDER

FILE is a bundle (.starling), the proof of an event or run (JSON), or receipts (JSON, one a line).
  --key VKEY      trust the key of this log, or this seal key, or the one in a file
  --policy FILE   trust the logs and witnesses of this policy (seal.md, section 7)
  --vectors DIR   check this program with the vectors of the specification
Exit codes: 0 nothing is wrong, 1 something was refused, 2 wrong usage.`

const MAX_FILE = 1 << 30

class Usage extends Error {}

function read(file) {
  try {
    const { size } = statSync(file)
    if (size > MAX_FILE) throw new Refused(`${file}: ${size} bytes; this program reads at most ${MAX_FILE}`)
    return readFileSync(file)
  } catch (err) {
    throw err instanceof Refused ? err : new Usage(`cannot read ${file}: ${err.code ?? err.message}`)
  }
}

/** keyText returns a vkey, or the one in a file: alone, or in a line "log VKEY". */
function keyText(key) {
  if (!existsSync(key)) return key
  const text = read(key).toString().trim()
  return /^log (\S+)/m.exec(text)?.[1] ?? text
}

/** checkTrust says whether somebody who is trusted has signed a checkpoint. */
function checkTrust(checkpoint, { keys, policy }, say) {
  const { origin, size } = checkpoint
  if (policy) say(`checkpoint of ${quote(origin)}, ${size} leaves: ${checkPolicy(checkpoint, policy)}`)
  if (keys.length > 0) say(`checkpoint of ${quote(origin)}, ${size} leaves: signed by ${quote(checkSignature(checkpoint, keys))}`)
  const trusted = [...keys, ...policy?.logs ?? []]
  if (trusted.length > 0 && checkSignature(checkpoint, trusted) !== origin) say('NOT PROVEN that others are shown the same log: any log of this key would do')
  if (!policy && keys.length === 0) say(`checkpoint of ${quote(origin)}, ${size} leaves: NOT PROVEN that anybody signed it: no --key and no --policy was given`)
  else if (!policy) say('witnesses: NOT PROVEN that any saw the checkpoint: no --policy was given')
}

function checkFile(file, trust, print) {
  const say = (line) => print(`${file}: ${line}`)
  const bytes = read(file)
  if (bytes.subarray(0, 4).toString('latin1') === 'PK\x03\x04' || file.endsWith('.starling')) {
    const readme = readFileSync(new URL('../vectors/bundle-readme.txt', import.meta.url))
    const { checkpoint, runs } = checkBundle(bytes, readme, say, [...trust.keys, ...trust.policy?.logs ?? []])
    if (checkpoint) {
      say(`proofs: ${runs.length} runs are in the checkpoint`)
      checkTrust(checkpoint, trust, say)
    } else if (trust.policy || trust.keys.length > 0) {
      throw new Refused('the bundle is not sealed, so no key has signed it')
    } else {
      say('NOT PROVEN that anybody vouches for the runs: the bundle is not sealed')
    }
    say('NOT PROVEN that the modules compute what was recorded: this program executes nothing (see starling-host verify)')
    return
  }
  if (bytes.subarray(0, 200).includes('"payloadType"')) {
    for (const line of bytes.toString().split('\n').filter(Boolean)) checkOneReceipt(Buffer.from(line), trust, say)
    return
  }
  const { run, event, proof } = checkProofDocument(bytes)
  if (event) say(`event ${event.seq} of ${run.events} is part of run ${quote(run.runID)}`)
  say(`run ${quote(run.runID)} of ${run.events} events is leaf ${proof.index} of the log`)
  checkTrust(proof.checkpoint, trust, say)
  say('NOT PROVEN: the other events of the run, which a proof does not have')
}

function checkOneReceipt(bytes, trust, say) {
  const keys = [...trust.keys, ...trust.policy?.logs ?? []]
  const { statement: { tool, outcome, evidence, run }, signer, proof } = checkReceipt(bytes, keys)
  say(`call ${quote(run.get('callId'))} of ${quote(tool)} in run ${quote(run.get('id'))}: ${quote(outcome)}, ${signer === undefined ? 'NOT PROVEN that anybody signed it: no --key and no --policy was given' : `signed by ${quote(signer)}`}`)
  if (proof) checkTrust(proof.checkpoint, trust, say)
  else say('NOT PROVEN that the run is in a log: the receipt has no proof')
  if (evidence === 'reexecutable') say('NOT PROVEN that the result follows: execute the run again (see starling-host verify, with its bundle)')
  else say('NOT PROVEN that the result is true: it was recorded as received')
}

/** main returns the exit code. */
export function main(args, print, warn) {
  try {
    let parsed
    try {
      parsed = parseArgs({ args, allowPositionals: true, options: { key: { type: 'string', multiple: true }, policy: { type: 'string' }, vectors: { type: 'string' }, help: { type: 'boolean' } } })
    } catch (err) {
      throw new Usage(err.message)
    }
    const { values: { key = [], policy, vectors, help }, positionals: files } = parsed
    if (help) {
      print(USAGE)
      return 0
    }
    if (files.length === 0 && vectors === undefined) throw new Usage('no file was named')
    if (vectors !== undefined) checkVectors(vectors, print)
    const trust = {
      keys: key.map((vkey) => within('--key', () => readLogKey(keyText(vkey)))),
      policy: policy === undefined ? undefined : within(policy, () => readPolicy(read(policy))),
    }
    let code = 0
    for (const file of files) {
      try {
        checkFile(file, trust, print)
        print(`${file}: good`)
      } catch (err) {
        if (err instanceof Usage) throw err
        // Anything but Refused is a defect of this program, and no reason to accept the file.
        print(`${file}: REFUSED: ${err instanceof Refused ? err.message : `this program failed: ${err.stack}`}`)
        code = 1
      }
    }
    return code
  } catch (err) {
    warn(err instanceof Usage ? `${err.message}\n${USAGE}` : err instanceof Refused ? `REFUSED: ${err.message}` : `this program failed: ${err.stack}`)
    return err instanceof Usage ? 2 : 1
  }
}

if (process.argv[1] && import.meta.url === pathToFileURL(realpathSync(process.argv[1])).href) {
  process.exitCode = main(process.argv.slice(2), console.log, console.error)
}
