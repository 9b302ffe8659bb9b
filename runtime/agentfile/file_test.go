package agentfile

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

	"github.com/starling-host/starling/eventlog/canon"
	"github.com/starling-host/starling/eventlog/event"
	"github.com/starling-host/starling/internal/config"
	"github.com/starling-host/starling/runtime/internal/budget"
	"github.com/starling-host/starling/runtime/tool"
)

// full uses every key that goes together.
const full = `name: a
provider: openai
model: gpt-5
base_url: https://gateway.example.com/v1
api_version: v2
api_key_env: GATEWAY_KEY
headers: {OpenAI-Organization: acme}
system: Be brief.
params: {temperature: 0.5, seed: 9007199254740993, stop: null}
max_turns: 6
max_output_tokens: 1024
stop_sequences: [END]
retries: 0
tools:
  - lookup.wasm
  - wasm: /abs/dice
    name: dice
    rename: w6
    allow_hosts: [api.example.com, "localhost:8080"]
    allow_private: true
    fuel: 500M
    memory: 65537
    timeout: 10s
    retry: {max_attempts: 3, jitter: 0.5, max_snoozes: 7, max_snooze_time: 2h}
  - {builtin: fetch, rename: get}
  - {builtin: read_file, dir: notes, retry: {}}
  - mcp: {command: [./server, -v], env: {TOKEN: $GITHUB_TOKEN}, prefix: gh_, include: [a], exclude: [b], timeout: 1m, text_only: true}
  - mcp: {url: "http://localhost:9000/mcp"}
budget: {input_tokens: 50k, output_tokens: 7, usd: 1, wall_clock: 90s, fuel: 1G, effects: 9, egress_bytes: 2KiB}
variables: {tenant: t1, level: 2}
`

func cbor(t *testing.T, v any) canon.Raw {
	t.Helper()
	raw, err := canon.Marshal(v)
	if err != nil {
		t.Fatal(err)
	}
	return raw
}

// wantFull is what full means in the folder d.
func wantFull(t *testing.T) *File {
	return &File{
		Path: "d/agent.yaml", Name: "a", Model: "gpt-5", SystemPrompt: "Be brief.",
		Endpoint: Endpoint{Provider: "openai", BaseURL: "https://gateway.example.com/v1", APIVersion: "v2", APIKeyEnv: "GATEWAY_KEY",
			Headers: map[string]string{"OpenAI-Organization": "acme"}},
		Params:   cbor(t, map[string]any{"temperature": 0.5, "seed": int64(9007199254740993), "stop": nil}),
		MaxTurns: 6, MaxOutputTokens: 1024, StopSequences: []string{"END"}, ModelAttempts: 1,
		Tools: []Entry{
			{Module: &Module{Path: filepath.Join("d", "lookup.wasm")}},
			{Module: &Module{Path: "/abs/dice", Tool: "dice", Rename: "w6", AllowHosts: []string{"api.example.com", "localhost:8080"}, AllowPrivate: true,
				Limits: event.SandboxLimits{Fuel: 500_000_000, MemoryPages: 2, TimeoutMs: 10_000}}, Retry: &tool.RetryConfig{MaxAttempts: 3, Jitter: 0.5, MaxSnoozes: 7, MaxSnoozeTime: 2 * time.Hour}},
			{Builtin: &Builtin{Name: "fetch", Rename: "get"}},
			{Builtin: &Builtin{Name: "read_file", Dir: filepath.Join("d", "notes")}, Retry: &tool.RetryConfig{}},
			{MCP: &MCP{Command: []string{filepath.Join("d", "server"), "-v"}, Env: map[string]string{"TOKEN": "$GITHUB_TOKEN"}, Prefix: "gh_",
				Include: []string{"a"}, Exclude: []string{"b"}, Timeout: time.Minute, TextOnly: true}},
			{MCP: &MCP{URL: "http://localhost:9000/mcp"}},
		},
		Variables: json.RawMessage(`{"level":2,"tenant":"t1"}`),
		limits: budget.Limits{MaxInputTokens: 50_000, MaxOutputTokens: 7, MaxUSD: 1, MaxWallClock: 90 * time.Second, MaxFuel: 1_000_000_000,
			MaxEffects: 9, MaxEgressBytes: 2048},
	}
}

// good are files that are accepted, and what they mean; nil for what only has to
// be accepted.
func good(t *testing.T) map[string]struct {
	text string
	want *File
} {
	return map[string]struct {
		text string
		want *File
	}{
		"everything": {full, wantFull(t)},
		"a script": {"provider: {script: s.yaml}", &File{Path: "d/agent.yaml", Name: "d", Model: "script",
			Endpoint: Endpoint{Provider: "script", Script: filepath.Join("d", "s.yaml")}}},
		"JSON":                  {`{"provider":"ollama","model":"m","tools":[]}`, &File{Path: "d/agent.yaml", Name: "d", Model: "m", Endpoint: Endpoint{Provider: "ollama"}, Tools: []Entry{}}},
		"a comment for editors": {"# yaml-language-server: $schema=../spec/agent.schema.json\nprovider: groq\nmodel: m\n", nil},
		"Azure":                 {"provider: azure\nmodel: m\nbase_url: https://x.openai.azure.com\napi_version: 2024-10-21", nil},
		"Bedrock":               {"provider: bedrock\nmodel: m\nregion: eu-central-1\nbase_url: https://vpce.example.com", nil},
		"OpenRouter":            {"provider: openrouter\nmodel: m\nheaders: {X-Title: t, HTTP-Referer: https://example.com}", nil},
		"a variable with a long name": {
			"provider: vllm\nmodel: m\napi_key_env: THE_SECOND_KEY_OF_THE_GATEWAY_2", nil},
		"nothing in params": {"provider: together\nmodel: m\nparams: {}\nvariables: {}", &File{Path: "d/agent.yaml", Name: "d", Model: "m",
			Endpoint: Endpoint{Provider: "together"}, Variables: json.RawMessage("{}")}},
		"a rule for all names": {"provider: anthropic\nmodel: m\ntools: [{wasm: a, allow_hosts: ['*', '.example.com:8443', '[::1]:80']}]", nil},
		"a server's dollar":    {"provider: anthropic\nmodel: m\ntools: [{mcp: {command: [x], env: {A: $$, B: '${HOME}/b'}}}]", nil},
	}
}

func TestGood(t *testing.T) {
	for name, c := range good(t) {
		t.Run(name, func(t *testing.T) {
			got, err := Parse("d/agent.yaml", []byte(c.text))
			if err != nil {
				t.Fatal(err)
			}
			got.at = nil
			for i := range got.Tools {
				got.Tools[i].at = nil
			}
			if diff := cmp.Diff(c.want, got, cmp.AllowUnexported(File{}, Entry{})); c.want != nil && diff != "" {
				t.Errorf("(-want +got):\n%s", diff)
			}
		})
	}
}

func TestConfigAndBudget(t *testing.T) {
	f, err := Parse("agent.yaml", []byte(full))
	if err != nil {
		t.Fatal(err)
	}
	c := f.Agent(nil, &Toolbox{}).Config
	if c.Model != "gpt-5" || c.SystemPrompt != "Be brief." || c.MaxTurns != 6 || c.ModelAttempts != 1 || c.MaxOutputTokens != 1024 ||
		len(c.StopSequences) != 1 || len(c.Params) == 0 {
		t.Errorf("%+v", c)
	}
	if err := f.Budget().Validate(); err != nil || f.Budget().MaxUSD != 1 {
		t.Errorf("%+v, %v", f.Budget(), err)
	}
}

// minimal is put before a case that is about something else. Its lines count.
const minimal = "provider: openai\nmodel: m\n"

// bad are files that are refused, with all that is said. What a schema cannot see
// is marked.
var bad = map[string]struct {
	text, want string
	unseen     bool
}{
	"an unknown key": {minimal + "modle: gpt-5", `agent.yaml:3:1: unknown key "modle"
  3 | modle ...
    | ^
hint: did you mean "model"?`, false},
	"no provider": {"model: m", `agent.yaml:1:1: the required key "provider" is missing
  1 | model: m
    | ^
hint: there are anthropic, azure, bedrock, gemini, groq, ollama, openai, openrouter, together, vllm, and {script: FILE}`, false},
	"no model": {"provider: openai", `agent.yaml:1:1: the required key "model" is missing
  1 | provider: openai
    | ^`, false},
	"an unknown provider": {"provider: oepnai\nmodel: m", `agent.yaml:1:11: unknown provider "oepnai"
  1 | provider: oepnai
    |           ^
hint: there are anthropic, azure, bedrock, gemini, groq, ollama, openai, openrouter, together, vllm, and {script: FILE}`, false},
	"a script without a file": {"provider: {script: ''}", `agent.yaml:1:20: this must not be empty
  1 | provider: {script: ''}
    |                    ^
hint: omit the key for the default`, false},
	"a script with a key": {"provider: {script: s}\napi_key_env: K", `agent.yaml:2:14: a script needs no key
  2 | api_key_env: K
    |              ^`, false},
	"a region for OpenAI": {minimal + "region: eu", `agent.yaml:3:9: only the provider bedrock has a region
  3 | region: eu
    |         ^`, false},
	"a header that is not taken": {minimal + "headers: {Authorization: Bearer x}", `agent.yaml:3:11: the provider openai has no header "Authorization"
hint: there is OpenAI-Organization`, false},
	"headers for a provider without": {"provider: groq\nmodel: m\nheaders: {}", `agent.yaml:3:10: only the providers openai and openrouter have headers`, false},
	"a version for a provider without": {"provider: groq\nmodel: m\napi_version: v1", `agent.yaml:3:14: only the providers anthropic, azure, gemini and openai have a version
  3 | api_version: v1
    |              ^`, false},
	"Azure without an address": {"provider: azure\nmodel: m", `agent.yaml:1:1: the provider azure needs the key "base_url"
  1 | provider: azure
    | ^`, false},
	"an address without a scheme": {minimal + "base_url: localhost:8000", `agent.yaml:3:11: this must be an address such as https://host/v1
  3 | base_url: localhost:8000
    |           ^
hint: The address of the provider, for gateways and your own servers.`, false},
	"a password in an address": {minimal + "base_url: https://me:hunter2@host/v1", `agent.yaml:3:11: this is an address with a password in it
hint: put the secret into an environment variable, and the name of the variable here, as in: api_key_env: OPENAI_API_KEY`, false},
	"a key": {minimal + "api_key: sk-0123456789", `agent.yaml:3:10: this has no place here: a file holds no secrets
hint: put the secret into an environment variable, and the name of the variable here, as in: api_key_env: OPENAI_API_KEY`, false},
	"a key in place of a name": {minimal + "api_key_env: sk-proj-0123456789abcdef", `agent.yaml:3:14: this looks like a key: a file holds no secrets
hint: put the secret into an environment variable, and the name of the variable here, as in: api_key_env: OPENAI_API_KEY`, false},
	"a key that could be a name": {minimal + "api_key_env: gsk_0123456789abcdefABCDEF", `agent.yaml:3:14: this looks like a key: a file holds no secrets
hint: put the secret into an environment variable, and the name of the variable here, as in: api_key_env: OPENAI_API_KEY`, false},
	"a key without a mark": {minimal + "api_key_env: 9f86d081884c7d659a2feaa0c55ad015", `agent.yaml:3:14: this looks like a key: a file holds no secrets
hint: put the secret into an environment variable, and the name of the variable here, as in: api_key_env: OPENAI_API_KEY`, false},
	"a key of letters and digits": {minimal + "api_key_env: a3xK9mQ2vB7nL5pR8tW1yZ4c", `agent.yaml:3:14: this looks like a key: a file holds no secrets
hint: put the secret into an environment variable, and the name of the variable here, as in: api_key_env: OPENAI_API_KEY`, true},
	"a variable with its dollar": {minimal + "api_key_env: $OPENAI_API_KEY", `agent.yaml:3:14: this must be the name of an environment variable
hint: write the name alone, as in: api_key_env: OPENAI_API_KEY`, false},
	"two system prompts": {minimal + "system: a\nsystem_file: b", `agent.yaml:4:14: an agent has "system" or "system_file", not both
  4 | system_file: b
    |              ^`, false},
	"a system prompt that is not there": {minimal + "system_file: none.txt", `agent.yaml:3:14: none.txt: no such file or directory
  3 | system_file: none.txt
    |              ^
hint: A file with the system prompt.`, true},
	"params that are a list": {minimal + "params: [a]", `agent.yaml:3:9: this must be a map, not a list
  3 | params: [a]
    |         ^
hint: Options of this provider, such as temperature.`, false},
	"no turns": {minimal + "max_turns: 0", `agent.yaml:3:12: this must be 1 or more
  3 | max_turns: 0
    |            ^
hint: The most turns of a run. The default is no bound.`, false},
	"too many turns": {minimal + "max_turns: 2147483648", `agent.yaml:3:12: this must be at most 2147483646
  3 | max_turns: 2147483648
    |            ^
hint: The most turns of a run. The default is no bound.`, false},
	"retries below zero": {minimal + "retries: -1", `agent.yaml:3:10: this must be 0 or more
  3 | retries: -1
    |          ^
hint: How often a request is repeated after a failure that may pass. It is repeated at once, or when the server asks for it (Retry-After) if that is within a minute. The default is 2.`, false},
	"an empty stop sequence": {minimal + "stop_sequences: ['']", `agent.yaml:3:18: this must not be empty
  3 | stop_sequences: ['']
    |                  ^
hint: omit the key for the default`, false},
	"a budget of no dollars": {minimal + "budget: {usd: 0}", `agent.yaml:3:15: this must be more than 0
  3 | budget: {usd: 0}
    |               ^
hint: omit the key for no limit`, false},
	"a budget in seconds": {minimal + "budget: {wall_clock: 90}", `agent.yaml:3:22: this must be a duration
  3 | budget: {wall_clock: 90}
    |                      ^
hint: write a number and a unit, such as 90s, 1m30s or 30d`, false},
	"a budget of no time": {minimal + "budget: {wall_clock: 0s}", `agent.yaml:3:22: this must be 1ms or more
  3 | budget: {wall_clock: 0s}
    |                      ^
hint: write a number and a unit, such as 90s, 1m30s or 30d`, false},
	"fuel in kibi": {minimal + "budget: {fuel: 10KiB}", `agent.yaml:3:16: this must be a positive whole number
  3 | budget: {fuel: 10KiB}
    |                ^
hint: write a number, or one with k, M, G or T for thousands and more, such as 10M`, false},
	"more fuel than there is": {minimal + "budget: {fuel: 9999999999T}", `agent.yaml:3:16: this must be below 2^63
  3 | budget: {fuel: 9999999999T}
    |                ^
hint: Units of fuel, for all modules together.`, true},
	"no fuel": {minimal + "budget: {fuel: 0}", `agent.yaml:3:16: this must be 1 or more
  3 | budget: {fuel: 0}
    |                ^
hint: write a number, or one with k, M, G or T for thousands and more, such as 10M`, false},
	"an axis that is none": {minimal + "budget: {tokens: 5}", `agent.yaml:3:10: unknown key "tokens"
  3 | budget: {tokens ...
    |          ^
hint: the keys are effects, egress_bytes, fuel, input_tokens, output_tokens, usd, wall_clock`, false},
	"a tool that is a number": {minimal + "tools: [1]", `agent.yaml:3:9: this does not say which tool it is
  3 | tools: [1]
    |         ^
hint: write a path, or a map with wasm, builtin or mcp`, false},
	"a tool that is no kind": {minimal + "tools: [{name: a}]", `agent.yaml:3:9: this does not say which tool it is
  3 | tools: [{name: a}]
    |         ^
hint: write a path, or a map with wasm, builtin or mcp`, false},
	"a tool of two kinds": {minimal + "tools: [{wasm: a, builtin: fetch}]", `agent.yaml:3:28: this is several tools
  3 | tools: [{wasm: a, builtin: fetch}]
    |                            ^
hint: make an entry of each`, false},
	"a misspelt key of a tool": {minimal + "tools:\n  - wasm: a\n    alow_hosts: [b]", `agent.yaml:5:5: unknown key "alow_hosts"
  5 |     alow_hosts ...
    |     ^
hint: did you mean "allow_hosts"?`, false},
	"a host with a scheme": {minimal + "tools: [{wasm: a, allow_hosts: ['https://b']}]", `agent.yaml:3:33: rule "https://b": write HOST or HOST:PORT, without scheme and path
  3 | tools: [{wasm: a, allow_hosts: ['https://b']}]
    |                                 ^`, false},
	"a host with a star": {minimal + "tools: [{wasm: a, allow_hosts: ['*.b.com']}]", `agent.yaml:3:33: rule "*.b.com": write ".b.com" for the names below a domain
  3 | tools: [{wasm: a, allow_hosts: ['*.b.com']}]
    |                                 ^`, true},
	"private hosts, but which": {minimal + "tools: [{wasm: a, allow_private: true}]", `agent.yaml:3:9: "allow_private" is about "allow_hosts", of which there are none
  3 | tools: [{wasm: a, allow_private: true}]
    |         ^
hint: name the hosts, as in: allow_hosts: [localhost:8080]`, false},
	"more memory than there is": {minimal + "tools: [{wasm: a, memory: 5GiB}]", `agent.yaml:3:27: this must be at most 4GiB
  3 | tools: [{wasm: a, memory: 5GiB}]
    |                           ^
hint: Linear memory that a call may use, such as 64MiB.`, true},
	"a name with a space": {minimal + "tools: [{wasm: a, rename: a b}]", `agent.yaml:3:27: this must be 1 to 64 letters, digits, _ and -
  3 | tools: [{wasm: a, rename: a b}]
    |                           ^
hint: The agent's name for the tool.`, false},
	"too much jitter": {minimal + "tools: [{wasm: a, retry: {jitter: 2}}]", `agent.yaml:3:35: this must be a share, 0 to 1
  3 | tools: [{wasm: a, retry: {jitter: 2}}]
    |                                   ^
hint: The share by which a wait is longer or shorter at random. Without this key there are no waits.`, false},
	"a built-in tool that is none": {minimal + "tools: [{builtin: shell}]", `agent.yaml:3:19: unknown built-in tool "shell"
  3 | tools: [{builtin: shell}]
    |                   ^
hint: use fetch or read_file`, false},
	"reading without a folder": {minimal + "tools: [{builtin: read_file}]", `agent.yaml:3:9: read_file needs the key "dir"
  3 | tools: [{builtin: read_file}]
    |         ^
hint: name the folder that it may read, such as: dir: notes`, false},
	"fetching with a folder": {minimal + "tools: [{builtin: fetch, dir: a}]", `agent.yaml:3:31: fetch has no folder
  3 | tools: [{builtin: fetch, dir: a}]
    |                               ^`, false},
	"a server without an address": {minimal + "tools: [{mcp: {prefix: a_}}]", `agent.yaml:3:15: a server has either the key "command" or the key "url"
  3 | tools: [{mcp: {prefix: a_}}]
    |               ^`, false},
	"a server with two": {minimal + "tools: [{mcp: {command: [a], url: 'http://b'}}]", `agent.yaml:3:15: a server has either the key "command" or the key "url"
  3 | tools: [{mcp: {command: [a], url: 'http://b'}}]
    |               ^`, false},
	"a command that is none": {minimal + "tools: [{mcp: {command: []}}]", `agent.yaml:3:25: this must be a program
  3 | tools: [{mcp: {command: []}}]
    |                         ^
hint: write the program and its arguments, as in: command: [mcp-server-time, --utc]`, false},
	"an environment far away": {minimal + "tools: [{mcp: {url: 'http://b', env: {A: b}}}]", `agent.yaml:3:38: "env" is for servers with a command`, false},
	"a secret for a server": {minimal + "tools: [{mcp: {command: [a], env: {TOKEN: ghp_0123}}}]", `agent.yaml:3:43: this looks like a key: a file holds no secrets
hint: take it from an environment variable, as in: $TOKEN`, false},
	"variables that are a list": {minimal + "variables: []", `agent.yaml:3:12: this must be a map, not a list
  3 | variables: []
    |            ^
hint: Values for the tools that the model does not see.`, false},
	"a null": {minimal + "system:", `agent.yaml:3:1: this must be text, but is empty
  3 | system:
    | ^
hint: omit the key for the default`, false},
}

func TestBad(t *testing.T) {
	for name, c := range bad {
		t.Run(name, func(t *testing.T) {
			_, err := Parse("agent.yaml", []byte(c.text))
			if diff := cmp.Diff(c.want, fmt.Sprint(err)); diff != "" {
				t.Errorf("(-want +got):\n%s", diff)
			}
			if !errors.As(err, new(*config.Error)) {
				t.Errorf("the error is a %T", err)
			}
		})
	}
}

func TestLoad(t *testing.T) {
	dir := t.TempDir()
	write := func(name, text string) string {
		path := filepath.Join(dir, name)
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		return path
	}
	write("prompt.md", "You are\nbrief.\n")
	write("broken.md", "\xff")
	path := write("helper.yaml", minimal+"system_file: prompt.md")
	f, err := Load(path)
	if err != nil || f.SystemPrompt != "You are\nbrief.\n" || f.Name != "helper" || f.Path != path {
		t.Errorf("%+v, %v", f, err)
	}
	for text, want := range map[string]string{
		minimal + "system_file: broken.md": "broken.md is not UTF-8 text",
		minimal + "system_file: .":         "is a directory",
	} {
		if _, err := Load(write("other.yaml", text)); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%v, want %s", err, want)
		}
	}
	if _, err := Load(filepath.Join(dir, "none.yaml")); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("a file that is not there: %v", err)
	}
}

// FuzzParse checks that every refusal has a place, and that what is accepted can
// be used.
func FuzzParse(f *testing.F) {
	f.Add([]byte(full))
	f.Add([]byte("provider: {script: s}\ntools: [a, {builtin: fetch}]"))
	f.Fuzz(func(t *testing.T, data []byte) {
		file, err := Parse("agent.yaml", data)
		if err != nil {
			if !errors.As(err, new(*config.Error)) {
				t.Fatalf("%T: %v", err, err)
			}
			return
		}
		if err := file.Budget().Validate(); err != nil || file.Model == "" || file.MaxTurns < 0 {
			t.Fatalf("%+v, %v", file, err)
		}
		for _, e := range file.Tools {
			if e.Retry != nil && e.Retry.Check() != nil || (e.Module != nil) == (e.Builtin != nil || e.MCP != nil) {
				t.Fatalf("%+v", e)
			}
		}
	})
}
