// Executes rewritten modules on V8. Standard input is a JSON array of programs, standard
// output one of what could be seen of each, in the words of observation in observe_test.go.
"use strict";
const traps = [
	["unreachable", "unreachable"], ["by zero", "integer divide by zero"], ["unrepresentable", "integer overflow"],
	["signature", "indirect call type mismatch"], ["out of bounds", "out of bounds memory access"],
];

function fnv(bytes) {
	let h = 0xcbf29ce484222325n;
	for (const b of bytes) h = BigInt.asUintN(64, (h ^ BigInt(b)) * 0x100000001b3n);
	return h.toString(16).padStart(16, "0");
}

function run(p) {
	const seen = [], fuel = [], module = (b) => new WebAssembly.Module(Buffer.from(b, "base64"));
	let mail, answers = 0n, stopped = false;
	const values = (n) => Array.from(mail.subarray(0, n), (v) => ` 0x${v.toString(16)}`).join("");
	const call = (n) => {
		const im = p.imports[n];
		if (im.name === "refill") { stopped = true; return 1; }
		seen.push(`import ${im.name}${values(im.params)}`);
		answers++;
		mail[0] = BigInt.asUintN(32, answers * 0x9e3779b9n);
		return 0;
	};
	const before = new WebAssembly.Instance(module(p.before), { host: { call } }).exports;
	mail = new BigUint64Array(before.mail.buffer);
	const imports = {};
	p.imports.forEach((im, n) => (imports[im.module] ??= {})[im.name] = before[n]);
	const guest = new WebAssembly.Instance(module(p.wasm), imports).exports;
	const after = new WebAssembly.Instance(module(p.after), { guest, before }).exports;
	const global = (name) => {
		const n = p.globals.indexOf(name);
		return { get: () => { after["get" + n](); return mail[0]; }, set: (v) => { mail[0] = BigInt(v); after["set" + n](); } };
	};
	for (const d of p.data ?? []) new Uint8Array(guest.memory.buffer).set(Buffer.from(d.Bytes ?? "", "base64"), d.Offset);
	const [used, limit, depth, trap] = ["fuel", "limit", "depth", "trap"].map((n) => global("starling:" + n));
	const observe = (name, f, args, results) => {
		used.set(0); limit.set(p.fuel); depth.set(p.depth); trap.set(0);
		stopped = false;
		let text = `${name} returns`;
		try {
			args.forEach((a, i) => mail[i] = BigInt(a));
			if (f !== undefined) { after["call" + f](); text += values(results); }
		} catch (e) {
			const why = Number(trap.get());
			text = `${name}: ` + (why === 1 ? "invalid conversion to integer" : why === 2 ? "invalid table access"
				: traps.find(([part]) => e.message.includes(part))?.[1] ?? String(e));
		}
		fuel.push(Number(used.get()));
		const left = Number(BigInt.asIntN(32, depth.get()));
		if (left < 0 || stopped) text = `${name}: out of fuel or depth, ${left} slots left`;
		seen.push(text);
		return text.startsWith(`${name} returns`);
	};
	if (!observe("start", p.start, [], 0)) return { seen, fuel };
	for (const c of p.calls) observe(c.name, c.f, c.args, c.results);
	for (let i = 0; p.globals.includes("g" + i) || guest["g" + i]; i++) {
		if (p.globals.includes("g" + i)) { global("g" + i).get(); seen.push(`g${i}${values(1)}`); }
	}
	if (guest.memory) {
		const b = new Uint8Array(guest.memory.buffer);
		seen.push(`memory of ${b.length} bytes: ${fnv(b)}`);
	}
	return { seen, fuel };
}

let text = "";
process.stdin.setEncoding("utf8").on("data", (d) => text += d).on("end", () => {
	process.stdout.write(JSON.stringify(JSON.parse(text).map((p) => {
		try { return run(p); } catch (e) { return { seen: [String(e.stack)], fuel: [] }; }
	})));
});
