package seal

import (
	"bytes"
	"context"
	_ "embed"
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"hash/crc32"
	"maps"
	"math"
	"slices"
	"strconv"
	"strings"

	"github.com/starling-host/starling/eventlog"
	"github.com/starling-host/starling/eventlog/canon"
	"github.com/starling-host/starling/eventlog/event"
	"github.com/starling-host/starling/internal/work"
)

// Bundle is runs with everything that is needed to check them offline (spec/bundle.md).
type Bundle struct {
	Runs     [][]event.Event // each of them whole, or open
	Modules  map[canon.Hash][]byte
	Files    map[canon.Hash][]byte // the contents of the files of calls, and of their folders
	Proofs   []Proof               // one for each run, or empty
	Receipts []byte                // of the calls, one a line, see package receipt; or empty

	needs eventlog.Needs // of the runs that were added
	work  *work.Budget   // of the reading that opened it; nil for a bundle that was made here
}

// Work returns the budget of whatever reads the bundle: the one of [OpenBundle], or a budget without
// limits for a bundle that this program made.
func (b Bundle) Work() *work.Budget {
	if b.work == nil {
		return work.Trusted(context.Background())
	}
	return b.work
}

// Add adds a run, with the modules and files that it names and that the bundle lacks. It is
// [event.ErrEncrypted] if the run is encrypted: it is added, and what it names is not known.
func (b *Bundle) Add(ctx context.Context, events []event.Event, modules eventlog.ModuleReader) (err error) {
	b.Runs = append(b.Runs, events)
	if b.Modules == nil {
		b.Modules = map[canon.Hash][]byte{}
	}
	if b.Files == nil {
		b.Files = map[canon.Hash][]byte{}
	}
	for _, e := range events {
		if err == nil {
			err = b.needs.Of(ctx, e, modules, func(n eventlog.Need) error {
				b.parts(n.Module)[n.Digest] = n.Bytes
				return nil
			})
		}
	}
	return err
}

// parts returns the modules, or the files.
func (b *Bundle) parts(modules bool) map[canon.Hash][]byte {
	if modules {
		return b.Modules
	}
	return b.Files
}

// Module implements [eventlog.ModuleReader]. It has the files, too.
func (b Bundle) Module(_ context.Context, digest canon.Hash) ([]byte, error) {
	for _, parts := range []map[canon.Hash][]byte{b.Modules, b.Files} {
		if content, ok := parts[digest]; ok {
			return content, nil
		}
	}
	return nil, fmt.Errorf("%w: %v", eventlog.ErrModuleNotFound, digest)
}

// Bounds of a bundle.
const (
	MaxBundleRuns  = 10_000
	MaxBundleBytes = 1 << 30 // of the file, which is in memory
)

const bundleFormat = "starling-bundle/1"

//go:embed bundle-readme.txt
var bundleReadme []byte

// Certificate sums up the content of a bundle. It follows from the rest.
type Certificate struct {
	Format     string              `json:"format"`
	Runs       []RunFacts          `json:"runs"`
	Modules    []ModuleFacts       `json:"modules"`
	Files      []ModuleFacts       `json:"files,omitempty"`
	Checkpoint *CheckpointDocument `json:"checkpoint"`
}

// RunFacts are the facts of a run in a [Certificate].
type RunFacts struct {
	RunID      string   `json:"run_id"`
	Events     uint64   `json:"events"`
	Status     string   `json:"status"`
	First      string   `json:"first"` // nanoseconds since 1970
	Last       string   `json:"last"`
	Encrypted  bool     `json:"encrypted"`
	MerkleRoot string   `json:"merkle_root"`
	LastHash   string   `json:"last_hash"`
	Modules    []string `json:"modules"`
}

// ModuleFacts are the facts of a module, or of a file or folder, in a [Certificate].
type ModuleFacts struct {
	Digest string `json:"digest"`
	Bytes  int    `json:"bytes"`
}

// CheckpointDocument is a checkpoint in documents.
type CheckpointDocument struct {
	Origin string `json:"origin"`
	Leaves int64  `json:"leaves"`
	Root   string `json:"root"` // base64
}

// Document returns the checkpoint for documents.
func (c Checkpoint) Document() *CheckpointDocument {
	return &CheckpointDocument{c.Origin, c.Leaves, c.Root.String()}
}

// Certificate checks the runs, the modules, the files and that they fit together, and returns a
// summary of the bundle. An error names the run, the module or the file. It does not check proofs.
func (b Bundle) Certificate() (Certificate, error) {
	c := Certificate{Format: bundleFormat, Runs: []RunFacts{}, Modules: []ModuleFacts{}}
	seen, needs := map[string]bool{}, eventlog.Needs{}
	named := map[bool]map[canon.Hash]bool{true: {}, false: {}} // modules, and files
	if len(b.Runs) == 0 || len(b.Runs) > MaxBundleRuns {
		return c, fmt.Errorf("seal: a bundle of %d runs; it has at least one and at most %d", len(b.Runs), MaxBundleRuns)
	}
	for _, events := range b.Runs {
		if err := b.Work().Spend(len(events)); err != nil {
			return c, err
		}
		r, err := eventlog.Check(events, eventlog.CheckOptions{Strict: true, AllowOpen: len(b.Proofs) == 0})
		if err != nil {
			return c, err
		}
		first, last := events[0], events[len(events)-1]
		if seen[first.RunID] {
			return c, fmt.Errorf("seal: run %q is in the bundle twice", first.RunID)
		}
		seen[first.RunID] = true
		digests, err := first.Modules()
		if err != nil && !errors.Is(err, event.ErrEncrypted) {
			return c, fmt.Errorf("seal: run %q: %w", first.RunID, err)
		}
		texts := []string{}
		if err := b.Work().Spend(len(digests)); err != nil {
			return c, err
		}
		for _, d := range digests {
			if _, ok := b.Modules[d]; !ok {
				return c, fmt.Errorf("seal: run %q names the module %v, which is not in the bundle", first.RunID, d)
			}
			texts = append(texts, d.String())
		}
		slices.Sort(texts)
		for _, e := range events {
			if err != nil {
				break // the run is encrypted
			}
			err := needs.Of(context.Background(), e, b, func(n eventlog.Need) error {
				if _, ok := b.parts(n.Module)[n.Digest]; !ok {
					return fmt.Errorf("%w among the files: %v", eventlog.ErrModuleNotFound, n.Digest)
				}
				named[n.Module][n.Digest] = true
				return b.Work().Spend(1 + len(n.Uses))
			})
			if err != nil {
				return c, fmt.Errorf("seal: %w", err)
			}
		}
		c.Runs = append(c.Runs, RunFacts{
			RunID: first.RunID, Events: r.Events, Status: eventlog.RunSummary{TerminalKind: r.Terminal}.Status(),
			First: strconv.FormatInt(first.Timestamp, 10), Last: strconv.FormatInt(last.Timestamp, 10),
			Encrypted: r.Encrypted > 0, MerkleRoot: r.Root.String(), LastHash: r.Head.String(), Modules: slices.Compact(texts),
		})
	}
	for _, part := range []struct {
		what    string
		modules bool
		facts   *[]ModuleFacts
	}{{"module", true, &c.Modules}, {"file", false, &c.Files}} {
		parts := b.parts(part.modules)
		for _, d := range ascending(parts) {
			if !named[part.modules][d] {
				return c, fmt.Errorf("seal: no run names the %s %v", part.what, d)
			}
			if sum := canon.Sum(parts[d]); sum != d {
				return c, fmt.Errorf("seal: the %s %v was changed: its digest is %v", part.what, d, sum)
			}
			*part.facts = append(*part.facts, ModuleFacts{d.String(), len(parts[d])})
		}
	}
	if len(b.Proofs) > 0 {
		if len(b.Proofs) != len(b.Runs) {
			return c, fmt.Errorf("seal: %d proofs of %d runs", len(b.Proofs), len(b.Runs))
		}
		for _, p := range b.Proofs {
			if !bytes.Equal(p.Checkpoint, b.Proofs[0].Checkpoint) {
				return c, errors.New("seal: the proofs of the bundle have different checkpoints")
			}
		}
		checkpoint, err := ParseCheckpoint(b.Proofs[0].Checkpoint)
		if err != nil {
			return c, err
		}
		c.Checkpoint = checkpoint.Document()
	}
	return c, nil
}

// ascending returns the digests of modules or files.
func ascending(parts map[canon.Hash][]byte) []canon.Hash {
	return slices.SortedFunc(maps.Keys(parts), func(x, y canon.Hash) int { return bytes.Compare(x[:], y[:]) })
}

// Leaf returns the leaf of the i-th run, which has ended.
func (b Bundle) Leaf(i int) (Leaf, error) {
	last := b.Runs[i][len(b.Runs[i])-1]
	envelope, err := event.Marshal(last)
	if err != nil {
		return Leaf{}, err
	}
	return LeafOf(last, event.Hash(envelope))
}

// CheckProofs checks the proof of each run, and the signatures of the checkpoint as the
// policy requires.
func (b Bundle) CheckProofs(policy *Policy) (c Checkpoint, signatures []Signature, err error) {
	for i, p := range b.Proofs {
		l, err := b.Leaf(i)
		if err == nil {
			err = b.Work().Spend(1 + len(p.Checkpoint)/64 + len(p.Hashes))
		}
		if err != nil {
			return c, nil, err
		}
		if i == 0 { // all have the same checkpoint
			c, signatures, err = p.Check(l, policy)
		} else {
			_, _, err = p.Check(l, nil)
		}
		if err != nil {
			return c, signatures, err
		}
	}
	return c, signatures, nil
}

// entry is a file in a bundle.
type entry struct {
	name    string
	content []byte
}

// Bytes returns the bundle as a file. It checks what [Bundle.Certificate] checks.
func (b Bundle) Bytes() ([]byte, error) {
	certificate, err := b.Certificate()
	if err != nil {
		return nil, err
	}
	doc, err := certificate.text()
	if err != nil {
		return nil, err
	}
	var runs bytes.Buffer
	for _, events := range b.Runs {
		for _, e := range events {
			line, err := event.ToJSON(e)
			if err != nil {
				return nil, err
			}
			runs.Write(line)
			runs.WriteByte('\n')
		}
	}
	all := []entry{{"README.txt", bundleReadme}, {"certificate.json", doc}, {"runs.ndjson", runs.Bytes()}}
	for _, modules := range []bool{true, false} {
		for _, d := range ascending(b.parts(modules)) {
			all = append(all, entry{partName(modules, d), b.parts(modules)[d]})
		}
	}
	for i, p := range b.Proofs {
		all = append(all, entry{proofName(i), p.Text()})
	}
	if len(b.Receipts) > 0 {
		all = append(all, entry{receiptsName, b.Receipts})
	}
	return archived(all)
}

const receiptsName = "receipts.ndjson"

// partName returns the name of the entry of a module, or of a file.
func partName(module bool, d canon.Hash) string {
	if module {
		return "modules/" + d.String() + ".wasm"
	}
	return "files/" + d.String()
}

func proofName(i int) string { return fmt.Sprintf("proofs/%d.tlog-proof", i+1) }

func (c Certificate) text() ([]byte, error) {
	doc, err := json.Marshal(c)
	if err == nil {
		doc, err = canon.JSON(doc)
	}
	return append(doc, '\n'), err
}

// OpenBundle reads a bundle and checks everything but the proofs and the receipts, as specified in
// spec/bundle.md. An error names the place of the first fault. The bundle keeps the bytes. All that
// is done with it may cost what its size allows, and ends with ctx.
func OpenBundle(ctx context.Context, file []byte) (Bundle, Certificate, error) {
	b := Bundle{Modules: map[canon.Hash][]byte{}, Files: map[canon.Hash][]byte{}, work: work.For(ctx, len(file))}
	entries, err := unarchived(b.work, file)
	if err != nil {
		return Bundle{}, Certificate{}, err
	}
	next := func(name string) ([]byte, error) {
		if len(entries) == 0 || entries[0].name != name {
			return nil, fmt.Errorf("seal: the bundle has no %s where it belongs", name)
		}
		content := entries[0].content
		entries = entries[1:]
		return content, nil
	}
	readme, err := next("README.txt")
	if err == nil {
		if err = event.SameLine(readme, bundleReadme); err != nil {
			err = fmt.Errorf("seal: README.txt: %w", err)
		}
	}
	var certificate, runs []byte
	if err == nil {
		certificate, err = next("certificate.json")
	}
	if err == nil {
		runs, err = next("runs.ndjson")
	}
	if err == nil {
		err = b.readRuns(runs)
	}
	for _, modules := range []bool{true, false} {
		folder, _, _ := strings.Cut(partName(modules, canon.Hash{}), "/")
		for last := ""; err == nil && len(entries) > 0 && strings.HasPrefix(entries[0].name, folder+"/"); entries = entries[1:] {
			name, sum := entries[0].name, canon.Sum(entries[0].content)
			switch {
			case name != partName(modules, sum):
				err = fmt.Errorf("seal: %s was changed: its digest is %v", name, sum)
			case name <= last:
				err = fmt.Errorf("seal: %s does not stand behind %s: %s ascend by digest", name, last, folder)
			}
			b.parts(modules)[sum], last = entries[0].content, name
		}
	}
	for i := 0; err == nil && len(entries) > 0 && entries[0].name != receiptsName; i++ {
		var text []byte
		var p Proof
		if text, err = next(proofName(i)); err == nil {
			if p, err = ParseProof(text); err != nil {
				err = fmt.Errorf("seal: %s: %s", proofName(i), plain(err))
			}
		}
		b.Proofs = append(b.Proofs, p)
	}
	if err == nil && len(entries) > 0 {
		if b.Receipts = entries[0].content; len(entries) > 1 || !bytes.HasSuffix(b.Receipts, []byte("\n")) {
			err = fmt.Errorf("seal: %s is empty or cut off, or not the last entry", receiptsName)
		}
	}
	if err != nil {
		return b, Certificate{}, err
	}
	facts, err := b.Certificate()
	if err != nil {
		return b, facts, err
	}
	doc, err := facts.text()
	if err == nil {
		if err = event.SameLine(certificate, doc); err != nil {
			err = fmt.Errorf("seal: certificate.json is not what follows from the rest: %w", err)
		}
	}
	return b, facts, err
}

// readRuns reads runs.ndjson.
func (b *Bundle) readRuns(text []byte) error {
	for n := 1; len(text) > 0; n++ {
		line, rest, ended := bytes.Cut(text, []byte("\n"))
		if !ended {
			return fmt.Errorf("seal: runs.ndjson: line %d is cut off", n)
		}
		text = rest
		if err := b.work.Spend(1 + len(line)/64); err != nil {
			return err
		}
		e, err := event.FromJSON(line)
		if err != nil {
			return fmt.Errorf("seal: runs.ndjson: line %d: %w", n, err)
		}
		last := len(b.Runs) - 1
		if last < 0 || b.Runs[last][0].RunID != e.RunID || e.Seq == 1 {
			if last+1 >= MaxBundleRuns {
				return fmt.Errorf("seal: runs.ndjson: line %d: more than %d runs", n, MaxBundleRuns)
			}
			b.Runs = append(b.Runs, nil)
			last++
		}
		b.Runs[last] = append(b.Runs[last], e)
	}
	return nil
}

const (
	localHeader   = "PK\x03\x04\x14\x00\x00\x00\x00\x00\x00\x00\x21\x00" // version, flags, method, time, date
	centralHeader = "PK\x01\x02\x14\x00\x14\x00\x00\x00\x00\x00\x00\x00\x21\x00"
	endHeader     = "PK\x05\x06\x00\x00\x00\x00"
)

// archived returns a ZIP archive without compression, in its one possible form.
func archived(entries []entry) ([]byte, error) {
	var file, directory []byte
	le := binary.LittleEndian
	for _, e := range entries {
		if len(e.content) > MaxBundleBytes-len(file) {
			return nil, errLargeBundle
		}
		facts := le.AppendUint32(nil, crc32.ChecksumIEEE(e.content))
		facts = le.AppendUint32(facts, uint32(len(e.content)))
		facts = le.AppendUint32(facts, uint32(len(e.content)))
		facts = le.AppendUint16(facts, uint16(len(e.name)))
		facts = le.AppendUint16(facts, 0)
		directory = append(append(directory, centralHeader...), facts...)
		directory = append(directory, make([]byte, 10)...) // comment, disk, attributes
		directory = append(le.AppendUint32(directory, uint32(len(file))), e.name...)
		file = append(append(append(append(file, localHeader...), facts...), e.name...), e.content...)
	}
	end := le.AppendUint16([]byte(endHeader), uint16(len(entries)))
	end = le.AppendUint16(end, uint16(len(entries)))
	end = le.AppendUint32(end, uint32(len(directory)))
	end = le.AppendUint32(end, uint32(len(file)))
	if file = append(append(append(file, directory...), end...), 0, 0); len(file) > MaxBundleBytes || len(entries) > math.MaxUint16 {
		return nil, errLargeBundle
	}
	return file, nil
}

var errLargeBundle = fmt.Errorf("seal: the bundle would be larger than %d bytes, or have more than %d parts: put the runs into several", MaxBundleBytes, math.MaxUint16)

// unarchived returns the entries of an archive that [archived] has written.
func unarchived(budget *work.Budget, file []byte) (entries []entry, err error) {
	if err := budget.Hold(2 * len(file)); err != nil { // written again, to compare, and as events
		return nil, err
	}
	if !bytes.HasPrefix(file, []byte("PK\x03\x04")) {
		return nil, errors.New("seal: this is not a bundle: it does not begin as a ZIP archive does")
	}
	le, at := binary.LittleEndian, 0
	fixed := len(localHeader) + 16
	for len(entries) < math.MaxUint16 && bytes.HasPrefix(file[at:], []byte("PK\x03\x04")) {
		wrong := func(what string) error {
			return fmt.Errorf("seal: byte %d: the header of entry %d of the archive %s", at, len(entries)+1, what)
		}
		if len(file)-at < fixed {
			return nil, wrong("is cut off")
		}
		head := file[at : at+fixed]
		sum, size, size2 := le.Uint32(head[14:]), uint64(le.Uint32(head[18:])), uint64(le.Uint32(head[22:]))
		name := uint64(le.Uint16(head[26:]))
		switch {
		case string(head[:len(localHeader)]) != localHeader || le.Uint16(head[28:]) != 0:
			return nil, wrong("is not that of a bundle")
		case size != size2 || name > 200 || uint64(len(file)-at-fixed) < name+size:
			return nil, wrong("has lengths that do not fit")
		}
		if err := budget.Spend(1 + int(size)/64); err != nil {
			return nil, err
		}
		e := entry{string(file[at+fixed : at+fixed+int(name)]), file[at+fixed+int(name) : at+fixed+int(name+size)]}
		if crc32.ChecksumIEEE(e.content) != sum {
			return nil, fmt.Errorf("seal: %q, at byte %d of the archive, was changed: its CRC-32 is another one", e.name, at)
		}
		entries = append(entries, e)
		at += fixed + int(name+size)
	}
	again, err := archived(entries)
	if err == nil && !bytes.Equal(again, file) {
		differs := 0
		for differs < min(len(again), len(file)) && again[differs] == file[differs] {
			differs++
		}
		err = fmt.Errorf("seal: byte %d of the archive, in its directory, is not as the entries say", differs)
	}
	return entries, err
}
