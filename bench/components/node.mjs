// Makes a component with SpiderMonkey: node.mjs build OUT
// Calls a function of a component, each call on a fresh instance of modules that are compiled
// once: node.mjs call COMPONENT FUNCTION ARGUMENT. Prints what it returned, then for each line
// of milliseconds that it reads the nanoseconds of a call.
import { transpile } from '@bytecodealliance/jco-transpile';
import { WASIShim } from '@bytecodealliance/preview2-shim/instantiation';
import { mkdtempSync, readFileSync, rmSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { createInterface } from 'node:readline';
import { pathToFileURL } from 'node:url';

const source = `export function analyze(text) {
  const words = text.split(/\\s+/).filter(w => w);
  return { words: words.length, longest: words.reduce((a, b) => b.length > a.length ? b : a, '') };
}`;
const world = `package bench:text;
world text {
  record summary { words: u32, longest: string }
  export analyze: func(text: string) -> summary;
}`;

async function build(out) {
  const { componentize } = await import('@bytecodealliance/componentize-js');
  writeFileSync(out, (await componentize(source, { witWorld: world, worldName: 'text' })).component);
}

async function call(component, name, argument) {
  const dir = mkdtempSync(join(import.meta.dirname, 'node_modules', '.bench-'));
  let instantiate, modules;
  try {
    const { files } = await transpile(component, { name: 'component', instantiation: 'sync' });
    modules = Object.fromEntries(Object.entries(files).filter(([file]) => file.endsWith('.wasm')).map(([file, b]) => [file, new WebAssembly.Module(b)]));
    writeFileSync(join(dir, 'component.js'), files['component.js']);
    ({ instantiate } = await import(pathToFileURL(join(dir, 'component.js'))));
  } finally {
    rmSync(dir, { recursive: true });
  }
  const imports = new WASIShim().getImportObject();
  const one = () => {
    const instance = instantiate(file => modules[file], imports);
    return (instance[name] ?? instance.api[name])(argument);
  };
  console.log(JSON.stringify(one()));
  for await (const ms of createInterface({ input: process.stdin })) {
    const began = process.hrtime.bigint();
    let n = 0;
    do {
      one();
      n++;
    } while (process.hrtime.bigint() - began < BigInt(ms) * 1000000n);
    console.log(Number(process.hrtime.bigint() - began) / n);
  }
}

const [what, ...args] = process.argv.slice(2);
await (what === 'build' ? build : call)(...args);
