// Calls functions of a component on Node: jco.mjs COMPONENT CALLS, with the calls in a file as
// jco_test.go writes it. Prints what a tool would return, a line for each call. With one argument,
// NAME, it makes the component NAME.wasm of a core module, NAME.wat, and of NAME.wit.
import { transpile } from '@bytecodealliance/jco-transpile';
import { mkdirSync, mkdtempSync, readFileSync, rmSync, writeFileSync } from 'node:fs';
import { dirname, join } from 'node:path';
import { pathToFileURL } from 'node:url';
import { componentEmbed, componentNew, parse } from './node_modules/@bytecodealliance/jco-transpile/dist/wasm-tools.js';

const [BOOL, CHAR, STRING, LIST, RECORD, TUPLE, VARIANT, ENUM, OPTION, RESULT, FLAGS] = [0, 11, 12, 13, 14, 15, 16, 17, 18, 19, 20];
const camel = s => s.replace(/-(.)/g, (_, c) => c.toUpperCase());
const quote = JSON.stringify;
const isLong = t => t.kind === 7 || t.kind === 8;
const isFloat = t => t.kind === 9 || t.kind === 10;
// An option of a type whose values may be undefined is an object.
const boxed = t => t.elem.kind === OPTION && !boxed(t.elem);

function toJS(t, v) {
  switch (t.kind) {
    case BOOL: case CHAR: case STRING: return v;
    case LIST: {
      const typed = [, Int8Array, Uint8Array, Int16Array, Uint16Array, Int32Array, Uint32Array, BigInt64Array, BigUint64Array, Float32Array, Float64Array][t.elem.kind];
      return (typed ?? Array).from(v, e => toJS(t.elem, e));
    }
    case TUPLE: return v.map((e, i) => toJS(t.items[i].type, e));
    case RECORD: return Object.fromEntries(v.map((e, i) => [camel(t.items[i].name), toJS(t.items[i].type, e)]));
    case FLAGS: return Object.fromEntries(v.map((e, i) => [camel(t.items[i].name), e]));
    case ENUM: return t.items[v[0]].name;
    case OPTION:
      if (boxed(t)) return v[0] ? { tag: 'some', val: toJS(t.elem, v[1]) } : { tag: 'none' };
      return v[0] ? toJS(t.elem, v[1]) : undefined;
    case VARIANT: case RESULT: {
      const c = t.items[v[0]];
      return { tag: c.name, val: c.type ? toJS(c.type, v[1]) : undefined };
    }
  }
  return isLong(t) ? BigInt(v) : Number(v);
}

function toText(t, v) {
  switch (t.kind) {
    case BOOL: return String(v);
    case CHAR: case STRING: case ENUM: return quote(v);
    case LIST: return '[' + Array.from(v, e => toText(t.elem, e)).join() + ']';
    case TUPLE: return '[' + t.items.map((f, i) => toText(f.type, v[i])).join() + ']';
    case RECORD: return '{' + t.items.map(f => quote(f.name) + ':' + toText(f.type, v[camel(f.name)])).join() + '}';
    case FLAGS: return '{' + t.items.map(f => quote(f.name) + ':' + !!v[camel(f.name)]).join() + '}';
    case OPTION:
      if (boxed(t)) return v.tag === 'none' ? 'null' : toText(t.elem, v.val);
      return v === undefined ? 'null' : toText(t.elem, v);
    case RESULT: {
      const c = t.items.find(c => c.name === v.tag);
      return '{' + quote(v.tag) + ':' + (c.type ? toText(c.type, v.val) : 'null') + '}';
    }
    case VARIANT: {
      const c = t.items.find(c => c.name === v.tag);
      return '{"tag":' + quote(v.tag) + (c.type ? ',"val":' + toText(c.type, v.val) : '') + '}';
    }
  }
  if (isFloat(t) && !Number.isFinite(v)) return quote(String(v));
  // jco returns f32 as a double: the shortest text that reads as the same f32 is the tool's.
  if (t.kind === 9) for (let p = 1; p <= 9; p++) if (Math.fround(Number(v.toPrecision(p))) === v) return String(Number(v.toPrecision(p)));
  return String(v);
}

const [component, calls] = process.argv.slice(2);
if (!calls) {
  const core = await parse(readFileSync(component + '.wat', 'utf8'));
  const embedded = await componentEmbed({ binary: core, witSource: readFileSync(component + '.wit', 'utf8'), world: 'values', stringEncoding: 'utf8' });
  writeFileSync(component + '.wasm', await componentNew(embedded, []));
  process.exit();
}
const dir = mkdtempSync(join(import.meta.dirname, 'node_modules', '.jco-'));
try {
  const { files } = await transpile(component, { name: 'component' });
  for (const [name, bytes] of Object.entries(files)) {
    mkdirSync(dirname(join(dir, name)), { recursive: true });
    writeFileSync(join(dir, name), bytes);
  }
  const { api } = await import(pathToFileURL(join(dir, 'component.js')));
  for (const call of JSON.parse(readFileSync(calls, 'utf8'))) {
    try {
      const result = api[camel(call.function)](...call.args.map((v, i) => toJS(call.params[i], v)));
      const type = call.result?.kind === RESULT ? call.result.items[0].type : call.result; // jco returns ok, and throws err
      console.log('{"output":' + (type ? toText(type, result) : 'null') + '}');
    } catch (e) {
      const why = typeof e === 'string' ? e : e.payload;
      if (why === undefined) throw e;
      console.log('{"error":{"kind":"tool","message":' + quote(why) + '}}');
    }
  }
} finally {
  rmSync(dir, { recursive: true });
}
