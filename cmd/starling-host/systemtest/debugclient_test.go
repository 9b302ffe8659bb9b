package systemtest

import (
	"bufio"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

// bill is a tool in JavaScript with a mistake: a price in a currency is no whole number of cents.
const bill = `import { discard, tool } from "starling";

function split(cents, people) {
  const shares = new Array(people).fill(Math.floor(cents / people));
  let left = cents - shares[0] * people;
  for (let i = 0; left > 0; i++) {
    shares[i] += 1;
    left -= 1;
  }
  return shares;
}

export default tool({
  name: "bill",
  description: "Splits a bill.",
  inputSchema: { type: "object", properties: { bill: { type: "number" }, people: { type: "integer" } } },

  execute({ bill, people }) {
    const at = Date.now();
    const cents = bill * 100;
    const shares = split(cents, people);
    const total = shares.reduce((sum, share) => sum + share, 0);
    if (total !== cents) throw discard("the shares are " + total + ", the bill is " + cents);
    return { at, shares };
  },
});
`

// TestDebugAdapter lets a client that others have written debug a recorded call.
func TestDebugAdapter(t *testing.T) {
	skipShort(t)
	t.Parallel()
	needsMCPClients(t)
	dir := t.TempDir()
	script := filepath.Join(dir, "bill", "tool.js")
	if err := os.Mkdir(filepath.Dir(script), 0o700); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(script, []byte(bill), 0o600); err != nil {
		t.Fatal(err)
	}
	run := exec.Command("starling-host", "run", "bill", `{"bill":19.99,"people":3}`)
	run.Dir = dir
	if out, err := run.CombinedOutput(); err == nil || !strings.Contains(string(out), "the shares are 1999") {
		t.Fatalf("%v\n%s", err, out)
	}
	adapter := exec.CommandContext(t.Context(), "starling-host", "debug", "@last", "--dap", "--listen", "127.0.0.1:0", "--source", "bill")
	adapter.Dir, adapter.Stderr = dir, os.Stderr
	address, err := adapter.StdoutPipe()
	if err == nil {
		err = adapter.Start()
	}
	if err != nil {
		t.Fatal(err)
	}
	line, err := bufio.NewReader(address).ReadString('\n')
	_, port, found := strings.Cut(strings.TrimSpace(line), ":")
	if !found {
		t.Fatalf("%q, %v", line, err)
	}
	out, err := node(t, "debug.mjs", port, script)
	if err != nil || !strings.Contains(string(out), "stepped back") {
		t.Errorf("%v\n%s", err, out)
	}
}
