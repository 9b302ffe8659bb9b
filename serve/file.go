package serve

import (
	"cmp"
	"errors"
	"fmt"
	"io/fs"
	"net/url"
	"path/filepath"
	"strconv"
	"sync"
	"syscall"
	"time"

	"github.com/starling-host/starling"
	"github.com/starling-host/starling/host/sandbox"
	"github.com/starling-host/starling/internal/config"
	"github.com/starling-host/starling/internal/keyfile"
	"github.com/starling-host/starling/serve/internal/daemon"
	"github.com/starling-host/starling/spec"
)

// File is a host.yaml, the file that describes a host: its address, its database, its
// agents, and the default limits of tenants.
//
//	# yaml-language-server: $schema=https://raw.githubusercontent.com/starling-host/starling/main/spec/host.schema.json
//	listen: 127.0.0.1:8300
//	database: starling.db
//	key_file: starling.key
//	agents: [agents/support.yaml]
//	policy: operator.yaml
//	limits: {running: 8, waiting: 500}
//	retention: {older_than: 30d}
//
// spec/host.schema.json describes all keys. An error in a file is a [*config.Error] with
// the line, a caret and a hint. Relative paths start at the folder of the file. The file
// holds no secrets. Zero numbers and times mean the defaults.
type File struct {
	Path string // of the file

	Listen         Address  `yaml:"listen"`
	ListenMode     string   `yaml:"listen_mode"`
	InsecurePublic bool     `yaml:"insecure_public"`
	TLS            FileTLS  `yaml:"tls"`
	Origins        []string `yaml:"origins"`  // the URLs that browsers use
	Database       string   `yaml:"database"` // path, or the address of a PostgreSQL server
	KeyFile        string   `yaml:"key_file"` // of the master key
	Agents         []string `yaml:"agents"`
	Policy         string   `yaml:"policy"` // of the operator; empty for none
	Trust          string   `yaml:"trust"`  // file of the keys that may sign modules; empty accepts all

	daemon.Settings

	Calls     config.CallLimits `yaml:"calls"`     // limits of each call of a tool; policies can lower them
	Workers   int               `yaml:"workers"`   // runs at a time
	Isolation string            `yaml:"isolation"` // where modules run: process, the default, or inline

	Queue struct {
		Host       string        `yaml:"host"`
		MaxWaiting int           `yaml:"max_waiting"`
		Lease      time.Duration `yaml:"lease"`
		Grace      time.Duration `yaml:"grace"`
		Attempts   int           `yaml:"attempts"`
	} `yaml:"queue"`
	Seal struct { // the zero value signs nothing
		KeyFile   string        `yaml:"key_file"` // of the key that signs
		Every     time.Duration `yaml:"every"`    // how often
		Runs      int           `yaml:"runs"`     // and after so many runs
		Witnesses []string      `yaml:"witnesses"`
	} `yaml:"seal"`
	Receipts *struct { // nil signs none
		KeyFile string `yaml:"key_file"` // empty for that of Seal
		Commit  bool   `yaml:"commit"`   // also before the first effect of a call
		Digests bool   `yaml:"digests"`  // of inputs and results
	} `yaml:"receipts"`
	Inspector struct {
		Off bool `yaml:"off"`
	} `yaml:"inspector"`
	Metrics struct { // the zero value closes them
		KeyEnv string `yaml:"key_env"` // the variable with the key
		Open   bool   `yaml:"open"`    // without a key
		Off    bool   `yaml:"off"`
	} `yaml:"metrics"`
	Operator struct {
		KeyEnv string `yaml:"key_env"` // the variable with the key; empty closes the operator's routes
	} `yaml:"operator"`
	Traces FileTraces `yaml:"traces"`

	root *config.Node // nil if the File was not read
}

// FileTLS names the files of a certificate and its key; both are set or neither.
type FileTLS struct {
	Cert string `yaml:"cert"`
	Key  string `yaml:"key"`
}

// FileTraces configure the collector of spans. The zero value leaves that to the
// environment.
type FileTraces struct {
	Endpoint string  `yaml:"endpoint"` // the URL that they are posted to
	Sample   float64 `yaml:"sample"`   // the share of traces to keep; zero leaves it to the environment
	Off      bool    `yaml:"off"`      // even if the environment names a collector
}

var fileSchema = sync.OnceValue(func() *config.Schema {
	return config.MustSchema(spec.HostSchema(), config.Formats{"listen-address": config.Format(ParseAddress), "uri": config.CheckURL})
})

// LoadFile reads a host.yaml. If its content is invalid, or a file that it names cannot be
// read, the error is a [*config.Error].
func LoadFile(name string) (*File, error) {
	data, err := config.ReadFile(name)
	if err != nil {
		return nil, fmt.Errorf("serve: %w", err)
	}
	f, err := ParseFile(name, data)
	if err != nil {
		return nil, err
	}
	hint := "relative paths begin at the folder of " + filepath.Base(name)
	check := func(at *config.Node, name, hint string) error {
		if at == nil {
			return nil
		}
		if err := readable(name); err != nil {
			return at.Errorf(hint, "%v", err)
		}
		return nil
	}
	err = cmp.Or(check(f.At("key_file"), f.KeyFile, "make a key with: starling-host tenant keygen FILE; "+hint), check(f.At("policy"), f.Policy, hint), check(f.At("trust"), f.Trust, hint))
	for i, at := range f.At("agents").Items() {
		err = cmp.Or(err, check(at, f.Agents[i], hint))
	}
	err = cmp.Or(err, check(f.At("tls", "cert"), f.TLS.Cert, hint), check(f.At("tls", "key"), f.TLS.Key, hint), check(f.At("seal", "key_file"), f.Seal.KeyFile, hint), check(f.At("retention", "archive_to"), f.Retention.ArchiveTo, hint))
	if err != nil {
		return nil, err
	}
	return f, nil
}

// readable reports why a file cannot be opened. It skips files that are not regular:
// opening a pipe can block.
func readable(name string) error {
	f, err := keyfile.Open(name)
	if errors.Is(err, keyfile.ErrIrregular) || errors.Is(err, syscall.EISDIR) {
		return nil
	} else if err != nil {
		return err
	}
	return f.Close()
}

// ParseFile reads a host.yaml from its content. Relative paths start at the folder of name,
// which errors also mention.
func ParseFile(name string, data []byte) (*File, error) {
	f := &File{Path: name}
	root, err := fileSchema().Load(name, data, f)
	if err != nil {
		return nil, err
	}
	f.root = root
	if err := f.check(); err != nil {
		return nil, err
	}
	if f.ListenMode != "" {
		mode, err := strconv.ParseUint(f.ListenMode, 8, 32)
		if err != nil {
			return nil, f.At("listen_mode").Errorf("", "%v", err)
		}
		f.Listen.Mode = fs.FileMode(mode)
	}
	if f.Listen.Network == "unix" {
		f.Listen.Address = config.Beside(name, f.Listen.Address)
	}
	if u, err := url.Parse(f.Traces.Endpoint); err == nil && f.Traces.Endpoint != "" {
		f.Traces.Endpoint = u.JoinPath("v1/traces").String()
	}
	for _, file := range []*string{&f.Database, &f.KeyFile, &f.Policy, &f.Trust, &f.TLS.Cert, &f.TLS.Key, &f.Seal.KeyFile, &f.Retention.ArchiveTo} {
		*file = config.Beside(name, *file)
	}
	for i := range f.Agents {
		f.Agents[i] = config.Beside(name, f.Agents[i])
	}
	return f, nil
}

// At returns the node of a key, such as "metrics", "key_env", for errors about it. It is
// nil if the file lacks the key, and for a File that was not read.
func (f *File) At(keys ...string) *config.Node { return f.root.At(keys...) }

// check refuses a publicly reachable host that does not protect its keys and metrics.
func (f *File) check() error {
	public, at := !f.Listen.Local(), f.At("listen")
	switch {
	case public && f.TLS == (FileTLS{}) && !f.InsecurePublic:
		return at.Errorf("add tls: {cert: ..., key: ...}, or insecure_public: true if something in front of it encrypts",
			"%s can be reached from elsewhere, and keys would go there in the clear", f.Listen)
	case public && f.Metrics.KeyEnv == "" && f.Operator.KeyEnv == "" && !f.Metrics.Off:
		return at.Errorf("add metrics: {key_env: VARIABLE}, or {off: true}",
			"%s can be reached from elsewhere, and its metrics are neither off nor asked for with a key", f.Listen)
	}
	return nil
}

const inline = "inline" // of File.Isolation

// wrong returns an error about a key of the file, with its place.
func (f *File) wrong(err error, hint string, keys ...string) error {
	if at := f.At(keys...); at != nil {
		return &SetupError{Err: at.Errorf(hint, "%s", starling.PlainError(err))}
	}
	return &SetupError{Err: err, Hint: hint}
}

// callLimits are the limits of each call of a tenant's tool.
func (f *File) callLimits() sandbox.Limits {
	return sandbox.WithDefaults(sandbox.Limits(f.Calls.Sandbox()))
}
