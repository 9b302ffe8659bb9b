#!/usr/bin/env node
// The conformance kit: README.md says what it wants of a host, and of a guest.
//
//     node spec/tck/run.mjs [--only WORDS] COMMAND [ARG...]    a host, or what replays and checks
//     node spec/tck/run.mjs sdk MODULE                         a guest that was built with an SDK

import { spawnSync } from 'node:child_process'
import { mkdtempSync, readdirSync, readFileSync, rmSync, writeFileSync } from 'node:fs'
import { join } from 'node:path'
import { tmpdir } from 'node:os'
import { fileURLToPath } from 'node:url'
import { blake3 } from '../checker/blake3.mjs'
import { hex, Refused, refuse } from '../checker/bytes.mjs'
import { encode } from '../checker/cbor.mjs'
import { exportLine, kindName, merkleRoot, readEvent, readExport } from '../checker/event.mjs'
import { canonicalJSON, readJSON } from '../checker/json.mjs'
import { checkGuest } from './guest.mjs'

const here = fileURLToPath(new URL('.', import.meta.url))
const module = (name) => join(here, 'modules', name + '.wasm')
const TIMEOUT = 120_000
const REFUSES = 3 // the exit code; others are failures of the command

// Logs as lists of events that can be changed.

function readLog(bytes) {
  return bytes.toString().trimEnd().split('\n').map((line) => readEvent(hex(JSON.parse(line).envelope)))
}

/** writeLog numbers and links events again, and writes them as an export. So only their meaning is wrong. */
function writeLog(events) {
  const made = []
  for (const [i, e] of events.entries()) {
    const payload = new Map(e.payload)
    if (payload.has('merkle_root') && !e.keep) payload.set('merkle_root', merkleRoot(made.map((m) => m.hash)))
    made.push(readEvent(encode(new Map([['ts', e.ts], ['seq', e.seq0 ?? BigInt(i + 1)], ['kind', BigInt(e.kind)], ['run_id', e.runID], ['payload', payload],
      ['prev_hash', e.prev ?? (i === 0 ? null : made[i - 1].hash)]]))))
  }
  return Buffer.from(made.map((e) => exportLine(e) + '\n').join(''))
}

/** edited returns a log with its events changed. */
function edited(log, change) {
  const events = readLog(log).map((e) => ({ ...e, payload: new Map(e.payload) }))
  change(events)
  return writeLog(events)
}

const set = (i, field, value) => (events) => events.at(i).payload.set(field, typeof value === 'function' ? value(events.at(i).payload.get(field)) : value)

// What a log that is no whole run looks like: a host must refuse it.
const BROKEN = {
  'an event is missing': (log) => edited(log, (e) => { e.splice(2, 1); e.forEach((x, i) => { x.seq0 = BigInt(i < 2 ? i + 1 : i + 2) }) }),
  'two events change places': (log) => Buffer.from(log.toString().replace(/^(.*\n)(.*\n)(.*\n)/, '$1$3$2')),
  'prev_hash is another one': (log) => edited(log, (e) => { e[2].prev = blake3(Buffer.from('another')) }),
  'the root is another one': (log) => edited(log, (e) => { e.at(-1).keep = true; e.at(-1).payload.set('merkle_root', blake3(Buffer.from('another'))) }),
  'an event of another run': (log) => edited(log, (e) => { e[2].runID = 'another' }),
  'an event after the terminal one': (log) => edited(log, (e) => e.push(e[2])),
  'a second RunStarted': (log) => edited(log, (e) => e.splice(1, 0, { ...e[0] })),
  'no RunStarted': (log) => edited(log, (e) => e.shift()),
  'an outcome of a call that was not scheduled': (log) => edited(log, (e) => e.splice(1, 4)),
  'a call without an outcome': (log) => edited(log, (e) => e.splice(-2, 1)),
  'two outcomes of one attempt': (log) => edited(log, (e) => e.splice(-2, 0, e.at(-2))),
  'a field is missing': (log) => edited(log, (e) => e[1].payload.delete('args')),
  'a field has another type': (log) => edited(log, set(1, 'tool', 1n)),
  'an optional field has its zero value': (log) => edited(log, set(1, 'parent_id', '')),
  'the line says another hash': (log) => Buffer.from(log.toString().replace('"hash":"', '"hash":"00').replace(/("hash":"[0-9a-f]{64})../, '$1')),
  'the line shows another payload': (log) => Buffer.from(log.toString().replace('"attempt":1', '"attempt":2')),
  'an envelope that is not canonical': (log) => Buffer.from(log.toString().replace(/^(\{"envelope":"a6627473)1b/, '$11c')),
}

// What a whole run looks like in which something else happened: a host must find it when it replays.
const DIFFERENT = {
  'another result': (log) => edited(log, (e) => { set(-2, 'result', 'no')(e); set(-1, 'final_text', '"no"')(e) }),
  'more fuel': (log) => edited(log, set(-2, 'fuel', (n) => n + 1n)),
  'less memory': (log) => edited(log, set(-2, 'peak_memory', 65535n)),
  'something in the log': (log) => edited(log, set(-2, 'log', 'x')),
  'another time': (log) => edited(log, set(2, 'value', (n) => n + 1n)),
  'another random number': (log) => edited(log, set(3, 'value', (n) => n ^ 1n)),
  'an effect of another name': (log) => edited(log, set(3, 'name', 'now')),
  'an effect later than it was': (log) => edited(log, set(2, 'fuel', (n) => n + 1n)),
  'one effect less': (log) => edited(log, (e) => e.splice(4, 1)),
  'one effect more': (log) => edited(log, (e) => e.splice(4, 0, e[4])),
  'two effects change places': (log) => edited(log, (e) => e.splice(3, 2, e[4], e[3])),
  'less fuel than it took': (log) => edited(log, (e) => e[0].payload.get('tool_schemas')[0].get('sandbox').get('limits').set('fuel', 1000n)),
}

/** answered is the log of module http as it would be if there had been a response of 5 bytes. */
function answered(log) {
  return edited(log, (e) => {
    e[2].payload.set('value', new Map([['response', Buffer.from('hello')]]))
    const result = 'fffffffffffffffa0000000000000005fffffffffffffffb'
    e.at(-2).payload.set('result', result)
    e.at(-1).payload.set('final_text', JSON.stringify(result))
  })
}

/** checkCall compares the run of a call, which the host has printed, with what calls.jsonl wants. */
function checkCall(want, log) {
  const runs = readExport(log)
  if (runs.length !== 1 || runs[0].status === 'open') refuse('not one run that has ended')
  const events = readLog(log), [started, scheduled] = events, outcome = events.at(-2), end = events.at(-1)
  const is = (what, got, wanted) => String(got) === String(wanted) || refuse(`${what} is ${got}, not ${wanted}`)
  const field = (e, name, wanted) => is(`${kindName(e.kind)}.${name}`, e.payload.get(name), wanted)

  // event.md, section 9: a direct run.
  is('the kinds', events.map((e) => kindName(e.kind)).filter((k) => k !== 'SideEffectRecorded'),
    want.error_type ? ['RunStarted', 'ToolCallScheduled', 'ToolCallFailed', 'RunFailed'] : ['RunStarted', 'ToolCallScheduled', 'ToolCallCompleted', 'RunCompleted'])
  field(started, 'goal', want.module)
  const sandbox = started.payload.get('tool_schemas')[0].get('sandbox')
  is('the digest of the module', sandbox.get('module').toString('hex'), blake3(readFileSync(module(want.module))).toString('hex'))
  is('the ABI', sandbox.get('abi'), want.module.startsWith('command') ? 'wasi:command' : 'starling:v1')
  is('the cost table', sandbox.get('cost_table'), 1)
  field(scheduled, 'turn_id', 'direct')
  field(scheduled, 'attempt', 1)
  field(scheduled, 'tool', want.module)
  is('args', canonicalJSON(scheduled.payload.get('args')), canonicalJSON(readJSON(Buffer.from(want.input ?? '{}'))))

  for (const name of ['error_type', 'error', 'fuel', 'peak_memory', 'log']) if (want[name] !== undefined) field(outcome, name, want[name])
  const effects = events.slice(2, -2)
  if (want.effects) is('the effects', effects.map((e) => e.payload.get('name')), want.effects)
  for (const e of effects) is('call_id of an effect', e.payload.get('call_id'), scheduled.payload.get('call_id'))
  if (want.error_type) return field(end, 'error_type', want.error_type)

  const result = canonicalJSON(outcome.payload.get('result'))
  field(end, 'final_text', result)
  field(end, 'turn_count', 0)
  field(end, 'tool_call_count', 1)
  if (want.result) is('the result', result, want.result)
  if (want.result_like && !new RegExp(want.result_like).test(result)) refuse(`the result is ${result}`)
  if (want.shows_effects) is('the result', result, `"${effects.map((e) => BigInt.asUintN(64, e.payload.get('value')).toString(16).padStart(16, '0')).join('')}"`)
  if (want.document) {
    const { tool, input, context } = Object.fromEntries(outcome.payload.get('result'))
    is('tool', tool, want.module)
    is('input', canonicalJSON(input), want.document)
    is('run_id', context.get('run_id'), started.runID)
    is('call_id', context.get('call_id'), scheduled.payload.get('call_id'))
    is('attempt', context.get('attempt'), 1)
    is('variables', context.get('variables'), undefined)
  }
}

/** checkHost runs all cases against a command, and returns how many it did not pass. */
function checkHost(command, only) {
  const dir = mkdtempSync(join(tmpdir(), 'tck-'))
  const run = (args, input = '') => {
    const done = spawnSync(command[0], [...command.slice(1), ...args], { input, timeout: TIMEOUT, maxBuffer: 1 << 28 })
    if (done.error || (done.status !== 0 && done.status !== REFUSES)) throw new Refused(`${args[0]}: ${done.error ?? `exit code ${done.status}, signal ${done.signal}`}\n${done.stderr}`)
    return { accepted: done.status === 0, stdout: done.stdout, stderr: done.stderr.toString() }
  }
  const logCommand = (name, log, moduleName) => {
    writeFileSync(join(dir, 'log.ndjson'), log)
    return run([name, join(dir, 'log.ndjson'), module(moduleName)])
  }
  const accepts = (name, log, moduleName) => {
    const done = logCommand(name, log, moduleName)
    if (!done.accepted) refuse(`${name} refuses it: ${done.stderr}`)
  }
  const cases = []
  for (const line of readFileSync(join(here, 'calls.jsonl'), 'utf8').trimEnd().split('\n')) {
    const want = JSON.parse(line)
    cases.push([`call ${want.module}: ${want.name}`, () => {
      for (let i = 0; i < (want.repeat ?? 1); i++) {
        const done = run(['call', module(want.module), want.module, ...Object.entries(want.options ?? {}).flatMap(([k, v]) => [`--${k}`, `${v}`])], want.input ?? '{}')
        if (!done.accepted) refuse(`call refuses it: ${done.stderr}`)
        checkCall(want, done.stdout)
        if (want.error_type === undefined || i === 0) accepts('replay', done.stdout, want.module)
      }
    }])
  }
  for (const file of readdirSync(join(here, 'modules')).filter((f) => f.startsWith('refused')).sort()) {
    cases.push([`describe ${file}: refuses it`, () => run(['describe', join(here, 'modules', file)]).accepted && refuse('describe accepts it')])
  }
  cases.push(['describe answer: says what the module says', () => {
    const tools = JSON.parse(run(['describe', module('answer')]).stdout).tools
    const [{ name, description, input_schema: schema }] = tools
    if (tools.length !== 1 || name !== 'answer' || description !== 'The tool answer of the kit.' || schema.type !== 'object') refuse(`it says ${JSON.stringify(tools)}`)
  }])
  const logs = Object.fromEntries(readdirSync(join(here, 'logs')).map((f) => [f.replace('.ndjson', ''), readFileSync(join(here, 'logs', f))]))
  for (const [name, log] of Object.entries(logs)) {
    cases.push([`check ${name}: accepts it`, () => accepts('check', log, name)])
    cases.push([`replay ${name}: is identical`, () => accepts('replay', log, name)])
  }
  cases.push(['replay http: takes the response from the log', () => accepts('replay', answered(logs.http), 'http')])
  for (const [what, make] of Object.entries(BROKEN)) {
    cases.push([`check refuses: ${what}`, () => logCommand('check', make(logs.effects), 'effects').accepted && refuse('check accepts it')])
  }
  for (const [what, make] of Object.entries(DIFFERENT)) {
    cases.push([`replay refuses: ${what}`, () => {
      const log = make(logs.effects)
      accepts('check', log, 'effects')
      if (logCommand('replay', log, 'effects').accepted) refuse('replay says it is identical')
    }])
  }
  try {
    return runCases(cases, only)
  } finally {
    rmSync(dir, { recursive: true })
  }
}

function runCases(cases, only = '') {
  let failed = 0, passed = 0
  for (const [name, step] of cases) {
    if (!name.includes(only)) continue
    try {
      step()
      passed++
      console.log(`ok      ${name}`)
    } catch (err) {
      failed++
      console.log(`FAILED  ${name}\n        ${err instanceof Refused ? err.message : err.stack}`)
    }
  }
  console.log(`${passed} passed, ${failed} failed`)
  return failed || (passed === 0 ? 1 : 0)
}

const args = process.argv.slice(2)
const only = args[0] === '--only' ? args.splice(0, 2)[1] : undefined
if (args.length === 0 || args[0].startsWith('-') || (args[0] === 'sdk' && args.length !== 2)) {
  console.error('usage: node run.mjs [--only WORDS] COMMAND [ARG...]\n       node run.mjs [--only WORDS] sdk MODULE')
  process.exitCode = 2
} else {
  process.exitCode = (args[0] === 'sdk' ? runCases(checkGuest(readFileSync(args[1])), only) : checkHost(args, only)) === 0 ? 0 : 1
}
