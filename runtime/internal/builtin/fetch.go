package builtin

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/url"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/starling-host/starling/abi"
	"github.com/starling-host/starling/eventlog/event"
	"github.com/starling-host/starling/runtime/egress"
	"github.com/starling-host/starling/runtime/step"
	"github.com/starling-host/starling/runtime/tool"
)

// The bounds of one fetch.
const (
	fetchTimeout   = 15 * time.Second
	fetchBytes     = 1 << 20
	fetchRedirects = 5
)

type fetchInput struct {
	URL string `json:"url" jsonschema:"description=The http or https URL to get"`
}

type fetchOutput struct {
	URL         string `json:"url"` // after redirects
	Status      int    `json:"status"`
	ContentType string `json:"content_type,omitempty"`
	Body        string `json:"body"`
}

// Fetch returns the tool "fetch", which gets a URL with GET and answers with
// status, content type and text. It reaches public addresses only, follows up to
// five redirects, each under the same rules, and takes at most 15 seconds and
// 1 MiB. Where the context has an [egress.Decider], that must allow each request as well. A body that is not UTF-8 text is an error.
func Fetch() tool.Tool {
	anywhere, err := egress.ParseRule("*")
	if err != nil {
		panic(err) // the rule is a constant
	}
	return fetchWith(egress.New(egress.Config{
		Authorize: egress.Rules{Allow: []egress.Rule{anywhere}}, Timeout: fetchTimeout, MaxResponseBytes: fetchBytes,
	}))
}

// fetched is the record of a fetch: the tool's result, and the verdicts on
// it.
type fetched struct {
	fetchOutput
	Decision event.Verdicts `json:"decision,omitempty"`
}

func fetchWith(client *egress.Client) tool.Tool {
	return tool.WithSource(tool.Typed("fetch", "Get a public web page or API resource by URL. Answers with status, content type and text.",
		func(ctx context.Context, in fetchInput) (fetchOutput, error) {
			client, decided := decidedBy(ctx, client)
			effect := step.Effect{Name: "fetch", Request: []byte(in.URL)}
			out, err := step.Do(ctx, effect, func(ctx context.Context, _ string) (fetched, error) {
				ctx, cancel := context.WithTimeout(ctx, fetchTimeout)
				defer cancel()
				out, err := fetch(ctx, client, in.URL)
				return fetched{out, decided()}, err
			})
			return out.fetchOutput, err
		}), sourcePrefix+"fetch")
}

// decidedBy returns the client under the decider of the context, if it has one.
func decidedBy(ctx context.Context, client *egress.Client) (*egress.Client, func() event.Verdicts) {
	d := egress.DeciderOf(ctx)
	if d == nil {
		return client, func() event.Verdicts { return nil }
	}
	call, _ := step.CallInfo(ctx)
	authorizer, decided := d.Decide(call.Tool)
	return client.And(authorizer), decided
}

// fetch follows redirects; every hop is a request of its own, which the
// client decides about.
func fetch(ctx context.Context, client *egress.Client, target string) (fetchOutput, error) {
	for range fetchRedirects + 1 {
		raw, err := client.Do(ctx, &egress.Request{Method: "GET", URL: target}, "")
		if err != nil {
			return fetchOutput{}, classify(err)
		}
		response, err := egress.ParseResponse("GET", raw)
		if err != nil {
			return fetchOutput{}, err
		}
		location := response.Header.Get("Location")
		switch {
		case location != "" && slices.Contains(redirects, response.Status):
		case !utf8.Valid(response.Body):
			return fetchOutput{}, fmt.Errorf("fetch: the body is %d bytes of something that is not UTF-8 text", len(response.Body))
		default:
			return fetchOutput{URL: target, Status: response.Status, ContentType: response.Header.Get("Content-Type"), Body: string(response.Body)}, nil
		}
		if target, err = resolve(target, location); err != nil {
			return fetchOutput{}, err
		}
	}
	return fetchOutput{}, fmt.Errorf("fetch: more than %d redirects", fetchRedirects)
}

// classify marks what may be over the next time, and what never will.
func classify(err error) error {
	failure := (*egress.Error)(nil)
	switch {
	case !errors.As(err, &failure):
		return err
	case failure.Transient():
		return fmt.Errorf("%w: %w", err, tool.ErrTransient)
	case failure.Status == abi.StatusDenied, failure.Status == abi.StatusMalformed:
		return tool.ToolDiscard(err)
	}
	return err
}

// redirects are the statuses whose header Location is followed.
var redirects = []int{301, 302, 303, 307, 308}

func resolve(base, location string) (string, error) {
	from, err := url.Parse(base)
	if err != nil {
		return "", fmt.Errorf("fetch: %w", err)
	}
	to, err := from.Parse(location)
	if err != nil {
		return "", fmt.Errorf("fetch: redirect to %q: %w", location, err)
	}
	to.Fragment = ""
	next := egress.Request{Method: "GET", URL: to.String()}
	if access, err := next.Access(); err == nil && len(access.Secrets) > 0 {
		// the server would choose where the secret is sent, and for what
		return "", tool.ToolDiscard(errors.New("fetch: a redirect to an address with the placeholder of a secret is not followed"))
	}
	return next.URL, nil
}

// maxFileBytes bounds a file that ReadFile reads.
const maxFileBytes = 1 << 20

type readInput struct {
	Path string `json:"path" jsonschema:"description=Path of the file, relative to the folder"`
}

type readOutput struct {
	Content string `json:"content"`
}

// ReadFile returns the tool "read_file", which reads text files of at most 1
// MiB below baseDir. It refuses absolute paths, "..", and symbolic links that
// lead out of the folder. The error is from opening baseDir.
//
// The folder stays open as long as the tool is in use.
func ReadFile(baseDir string) (tool.Tool, error) {
	root, err := os.OpenRoot(baseDir)
	if err != nil {
		return nil, fmt.Errorf("builtin: %w", err)
	}
	return readFile(root), nil
}

func readFile(root *os.Root) tool.Tool {
	return tool.WithSource(tool.Typed("read_file", "Read a text file.", func(ctx context.Context, in readInput) (readOutput, error) {
		effect := step.Effect{Name: "read_file", Request: []byte(in.Path)}
		return step.Do(ctx, effect, func(context.Context, string) (readOutput, error) { return read(root, in.Path) })
	}), sourcePrefix+"read_file")
}

func read(root *os.Root, path string) (readOutput, error) {
	if !filepath.IsLocal(path) || slices.Contains(strings.Split(filepath.ToSlash(path), "/"), "..") {
		return readOutput{}, tool.ToolDiscard(fmt.Errorf("read_file: %q is not a path below the folder", path))
	}
	info, err := root.Stat(path)
	if err != nil {
		return readOutput{}, plain(err)
	}
	if !info.Mode().IsRegular() {
		return readOutput{}, fmt.Errorf("read_file: %q is not a file", path)
	}
	f, err := root.Open(path)
	if err != nil {
		return readOutput{}, plain(err)
	}
	defer f.Close()
	content, err := io.ReadAll(io.LimitReader(f, maxFileBytes+1))
	switch {
	case err != nil:
		return readOutput{}, plain(err)
	case len(content) > maxFileBytes:
		return readOutput{}, fmt.Errorf("read_file: %q has more than %d bytes", path, maxFileBytes)
	case !utf8.Valid(content):
		return readOutput{}, fmt.Errorf("read_file: %q is not UTF-8 text", path)
	}
	return readOutput{string(content)}, nil
}

// plain leaves out where the folder is: that is the operator's business.
func plain(err error) error {
	if at, ok := errors.AsType[*os.PathError](err); ok {
		return fmt.Errorf("read_file: %q: %w", filepath.Base(at.Path), at.Err)
	}
	return err
}

// sourcePrefix is the beginning of the recorded source of these tools, see [tool.Sourced].
const sourcePrefix = "builtin:"

// Offline returns the tool of a recorded source for a replay, which neither
// fetches nor reads, and false if no tool here has that source.
func Offline(source string) (tool.Tool, bool) {
	switch name, _ := strings.CutPrefix(source, sourcePrefix); name {
	case "fetch":
		return Fetch(), true
	case "read_file":
		return readFile(nil), true
	case tool.SearchName:
		return Search(), true
	}
	return nil, false
}

// Search is [tool.Search], whose answers are recorded: a replay has not the tools that
// were searched.
func Search(tools ...tool.Tool) tool.Tool {
	recorded := tool.Wrap(tool.Search(tools...), func(search func(context.Context, json.RawMessage) (json.RawMessage, error)) func(context.Context, json.RawMessage) (json.RawMessage, error) {
		return func(ctx context.Context, input json.RawMessage) (json.RawMessage, error) {
			return step.SideEffect(ctx, tool.SearchName, func() (json.RawMessage, error) { return search(ctx, input) })
		}
	})
	return tool.WithSource(recorded, sourcePrefix+tool.SearchName)
}
