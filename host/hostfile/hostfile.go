package hostfile

import (
	"fmt"
	"path/filepath"
	"strings"
	"time"

	"github.com/starling-host/starling/host/tenant"
	"github.com/starling-host/starling/runtime/yaml"
)

// File is a host as its file has it. Zero numbers and times are the defaults of
// whoever they are for.
type File struct {
	Path string // of the file

	Listen         Address
	InsecurePublic bool
	TLS            TLS
	Origins        []string // under which browsers reach the host

	Database string // path, or the address of a PostgreSQL server
	KeyFile  string // of the master key
	Agents   []string
	Policy   string // of the operator; empty for none

	Limits      tenant.Limits // of tenants that have no others
	Workers     int           // runs at a time
	Inline      bool          // run all modules in this process
	Queue       Queue
	Drain       time.Duration // see daemon.Config
	Requests    Requests
	Connections Connections
	Retention   Retention
	Space       Space
	Inspector   Inspector
	Metrics     Metrics
	Operator    Operator
	Traces      Traces

	root *yaml.Node // nil if nobody has read it
}

// At returns what a file has for a key, such as "metrics", "key_env", for errors about
// it. It is nil if the file has no such key, and for a File that was not read.
func (f *File) At(keys ...string) *yaml.Node {
	at := f.root
	for _, key := range keys {
		if at != nil {
			at = at.Get(key)
		}
	}
	return at
}

// TLS names the files of a certificate and its key; both are set or neither.
type TLS struct{ Cert, Key string }

// Queue is how the queue works; see queue.Config.
type Queue struct {
	Host       string
	MaxWaiting int
	Lease      time.Duration
	Grace      time.Duration
	Attempts   int
}

// Requests bound what requests may ask for; see daemon.Config.
type Requests struct {
	Module  int64
	Modules int
	Wait    time.Duration
	Streams int
	Replays int
	Loaded  int
}

// Connections bound those of clients; see daemon.Config.
type Connections struct {
	Max     int
	Request time.Duration
	Idle    time.Duration
}

// Retention is when runs that have ended are removed. A zero time is never.
type Retention struct {
	OlderThan time.Duration
	Every     time.Duration // how often that is looked at
}

// Space bounds what is stored; see daemon.Config.
type Space struct {
	KeepFree int64 // bytes on the disk
	Modules  int64 // bytes of all tenants' modules
}

// Inspector says whether there is a web view.
type Inspector struct{ Off bool }

// Metrics say who may see the measurements. The zero value lets nobody see them.
type Metrics struct {
	KeyEnv string // the variable that has the key
	Open   bool   // to whoever reaches the host; only where nobody else can
	Off    bool
}

// Operator says who may see the queue and the hosts, and steer them. The zero value lets
// nobody do so over HTTP.
type Operator struct {
	KeyEnv string // the variable that has the key
}

// Traces say where spans are sent. The zero value leaves that to the environment.
type Traces struct {
	Endpoint string  // the URL that they are posted to
	Sample   float64 // the part of all traces; zero leaves it to the environment
	Off      bool    // whatever the environment says
}

// Load reads a host from a file. What is wrong with its content is a [*yaml.Error], and
// so is a file that it names and that cannot be read.
func Load(path string) (*File, error) {
	data, err := yaml.ReadFile(path)
	if err != nil {
		return nil, fmt.Errorf("hostfile: %w", err)
	}
	f, d, err := parse(path, data)
	if err != nil {
		return nil, err
	}
	return f, d.there(f)
}

// Parse reads a host from the content of a file. Relative paths begin at the folder
// of the path, which also stands in errors.
func Parse(path string, data []byte) (*File, error) {
	f, _, err := parse(path, data)
	return f, err
}

func parse(path string, data []byte) (*File, *document, error) {
	root, err := yaml.Parse(path, data)
	if err != nil {
		return nil, nil, err
	}
	var d document
	if err := root.Decode(&d); err != nil {
		return nil, nil, err
	}
	f := d.file(path)
	f.root = root
	if err := f.idle(); err != nil {
		return nil, nil, err
	}
	return f, &d, f.exposed()
}

// idle refuses what would do nothing: who writes it takes it to hold.
func (f *File) idle() error {
	switch {
	case f.Listen.Network == "unix" && f.TLS != (TLS{}):
		return f.At("tls").Errorf("leave it out: what is sent to a socket leaves no machine", "a Unix socket is not encrypted")
	case f.Listen.Network != "unix" && f.Listen.Mode != 0:
		return f.At("listen_mode").Errorf("leave it out: everybody on this machine can connect to "+f.Listen.String(), "only a Unix socket has a mode")
	case f.Retention.Every != 0 && f.Retention.OlderThan == 0:
		return f.At("retention").Errorf("add older_than: 720h, for instance", "without older_than nothing is removed")
	case f.Metrics.Open && (f.Metrics.KeyEnv != "" || f.Metrics.Off):
		return f.At("metrics").Errorf("leave open out, or all else", "metrics that are open ask for no key, and are not off")
	}
	return nil
}

// exposed refuses a host that others can reach and that does not protect what it
// tells them.
func (f *File) exposed() error {
	switch {
	case f.Listen.Local():
		return nil
	case f.TLS == (TLS{}) && !f.InsecurePublic:
		return f.At("listen").Errorf("add tls: {cert: ..., key: ...}, or insecure_public: true if something in front of it encrypts",
			"%s can be reached from elsewhere, and keys would go there in the clear", f.Listen)
	case f.Metrics.KeyEnv == "" && f.Operator.KeyEnv == "" && !f.Metrics.Off:
		return f.At("listen").Errorf("add metrics: {key_env: VARIABLE}, or {off: true}",
			"%s can be reached from elsewhere, and its metrics are neither off nor asked for with a key", f.Listen)
	}
	return nil
}

// relative returns where a path of the file leads.
func (f *File) relative(name string) string {
	if name == "" || filepath.IsAbs(name) || strings.Contains(name, "://") {
		return name
	}
	return filepath.Join(filepath.Dir(f.Path), name)
}
