// The commands that run.mjs wants of a host (README.md), made of those of starling-host, which is
// found in PATH: node spec/tck/run.mjs node spec/tck/starling-host.mjs

import { spawnSync } from 'node:child_process'
import { mkdtempSync, readFileSync, rmSync, writeFileSync } from 'node:fs'
import { basename, join } from 'node:path'
import { tmpdir } from 'node:os'
import { parseArgs } from 'node:util'
import { blake3 } from '../checker/blake3.mjs'

const dir = mkdtempSync(join(tmpdir(), 'tck-host-'))
const db = join(dir, 'tck.db')

function host(args, input) {
  const { status, stdout, stderr, error } = spawnSync('starling-host', args, { input, maxBuffer: 1 << 28 })
  if (error) throw error
  process.stderr.write(stderr)
  return { status, stdout }
}

/** load brings a log and its module into a database, by way of an archive. */
function load(log, module) {
  const events = readFileSync(log, 'utf8'), wasm = readFileSync(module)
  const lines = `{"archive":"starling-host/1"}\n{"module":"${blake3(wasm).toString('hex')}","wasm":"${wasm.toString('base64')}"}\n${events}`
  const end = { events: events.split('\n').length - 1, hash: blake3(Buffer.from(lines)).toString('hex'), modules: 1, runs: 1 }
  writeFileSync(join(dir, 'archive.ndjson'), lines + JSON.stringify(end) + '\n')
  return host(['import', db, join(dir, 'archive.ndjson')]).status
}

const commands = {
  describe(module) {
    const { status, stdout } = host(['tool', 'describe', module, '-o', 'json'])
    process.stdout.write(stdout)
    return status
  },
  call(module, tool, { fuel, memory, effects, allow }) {
    const flags = ['--db', db, '--timeout', '60s']
    if (tool !== basename(module, '.wasm')) flags.push('--tool', tool)
    if (fuel) flags.push('--fuel', fuel)
    if (effects) flags.push('--effects', effects)
    if (memory) flags.push('--memory', `${Number(memory) / 1024}KiB`)
    if (allow) flags.push('--allow-private', '--allow-host', allow)
    host(['run', module, '-', ...flags], readFileSync(0))
    const { status, stdout } = host(['export', db, '@last'])
    process.stdout.write(stdout)
    return status
  },
  check: load,
  replay: (log, module) => load(log, module) || host(['replay', db, '@last']).status,
}

const option = { type: 'string' }
const { positionals: [name, ...args], values } = parseArgs({ allowPositionals: true, options: { fuel: option, memory: option, effects: option, allow: option } })
try {
  process.exitCode = commands[name](...args, values) === 0 ? 0 : 3
} finally {
  rmSync(dir, { recursive: true })
}
