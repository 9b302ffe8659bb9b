// node servers.mjs DIR SERVER...: call each tool of MCP servers that others have written, directly and through
// "starling-host mcp --server". What they answer must be the same JSON, but for what the gateway adds in _meta.
// SERVER is NAME=FILE, a program of node_modules or a path; DIR is a folder for what the servers write.
import assert from 'node:assert/strict'
import { spawn } from 'node:child_process'
import { mkdirSync, rmSync, writeFileSync } from 'node:fs'
import { createInterface } from 'node:readline'

const [dir, ...servers] = process.argv.slice(2)
const work = `${dir}/work`
const png = 'iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNk+M9QDwADhgGAWjR9awAAAABJRU5ErkJggg=='

// Arguments where those made of the schema would say little, and tools that answer differently each time, that
// ask the client for what it does not offer, or that need the network or minutes.
const chosen = {
  filesystem: {
    read_file: { path: `${work}/a.txt` }, read_text_file: { path: `${work}/a.txt`, head: 1 }, read_media_file: { path: `${work}/a.png` },
    read_multiple_files: { paths: [`${work}/a.txt`, `${work}/none`] }, write_file: { path: `${work}/b.txt`, content: 'two\u2028\u{1F600}' },
    edit_file: { path: `${work}/a.txt`, edits: [{ oldText: 'one', newText: 'two' }] }, create_directory: { path: `${work}/c` },
    list_directory: { path: work }, list_directory_with_sizes: { path: work }, directory_tree: { path: work },
    move_file: { source: `${work}/b.txt`, destination: `${work}/d.txt` }, search_files: { path: work, pattern: '*.txt' },
    get_file_info: null,
  },
  memory: {
    create_entities: { entities: [{ name: 'Ada', entityType: 'person', observations: ['first'] }] },
    create_relations: { relations: [{ from: 'Ada', to: 'Ada', relationType: 'knows' }] },
    add_observations: { observations: [{ entityName: 'Ada', contents: ['second'] }] },
    search_nodes: { query: 'Ada' }, open_nodes: { names: ['Ada'] },
  },
  thinking: { sequentialthinking: { thought: 'x', nextThoughtNeeded: false, thoughtNumber: 1, totalThoughts: 1 } },
  everything: {
    'trigger-long-running-operation': { duration: 0.1, steps: 2 }, 'get-structured-content': { location: 'New York' },
    'gzip-file-as-resource': null, 'get-env': null, 'simulate-research-query': null, 'get-resource-links': { count: 3 },
    'get-resource-reference': null, 'toggle-simulated-logging': null, 'toggle-subscriber-updates': null,
  },
  desktop: {
    start_process: null, interact_with_process: null, read_process_output: null, force_terminate: null, list_sessions: null, list_processes: null, kill_process: null,
    get_usage_stats: null, get_recent_tool_calls: null, give_feedback_to_desktop_commander: null, get_config: null, track_ui_event: null, start_search: null,
    get_more_search_results: null, stop_search: null, list_searches: null, get_file_info: null, write_pdf: null, get_prompts: null,
    read_file: { path: `${work}/a.txt` }, write_file: { path: `${work}/b.txt`, content: 'two' }, list_directory: { path: work }, create_directory: { path: `${work}/c` },
    read_multiple_files: { paths: [`${work}/a.txt`] }, move_file: { source: `${work}/b.txt`, destination: `${work}/d.txt` }, edit_block: { file_path: `${work}/a.txt`, old_string: 'one', new_string: 'two' },
  },
}

// made returns arguments for a schema.
function made(s = {}) {
  if (s.enum) return s.enum[0]
  if (s.const !== undefined) return s.const
  if (s.anyOf || s.oneOf) return made((s.anyOf ?? s.oneOf)[0])
  const type = Array.isArray(s.type) ? s.type[0] : s.type
  if (type === 'object' || s.properties) return Object.fromEntries((s.required ?? []).map((n) => [n, made(s.properties?.[n])]))
  return { string: 'x', number: s.minimum ?? 1, integer: s.minimum ?? 1, boolean: true, array: [] }[type] ?? 'x'
}

// connect starts a server and returns what calls its methods.
async function connect(command, args, env = {}) {
  const child = spawn(command, args, { stdio: ['pipe', 'pipe', 'ignore'], env: { ...process.env, ...env } })
  const waiting = new Map()
  createInterface({ input: child.stdout }).on('line', (line) => {
    let m
    try { m = JSON.parse(line) } catch { return }
    if (m.method && m.id !== undefined) {
      child.stdin.write(JSON.stringify({ jsonrpc: '2.0', id: m.id, ...(m.method === 'ping' ? { result: {} } : m.method === 'roots/list' ? { result: { roots: [] } } : { error: { code: -32601, message: 'no' } }) }) + '\n')
    } else if (waiting.has(m.id)) waiting.get(m.id)(m.error ? { error: m.error } : m.result)
  })
  let id = 0
  const call = (method, params) => new Promise((resolve, reject) => {
    waiting.set(++id, resolve)
    setTimeout(() => reject(new Error(`${method} ${JSON.stringify(params)}: no answer`)), 60_000).unref()
    child.stdin.write(JSON.stringify({ jsonrpc: '2.0', id, method, params }) + '\n')
  })
  await call('initialize', { protocolVersion: '2025-06-18', capabilities: {}, clientInfo: { name: 'test', version: '1' } })
  child.stdin.write('{"jsonrpc":"2.0","method":"notifications/initialized"}\n')
  return { call, end: () => new Promise((resolve) => { child.on('close', resolve); child.stdin.end(); setTimeout(() => child.kill('SIGKILL'), 15_000).unref() }) }
}

// called calls each tool of a server in a new folder, and returns the answers by tool.
async function called(name, prefix, command, args, env) {
  rmSync(work, { recursive: true, force: true })
  mkdirSync(work, { recursive: true })
  writeFileSync(`${work}/a.txt`, 'one\nline\n')
  writeFileSync(`${work}/a.png`, Buffer.from(png, 'base64'))
  const server = await connect(command, args, env)
  const { tools } = await server.call('tools/list', {})
  const answers = {}
  for (const t of tools.sort((a, b) => (a.name < b.name ? -1 : 1))) {
    if (!t.name.startsWith(prefix)) continue
    const own = t.name.slice(prefix.length)
    const input = chosen[name]?.[own]
    if (input === null || t.execution?.taskSupport === 'required') continue
    const answer = await server.call('tools/call', { name: t.name, arguments: input ?? made(t.inputSchema) })
    if (prefix && answer._meta) {
      for (const key of ['io.github.starling-host/run_id', 'starling/run_id', 'starling/replay']) delete answer._meta[key]
      if (Object.keys(answer._meta).length === 0) delete answer._meta
    }
    answers[own] = answer
  }
  await server.end()
  return answers
}

let compared = 0
for (const server of servers) {
  const [name, file] = server.split(/=(.*)/s)
  const args = [file.includes('/') ? file : `node_modules/@modelcontextprotocol/server-${file}/dist/index.js`, ...{ filesystem: [work], desktop: ['--no-onboarding'], pdf: ['--stdio'], playwright: ['--headless'] }[name] ?? []]
  const env = { MEMORY_FILE_PATH: `${work}/memory.json`, DISABLE_TELEMETRY: '1' }
  const direct = await called(name, '', 'node', args, env)
  const line = `${name}=MEMORY_FILE_PATH=$MEMORY_FILE_PATH DISABLE_TELEMETRY=1 node ` + args.map((a) => `'${a}'`).join(' ')
  const through = await called(name, `${name}_`, 'starling-host', ['mcp', '--db', `${dir}/calls.db`, '--server', line], env)
  // The gateway passes questions to its client on, so a server may have more tools for it.
  for (const tool of Object.keys(direct).filter((tool) => tool in through)) assert.deepEqual(through[tool], direct[tool], `${name} ${tool}`)
  const missing = Object.keys(direct).filter((tool) => !(tool in through))
  assert.deepEqual(missing, [], `${name}: tools that the gateway lacks`)
  assert.notEqual(Object.keys(direct).length, 0, name)
  console.log(`${name}: ${Object.keys(direct).length} tools, the same answers`)
  compared += Object.keys(direct).length
}
console.log(`${compared} tools are compared`)
