// Builds the components that the tests use: with clang and lld of Debian, and with jco, whose
// version package-lock.json pins. Run it as: npm ci && node build.mjs [FOLDER]
import { execFileSync } from 'node:child_process';
import { mkdtempSync, readFileSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join, resolve } from 'node:path';
import { componentEmbed, componentNew, parse } from './node_modules/@bytecodealliance/jco-transpile/dist/wasm-tools.js';

const out = process.argv[2] ? resolve(process.argv[2]) : import.meta.dirname;
process.chdir(import.meta.dirname);
const scratch = mkdtempSync(join(tmpdir(), 'component-'));

async function fromC(name, ...adapters) {
  const core = join(scratch, 'core.wasm');
  execFileSync('clang', ['--target=wasm32', '-O2', '-nostdlib', '-ffreestanding', '-mbulk-memory', '-Wno-all', '-Wl,--no-entry', '-o', core, name + '.c'], { stdio: 'inherit' });
  const embedded = await componentEmbed({ binary: new Uint8Array(readFileSync(core)), witSource: readFileSync(name + '.wit', 'utf8'), world: name, stringEncoding: 'utf8' });
  writeFileSync(join(out, name + '.wasm'), await componentNew(embedded, adapters));
}

await fromC('values');
await fromC('act');
await fromC('agent');
// The adapter is in jco itself, which needs more than these tests do.
execFileSync('npm', ['pack', '--silent', '--pack-destination', scratch, '@bytecodealliance/jco@1.35.0'], { stdio: ['ignore', 'ignore', 'inherit'] });
execFileSync('tar', ['-xzf', join(scratch, 'bytecodealliance-jco-1.35.0.tgz'), '-C', scratch]);
await fromC('adapter', ['wasi_snapshot_preview1', new Uint8Array(readFileSync(join(scratch, 'package/lib/wasi_snapshot_preview1.reactor.wasm')))]);
for (const name of ['linked', 'parts', 'plugin', 'mcp', 'command', 'context', 'stale']) writeFileSync(join(out, name + '.wasm'), await parse(readFileSync(name + '.wat', 'utf8')));
