package serve

import (
	"cmp"
	"errors"
	"fmt"
	"io/fs"
	"net"
	"net/netip"
	"net/url"
	"os"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"syscall"
	"time"

	"github.com/starling-host/starling/eventlog/store"
	"github.com/starling-host/starling/host/sandbox"
	"github.com/starling-host/starling/runtime/config"
	"github.com/starling-host/starling/serve/tenant"
)

// File is a host.yaml, the file that describes a host: where it listens, where its
// database is, which agents it offers, and what tenants may use by default.
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
// spec/host.schema.json describes all keys. The parser is strict: an unknown key is an
// error, with the line, a caret and a hint ([*config.Error]). Relative paths begin at the
// folder of the file. The file holds no secrets. Zero numbers and times mean the defaults.
type File struct {
	Path string // of the file

	Listen         Address       `yaml:"listen,required"`
	ListenMode     socketMode    `yaml:"listen_mode"`
	InsecurePublic bool          `yaml:"insecure_public"`
	TLS            FileTLS       `yaml:"tls"`
	Origins        []origin      `yaml:"origins"`           // under which browsers reach the host
	Database       config.Word   `yaml:"database,required"` // path, or the address of a PostgreSQL server
	KeyFile        config.Word   `yaml:"key_file,required"` // of the master key
	Agents         []config.Word `yaml:"agents"`
	Policy         config.Word   `yaml:"policy"` // of the operator; empty for none

	Limits    fileLimits    `yaml:"limits"`    // of tenants that have no others
	Calls     fileCalls     `yaml:"calls"`     // limits of each call of a tool, which policies lower
	Workers   config.Count  `yaml:"workers"`   // runs at a time
	Isolation isolation     `yaml:"isolation"` // where modules run: process, the default, or inline
	Drain     config.Period `yaml:"drain"`     // see daemon.Config, as for what follows

	Queue struct {
		Host       config.Word   `yaml:"host"`
		MaxWaiting config.Count  `yaml:"max_waiting"`
		Lease      config.Period `yaml:"lease"`
		Grace      config.Period `yaml:"grace"`
		Attempts   config.Count  `yaml:"attempts"`
	} `yaml:"queue"`
	Requests struct {
		Module  config.Size   `yaml:"module"`
		Modules config.Count  `yaml:"modules"`
		Wait    config.Period `yaml:"wait"`
		Streams config.Count  `yaml:"streams"`
		Replays config.Count  `yaml:"replays"`
		Loaded  config.Count  `yaml:"loaded_modules"`
	} `yaml:"requests"`
	Connections struct {
		Max     config.Count  `yaml:"max"`
		Request config.Period `yaml:"request"`
		Idle    config.Period `yaml:"idle"`
	} `yaml:"connections"`
	Retention struct {
		OlderThan config.Period `yaml:"older_than"` // runs that have ended and began longer ago are removed
		Every     config.Period `yaml:"every"`      // how often
	} `yaml:"retention"`
	Seal struct { // the zero value signs nothing
		KeyFile   config.Word   `yaml:"key_file"` // of the key that signs
		Every     config.Period `yaml:"every"`    // how often
		Runs      config.Count  `yaml:"runs"`     // and after so many runs
		Witnesses []config.Word `yaml:"witnesses"`
	} `yaml:"seal"`
	Space struct {
		KeepFree config.Size `yaml:"keep_free"` // on the disk
		Modules  config.Size `yaml:"modules"`   // of all tenants together
	} `yaml:"space"`
	Inspector struct {
		Off bool `yaml:"off"`
	} `yaml:"inspector"`
	Metrics struct { // the zero value lets no one read them
		KeyEnv variable `yaml:"key_env"` // the variable that has the key
		Open   bool     `yaml:"open"`    // to everyone who reaches the host
		Off    bool     `yaml:"off"`
	} `yaml:"metrics"`
	Operator struct {
		KeyEnv variable `yaml:"key_env"` // the variable that has the key; empty lets no one steer over HTTP
	} `yaml:"operator"`
	Traces FileTraces `yaml:"traces"`

	root *config.Node // nil for a File that was not read
}

// FileTLS names the files of a certificate and its key; both are set or neither.
type FileTLS struct {
	Cert config.Word `yaml:"cert,required"`
	Key  config.Word `yaml:"key,required"`
}

// FileTraces say where spans are sent. The zero value leaves that to the environment.
type FileTraces struct {
	Endpoint collector `yaml:"endpoint"` // the URL that they are posted to
	Sample   fraction  `yaml:"sample"`   // the part of all traces; zero leaves it to the environment
	Off      bool      `yaml:"off"`      // whatever the environment says
}

type fileLimits struct {
	Running           config.Count `yaml:"running"`
	Waiting           config.Count `yaml:"waiting"`
	Compiling         config.Count `yaml:"compiling"`
	Connections       config.Count `yaml:"connections"`
	RequestsPerSecond config.Count `yaml:"requests_per_second"`
	RecordedPerDay    config.Size  `yaml:"recorded_per_day"`
	Recorded          config.Size  `yaml:"recorded"`
	Modules           config.Size  `yaml:"module_bytes"`
	UploadsPerHour    config.Count `yaml:"uploads_per_hour"`
}

func (l fileLimits) tenant() tenant.Limits {
	return tenant.Limits{
		Running: int(l.Running), Waiting: int(l.Waiting), Compiling: int(l.Compiling), Connections: int(l.Connections),
		RequestsPerSecond: int(l.RequestsPerSecond), RecordedPerDay: int64(l.RecordedPerDay), Recorded: int64(l.Recorded),
		Modules: int64(l.Modules), UploadsPerHour: int(l.UploadsPerHour),
	}
}

type fileCalls struct {
	Fuel        config.Count  `yaml:"fuel"`
	Memory      config.Size   `yaml:"memory"`
	Timeout     config.Period `yaml:"timeout"`
	Output      config.Size   `yaml:"output"`
	Effects     config.Count  `yaml:"effects"`
	EffectBytes config.Size   `yaml:"effect_bytes"`
}

// mostOfCall is the largest that each of the limits of a call may be: what an event and a
// module hold, and beyond which a call keeps a host from ending.
var mostOfCall = map[string]uint64{
	"fuel": 100e12, "memory": sandbox.MaxPages * sandbox.PageSize, "timeout": uint64(24 * time.Hour), "output": 8 << 20, "effects": 1e6, "effect_bytes": 1 << 30,
}

// limits returns the limits of calls, with the defaults.
func (c fileCalls) limits() sandbox.Limits {
	l := sandbox.DefaultLimits()
	l.Fuel, l.Effects = cmp.Or(uint64(c.Fuel), l.Fuel), cmp.Or(uint64(c.Effects), l.Effects)
	l.MemoryPages = cmp.Or(uint32(sandbox.Pages(uint64(c.Memory))), l.MemoryPages)
	l.TimeoutMs = cmp.Or(time.Duration(c.Timeout).Milliseconds(), l.TimeoutMs)
	l.OutputBytes, l.EffectBytes = cmp.Or(uint64(c.Output), l.OutputBytes), cmp.Or(uint64(c.EffectBytes), l.EffectBytes)
	return l
}

// CheckYAML implements [config.Checker].
func (c fileCalls) CheckYAML(n *config.Node) error {
	for key, value := range map[string]uint64{
		"fuel": uint64(c.Fuel), "memory": uint64(c.Memory), "timeout": uint64(c.Timeout), "output": uint64(c.Output), "effects": uint64(c.Effects), "effect_bytes": uint64(c.EffectBytes),
	} {
		if value > mostOfCall[key] {
			return n.Get(key).Errorf("docs/defaults.md has the largest values", "calls.%s is larger than a host allows", key)
		}
	}
	return nil
}

// LoadFile reads a host.yaml. What is wrong with its content is a [*config.Error], and so
// is a file that it names and that cannot be read.
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
	files, agents := []located{{f.At("key_file")}, {f.At("policy")}}, []located{}
	if len(f.Agents) > 0 {
		if err := f.At("agents").Decode(&agents); err != nil {
			return nil, err
		}
	}
	files = append(append(files, agents...), located{f.At("tls", "cert")}, located{f.At("tls", "key")}, located{f.At("seal", "key_file")})
	names := append(append([]config.Word{f.KeyFile, f.Policy}, f.Agents...), f.TLS.Cert, f.TLS.Key, f.Seal.KeyFile)
	for i, file := range files {
		if file.Node == nil {
			continue
		}
		if err := readable(string(names[i])); err != nil && i == 0 {
			return nil, file.Errorf("make a key with: starling-host tenant keygen FILE; "+hint, "%v", err)
		} else if err != nil {
			return nil, file.Errorf(hint, "%v", err)
		}
	}
	return f, nil
}

// located is where a value stands in a file.
type located struct{ *config.Node }

// DecodeYAML implements [config.Decoder].
func (l *located) DecodeYAML(n *config.Node) error {
	l.Node = n
	return nil
}

// readable reports why a file cannot be opened. What is not a regular file is left to its
// reader: to open a pipe can block.
func readable(name string) error {
	info, err := os.Stat(name)
	if err != nil || !info.Mode().IsRegular() {
		return err
	}
	f, err := os.Open(name)
	if err != nil {
		return err
	}
	return f.Close()
}

// ParseFile reads a host.yaml from its content. Relative paths begin at the folder of
// name, which also stands in errors.
func ParseFile(name string, data []byte) (*File, error) {
	root, err := config.Parse(name, data)
	if err != nil {
		return nil, err
	}
	f := &File{Path: name, root: root}
	if err := root.Decode(f); err != nil {
		return nil, err
	}
	if f.Listen.Mode = fs.FileMode(f.ListenMode); f.Listen.Network == "unix" {
		resolve(&f.Listen.Address, name)
	}
	for _, file := range []*config.Word{&f.Database, &f.KeyFile, &f.Policy, &f.TLS.Cert, &f.TLS.Key, &f.Seal.KeyFile} {
		resolve(file, name)
	}
	for i := range f.Agents {
		resolve(&f.Agents[i], name)
	}
	return f, nil
}

// DevelopmentFile describes a host for one person on this machine, see
// [Options].Development. Its key file stands beside the database.
func DevelopmentFile(listen Address, database, policy string, agents ...string) *File {
	key := strings.TrimSuffix(database, ".db") + ".key"
	if store.OnServer(database) {
		key = "starling.key"
	}
	f := &File{Path: "the flags", Listen: listen, Database: config.Word(database), KeyFile: config.Word(key), Policy: config.Word(policy)}
	for _, name := range agents {
		f.Agents = append(f.Agents, config.Word(name))
	}
	f.Metrics.Open = true // they are of the one tenant that there is
	return f
}

// resolve makes a path that begins at the folder of a file one that the system takes.
func resolve[T ~string](name *T, file string) {
	if text := string(*name); text != "" && !filepath.IsAbs(text) && !strings.Contains(text, "://") {
		*name = T(filepath.Join(filepath.Dir(file), text))
	}
}

// At returns what a file has for a key, such as "metrics", "key_env", for errors about it.
// It is nil if the file has no such key, and for a File that was not read.
func (f *File) At(keys ...string) *config.Node {
	at := f.root
	for _, key := range keys {
		if at != nil {
			at = at.Get(key)
		}
	}
	return at
}

// Bounds of what a file may say.
const (
	mostWorkers   = 10_000      // more than any machine has a use for
	shortestLease = time.Second // leaves a third of a second to renew it; with less, a slow disk makes a live host look dead
)

// CheckYAML implements [config.Checker]. It refuses values that are out of bounds, keys
// that would have no effect, and a host that others can reach and that does not protect
// what it tells them.
func (f *File) CheckYAML(n *config.Node) error {
	public, at := !f.Listen.Local(), n.Get
	inner := func(group, key string) *config.Node { return at(group).Get(key) }
	most := sandbox.DefaultGateLimits().ModuleBytes
	scheme, _, remote := strings.Cut(string(f.Database), "://")
	switch {
	case remote && scheme != "postgres" && scheme != "postgresql":
		return at("database").Hidden().Errorf("the address of a server begins with postgres:// or postgresql://", "this must be a path or the address of a PostgreSQL server")
	case f.Workers > mostWorkers:
		return at("workers").Errorf("", "this must be at most %d", mostWorkers)
	case f.Requests.Module > config.Size(most):
		return inner("requests", "module").Errorf("no larger module is ever accepted", "this must be at most %dMiB", most>>20)
	case f.Queue.Lease > 0 && time.Duration(f.Queue.Lease) < shortestLease:
		return inner("queue", "lease").Errorf("leave the key out for 30s", "this must be %v or more, or hosts that are alive are taken to be dead", shortestLease)
	case f.Listen.Network == "unix" && f.TLS != (FileTLS{}):
		return at("tls").Errorf("leave it out: what is sent to a socket leaves no machine", "a Unix socket is not encrypted")
	case f.Listen.Network != "unix" && f.ListenMode != 0:
		return at("listen_mode").Errorf("leave it out: everybody on this machine can connect to "+f.Listen.String(), "only a Unix socket has a mode")
	case f.Retention.Every != 0 && f.Retention.OlderThan == 0:
		return at("retention").Errorf("add older_than: 30d, for instance", "without older_than nothing is removed")
	case f.Seal.KeyFile == "" && (f.Seal.Every != 0 || f.Seal.Runs != 0 || len(f.Seal.Witnesses) > 0):
		return at("seal").Errorf("add key_file: seal.key, made with: starling-host seal keygen seal.key", "without key_file nothing is signed")
	case f.Metrics.Open && (f.Metrics.KeyEnv != "" || f.Metrics.Off):
		return at("metrics").Errorf("leave open out, or all else", "metrics that are open ask for no key, and are not off")
	case public && f.TLS == (FileTLS{}) && !f.InsecurePublic:
		return at("listen").Errorf("add tls: {cert: ..., key: ...}, or insecure_public: true if something in front of it encrypts",
			"%s can be reached from elsewhere, and keys would go there in the clear", f.Listen)
	case public && f.Metrics.KeyEnv == "" && f.Operator.KeyEnv == "" && !f.Metrics.Off:
		return at("listen").Errorf("add metrics: {key_env: VARIABLE}, or {off: true}",
			"%s can be reached from elsewhere, and its metrics are neither off nor asked for with a key", f.Listen)
	}
	return nil
}

// DecodeYAML implements [config.Decoder].
func (a *Address) DecodeYAML(n *config.Node) error {
	var text string
	if err := n.Decode(&text); err != nil {
		return err
	}
	at, err := ParseAddress(text)
	if err != nil {
		return n.Errorf("write HOST:PORT, where HOST is an address or localhost, as in 127.0.0.1:8300, or unix:PATH", "%v", err)
	}
	*a = at
	return nil
}

// socketMode says who may connect to a socket: those who may write to it.
type socketMode fs.FileMode

var modePattern = regexp.MustCompile(`^06[06][06]$`)

// DecodeYAML implements [config.Decoder].
func (m *socketMode) DecodeYAML(n *config.Node) error {
	text, _ := n.Text()
	if !modePattern.MatchString(text) {
		return n.Errorf("0660 lets the group of the socket connect, 0666 everybody on this machine; the quotes are needed",
			`this must be "0600", "0660", "0606" or "0666", in quotes`)
	}
	bits, err := strconv.ParseUint(text, 8, 32)
	*m = socketMode(bits)
	return err
}

// origin is a scheme and a host, as browsers send them.
type origin string

var originPattern = regexp.MustCompile(`^https?://([a-z0-9._-]+|\[[0-9a-f:.]+\])(:[0-9]{1,5})?$`)

// DecodeYAML implements [config.Decoder].
func (o *origin) DecodeYAML(n *config.Node) error {
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

// DecodeYAML implements [config.Decoder].
func (c *collector) DecodeYAML(n *config.Node) error {
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

// DecodeYAML implements [config.Decoder].
func (f *fraction) DecodeYAML(n *config.Node) error {
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

const inline isolation = "inline"

// DecodeYAML implements [config.Decoder].
func (i *isolation) DecodeYAML(n *config.Node) error {
	if err := n.Decode((*string)(i)); err != nil {
		return err
	}
	if *i != inline && *i != "process" {
		return n.Errorf("process is the default: a process of its own for each call", "this must be process or inline")
	}
	return nil
}

// variable is the name of an environment variable.
type variable string

var variableName = regexp.MustCompile(`^[A-Z_][A-Z0-9_]*$`)

// DecodeYAML implements [config.Decoder].
func (v *variable) DecodeYAML(n *config.Node) error {
	if err := n.Decode((*string)(v)); err != nil || !variableName.MatchString(string(*v)) {
		return n.Hidden().Errorf("put the key into a variable, and the name of the variable here, as in: key_env: STARLING_OPERATOR_KEY", "this must be the name of an environment variable")
	}
	return nil
}

// Address is where a host listens.
type Address struct {
	Network string // tcp or unix
	Address string
	Mode    fs.FileMode // of a socket; zero for 0600
}

// String returns the address as the file has it.
func (a Address) String() string {
	if a.Network == "unix" {
		return "unix:" + a.Address
	}
	return a.Address
}

// Local reports whether only this machine can reach the address.
func (a Address) Local() bool {
	if a.Network == "unix" {
		return true
	}
	at, err := netip.ParseAddrPort(a.Address)
	if err != nil {
		host, _, _ := strings.Cut(a.Address, ":")
		return host == "localhost"
	}
	return at.Addr().IsLoopback()
}

// ParseAddress reads HOST:PORT or unix:PATH.
func ParseAddress(text string) (Address, error) {
	if path, ok := strings.CutPrefix(text, "unix:"); ok {
		if path == "" {
			return Address{}, fmt.Errorf("%q has no path", text)
		}
		return Address{Network: "unix", Address: path}, nil
	}
	if at, err := netip.ParseAddrPort(text); err == nil {
		return Address{Network: "tcp", Address: at.String()}, nil
	}
	if port, ok := strings.CutPrefix(text, "localhost:"); ok && isPort(port) {
		return Address{Network: "tcp", Address: text}, nil
	}
	return Address{}, fmt.Errorf("%q is no address such as 127.0.0.1:8300 or unix:/run/starling.sock", text)
}

func isPort(text string) bool {
	_, err := netip.ParseAddrPort("127.0.0.1:" + text)
	return err == nil
}

// Listen takes the address. A socket that a process left behind is removed first, if no one
// answers there; another file of that name stays.
func (a Address) Listen() (net.Listener, error) {
	if a.Network != "unix" {
		return net.Listen(a.family(), a.Address)
	}
	if err := a.removeSocket(); err != nil {
		return nil, err
	}
	if len(a.Address) > longestSocket { // the system says "invalid argument"
		return nil, fmt.Errorf("serve: %s: the path has %d bytes, and that of a socket has %d at most", a, len(a.Address), longestSocket)
	}
	l, err := net.Listen("unix", a.Address)
	if err != nil {
		return nil, err
	}
	if err := os.Chmod(a.Address, cmp.Or(a.Mode, 0o600)); err != nil {
		return nil, errors.Join(err, l.Close())
	}
	return l, nil
}

// longestSocket is how many bytes of a path the system takes, without the zero behind it.
const longestSocket = len(syscall.RawSockaddrUnix{}.Path) - 1

// family returns what to listen on: 0.0.0.0 is meant as it is written, and package
// net would take "tcp" for IPv6 as well.
func (a Address) family() string {
	if at, err := netip.ParseAddrPort(a.Address); err == nil && at.Addr().Unmap().Is4() {
		return "tcp4"
	}
	return a.Network
}

func (a Address) removeSocket() error {
	info, err := os.Lstat(a.Address)
	switch {
	case err != nil: // nothing is there, or to listen will say why not
		return nil
	case info.Mode().Type() != fs.ModeSocket:
		return fmt.Errorf("serve: %s: a file is there that is no socket", a)
	}
	if conn, err := net.Dial("unix", a.Address); err == nil {
		conn.Close()
		return fmt.Errorf("serve: %s: another process listens there", a)
	}
	return os.Remove(a.Address)
}
