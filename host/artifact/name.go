package artifact

import (
	"encoding/hex"
	"net"
	"net/url"
	"path/filepath"
	"strings"

	"oras.land/oras-go/v2/registry"

	"github.com/starling-host/starling/internal/lazy"
)

// Error is the reason why a name leads to no module, or to none that may run.
type Error struct {
	Ref    string // the name, as given
	Reason string
	Hint   string // the remedy, or empty
	Kind   Kind
}

// Kind is the kind of an [Error].
type Kind int

// The kinds of errors.
const (
	Wrong   Kind = iota // the name is wrong
	Failed              // the network, a registry or a folder failed
	Refused             // the module is not the one that was pinned or signed, or is not a module
)

// Error returns the name and the reason, without the hint.
func (e *Error) Error() string { return "artifact: " + e.Ref + ": " + e.Reason }

// Advice implements [hint.Hinted].
func (e *Error) Advice() string { return e.Hint }

const (
	schemeOCI    = "oci://"
	schemeDocker = "docker://" // as other tools write oci://
	schemeLayout = "oci-layout:"
	schemeHTTPS  = "https://"
)

// name is a parsed name of a module that is not a file or folder.
type name struct {
	ref    string
	scheme string
	at     string // the repository with its registry, the folder of a layout, or the URL
	tag    string
	digest string // sha256:HEX, or empty
}

var (
	digestForm = lazy.Regexp(`^sha256:[0-9a-f]{64}$`)
	tagForm    = lazy.Regexp(`^[A-Za-z0-9_][A-Za-z0-9._-]{0,127}$`)
	imageForm  = lazy.Regexp(`^(?:[A-Za-z0-9-]+(?:\.[A-Za-z0-9-]+)+|localhost)(?::[0-9]+)?/[^:@]+(?::[^/:@]+)?(?:@sha256:[0-9a-f]{64})?$`)
)

// full returns a name of an image as docker takes it, docker://HOST/NAME:TAG or HOST/NAME:TAG, with the scheme of
// this package. It returns any other name as it is.
func full(ref string) string {
	if image, ok := strings.CutPrefix(ref, schemeDocker); ok {
		return schemeOCI + image
	}
	if imageForm().MatchString(ref) && strings.ContainsAny(ref[strings.LastIndex(ref, "/"):], ":@") {
		return schemeOCI + ref
	}
	return ref
}

// IsRemote reports whether a name is that of a module in a registry, in a layout folder or at an
// address, and not a path.
func IsRemote(ref string) bool {
	ref = full(ref)
	return strings.HasPrefix(ref, schemeOCI) || strings.HasPrefix(ref, schemeLayout) || strings.HasPrefix(ref, schemeHTTPS) || strings.HasPrefix(ref, "http://")
}

// IsDigest reports whether a name is the digest of a module.
func IsDigest(ref string) bool {
	digest, err := hex.DecodeString(ref)
	return err == nil && len(digest) == 32
}

// parse reads a name for which IsRemote is true.
func parse(ref string) (name, error) {
	ref = full(ref)
	n := name{ref: ref}
	wrong := func(reason, hint string) (name, error) { return n, &Error{Ref: ref, Reason: reason, Hint: hint} }
	rest := ref
	if i := strings.LastIndex(ref, "@"); i >= 0 && (!strings.HasPrefix(ref, schemeHTTPS) || strings.HasPrefix(ref[i:], "@sha256:")) {
		rest, n.digest = ref[:i], ref[i+1:]
		if !digestForm().MatchString(n.digest) {
			return wrong("the part behind @ is not a digest, sha256: and 64 small hexadecimal digits", "")
		}
	}
	switch {
	case strings.HasPrefix(rest, schemeOCI):
		n.scheme, n.at = schemeOCI, strings.TrimPrefix(rest, schemeOCI)
		if i := strings.LastIndex(n.at, ":"); i > strings.LastIndex(n.at, "/") {
			n.at, n.tag = n.at[:i], n.at[i+1:]
		}
		if parsed, err := registry.ParseReference(n.at); err != nil || parsed.Reference != "" {
			return wrong("want oci://REGISTRY/NAME:TAG", "for example oci://registry.example.com/tools/dice:1.0")
		}
	case strings.HasPrefix(rest, schemeLayout):
		n.scheme, n.at = schemeLayout, strings.TrimPrefix(rest, schemeLayout)
		if i := strings.LastIndex(n.at, ":"); i > 1 && tagForm().MatchString(n.at[i+1:]) { // C:\ is a drive
			n.at, n.tag = n.at[:i], n.at[i+1:]
		}
		if n.at == "" {
			return wrong("want oci-layout:FOLDER:TAG", "for example oci-layout:./tools:1.0")
		}
	case strings.HasPrefix(rest, schemeHTTPS):
		n.scheme, n.at = schemeHTTPS, rest
		if u, err := url.Parse(rest); err != nil || u.Host == "" || u.User != nil || u.Fragment != "" {
			return wrong("this is not the URL of a file, https://HOST/FILE.wasm", "")
		}
		return n, nil
	case imageForm().MatchString(rest):
		return wrong("this name has no scheme", "did you mean oci://"+ref)
	case !strings.HasPrefix(rest, "http://"):
		return wrong("this is not the name of a tool elsewhere", "want oci://REGISTRY/NAME:TAG, oci-layout:FOLDER:TAG or https://HOST/FILE.wasm")
	default:
		return wrong("a tool is not fetched over plain http", "the tools of an MCP server are called through: starling-host mcp --server NAME="+ref)
	}
	if n.tag == "" && n.digest == "" {
		n.tag = "latest"
	}
	if n.tag != "" && !tagForm().MatchString(n.tag) {
		return wrong("the tag is not 1 to 128 letters, digits, _, . and -", "")
	}
	return n, nil
}

// key is the name in the lock file and in the index of the cache, without a digest.
func (n name) key() string {
	switch {
	case n.scheme == schemeHTTPS:
		return n.at
	case n.tag == "":
		return n.scheme + n.at
	}
	return n.scheme + n.at + ":" + n.tag
}

// pinned is the name with its digest.
func (n name) pinned(digest string) string { return n.key() + "@" + digest }

// said is the name for signatures and trust files: without scheme, tag and .wasm.
func (n name) said() string {
	return strings.TrimSuffix(strings.TrimPrefix(filepath.ToSlash(n.at), schemeHTTPS), ".wasm")
}

// base is the name of the module.
func (n name) base() string {
	said := n.said()
	if n.scheme == schemeLayout && n.tag != "" {
		said = n.tag
	}
	return said[strings.LastIndex(said, "/")+1:]
}

// loopback reports whether a host, perhaps with a port, is this machine.
func loopback(host string) bool {
	if h, _, err := net.SplitHostPort(host); err == nil {
		host = h
	}
	ip := net.ParseIP(strings.Trim(host, "[]"))
	return host == "localhost" || ip != nil && ip.IsLoopback()
}

// SignedName returns the name under which a remote tool is signed: its repository or URL, without
// scheme, tag and .wasm.
func SignedName(ref string) string {
	n, _ := parse(ref)
	return n.said()
}
