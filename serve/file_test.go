package serve

import (
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	"github.com/starling-host/starling/internal/config"
	"github.com/starling-host/starling/internal/work"
	"github.com/starling-host/starling/runtime/tool"
	"github.com/starling-host/starling/serve/tenant"
	"github.com/starling-host/starling/spec"
)

const minimal = "listen: 127.0.0.1:8300\ndatabase: starling.db\nkey_file: starling.key\n"

const everything = `listen: 0.0.0.0:8443
tls: {cert: cert.pem, key: /etc/key.pem}
origins: ["https://starling.example"]
database: postgres://host@db/starling
key_file: starling.key
agents: [agents/a.yaml, /b.yaml]
policy: operator.yaml
limits: {running: 8, waiting: 500, compiling: 2, connections: 4, requests_per_second: 10, recorded_per_day: 1GiB, recorded: 10GiB, module_bytes: 1GiB, uploads_per_hour: 30}
calls: {fuel: 50G, memory: 512MiB, timeout: 30m, output: 4MiB, effects: 5k, effect_bytes: 64MiB}
workers: 16
isolation: inline
queue: {host: one, max_waiting: 10k, lease: 20s, grace: 5s, attempts: 3}
drain: 15s
requests: {module: 8MiB, modules: 10, wait: 30s, streams: 20, replays: 1, loaded_modules: 4}
connections: {max: 1k, request: 5m, idle: 620s}
retention: {older_than: 30d, every: 10m, archive_to: archives, ahead: 3}
seal: {key_file: /srv/starling/seal.key, every: 1m, runs: 500, witnesses: ["https://witness.example"]}
space: {keep_free: 1GiB, modules: 100GiB}
inspector: {off: true}
metrics: {key_env: METRICS_KEY}
traces: {endpoint: "https://otel.example/tenant/", sample: 0.1, off: true}
`

// TestEverything reads a file with every key, so that none goes nowhere.
func TestEverything(t *testing.T) {
	got, err := ParseFile("etc/host.yaml", []byte(everything))
	if err != nil {
		t.Fatal(err)
	}
	want := &File{
		Path: "etc/host.yaml", Listen: Address{Network: "tcp", Address: "0.0.0.0:8443"}, TLS: FileTLS{filepath.Join("etc", "cert.pem"), "/etc/key.pem"},
		Origins: []string{"https://starling.example"}, Database: "postgres://host@db/starling", KeyFile: filepath.Join("etc", "starling.key"),
		Agents: []string{filepath.Join("etc", "agents", "a.yaml"), "/b.yaml"}, Policy: filepath.Join("etc", "operator.yaml"),
		Calls:   config.CallLimits{Fuel: 50e9, Memory: 512 << 20, Timeout: 30 * time.Minute, Output: 4 << 20, Effects: 5000, EffectBytes: 64 << 20},
		Workers: 16, Isolation: "inline",
		Traces: FileTraces{Endpoint: "https://otel.example/tenant/v1/traces", Sample: 0.1, Off: true},
	}
	want.Limits = tenant.Limits{Running: 8, Waiting: 500, Compiling: 2, Connections: 4, RequestsPerSecond: 10, RecordedPerDay: 1 << 30, Recorded: 10 << 30, Modules: 1 << 30, UploadsPerHour: 30}
	want.Drain = 15 * time.Second
	want.Queue.Host, want.Queue.MaxWaiting, want.Queue.Attempts = "one", 10_000, 3
	want.Queue.Lease, want.Queue.Grace = 20*time.Second, 5*time.Second
	want.Requests.Module, want.Requests.Modules, want.Requests.Wait = 8<<20, 10, 30*time.Second
	want.Requests.Streams, want.Requests.Replays, want.Requests.Loaded = 20, 1, 4
	want.Connections.Max, want.Connections.Request, want.Connections.Idle = 1000, 5*time.Minute, 620*time.Second
	want.Retention.OlderThan, want.Retention.Every, want.Retention.ArchiveTo, want.Retention.Ahead = 720*time.Hour, 10*time.Minute, filepath.Join("etc", "archives"), 3
	want.Seal.KeyFile, want.Seal.Every, want.Seal.Runs, want.Seal.Witnesses = "/srv/starling/seal.key", time.Minute, 500, []string{"https://witness.example"}
	want.Space.KeepFree, want.Space.Modules = 1<<30, 100<<30
	want.Inspector.Off, want.Metrics.KeyEnv = true, "METRICS_KEY"
	if l := got.callLimits(); l.Fuel != 50e9 || l.MemoryPages != 512*16 || l.TimeoutMs != 30*60*1000 || l.OutputBytes != 4<<20 || l.Effects != 5000 || l.EffectBytes != 64<<20 || l.InputBytes != 1<<20 {
		t.Errorf("calls have the limits %+v", l)
	}
	if diff := cmp.Diff(want, got, cmpopts.IgnoreUnexported(File{})); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
	if at := got.At("metrics", "key_env"); at == nil || at.Line() != 20 {
		t.Error("the file does not know where metrics.key_env is")
	}
	if got.At("metrics", "off") != nil || new(File).At("metrics") != nil {
		t.Error("a file knows where a key is that it does not have")
	}
}

const socket = "listen: unix:s\nlisten_mode: \"0660\"\ndatabase: starling.db\nkey_file: starling.key\n"

// TestModeOfASocket has the group of a socket connect to it.
func TestModeOfASocket(t *testing.T) {
	f, err := ParseFile(filepath.Join(t.TempDir(), "host.yaml"), []byte(socket))
	if err != nil {
		t.Fatal(err)
	}
	l, err := f.Listen.Listen()
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	if info, err := os.Stat(f.Listen.Address); err != nil || info.Mode().Perm() != 0o660 {
		t.Errorf("the socket is %v, %v", info, err)
	}
}

// bad are files with what is wrong with them. Unseen is what the schema cannot say.
var bad = map[string]struct {
	text, want string
	unseen     bool
}{
	"no database":                   {"listen: 127.0.0.1:1\nkey_file: k\n", "the required key \"database\" is missing", false},
	"a typing mistake":              {minimal + "polciy: p.yaml\n", "did you mean \"policy\"?", false},
	"public":                        {strings.Replace(minimal, "127.0.0.1", "0.0.0.0", 1), "host.yaml:1:9: 0.0.0.0:8300 can be reached from elsewhere", true},
	"public metrics":                {strings.Replace(minimal, "127.0.0.1", "0.0.0.0", 1) + "insecure_public: true\n", "its metrics are neither off nor asked for with a key", true},
	"open to the world":             {strings.Replace(minimal, "127.0.0.1", "0.0.0.0", 1) + "insecure_public: true\nmetrics: {open: true}\n", "can be reached from elsewhere", true},
	"open with a key":               {minimal + "metrics: {open: true, key_env: K}\n", "host.yaml:4:10: metrics that are open ask for no key", false},
	"open and off":                  {minimal + "metrics: {open: true, off: true}\n", "host.yaml:4:10: metrics that are open ask for no key", false},
	"a name to listen":              {strings.Replace(minimal, "127.0.0.1", "example.com", 1), "is not an address such as", false},
	"half of tls":                   {minimal + "tls: {cert: a}\n", "the required key \"key\" is missing", false},
	"an origin's path":              {minimal + "origins: [https://a.example/b]\n", "this must be an origin", false},
	"an origin's query":             {minimal + "origins: [\"https://a.example?b\"]\n", "this must be an origin", false},
	"a loud origin":                 {minimal + "origins: [HTTPS://a.example]\n", "in lower case", false},
	"only a port":                   {minimal + "origins: [\"http://:80\"]\n", "this must be an origin", false},
	"tls on a socket":               {strings.Replace(minimal, "127.0.0.1:8300", "unix:s", 1) + "tls: {cert: a, key: b}\n", "host.yaml:4:6: a Unix socket is not encrypted", false},
	"a mode of TCP":                 {minimal + "listen_mode: \"0660\"\n", "host.yaml:4:14: only a Unix socket has a mode", false},
	"a number of mode":              {strings.Replace(minimal, "127.0.0.1:8300", "unix:s", 1) + "listen_mode: 432\n", "host.yaml:4:14: this must be \"0600\", \"0660\"", false},
	"a decimal mode":                {strings.Replace(minimal, "127.0.0.1:8300", "unix:s", 1) + "listen_mode: \"432\"\n", "in quotes", false},
	"a deaf mode":                   {strings.Replace(minimal, "127.0.0.1:8300", "unix:s", 1) + "listen_mode: \"0640\"\n", "in quotes", false},
	"a mode for all":                {strings.Replace(minimal, "127.0.0.1:8300", "unix:s", 1) + "listen_mode: \"0o666\"\n", "in quotes", false},
	"ten years ahead":               {minimal + "retention: {older_than: 30d, ahead: 121}\n", "this must be at most 120", false},
	"nothing removed":               {minimal + "retention: {every: 1h}\n", "host.yaml:4:12: without older_than nothing is removed", false},
	"a word to listen":              {strings.Replace(minimal, "127.0.0.1:8300", "here", 1), "is not an address such as", false},
	"no time":                       {minimal + "queue: {lease: 0s}\n", "this must be 1ms or more", false},
	"hardly a lease":                {minimal + "queue: {lease: 999ms}\n", "host.yaml:4:16: this must be 1s or more", true},
	"no isolation":                  {minimal + "isolation: none\n", "this must be process or inline", false},
	"a key in the file":             {minimal + "metrics: {key_env: 0f3c-secret}\n", "must be the name of an environment variable", false},
	"no collector":                  {minimal + "traces: {endpoint: \"otel.example:4318\"}\n", "this must be the address of a collector", false},
	"a query":                       {minimal + "traces: {endpoint: \"http://otel.example/?x=1\"}\n", "this must be the address of a collector", false},
	"a credential":                  {minimal + "traces: {endpoint: \"http://me:0f3c-secret@otel.example\"}\n", "a credential does not belong into this file", false},
	"another server":                {strings.Replace(minimal, "starling.db", "mysql://me:0f3c-secret@db/a", 1), "begins with postgres://", false},
	"no traces":                     {minimal + "traces: {sample: 0}\n", "this must be more than 0", false},
	"too many traces":               {minimal + "traces: {sample: 10}\n", "this must be more than 0 and at most 1", false},
	"nothing allowed":               {minimal + "limits: {running: 0}\n", "this must be 1 or more", false},
	"a typing error":                {minimal + "workers: 10001\n", "host.yaml:4:10: this must be at most 10000", false},
	"large uploads":                 {minimal + "requests: {module: 33MiB}\n", "host.yaml:4:20: this must be at most 32MiB", true},
	"uploads in bytes":              {minimal + "requests: {module: 33554433}\n", "this must be at most 32MiB", false},
	"workers in units":              {minimal + "workers: 999T\n", "this must be at most 10000", true},
	"an output that no event holds": {minimal + "calls: {output: 1GiB}\n", "host.yaml:4:17: this must be at most 8MiB", true},
	"a call of a week":              {minimal + "calls: {timeout: 7d}\n", "this must be at most 24h", true},
	"a number of time":              {minimal + "retention: {older_than: 30}\n", "this must be a duration", false},
}

func TestBad(t *testing.T) {
	for name, c := range bad {
		_, err := ParseFile("host.yaml", []byte(c.text))
		if _, ok := errors.AsType[*config.Error](err); !ok || !strings.Contains(fmt.Sprint(err), c.want) {
			t.Errorf("%s: %v", name, err)
		}
		if strings.Contains(fmt.Sprint(err), "0f3c-secret") {
			t.Errorf("%s: the error repeats what may be a secret", name)
		}
	}
}

// TestMissingFiles names each file in turn that is not there.
func TestMissingFiles(t *testing.T) {
	dir := t.TempDir()
	write := func(name, text string) {
		t.Helper()
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	write("host.yaml", minimal+"tls: {cert: cert.pem, key: key.pem}\npolicy: operator.yaml\nagents: [one.yaml, two.yaml]\n")
	const folder = "the folder of host.yaml"
	for _, c := range []struct{ name, place, hint string }{
		{"starling.key", "3:11", "starling-host tenant keygen FILE; relative paths begin at " + folder}, {"operator.yaml", "5:9", folder},
		{"one.yaml", "6:10", folder}, {"two.yaml", "6:20", folder}, {"cert.pem", "4:13", folder}, {"key.pem", "4:28", folder},
	} {
		_, err := LoadFile(filepath.Join(dir, "host.yaml"))
		wrong, ok := errors.AsType[*config.Error](err)
		if !ok || !strings.Contains(wrong.Msg, c.name) || fmt.Sprintf("%d:%d", wrong.Line, wrong.Column) != c.place || !strings.Contains(wrong.Hint, c.hint) {
			t.Errorf("without %s: %v", c.name, err)
		}
		write(c.name, "")
	}
	if _, err := LoadFile(filepath.Join(dir, "host.yaml")); err != nil {
		t.Error(err)
	}
}

// TestSchemaAgrees has the schema judge the same files as the parser.
func TestSchemaAgrees(t *testing.T) {
	schema, err := tool.CompileSchema(work.Trusted(t.Context()), spec.HostSchema())
	if err != nil {
		t.Fatal(err)
	}
	judge := func(text string) error {
		n, err := config.Parse("host.yaml", []byte(text))
		if err != nil {
			t.Fatal(err)
		}
		doc, err := json.Marshal(n.Value())
		if err != nil {
			t.Fatal(err)
		}
		return schema.Check(doc)
	}
	for _, text := range []string{minimal, everything, socket} {
		if err := judge(text); err != nil {
			t.Errorf("the schema refuses what the parser accepts: %v", err)
		}
	}
	for name, c := range bad {
		if err := judge(c.text); (err == nil) != c.unseen {
			t.Errorf("%s: the schema says %v", name, err)
		}
	}
}

// TestSchemaHasEveryKey finds keys that are in one place only: everything has them
// all, and the parser knows those of the schema.
func TestSchemaHasEveryKey(t *testing.T) {
	var schema struct {
		Properties map[string]struct{ Properties map[string]any }
	}
	if err := json.Unmarshal(spec.HostSchema(), &schema); err != nil {
		t.Fatal(err)
	}
	for key, group := range schema.Properties {
		texts := []string{key + ":\n"}
		for inner := range group.Properties {
			texts = append(texts, fmt.Sprintf("%s: {%s: }\n", key, inner))
		}
		for _, text := range texts {
			if _, err := ParseFile("host.yaml", []byte(text)); err == nil || strings.Contains(err.Error(), fmt.Sprintf("no key %q\n", key)) || strings.Contains(err.Error(), "did you mean") {
				t.Errorf("the schema has %s: %v", text, err)
			}
		}
	}
}

// TestTheDocumentIsAFile reads what docs/serving.md shows of host.yaml.
func TestTheDocumentIsAFile(t *testing.T) {
	text, err := os.ReadFile("../docs/serving.md")
	if err != nil {
		t.Fatal(err)
	}
	_, section, found := strings.Cut(string(text), "\n## host.yaml\n")
	section, _, _ = strings.Cut(section, "\n## ")
	var file strings.Builder
	for line := range strings.Lines(section) {
		if code, ok := strings.CutPrefix(line, "    "); ok {
			file.WriteString(code)
		}
	}
	f, err := ParseFile("host.yaml", []byte(file.String()))
	if err != nil || !found || f.Workers != 16 || f.Metrics.KeyEnv == "" {
		t.Errorf("%v, in\n%s", err, &file)
	}
}
