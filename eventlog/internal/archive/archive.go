package archive

import (
	"bufio"
	"context"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"hash"
	"io"

	"github.com/starling-host/starling/eventlog"
	"github.com/starling-host/starling/eventlog/canon"
	"github.com/starling-host/starling/eventlog/event"
	"github.com/starling-host/starling/internal/work"
	"github.com/starling-host/starling/internal/workspace"
	"github.com/starling-host/starling/internal/zstd"
)

// Error names the line of an archive that is wrong. It is [eventlog.ErrLogCorrupt].
type Error struct {
	Line int // from 1
	Err  error
}

// Error names the line and the reason.
func (e *Error) Error() string { return fmt.Sprintf("archive: line %d: %v", e.Line, e.Err) }

// Unwrap returns the reason, and [eventlog.ErrLogCorrupt].
func (e *Error) Unwrap() []error { return []error{e.Err, eventlog.ErrLogCorrupt} }

// Check reads a whole archive and checks that every line and every run is valid and that nothing is
// missing. An [*Error] describes the first fault. It also returns the runs in the archive.
func Check(ctx context.Context, r io.Reader) (Report, Heads, error) { return read(ctx, r, nothing{}) }

// visitor receives the content of an archive.
type visitor interface {
	module(wasm []byte) error
	content(c eventlog.Content) error
	event(e event.Event) error
	// end comes after the events of a run.
	end(last event.Event) error
}

type nothing struct{}

func (nothing) module([]byte) error            { return nil }
func (nothing) content(eventlog.Content) error { return nil }
func (nothing) event(event.Event) error        { return nil }
func (nothing) end(event.Event) error          { return nil }

// reader is the state of reading an archive.
type reader struct {
	to      visitor
	work    *work.Budget // grows with the bytes that are read
	hash    hash.Hash    // of the lines before this one
	n       int          // lines
	report  Report
	ended   bool // the last line was read
	modules map[canon.Hash]bool
	sizes   map[canon.Hash]uint64 // of the files and folders
	folders map[canon.Hash]bool
	runs    Heads // of the runs that began; no hash yet for the one being read

	check *eventlog.Checker // for the run being read, if any
	last  event.Event
}

// read passes checked content to the visitor. It returns an error of the visitor unchanged.
func read(ctx context.Context, in io.Reader, to visitor) (Report, Heads, error) {
	r := &reader{to: to, work: work.For(ctx, 0), hash: canon.NewHash(), modules: make(map[canon.Hash]bool), sizes: make(map[canon.Hash]uint64), folders: make(map[canon.Hash]bool), runs: Heads{}}
	lines := bufio.NewReaderSize(in, 64<<10)
	if head, _ := lines.Peek(4); zstd.Is(head) {
		frames, err := zstd.NewReader(lines)
		if err != nil {
			return r.report, nil, err
		}
		defer frames.Close()
		lines = bufio.NewReaderSize(unpacked{frames}, 64<<10)
	}
	for {
		text, err := r.readLine(lines)
		if err == io.EOF {
			return r.report, r.runs, r.finish()
		}
		r.n++
		if errors.Is(err, errNoLine) {
			err = r.wrong("%w", err)
		}
		if err == nil {
			err = r.line(text)
		}
		if err != nil {
			return r.report, nil, err
		}
		r.hash.Write(text)
		r.hash.Write([]byte{'\n'})
		r.work.Release(heldPerByte * (len(text) + 1))
	}
}

// errNoLine means that there are bytes that do not form a line.
var errNoLine = errors.New("the line is too long, or is cut off")

// heldPerByte is what is held of each byte of a line: the line, what it says, and how it must be written.
const heldPerByte = 4

// readLine returns the next line without its line feed, and holds it; io.EOF after the last.
func (r *reader) readLine(in *bufio.Reader) ([]byte, error) {
	var text []byte
	for {
		part, err := in.ReadSlice('\n')
		r.work.Feed(len(part))
		if spent := r.work.Hold(heldPerByte * len(part)); spent != nil {
			return nil, spent
		}
		text = append(text, part...)
		switch {
		case len(text) > maxLine, err == io.EOF && len(text) > 0:
			return nil, errNoLine
		case err == nil:
			return text[:len(text)-1], nil
		case err != bufio.ErrBufferFull:
			return nil, err
		}
	}
}

// wrong is an error in the line that is being read.
func (r *reader) wrong(format string, args ...any) error {
	return &Error{Line: r.n, Err: fmt.Errorf(format, args...)}
}

func (r *reader) line(text []byte) error {
	l, err := r.parse(text)
	switch {
	case err != nil:
		return r.wrong("%w", err)
	case r.ended:
		return r.wrong("there is data after the last line")
	case (r.n == 1) != (l.Archive != nil):
		return r.wrong("the first line, and no other, is %s", firstLine())
	case l.Archive != nil:
		return r.same(text, firstLine())
	case l.Module != nil:
		return r.module(text, l.Wasm)
	case l.File != nil || l.Folder != nil:
		return r.content(text, l.Bytes, l.Folder != nil)
	case l.Envelope != nil:
		return r.event(text)
	}
	if err := r.endRun(); err != nil {
		return err
	}
	r.ended = true
	return r.same(text, lastLine(r.report, canon.Hash(r.hash.Sum(nil))))
}

// same requires the line to be spelled as this package writes it.
func (r *reader) same(text, want []byte) error {
	if err := event.SameLine(text, want); err != nil {
		return r.wrong("%w", err)
	}
	return nil
}

func (r *reader) module(text, wasm []byte) error {
	if err := r.endRun(); err != nil {
		return err
	}
	digest := canon.Sum(wasm)
	if err := r.same(text, moduleLine(digest, wasm)); err != nil {
		return err
	}
	if r.modules[digest] {
		return r.wrong("the module %v is repeated", digest)
	}
	r.modules[digest] = true
	r.report.Modules++
	return r.to.module(wasm)
}

// content reads a file or a folder. What a folder lists stands before it, so what stands before an event is
// whole.
func (r *reader) content(text, content []byte, folder bool) error {
	digest := canon.Sum(content)
	if err := r.same(text, contentLine(digest, content, folder)); err != nil {
		return err
	}
	_, known := r.sizes[digest]
	if !folder && known || r.folders[digest] {
		return r.wrong("the content %v is repeated", digest)
	}
	c := eventlog.Content{Bytes: content}
	if folder {
		entries, err := workspace.Decode(content)
		if err != nil {
			return r.wrong("%w", err)
		}
		for _, e := range entries {
			size, there := r.sizes[e.Digest]
			if isFolder := e.Kind == workspace.Folder; !there || isFolder && !r.folders[e.Digest] || !isFolder && size != e.Size {
				return r.wrong("the folder %v lists the %s %.100q with %d bytes, %v, which is not before it", digest, e.Kind, e.Name, e.Size, e.Digest)
			}
			c.Uses = append(c.Uses, e.Digest)
		}
		if err := r.work.Spend(len(entries)); err != nil {
			return err
		}
		r.folders[digest] = true
	}
	if err := r.work.Hold(128); err != nil {
		return err
	}
	r.sizes[digest] = uint64(len(content))
	r.report.Files++
	return r.to.content(c)
}

func (r *reader) event(text []byte) error {
	e, err := event.FromJSON(text)
	if err != nil {
		return r.wrong("%w", err)
	}
	if r.check == nil || e.RunID != r.last.RunID {
		if err := r.beginRun(e); err != nil {
			return err
		}
	}
	if err := r.check.Add(e); err != nil {
		return r.wrong("%w", err)
	}
	modules, roots, err := needs(e)
	if err != nil {
		return r.wrong("%w", err)
	}
	for _, digest := range modules {
		if !r.modules[digest] {
			return r.wrong("run %q names module %v, which is not before it", e.RunID, digest)
		}
	}
	for _, root := range roots {
		if !r.folders[root] {
			return r.wrong("run %q names files with the root %v, which is not before it", e.RunID, root)
		}
	}
	r.last = e
	r.report.Events++
	return r.to.event(e)
}

func (r *reader) beginRun(first event.Event) error {
	if err := r.endRun(); err != nil {
		return err
	}
	if _, ok := r.runs[first.RunID]; ok {
		return r.wrong("run %q is repeated", first.RunID)
	}
	if err := r.work.Hold(2*len(first.RunID) + 128); err != nil {
		return err
	}
	r.runs[first.RunID] = canon.Hash{}
	r.check = eventlog.NewChecker(eventlog.CheckOptions{Strict: true, AllowOpen: true})
	return nil
}

// endRun ends the run being read, if any.
func (r *reader) endRun() error {
	if r.check == nil {
		return nil
	}
	run, err := r.check.Finish()
	r.check = nil
	if err != nil {
		return r.wrong("%w", err)
	}
	r.report.add(run)
	r.runs[r.last.RunID] = run.Head
	return r.to.end(r.last)
}

func (r *reader) finish() error {
	if r.ended {
		return nil
	}
	r.n++
	return r.wrong("the last line of an archive is missing: the file was cut off, or is not an archive")
}

// Format is the name of the format that this package writes and reads.
const Format = "starling-host/1"

// maxLine bounds a line: the largest payload in hexadecimal, and once more with
// every character of it escaped.
const maxLine = 10*eventlog.MaxPayloadBytes + 1<<20

// Report describes the content of an archive.
type Report struct {
	Runs, Events, Modules int
	Files                 int // contents of files and folders
	Encrypted             int // encrypted runs, whose keys, modules and files are not in the archive
	Known                 int // runs that [Import] found in the log with all events of the archive
}

// add counts a run that was checked.
func (r *Report) add(run eventlog.Report) {
	r.Runs++
	if run.Encrypted > 0 {
		r.Encrypted++
	}
}

func firstLine() []byte { return []byte(`{"archive":"` + Format + `"}`) }

func moduleLine(digest canon.Hash, wasm []byte) []byte {
	line := fmt.Appendf(make([]byte, 0, 2*len(wasm)), `{"module":"%v","wasm":"`, digest)
	return append(base64.StdEncoding.AppendEncode(line, wasm), `"}`...)
}

func contentLine(digest canon.Hash, content []byte, folder bool) []byte {
	kind := "file"
	if folder {
		kind = "folder"
	}
	line := fmt.Appendf(make([]byte, 0, 2*len(content)+100), `{"%s":"%v","bytes":"`, kind, digest)
	return append(base64.StdEncoding.AppendEncode(line, content), `"}`...)
}

func lastLine(r Report, hash canon.Hash) []byte {
	files := ""
	if r.Files > 0 {
		files = fmt.Sprintf(`"files":%d,`, r.Files)
	}
	return fmt.Appendf(nil, `{"events":%d,%s"hash":"%v","modules":%d,"runs":%d}`, r.Events, files, hash, r.Modules, r.Runs)
}

// line is any line of an archive. Which one it is, its first key tells.
type line struct {
	Archive  *string `json:"archive"`
	Module   *string `json:"module"`
	Wasm     []byte  `json:"wasm"`
	File     *string `json:"file"`
	Folder   *string `json:"folder"`
	Bytes    []byte  `json:"bytes"`
	Envelope *string `json:"envelope"`
	Events   *int    `json:"events"`
}

// parse parses a line far enough to write it again.
func (r *reader) parse(text []byte) (l line, err error) {
	if err := r.work.Spend(1 + len(text)/64); err != nil {
		return l, err
	}
	if err := json.Unmarshal(text, &l); err != nil {
		return l, fmt.Errorf("no line of an archive: %w", err)
	}
	if l.Archive == nil && l.Module == nil && l.File == nil && l.Folder == nil && l.Envelope == nil && l.Events == nil {
		return l, errors.New("a line that is neither an event nor a module nor a file")
	}
	return l, nil
}

// needs returns what an event names. An encrypted run does not show it.
func needs(e event.Event) (modules, roots []canon.Hash, err error) {
	if modules, roots, err = e.Needs(); errors.Is(err, event.ErrEncrypted) {
		err = nil
	}
	return modules, roots, err
}

// Log is a log that runs can be archived from, or imported to.
type Log interface {
	eventlog.EventLog
	eventlog.ModuleStore
	Import(ctx context.Context, ev event.Event) error // see [eventlog.Store]
}

// Write writes the runs that o selects, with the modules and files that they name: the runs
// that pruning with the same options removes. DryRun has no meaning here. It stops
// at an invalid run, or a run that lacks a module, with an error that names it;
// the output so far is not a valid archive.
func Write(ctx context.Context, w io.Writer, log Log, o eventlog.PruneOptions) (Report, error) {
	if err := o.Valid(); err != nil {
		return Report{}, err
	}
	runs, err := log.ListRuns(ctx)
	if err != nil {
		return Report{}, err
	}
	out := &writer{log: log, out: bufio.NewWriterSize(w, 1<<20), hash: canon.NewHash()}
	out.line(firstLine())
	for _, s := range o.Select(runs) {
		if err := out.run(ctx, s); err != nil {
			return out.report, err
		}
	}
	out.line(lastLine(out.report, canon.Hash(out.hash.Sum(nil))))
	return out.report, out.out.Flush()
}

type writer struct {
	log    Log
	out    *bufio.Writer
	hash   hash.Hash // of all output
	needs  eventlog.Needs
	report Report
}

// line writes a line. An error stays in the writer until Flush.
func (w *writer) line(text []byte) {
	both := io.MultiWriter(w.out, w.hash)
	_, _ = both.Write(text)
	_, _ = both.Write([]byte{'\n'})
}

func (w *writer) run(ctx context.Context, s eventlog.RunSummary) error {
	check := eventlog.NewChecker(eventlog.CheckOptions{Strict: true, AllowOpen: s.TerminalKind == 0})
	for e, err := range w.log.Events(ctx, s.RunID, 0) {
		if err == nil {
			err = check.Add(e)
		}
		if err == nil {
			err = w.needsOf(ctx, e)
		}
		if err == nil {
			err = w.event(e)
		}
		if err != nil {
			return err
		}
	}
	r, err := check.Finish()
	if err != nil {
		return err
	}
	if s.TerminalKind != 0 && s.Head != (canon.Hash{}) && s.Head != r.Head {
		return &eventlog.CorruptError{RunID: s.RunID, Seq: r.Events, Kind: r.Terminal, Invariant: "head",
			Reason: fmt.Sprintf("the event has hash %v, the log keeps %v", r.Head, s.Head)}
	}
	w.report.add(r)
	return nil
}

func (w *writer) event(e event.Event) error {
	text, err := event.ToJSON(e)
	if err != nil {
		return err
	}
	w.line(text)
	w.report.Events++
	return nil
}

// needsOf writes the modules and files that an event names, unless they were written before.
func (w *writer) needsOf(ctx context.Context, e event.Event) error {
	err := w.needs.Of(ctx, e, w.log, func(n eventlog.Need) error {
		if n.Module {
			w.line(moduleLine(n.Digest, n.Bytes))
			w.report.Modules++
		} else {
			w.line(contentLine(n.Digest, n.Bytes, n.Folder))
			w.report.Files++
		}
		return nil
	})
	if errors.Is(err, event.ErrEncrypted) {
		err = nil
	}
	return err
}
