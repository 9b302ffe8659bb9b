package serve

import (
	"cmp"
	"context"
	"crypto/tls"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net"
	"net/http"
	"net/url"
	"os"
	"slices"
	"strings"
	"time"

	"github.com/starling-host/starling"
	"github.com/starling-host/starling/eventlog/receipt"
	"github.com/starling-host/starling/eventlog/seal"
	"github.com/starling-host/starling/host/artifact"
	"github.com/starling-host/starling/host/guest"
	"github.com/starling-host/starling/host/policy"
	"github.com/starling-host/starling/internal/display"
	"github.com/starling-host/starling/internal/keyfile"
	"github.com/starling-host/starling/runtime/agentfile"
	"github.com/starling-host/starling/runtime/provider"
	"github.com/starling-host/starling/serve/tenant"
)

// Resolved is something that a file names, or that a host needs of this machine.
type Resolved struct {
	What, From string
	Warn       []string // what a host logs at its start
	Err        error    // why it does not start
}

// resolved is what a file names, read.
type resolved struct {
	policy                  *policy.Policy
	trust                   *artifact.Trust // nil without
	certificate             *Certificate    // nil without
	masters                 []tenant.MasterKey
	metricsKey, operatorKey string
	sealKey                 *seal.Key // nil without
	receipts                *receipt.Issuer
	traces                  *otlpClient // nil without
	agents                  []resolvedAgent
}

type resolvedAgent struct {
	file  *agentfile.File
	model provider.Provider
}

// Resolve resolves a file as [Open] does, and its address, without opening the database. It
// connects only to a host at that address.
func (f *File) Resolve(ctx context.Context) []Resolved {
	_, all := f.resolve(ctx, false)
	from := f.Listen.String()
	err := f.Listen.check()
	if err != nil && f.Ready(ctx) == nil {
		from, err = from+", where a host serves already", nil
	} else if err != nil {
		err = f.wrong(err, otherAddress, "listen")
	}
	return append(all, Resolved{"listen", from, nil, err})
}

// resolve reads everything that a file names beside the database, and probes worker processes.
func (f *File) resolve(ctx context.Context, development bool) (r resolved, all []Resolved) {
	add := func(what, from string, warn []string, err error) { all = append(all, Resolved{what, from, warn, err}) }
	var err error
	if f.Policy != "" {
		var warn []string
		r.policy, warn, err = f.operatorPolicy(development)
		add("policy", f.Policy, warn, err)
	}
	if f.Trust != "" {
		if r.trust, err = artifact.LoadTrust(f.Trust); err != nil {
			err = &SetupError{Err: err}
		}
		add("trust", f.Trust, nil, err)
	}
	if f.TLS != (FileTLS{}) && f.Listen.Network != "unix" {
		r.certificate = &Certificate{Files: f.TLS}
		if err := r.certificate.Load(); err != nil {
			add("certificate", "", nil, f.wrong(err, "", "tls"))
		} else {
			add("certificate", "valid until "+r.certificate.Expires().Format(time.DateOnly), r.certificate.warn(), nil)
		}
	}
	if r.masters, err = tenant.ReadMasterKeys(f.KeyFile); development && errors.Is(err, fs.ErrNotExist) {
		err = nil // it is made
	} else if err != nil {
		hint := ""
		if _, open := errors.AsType[*keyfile.NotPrivateError](err); open {
			hint = "make it private, with chmod 600"
		}
		err = f.wrong(err, hint, "key_file")
	}
	add("key file", fmt.Sprintf("%s, %s", f.KeyFile, display.Plural(len(r.masters), "master key")), nil, err)
	if name := f.Metrics.KeyEnv; name != "" {
		r.metricsKey, err = f.keyIn("metrics", name)
		add("metrics key", "the variable "+name, nil, err)
	}
	if name := f.Operator.KeyEnv; name != "" {
		r.operatorKey, err = f.keyIn("operator", name)
		add("operator key", "the variable "+name, nil, err)
	}
	if f.Isolation != inline {
		var warn []string
		report, err := guest.ProbeProcess() // before a call needs one
		if err != nil {
			err = &SetupError{Err: fmt.Errorf("no worker processes: %s", starling.PlainError(err)), Hint: "starling-host doctor", Machine: true}
		}
		for _, layer := range report.Layers {
			if !layer.On {
				warn = append(warn, fmt.Sprintf("worker processes are confined without %s: %s", layer.Name, layer.Why))
			}
		}
		add("workers", "in processes of their own", warn, err)
	}
	if f.Seal.KeyFile != "" {
		if r.sealKey, err = seal.ReadKey(f.Seal.KeyFile); err != nil {
			err = f.wrong(err, "make a key with: starling-host seal keygen FILE", "seal", "key_file")
		}
		add("seal key", f.Seal.KeyFile, nil, err)
	}
	if f.Receipts != nil {
		key, from := r.sealKey, cmp.Or(f.Receipts.KeyFile, f.Seal.KeyFile)
		if f.Receipts.KeyFile != "" {
			key, err = seal.ReadKey(f.Receipts.KeyFile)
		} else if f.Seal.KeyFile == "" {
			err = errors.New("receipts: no key: set key_file, or seal")
		}
		if err != nil {
			err = f.wrong(err, "make a key with: starling-host seal keygen FILE", "receipts", "key_file")
		}
		r.receipts = &receipt.Issuer{Key: key, Commits: f.Receipts.Commit, LeafOnly: !f.Receipts.Digests}
		add("receipts", from, nil, err)
	}
	if tracesWanted(f.Traces, os.Getenv) {
		if r.traces, err = newOTLPClient(f.Traces.Endpoint, os.Getenv); err != nil {
			err = &SetupError{Err: fmt.Errorf("serve: traces: %w", err)}
		}
		add("traces", cmp.Or(f.Traces.Endpoint, "the variables OTEL_*"), nil, err)
	}
	for _, path := range f.Agents {
		var agent resolvedAgent
		if agent.file, err = agentfile.Load(path); err == nil {
			agent.model, err = agent.file.Provider(ctx, os.Getenv)
		}
		if err != nil {
			err = &SetupError{Err: err}
		}
		r.agents = append(r.agents, agent)
		add("agent", path, nil, err)
	}
	return r, all
}

// operatorPolicy reads the operator's policy, and returns what is wrong with its rules.
func (f *File) operatorPolicy(development bool) (p *policy.Policy, warn []string, err error) {
	if p, err = policy.Load(f.Policy); err != nil {
		return nil, nil, &SetupError{Err: err}
	}
	named := slices.ContainsFunc(p.Network, func(r policy.Rule) bool { return len(r.Tools) > 0 })
	for name := range p.Tools {
		named = named || name != policy.AllTools
	}
	if named && !development {
		warn = []string{"the operator's policy has rules by the name of a tool: a tenant names the tools that it uploads, so these rules bind only the agents of this host"}
	}
	return p, warn, nil
}

// CheckEmpty returns why a host does not start on a database without tenants, or nil.
func (f *File) CheckEmpty() error {
	if f.Listen == (Address{}) || f.Listen.Local() {
		return nil
	}
	return &SetupError{Err: fmt.Errorf("%s can be reached from other machines, but no tenant exists yet", f.Listen), Hint: "starling-host tenant create --help"}
}

// Everyone who reaches the host can guess a key that a person made up.
const (
	shortestKey = 16 // characters
	fewestInKey = 5  // different ones
)

// keyIn returns the key in the variable that a part of the file names.
func (f *File) keyIn(part string, name string) (string, error) {
	key := os.Getenv(name)
	hint := "export " + name + "=$(openssl rand -hex 32)"
	if key == "" {
		return "", f.wrong(fmt.Errorf("the variable %s is empty: %s.key_env names it", name, part), hint, part, "key_env")
	}
	different := map[rune]bool{}
	for _, c := range key {
		different[c] = true
	}
	if len(key) < shortestKey || len(different) < fewestInKey {
		return "", f.wrong(fmt.Errorf("the key in the variable %s has %d characters, %d of them different; it needs %d, %d of them different", name, len(key), len(different), shortestKey, fewestInKey), hint, part, "key_env")
	}
	return key, nil
}

// readyTime bounds the wait of [File.Ready]. A host answers within five seconds.
const readyTime = 8 * time.Second

// Ready asks the host that serves this file, on this machine, whether it accepts runs. The
// error names the failed checks.
func (f *File) Ready(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, readyTime)
	defer cancel()
	scheme := "http"
	if f.TLS != (FileTLS{}) {
		scheme = "https"
	}
	client := &http.Client{Transport: &http.Transport{
		DisableKeepAlives: true,
		DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
			return new(net.Dialer).DialContext(ctx, f.Listen.Network, f.Listen.Address)
		},
		// The certificate is for the host's public names. The request contains no secrets.
		TLSClientConfig: &tls.Config{InsecureSkipVerify: true},
	}}
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, scheme+"://localhost/api/v1/readyz", nil)
	if err != nil {
		return err
	}
	response, err := client.Do(request)
	if failure, ok := errors.AsType[*url.Error](err); ok { // without the made-up URL
		err = failure.Err
	}
	if err != nil {
		return fmt.Errorf("no host answers at %s: %w", f.Listen, err)
	}
	defer response.Body.Close()
	if response.StatusCode == http.StatusOK {
		return nil
	}
	var doc struct{ Checks map[string]string }
	_ = json.NewDecoder(io.LimitReader(response.Body, 1<<16)).Decode(&doc) // without them, the status must do
	var failed []string
	for check, state := range doc.Checks {
		switch state {
		case "ok", "low":
		case "draining":
			failed = append(failed, "it drains, as an operator wishes")
		default:
			failed = append(failed, check+" "+state)
		}
	}
	slices.Sort(failed)
	return fmt.Errorf("the host at %s is not ready: %s: %s", f.Listen, response.Status, strings.Join(failed, ", "))
}
