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
const mostShown = 2000; // events of a run

async function unpack(id) {
	const text = atob(at(id).textContent), packed = new Uint8Array(text.length);
	for (let i = 0; i < text.length; i++) packed[i] = text.charCodeAt(i);
	const stream = new Blob([packed]).stream().pipeThrough(new DecompressionStream("gzip"));
	return new Uint8Array(await new Response(stream).arrayBuffer());
}

const check = (style, text) => make(at("checks"), "li", text, style);
const plural = (n, what) => `${n} ${what}${n === 1 ? "" : "s"}`;
let certificate, proofs, verdicts = [], failed = "", began = performance.now();

// Numbers that JavaScript would round, such as times in nanoseconds, are kept as text behind
// a mark that no text of a run can have.
const mark = crypto.getRandomValues(new Uint32Array(4)).join("-") + ":";
const literal = /"(?:[^"\\]|\\.)*"|-?\d+(?:\.\d+)?(?:[eE][+-]?\d+)?/g;
const parse = (text) => JSON.parse(text.replace(literal, (m) => (m[0] === '"' || String(Number(m)) === m ? m : `"${mark}${m}"`)));
const bare = (v) => (typeof v === "string" && v.startsWith(mark) ? v.slice(mark.length) : v);
const show = (v, indent) => JSON.stringify(v, null, indent)?.replaceAll(new RegExp(`"${mark}([^"]*)"`, "g"), "$1");

// one line about an event
function summary(p, kind) {
	const short = (v) => {
		const text = typeof v === "string" ? bare(v) : show(v);
		return text === undefined ? "" : text.length > 110 ? text.slice(0, 110) + "…" : text;
	};
	switch (kind) {
	case "RunStarted": return short(p.goal);
	case "ToolCallScheduled": return `${p.tool ?? ""} ${short(p.args)}`;
	case "ToolCallCompleted": return short(p.result);
	case "ToolCallFailed": case "RunFailed": return short(p.error);
	case "SideEffectRecorded": return `${p.name ?? ""} ${short(p.value)}`;
	case "RunCompleted": return short(p.final_text ?? "");
	}
	return short(p.message ?? p.text ?? "");
}

function showEvents(events) {
	const div = make(at("runs"), "div");
	make(div, "h3", events[0].run_id);
	const first = BigInt(bare(events[0].ts) ?? 0);
	for (const e of events.slice(0, mostShown)) {
		const d = make(div, "details"), s = make(d, "summary");
		const after = Number(BigInt(bare(e.ts) ?? 0) - first) / 1e9;
		make(s, "b", `${e.seq} ${e.kind}`);
		make(s, "span", `+${after.toFixed(3)} s`);
		make(s, "span", e.payload ? summary(e.payload, e.kind) : "encrypted");
		d.addEventListener("toggle", () => {
			if (d.open && !d.querySelector("pre")) make(d, "pre", show(e.payload ?? null, 2) + `\n\nhash ${e.hash}`);
		});
	}
	if (events.length > mostShown) make(div, "p", `and ${events.length - mostShown} more, which were checked and are not shown`);
	return div;
}

const words = {
	identical: ["good", (v) => `identical: ${plural(v.events, "event")}${v.open ? " of an open run" : ""}`],
	diverged: ["bad", (v) => `diverged at event ${v.divergence.seq} (${v.divergence.expected_kind}): ${v.divergence.reason ?? ""} ${v.divergence.field ?? ""} recorded ${v.divergence.expected ?? ""}, executed ${v.divergence.got ?? ""}`],
	invalid: ["bad", (v) => `invalid: ${v.error}`],
	not_replayed: ["mid", (v) => `not executed: ${v.error}`],
	not_decided: ["mid", () => "not decided here: the call stack of this browser is too small for it"],
};

function verdict() {
	const has = (w) => verdicts.filter((v) => v.verdict === w).length;
	const h = at("verdict"), took = ((performance.now() - began) / 1000).toFixed(1);
	at("bar").hidden = true;
	const say = (style, title, rests) => {
		h.className = style;
		h.textContent = title;
		at("rests").textContent = rests;
		document.title = title;
	};
	if (failed) return say("bad", "Invalid", failed);
	if (proofs.error) return say("bad", "Invalid", proofs.error);
	if (has("invalid") || has("diverged")) return say("bad", "Not the recorded runs", "At least one run is not what its tools do. Below is which, and where.");
	if (has("not_decided")) return say("mid", "Not decided here", `${plural(has("not_decided"), "run")} of ${verdicts.length} needs a larger call stack than this browser has. Nothing was found to be wrong with the others.`);
	if (has("not_replayed")) return say("mid", "Valid, not all executed", `Hashes are right. ${plural(has("not_replayed"), "run")} of ${verdicts.length} could not be executed; below is why.`);
	const modules = plural(certificate.modules.length, "module"), runs = plural(verdicts.length, "run");
	say("good", "Identical", `The engine of your browser executed ${runs} again, ${modules} rewritten by this page, in ${took} s. Every event, effect, output and unit of fuel is as recorded. This rests on your browser and on the program in this page, and on no server.`);
}

function who() {
	const c = proofs.checkpoint;
	at("who").className = "";
	if (!c) {
		at("who").textContent = "Nobody says. The runs are not sealed, so whoever made this page could have made up the runs. It shows what the tools do.";
		return;
	}
	at("trust").hidden = false;
	at("who").textContent = `The runs are in the log ${c.origin}, in a checkpoint of ${plural(c.leaves, "run")} with the root ${c.root}. `;
	if (proofs.error) make(at("who"), "span", proofs.error, "bad");
	else if (proofs.signed) make(at("who"), "span", `Signed by ${proofs.signed.join(", ")}.`, "good");
	else make(at("who"), "span", "The signature is not checked: no key was given.", "mid");
}

function heard(m, current) {
	if (m.certificate) {
		certificate = m.certificate;
		check("good", `Archive, envelopes and hash chains: ${plural(certificate.runs.length, "run")}, ${plural(certificate.runs.reduce((n, r) => n + r.events, 0), "event")}`);
		check("good", `Digests of ${plural(certificate.modules.length, "module")}`);
	}
	if (m.proofs) {
		const again = proofs !== undefined;
		proofs = m.proofs;
		who();
		if (again) verdict();
		else if (proofs.checkpoint) check(proofs.error ? "bad" : "good", proofs.error ?? "Proofs that the checkpoint has the runs");
	}
	if (m.events) current.div = showEvents(m.events);
	if (m.progress) {
		const p = m.progress;
		at("bar").value = (verdicts.length + Math.min(p.matched / p.of, 1)) / certificate.runs.length;
		at("rests").textContent = `Executing run ${verdicts.length + 1} of ${certificate.runs.length}: event ${p.matched} of ${p.of}, ${p.fuel.toLocaleString("en")} units of fuel`;
	}
	if (m.verdict) {
		verdicts.push(m.verdict);
		const [style, text] = words[m.verdict.verdict] ?? ["bad", (v) => v.verdict];
		check(style, `Executed again: run ${m.verdict.run_id} is ${text(m.verdict)}`);
		if (current.div) current.div.querySelector("h3").after(make(current.div, "p", text(m.verdict), style));
	}
	if (m.error) failed = m.error;
	if (m.done) verdict();
}

async function main() {
	at("rests").textContent = "Loading the program that this page has.";
	const [program, bundle] = await Promise.all([unpack("program"), unpack("bundle")]);
	const sum = new Uint8Array(await crypto.subtle?.digest("SHA-256", program) ?? []);
	at("about").textContent = `The program in this page: ${program.length.toLocaleString("en")} bytes of WebAssembly` +
		(sum.length ? `, SHA-256 ${Array.from(sum, (b) => b.toString(16).padStart(2, "0")).join("")}` : "") +
		`. It is built from the sources of starling-host, {{VERSION}}. Executed by ${navigator.userAgent}`;
	at("save").addEventListener("click", () => {
		const a = document.createElement("a");
		a.href = URL.createObjectURL(new Blob([bundle], { type: "application/zip" }));
		a.download = "runs.starling";
		a.click();
	});
	const code = new Blob([at("glue").textContent, "\n", at("inworker").textContent], { type: "text/javascript" });
	const worker = new Worker(URL.createObjectURL(code)), current = {};
	worker.onmessage = ({ data }) => heard(parse(data), current);
	worker.onerror = (e) => heard({ error: `the program ended: ${e.message ?? e.type}`, done: true }, current);
	at("trust").addEventListener("submit", (e) => {
		e.preventDefault();
		const key = at("key").value.trim();
		worker.postMessage({ policy: key.includes("\n") || key.includes(" ") ? key + "\n" : `log ${key}\nquorum none\n` });
	});
	worker.postMessage({ program, bundle });
}
main().catch((e) => heard({ error: `this browser cannot run the page: ${e}`, done: true }, {}));
