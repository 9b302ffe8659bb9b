"use strict";
// Everything that a run says is put into the page as text, never as HTML.
const at = (id) => document.getElementById(id);
const make = (parent, tag, text, style) => {
	const e = document.createElement(tag);
	if (text !== undefined) e.textContent = text;
	if (style) e.className = style;
	parent.append(e);
	return e;
};
const plural = (n, what) => `${n.toLocaleString("en")} ${what}${n === 1 ? "" : "s"}`;

async function unpack(id) {
	try {
		const text = atob(at(id).textContent), packed = new Uint8Array(text.length);
		for (let i = 0; i < text.length; i++) packed[i] = text.charCodeAt(i);
		const stream = new Blob([packed]).stream().pipeThrough(new DecompressionStream("gzip"));
		return new Uint8Array(await new Response(stream).arrayBuffer());
	} catch (e) {
		throw new Error(`this page was changed: its ${id} cannot be unpacked`, { cause: e });
	}
}

// digest is the SHA-256 of bytes, or nothing where the browser keeps that from pages.
async function digest(bytes) {
	if (!crypto.subtle) return "";
	return Array.from(new Uint8Array(await crypto.subtle.digest("SHA-256", bytes)), (b) => b.toString(16).padStart(2, "0")).join("");
}

// What the program has said so far.
const began = performance.now();
let certificate, proofs, verdicts = [], failed = "", current;

const check = (style, text) => make(at("checks"), "li", text, style);

const states = { completed: "good", failed: "bad", cancelled: "mid", open: "busy" };

// showRun shows a run before it is executed, as one that is.
function showRun(run) {
	const facts = certificate.runs[verdicts.length];
	const s = make(at("runs"), "section", undefined, "run"), head = make(s, "div", undefined, "head");
	const h = make(head, "h2", run.title || run.run_id);
	make(h, "span", facts.encrypted ? "encrypted" : facts.status, `state ${facts.encrypted ? "mid" : states[facts.status]}`);
	make(head, "div", run.run_id, "id");
	const list = make(head, "div", undefined, "facts");
	for (const [name, value] of [["started", run.started], ["duration", run.duration], ["events", facts.events.toLocaleString("en")], ["tool calls", run.calls], ["requests", run.requests], ["fuel", run.fuel]]) {
		if (value) make(make(list, "span"), "b", name).after(String(value));
	}
	for (const digest of facts.modules) make(make(list, "span"), "b", "module").after(digest.slice(0, 16));
	current = { head, rows: new Map(), outcome: make(head, "p", "executing …", "outcome soft") };
	if (run.error) make(head, "p", run.error, "outcome bad");
	const table = make(s, "table", undefined, "bars");
	for (const bar of run.bars ?? []) {
		const line = make(table, "tr"), what = make(line, "td");
		for (let i = 0; i < bar.depth; i++) make(what, "i");
		const link = make(what, "button", bar.name, bar.bad ? "plain bad" : "plain");
		link.title = `event ${bar.seq}`;
		link.addEventListener("click", () => {
			const row = s.querySelector(`details[data-seq="${bar.seq}"]`);
			if (!row) return;
			row.open = true;
			row.scrollIntoView({ block: "center" });
		});
		if (bar.detail) make(what, "small", ` ${bar.detail}`);
		const svg = document.createElementNS("http://www.w3.org/2000/svg", "svg"), rect = document.createElementNS("http://www.w3.org/2000/svg", "rect");
		for (const [name, value] of [["class", bar.bad ? "bad" : bar.kind], ["x", bar.x], ["width", bar.w], ["y", "2"], ["height", "10"], ["rx", "2"]]) rect.setAttribute(name, value);
		svg.append(rect);
		make(line, "td").append(svg);
		make(line, "td", bar.took, "seq");
	}
	for (const row of run.rows) {
		const d = make(s, "details"), line = make(d, "summary");
		d.dataset.seq = row.seq;
		make(line, "span", row.seq, "seq");
		make(line, "span", row.since, "since");
		make(line, "span", row.kind, `kind d${row.depth} ${row.family === "run" ? "run-kind" : row.family}`);
		const text = make(line, "span", undefined, "text");
		text.title = row.line;
		if (row.call) make(text, "b", `${row.call} `);
		text.append(row.line);
		d.addEventListener("toggle", () => {
			if (!d.open || d.querySelector(".inside")) return;
			const inside = make(d, "div", undefined, "inside");
			for (const text of row.texts ?? []) {
				make(inside, "h4", text.path);
				make(inside, "pre", text.text);
			}
			make(inside, "h4", "payload");
			make(inside, "pre", row.payload);
			make(inside, "h4", `hash ${row.hash}`);
		});
		current.rows.set(row.seq, d);
	}
	if (run.more) make(s, "p", `and ${plural(run.more, "event")} more, checked but not shown`, "more");
}

// How the verdicts on a run are shown, and in which words.
const verdictWords = {
	identical: ["good", "identical", (v) => `All ${plural(v.events, "event")}${v.open ? " of an open run" : ""} match the recording.`],
	diverged: ["bad", "diverged", (v) => {
		const d = v.divergence;
		return `At event ${d.seq}, ${d.expected_kind}: ${d.reason}` + (d.field ? `. ${d.field} was recorded as ${d.expected}; the replay produced ${d.got}` : "");
	}],
	invalid: ["bad", "invalid", (v) => v.error],
	not_replayed: ["mid", "not executed", (v) => v.error],
	not_decided: ["mid", "not decided here", () => "A call needs a larger stack than this browser has. Its result is neither confirmed nor refuted."],
};

function judged(v) {
	verdicts.push(v);
	const [style, word, sentence] = verdictWords[v.verdict] ?? ["bad", v.verdict, () => ""];
	check(style, `Execution of ${v.run_id}: ${word}`);
	if (!current) return;
	current.outcome.className = `outcome ${style}`;
	current.outcome.textContent = `${word[0].toUpperCase()}${word.slice(1)}. ${sentence(v)}`;
	const here = v.divergence && current.rows.get(v.divergence.seq);
	if (here) {
		here.className = "here";
		here.open = true;
	}
}

// verdict says what all of it comes to.
function verdict() {
	const has = (w) => verdicts.filter((v) => v.verdict === w).length;
	const took = ((performance.now() - began) / 1000).toFixed(1);
	const say = (style, title, rests) => {
		at("verdict").className = style;
		document.querySelector("h1").textContent = document.title = title;
		at("rests").textContent = rests;
	};
	at("bar").hidden = true;
	if (failed || proofs.error) return say("bad", "Invalid", failed || proofs.error);
	if (has("invalid") || has("diverged")) return say("bad", "Differs from the recording", `${plural(has("invalid") + has("diverged"), "run")} of ${verdicts.length} did not match the recording. The difference is marked below.`);
	if (has("not_decided")) return say("mid", "Not decided here", `The stack of this browser is too small for ${plural(has("not_decided"), "run")} of ${verdicts.length}. Everything else matches. Save the bundle and let starling-host decide.`);
	if (has("not_replayed")) return say("mid", "Valid, not all executed", `All hashes are right. ${plural(has("not_replayed"), "run")} of ${verdicts.length} could not be executed; see the reasons below.`);
	// Green is for a recording whose owner is known too.
	const unknown = proofs.signed ? "" : proofs.checkpoint ? "The signature is not checked: enter the public key of the log below. " : "The recorder is unknown: the runs are not sealed. ";
	say(proofs.signed ? "good" : "mid", "Identical", `${unknown}The engine of your browser executed ${plural(verdicts.length, "run")} again, with ${plural(certificate.modules.length, "module")} that this page rewrote, in ${took} s. Every event, effect, output and unit of fuel matches the recording. This depends on your browser and the program in this page, and on no server.`);
}

function who() {
	const c = proofs.checkpoint, div = at("who");
	div.textContent = "";
	if (!c) {
		if (proofs.error) make(div, "p", proofs.error, "bad");
		make(div, "p", "The runs are not sealed: whoever made this page may have invented them. The page only shows what the tools do.");
		return;
	}
	at("trust").hidden = false;
	make(div, "p", `The runs are in the log ${c.origin}, in a checkpoint of tree size ${c.leaves} with the root ${c.root}.`);
	if (proofs.error) make(div, "p", proofs.error, "bad");
	else if (proofs.signed) make(div, "p", `✓ Signed by ${proofs.signed.join(", ")}.`, "good");
	else make(div, "p", "The signature is not checked: no key was given.", "mid");
}

function heard(m) {
	if (m.certificate) {
		certificate = m.certificate;
		check("good", `Envelopes, hash chains and Merkle roots of ${plural(certificate.runs.length, "run")}, ${plural(certificate.runs.reduce((n, r) => n + r.events, 0), "event")}`);
		check("good", `Digests of ${plural(certificate.modules.length, "module")}, ${plural(certificate.modules.reduce((n, m) => n + m.bytes, 0), "byte")}`);
	}
	if (m.proofs) {
		const again = proofs !== undefined;
		proofs = m.proofs;
		who();
		if (again) verdict();
		else if (proofs.error) check("bad", proofs.error);
		else {
			if (proofs.checkpoint) check("good", "Proofs that the checkpoint contains the runs");
			if (proofs.receipts) check("good", `${plural(proofs.receipts, "receipt")} of calls: each says what its run says`);
		}
	}
	if (m.run) showRun(m.run);
	if (m.progress) {
		const p = m.progress;
		at("bar").value = (verdicts.length + Math.min(p.matched / p.of, 1)) / certificate.runs.length;
		at("rests").textContent = `Executing run ${verdicts.length + 1} of ${certificate.runs.length}: event ${p.matched} of ${p.of}, ${p.fuel.toLocaleString("en")} units of fuel`;
	}
	if (m.verdict) judged(m.verdict);
	if (m.error) failed = m.error;
	if (m.done) verdict();
}

async function main() {
	at("verdict").className = "busy";
	document.querySelector("h1").textContent = "Verifying …";
	at("rests").textContent = "Loading the program in this page.";
	at("bar").hidden = false;
	const [program, bundle] = await Promise.all([unpack("program"), unpack("bundle")]);
	const code = new Blob([at("glue").textContent, at("inworker").textContent], { type: "text/javascript" });
	// The policy of the page holds its script alone. What the script starts, it compares.
	const sum = await digest(program);
	if (sum && (sum !== "{{PROGRAMSUM}}" || await digest(await code.arrayBuffer()) !== "{{CODESUM}}")) throw new Error("this page was changed: its program has another digest");
	const worker = new Worker(URL.createObjectURL(code));
	worker.onmessage = ({ data }) => heard(JSON.parse(data));
	worker.onerror = (e) => heard({ error: `the program ended: ${e.message ?? e.type}`, done: true });
	worker.postMessage({ program, bundle });
	at("trust").addEventListener("submit", (e) => {
		e.preventDefault();
		const key = at("key").value.trim().replace(/^log (\S+)$/, "$1"); // as seal prints it
		worker.postMessage({ policy: key.includes("\n") || key.includes(" ") ? key + "\n" : `log ${key}\nquorum none\n` });
	});
	at("save").addEventListener("click", () => {
		const a = document.createElement("a");
		a.href = URL.createObjectURL(new Blob([bundle], { type: "application/zip" }));
		a.download = "runs.starling";
		a.click();
	});
	at("about").textContent = `The program in this page: ${plural(program.length, "byte")} of WebAssembly${sum && `, SHA-256 ${sum}`}. It is built from the sources of starling-host, {{VERSION}}. Executed by ${navigator.userAgent}`;
}
main().catch((e) => heard({ error: e.message, done: true }));
