// Runs in a worker of the browser, behind Go's glue.
onmessage = async ({ data }) => {
	const { program, bundle } = data;
	const tell = (text) => postMessage(text);
	globalThis.starling = {
		ready() {
			globalThis.starling.verify(bundle, { events: true }, tell);
			onmessage = ({ data }) => globalThis.starling.verify(bundle, { policy: data.policy, onlyProofs: true }, tell);
		},
	};
	const go = new Go();
	try {
		go.run((await WebAssembly.instantiate(program, go.importObject)).instance);
	} catch (e) {
		tell(JSON.stringify({ error: `the program does not start in this browser: ${e}`, done: true }));
	}
};
