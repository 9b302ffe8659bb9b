// What exchanges and timers do to the clock of a tool: TestJavaScriptTime sets how long each exchange takes.

const url = "http://h/";
const sleep = (ms, value) => new Promise((resolve) => setTimeout(resolve, ms, value));
const name = (error) => error.name;
const measure = async (act) => { const began = performance.now(); await act(); return Math.round((performance.now() - began) / 100) * 100; };

const cases = {
  measured: async () => [await measure(() => fetch(url)), await measure(() => sleep(700)), await measure(() => {})],
  dates: async () => { const began = Date.now(); await fetch(url); return Math.round((Date.now() - began) / 100) * 100; },
  together: () => Promise.all([1, 2, 3].map(() => measure(() => fetch(url)))),
  signal: () => Promise.all([500, 5000].map((ms) => fetch(url, { signal: AbortSignal.timeout(ms) }).then((r) => r.status, name))),
  any: () => fetch(url, { signal: AbortSignal.any([new AbortController().signal, AbortSignal.timeout(500)]) }).then((r) => r.status, name),
  race: async () => [await Promise.race([fetch(url).then(() => "exchange"), sleep(500, "timer")]), await Promise.race([sleep(500, "timer"), fetch(url).then(() => "exchange")]),
    await Promise.race([fetch(url).then(() => "exchange"), sleep(5000, "timer")])],
  controller: () => { const c = new AbortController(); setTimeout(() => c.abort(), 500); return fetch(url, { signal: c.signal }).then((r) => r.status, name); },
  order: async () => {
    const seen = [];
    for (const ms of [4000, 100, 2000, 900]) setTimeout(() => seen.push(ms), ms);
    await fetch(url).then(() => seen.push("exchange"));
    await sleep(5000);
    return seen;
  },
  interval: async () => { let n = 0; const i = setInterval(() => n++, 250); await fetch(url); clearInterval(i); return n; },
  cancelled: async () => { const c = new AbortController(), p = fetch(url, { signal: c.signal }).then((r) => r.status, name); c.abort(); return [await p, (await fetch(url)).status]; },
  forgotten: () => { fetch(url).then(() => fetch(url)); return 1; },
  chained: async () => { const a = fetch(url + "a"), b = fetch(url + "b"); await sleep(1); return [(await b).status, (await a).status]; },
};

export default { name: "cases", execute: (input) => cases[input.case](input) };
