// Runs in Node. The main thread reads frames from standard input, each with its length
// before it in four bytes: first the program, compressed, then bundles. The program runs in
// a worker, whose stack can be as large as a call may need. What it says of a bundle goes to
// standard output, one message a line.
"use strict";
const { Worker } = require("node:worker_threads");
const { gunzipSync } = require("node:zlib");

const input = process.stdin[Symbol.asyncIterator]();
let chunks = [], size = 0;

async function take(n) {
	while (size < n) {
		const { value, done } = await input.next();
		if (done) process.exit(0);
		chunks.push(value);
		size += value.length;
	}
	const all = Buffer.concat(chunks);
	chunks = [all.subarray(n)];
	size -= n;
	return all.subarray(0, n);
}

async function frame() {
	return take((await take(4)).readUInt32LE(0));
}

const inWorker = `
	const { parentPort, workerData } = require("node:worker_threads");
	const tell = (text) => parentPort.postMessage(text);
	globalThis.starling = {
		ready: () => parentPort.on("message", (file) => globalThis.starling.verify(file, {}, tell)),
	};
	const go = new Go();
	WebAssembly.instantiate(workerData, go.importObject).then((p) => go.run(p.instance));
`;

async function main() {
	const program = gunzipSync(await frame());
	const thread = new Worker(GLUE + inWorker, { eval: true, workerData: program, resourceLimits: { stackSizeMb: 200, maxOldGenerationSizeMb: 4096 } });
	thread.on("message", (text) => process.stdout.write(text + "\n"));
	thread.on("error", (error) => {
		process.stderr.write(`${(error && error.stack) || error}\n`);
		process.exit(1);
	});
	thread.on("exit", () => process.exit(1));
	for (;;) thread.postMessage(new Uint8Array(await frame()));
}
main();
