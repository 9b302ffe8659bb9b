package hostfile

import (
	"io/fs"
	"net/url"
	"os"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"time"

	"github.com/starling-host/starling/host/rewrite"
	"github.com/starling-host/starling/host/tenant"
	"github.com/starling-host/starling/runtime/yaml"
)

// document is what stands in a file.
type document struct {
	Listen         address     `yaml:"listen,required"`
	ListenMode     mode        `yaml:"listen_mode"`
	InsecurePublic bool        `yaml:"insecure_public"`
	TLS            *tls        `yaml:"tls"`
	Origins        []origin    `yaml:"origins"`
	Database       database    `yaml:"database,required"`
	KeyFile        file        `yaml:"key_file,required"`
	Agents         []file      `yaml:"agents"`
	Policy         file        `yaml:"policy"`
	Limits         limits      `yaml:"limits"`
	Workers        workers     `yaml:"workers"`
	Isolation      isolation   `yaml:"isolation"`
	Queue          queue       `yaml:"queue"`
	Drain          yaml.Period `yaml:"drain"`
	Requests       requests    `yaml:"requests"`
	Connections    connections `yaml:"connections"`
	Retention      retention   `yaml:"retention"`
	Space          space       `yaml:"space"`
	Inspector      inspector   `yaml:"inspector"`
	Metrics        metrics     `yaml:"metrics"`
	Operator       operator    `yaml:"operator"`
	Traces         traces      `yaml:"traces"`
}

type tls struct {
	Cert file `yaml:"cert,required"`
	Key  file `yaml:"key,required"`
}

type limits struct {
	Running           yaml.Count `yaml:"running"`
	Waiting           yaml.Count `yaml:"waiting"`
	Compiling         yaml.Count `yaml:"compiling"`
	Connections       yaml.Count `yaml:"connections"`
	RequestsPerSecond yaml.Count `yaml:"requests_per_second"`
	RecordedPerDay    yaml.Size  `yaml:"recorded_per_day"`
	Recorded          yaml.Size  `yaml:"recorded"`
	Modules           yaml.Size  `yaml:"module_bytes"`
	UploadsPerHour    yaml.Count `yaml:"uploads_per_hour"`
}

type queue struct {
	Host       yaml.Word   `yaml:"host"`
	MaxWaiting yaml.Count  `yaml:"max_waiting"`
	Lease      lease       `yaml:"lease"`
	Grace      yaml.Period `yaml:"grace"`
	Attempts   yaml.Count  `yaml:"attempts"`
}

type requests struct {
	Module  moduleSize  `yaml:"module"`
	Modules yaml.Count  `yaml:"modules"`
	Wait    yaml.Period `yaml:"wait"`
	Streams yaml.Count  `yaml:"streams"`
	Replays yaml.Count  `yaml:"replays"`
	Loaded  yaml.Count  `yaml:"loaded_modules"`
}

type connections struct {
	Max     yaml.Count  `yaml:"max"`
	Request yaml.Period `yaml:"request"`
	Idle    yaml.Period `yaml:"idle"`
}

type retention struct {
	OlderThan yaml.Period `yaml:"older_than"`
	Every     yaml.Period `yaml:"every"`
}

type space struct {
	KeepFree yaml.Size `yaml:"keep_free"`
	Modules  yaml.Size `yaml:"modules"`
}

type inspector struct {
	Off bool `yaml:"off"`
}

type metrics struct {
	KeyEnv variable `yaml:"key_env"`
	Open   bool     `yaml:"open"`
	Off    bool     `yaml:"off"`
}

type operator struct {
	KeyEnv variable `yaml:"key_env"`
}

type traces struct {
	Endpoint collector `yaml:"endpoint"`
	Sample   fraction  `yaml:"sample"`
	Off      bool      `yaml:"off"`
}

func (d *document) file(path string) *File {
	f := &File{
		Path: path, Listen: Address(d.Listen), InsecurePublic: d.InsecurePublic,
		Limits: d.Limits.tenant(), Workers: int(d.Workers), Inline: d.Isolation == inline, Drain: time.Duration(d.Drain),
		Queue: Queue{
			Host: string(d.Queue.Host), MaxWaiting: int(d.Queue.MaxWaiting), Lease: time.Duration(d.Queue.Lease),
			Grace: time.Duration(d.Queue.Grace), Attempts: int(d.Queue.Attempts),
		},
		Requests: Requests{
			Module: int64(d.Requests.Module), Modules: int(d.Requests.Modules), Wait: time.Duration(d.Requests.Wait),
			Streams: int(d.Requests.Streams), Replays: int(d.Requests.Replays), Loaded: int(d.Requests.Loaded),
		},
		Connections: Connections{
			Max: int(d.Connections.Max), Request: time.Duration(d.Connections.Request), Idle: time.Duration(d.Connections.Idle),
		},
		Retention: Retention{time.Duration(d.Retention.OlderThan), time.Duration(d.Retention.Every)},
		Space:     Space{int64(d.Space.KeepFree), int64(d.Space.Modules)},
		Inspector: Inspector{d.Inspector.Off},
		Metrics:   Metrics{string(d.Metrics.KeyEnv), d.Metrics.Open, d.Metrics.Off},
		Operator:  Operator{string(d.Operator.KeyEnv)},
		Traces:    Traces{string(d.Traces.Endpoint), float64(d.Traces.Sample), d.Traces.Off},
	}
	f.Listen.Mode = fs.FileMode(d.ListenMode)
	f.Database, f.KeyFile, f.Policy = f.relative(string(d.Database)), f.relative(d.KeyFile.name), f.relative(d.Policy.name)
	if f.Listen.Network == "unix" {
		f.Listen.Address = f.relative(f.Listen.Address)
	}
	if d.TLS != nil {
		f.TLS = TLS{f.relative(d.TLS.Cert.name), f.relative(d.TLS.Key.name)}
	}
	for _, o := range d.Origins {
		f.Origins = append(f.Origins, string(o))
	}
	for _, a := range d.Agents {
		f.Agents = append(f.Agents, f.relative(a.name))
	}
	return f
}

func (l limits) tenant() tenant.Limits {
	return tenant.Limits{
		Running: int(l.Running), Waiting: int(l.Waiting), Compiling: int(l.Compiling), Connections: int(l.Connections),
		RequestsPerSecond: int(l.RequestsPerSecond), RecordedPerDay: int64(l.RecordedPerDay), Recorded: int64(l.Recorded),
		Modules: int64(l.Modules), UploadsPerHour: int(l.UploadsPerHour),
	}
}

// there refuses a file that cannot be read, where its name stands. What is wrong with
// its content is for whoever reads it.
func (d *document) there(f *File) error {
	hint := "relative paths begin at the folder of " + filepath.Base(f.Path)
	if err := d.KeyFile.there(f, "make a key with: starling-host tenant keygen FILE; "+hint); err != nil {
		return err
	}
	files := append([]file{d.Policy}, d.Agents...)
	if d.TLS != nil {
		files = append(files, d.TLS.Cert, d.TLS.Key)
	}
	for _, named := range files {
		if err := named.there(f, hint); err != nil {
			return err
		}
	}
	return nil
}

// readable reports why a file cannot be opened. What is no regular file is left to
// its reader: to open a pipe can block.
func readable(path string) error {
	info, err := os.Stat(path)
	if err != nil || !info.Mode().IsRegular() {
		return err
	}
	f, err := os.Open(path)
	if err != nil {
		return err
	}
	return f.Close()
}

// file is the name of a file that is read when a host starts.
type file struct {
	name string
	at   *yaml.Node // nil if the key is not there
}

// DecodeYAML implements [yaml.Decoder].
func (f *file) DecodeYAML(n *yaml.Node) error {
	f.at = n
	return n.Decode((*yaml.Word)(&f.name))
}

// there reports why the file cannot be read, if its key is there.
func (f *file) there(of *File, hint string) error {
	if f.at == nil {
		return nil
	}
	if err := readable(of.relative(f.name)); err != nil {
		return f.at.Errorf(hint, "%v", err)
	}
	return nil
}

// database is a path, or the address of a PostgreSQL server.
type database yaml.Word

// DecodeYAML implements [yaml.Decoder].
func (d *database) DecodeYAML(n *yaml.Node) error {
	if err := n.Decode((*yaml.Word)(d)); err != nil {
		return err
	}
	if scheme, _, ok := strings.Cut(string(*d), "://"); ok && scheme != "postgres" && scheme != "postgresql" {
		return n.Hidden().Errorf("the address of a server begins with postgres:// or postgresql://", "this must be a path or the address of a PostgreSQL server")
	}
	return nil
}

// workers is a number of runs at a time.
type workers yaml.Count

// mostWorkers is more than any machine has a use for, and as many as River takes.
const mostWorkers = 10_000

// DecodeYAML implements [yaml.Decoder].
func (w *workers) DecodeYAML(n *yaml.Node) error {
	if err := n.Decode((*yaml.Count)(w)); err != nil {
		return err
	}
	if *w > mostWorkers {
		return n.Errorf("", "this must be at most %d", mostWorkers)
	}
	return nil
}

// moduleSize bounds uploads. More than the gate takes would be sent for nothing.
type moduleSize yaml.Size

// DecodeYAML implements [yaml.Decoder].
func (s *moduleSize) DecodeYAML(n *yaml.Node) error {
	if err := n.Decode((*yaml.Size)(s)); err != nil {
		return err
	}
	if most := rewrite.DefaultLimits().ModuleBytes; int64(*s) > int64(most) {
		return n.Errorf("no larger module is ever accepted", "this must be at most %dMiB", most>>20)
	}
	return nil
}

// lease is a time after which a silent process is taken to be dead.
type lease yaml.Period

// shortestLease leaves a process a third of a second to renew it: with less, a disk
// that is slow for once has a host that lives taken to be dead, again and again.
const shortestLease = time.Second

// DecodeYAML implements [yaml.Decoder].
func (l *lease) DecodeYAML(n *yaml.Node) error {
	if err := n.Decode((*yaml.Period)(l)); err != nil {
		return err
	}
	if time.Duration(*l) < shortestLease {
		return n.Errorf("leave the key out for 30s", "this must be %v or more, or hosts that are alive are taken to be dead", shortestLease)
	}
	return nil
}

// address is a place to listen at.
type address Address

// DecodeYAML implements [yaml.Decoder].
func (a *address) DecodeYAML(n *yaml.Node) error {
	var text string
	if err := n.Decode(&text); err != nil {
		return err
	}
	at, err := ParseAddress(text)
	if err != nil {
		return n.Errorf("write HOST:PORT, where HOST is an address or localhost, as in 127.0.0.1:8300, or unix:PATH", "%v", err)
	}
	*a = address(at)
	return nil
}

// mode says who may connect to a socket. There is no other right to one: who may not
// write to it may not connect.
type mode fs.FileMode

var modePattern = regexp.MustCompile(`^06[06][06]$`)

// DecodeYAML implements [yaml.Decoder].
func (m *mode) DecodeYAML(n *yaml.Node) error {
	text, _ := n.Text()
	if !modePattern.MatchString(text) {
		return n.Errorf("0660 lets the group of the socket connect, 0666 everybody on this machine; the quotes are needed",
			`this must be "0600", "0660", "0606" or "0666", in quotes`)
	}
	bits, err := strconv.ParseUint(text, 8, 32)
	*m = mode(bits)
	return err
}

// origin is a scheme and a host, as browsers send them.
type origin string

var originPattern = regexp.MustCompile(`^https?://([a-z0-9._-]+|\[[0-9a-f:.]+\])(:[0-9]{1,5})?$`)

// DecodeYAML implements [yaml.Decoder].
func (o *origin) DecodeYAML(n *yaml.Node) error {
	if err := n.Decode((*string)(o)); err != nil {
		return err
	}
	u, err := url.Parse(string(*o))
	if err != nil || u.Hostname() == "" || !originPattern.MatchString(string(*o)) {
		return n.Errorf("write it as browsers send it: in lower case, other scripts in punycode, nothing after the port", "this must be an origin such as https://starling.example")
	}
	return nil
}

// collector is where spans are sent.
type collector string

// DecodeYAML implements [yaml.Decoder].
func (c *collector) DecodeYAML(n *yaml.Node) error {
	var text string
	if err := n.Decode(&text); err != nil {
		return err
	}
	u, err := url.Parse(text)
	switch {
	case err == nil && u.User != nil:
		return n.Hidden().Errorf("put it into the variable OTEL_EXPORTER_OTLP_HEADERS, as in: authorization=Basic%20...", "a credential does not belong into this file")
	case err != nil || u.Scheme != "http" && u.Scheme != "https" || u.Host == "" || u.RawQuery != "" || u.Fragment != "":
		return n.Errorf("", "this must be the address of a collector that speaks OTLP over HTTP, such as http://127.0.0.1:4318")
	}
	*c = collector(u.JoinPath("v1/traces").String())
	return nil
}

// fraction is a part of all, more than none.
type fraction float64

// DecodeYAML implements [yaml.Decoder].
func (f *fraction) DecodeYAML(n *yaml.Node) error {
	if err := n.Decode((*float64)(f)); err != nil {
		return err
	}
	if *f <= 0 || *f > 1 {
		return n.Errorf("to send none, write off: true", "this must be more than 0 and at most 1, as in 0.1 for every tenth trace")
	}
	return nil
}

// isolation is where modules run.
type isolation string

const (
	inline  isolation = "inline"
	process isolation = "process"
)

// DecodeYAML implements [yaml.Decoder].
func (i *isolation) DecodeYAML(n *yaml.Node) error {
	if err := n.Decode((*string)(i)); err != nil {
		return err
	}
	if *i != inline && *i != process {
		return n.Errorf("process is the default: a process of its own for each call", "this must be process or inline")
	}
	return nil
}

// variable is the name of an environment variable.
type variable string

var variableName = regexp.MustCompile(`^[A-Z_][A-Z0-9_]*$`)

// DecodeYAML implements [yaml.Decoder].
func (v *variable) DecodeYAML(n *yaml.Node) error {
	if err := n.Decode((*string)(v)); err != nil || !variableName.MatchString(string(*v)) {
		return n.Hidden().Errorf("put the key into a variable, and the name of the variable here, as in: key_env: STARLING_OPERATOR_KEY", "this must be the name of an environment variable")
	}
	return nil
}
