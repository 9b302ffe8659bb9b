package sqlitelog

import (
	"fmt"
	"io"
	"math/rand/v2"
	"os"
	"path/filepath"
	"sync"
	"testing"

	"github.com/ncruces/go-sqlite3"
	"github.com/ncruces/go-sqlite3/vfs"

	"github.com/starling-host/starling/eventlog"
	"github.com/starling-host/starling/eventlog/event"
	"github.com/starling-host/starling/eventlog/internal/dblog"
	"github.com/starling-host/starling/eventlog/logtest"
	"github.com/starling-host/starling/internal/treetest"
)

// A power cut is simulated below SQLite: a file system in memory remembers, for each
// file, what was synced and which writes came after. The cut keeps a random subset of
// the 512-byte sectors of those writes, so that they are lost, torn and reordered.
// Another build of SQLite writes there, with the pragmas, the tables and the
// statements of this package, and moves the WAL as the checkpointer does; then this
// package opens the result.

// crashFS is a file system in memory. It implements [vfs.VFS].
type crashFS struct {
	dir   string     // for the memory that connections share
	mu    sync.Mutex // guards everything in the files as well
	files map[string]*crashFile
}

// crashFile is a file with its unsynced writes.
type crashFile struct {
	fs            *crashFS
	live, durable []byte
	pending       []pendingWrite
}

// pendingWrite is a write, or with nil data a truncation to off.
type pendingWrite struct {
	off  int64
	data []byte
}

func (w pendingWrite) apply(b []byte) []byte {
	end := w.off + int64(len(w.data))
	if w.data == nil && int64(len(b)) > end {
		return b[:end]
	}
	if grow := end - int64(len(b)); grow > 0 {
		b = append(b, make([]byte, grow)...)
	}
	copy(b[w.off:], w.data)
	return b
}

func (f *crashFS) Open(name string, flags vfs.OpenFlag) (vfs.File, vfs.OpenFlag, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.files[name] == nil {
		f.files[name] = &crashFile{fs: f}
	}
	return crashHandle{f.files[name], vfs.NewSharedMemory(filepath.Join(f.dir, name+"-shm"), flags)}, flags, nil
}

// crashHandle is a file as one connection has it open. It implements
// [vfs.FileSharedMemory].
type crashHandle struct {
	*crashFile
	shm vfs.SharedMemory
}

func (h crashHandle) SharedMemory() vfs.SharedMemory { return h.shm }

func (f *crashFS) Delete(name string, _ bool) error {
	f.mu.Lock()
	defer f.mu.Unlock()
	delete(f.files, name)
	return nil
}

func (f *crashFS) Access(name string, _ vfs.AccessFlag) (bool, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.files[name] != nil, nil
}

func (f *crashFS) FullPathname(name string) (string, error) { return name, nil }

func (x *crashFile) ReadAt(p []byte, off int64) (int, error) {
	x.fs.mu.Lock()
	defer x.fs.mu.Unlock()
	n := copy(p, x.live[min(off, int64(len(x.live))):])
	if n < len(p) {
		return n, io.EOF
	}
	return n, nil
}

func (x *crashFile) WriteAt(p []byte, off int64) (int, error) {
	x.write(pendingWrite{off, append([]byte{}, p...)})
	return len(p), nil
}

func (x *crashFile) Truncate(size int64) error {
	x.write(pendingWrite{off: size})
	return nil
}

func (x *crashFile) write(w pendingWrite) {
	x.fs.mu.Lock()
	defer x.fs.mu.Unlock()
	x.live = w.apply(x.live)
	x.pending = append(x.pending, w)
}

func (x *crashFile) Sync(vfs.SyncFlag) error {
	x.fs.mu.Lock()
	defer x.fs.mu.Unlock()
	for _, w := range x.pending {
		x.durable = w.apply(x.durable)
	}
	x.pending = nil
	return nil
}

func (x *crashFile) Size() (int64, error) {
	x.fs.mu.Lock()
	defer x.fs.mu.Unlock()
	return int64(len(x.live)), nil
}

func (x *crashFile) Close() error                                    { return nil }
func (x *crashFile) Lock(vfs.LockLevel) error                        { return nil }
func (x *crashFile) Unlock(vfs.LockLevel) error                      { return nil }
func (x *crashFile) CheckReservedLock() (bool, error)                { return false, nil }
func (x *crashFile) SectorSize() int                                 { return 512 }
func (x *crashFile) DeviceCharacteristics() vfs.DeviceCharacteristic { return 0 }

// afterCut returns the content of the disk after the power cut. Every third
// time, only unwritten data is lost.
func (x *crashFile) afterCut(r *rand.Rand) []byte {
	x.fs.mu.Lock()
	defer x.fs.mu.Unlock()
	b := append([]byte{}, x.durable...)
	all := r.IntN(3) == 0
	for _, w := range x.pending {
		if w.data == nil {
			if all || r.IntN(2) == 0 {
				b = w.apply(b)
			}
			continue
		}
		for at := 0; at < len(w.data); at += 512 {
			if all || r.IntN(2) == 0 {
				b = pendingWrite{w.off + int64(at), w.data[at:min(at+512, len(w.data))]}.apply(b)
			}
		}
	}
	return b
}

// crashLog writes runs into a crashFS, as the writer does into a file.
type crashLog struct {
	t     testing.TB
	fs    *crashFS
	c     *sqlite3.Conn
	stmts map[string]*sqlite3.Stmt
	runs  []crashRun

	mover, reader *sqlite3.Conn // as the checkpointer and a reader have them
	reading       bool
}

type crashRun struct {
	chain  logtest.Chain
	cursor eventlog.Cursor
	acked  uint64
}

func newCrashLog(t testing.TB, fs *crashFS, name, synchronous string) *crashLog {
	l := &crashLog{t: t, fs: fs, stmts: make(map[string]*sqlite3.Stmt), runs: make([]crashRun, 3)}
	l.c = l.connect(name, safety, creation, schema(), writing(synchronous))
	l.mover = l.connect(name, safety, checkpointing(synchronous))
	l.reader = l.connect(name, safety, reading)
	for i := range l.runs {
		l.runs[i].chain.RunID = fmt.Sprintf("run-%d", i)
	}
	return l
}

func (l *crashLog) connect(name string, lists ...[]string) *sqlite3.Conn {
	c, err := sqlite3.Open("file:/log.db?vfs=" + name)
	if err != nil {
		l.t.Fatal(err)
	}
	for _, list := range lists {
		for _, q := range list {
			l.execOn(c, q)
		}
	}
	return c
}

func (l *crashLog) execOn(c *sqlite3.Conn, query string) {
	if err := c.Exec(query); err != nil {
		l.t.Fatal(query, err)
	}
}

func (l *crashLog) exec(query string) { l.execOn(l.c, query) }

// checkpoint does what the checkpointer may do at this time, with or without a reader
// in its way.
func (l *crashLog) checkpoint(r *rand.Rand, betweenBatches bool) {
	switch r.IntN(5) {
	case 0:
		l.reading = !l.reading
		if l.reading {
			l.execOn(l.reader, "BEGIN; SELECT count(*) FROM run")
		} else {
			l.execOn(l.reader, "ROLLBACK")
		}
	case 1:
		l.execOn(l.mover, passiveSQL)
	case 2:
		l.execOn(l.mover, passiveSQL)
		l.fs.files["/log.db"].Sync(0)
	case 3:
		if betweenBatches {
			l.execOn(l.mover, restartSQL)
		}
	}
}

func (l *crashLog) run(query string, vals []any) {
	s := l.stmts[query]
	if s == nil {
		var err error
		if s, _, err = l.c.Prepare(query); err != nil {
			l.t.Fatal(err)
		}
		l.stmts[query] = s
	}
	for i, v := range vals {
		bind(s, i+1, v)
	}
	if err := s.Exec(); err != nil {
		l.t.Fatal(query, err)
	}
}

func bind(s *sqlite3.Stmt, i int, v any) {
	switch v := v.(type) {
	case int64:
		s.BindInt64(i, v)
	case float64:
		s.BindFloat(i, v)
	case string:
		s.BindText(i, v)
	case []byte:
		s.BindBlob(i, v)
	case nil:
		s.BindNull(i)
	}
}

// put writes the next event of a run, in the transaction that is open.
func (l *crashLog) put(i int, size int) {
	r := &l.runs[i]
	at := r.cursor.Run().LastSeq
	var e event.Event
	if at == 0 {
		e = r.chain.Start("g")
	} else {
		e = r.chain.Effect(size)
	}
	if err := r.cursor.Append(e.RunID, e); err != nil {
		l.t.Fatal(err)
	}
	l.run(insertEventSQL, eventValues(e))
	if at == 0 {
		l.run(insertRunSQL, rowValues(r.cursor.Run(), len(e.Payload), 0))
	} else {
		vals := dblog.Values(r.cursor.Run())
		l.run(updateRunSQL, append(vals[1:], int64(len(e.Payload)), int64(1), int64(i+1), int64(at), e.RunID, int64(0)))
	}
}

// write commits n transactions, and half of the time leaves another open.
func (l *crashLog) write(r *rand.Rand, n int) {
	for k := range n {
		l.exec("BEGIN IMMEDIATE")
		for i := range l.runs {
			if k == 0 || r.IntN(2) == 0 {
				l.put(i, r.IntN(3000))
				l.checkpoint(r, false)
			}
		}
		l.exec("COMMIT")
		l.checkpoint(r, true)
		for i := range l.runs {
			l.runs[i].acked = l.runs[i].cursor.Run().LastSeq
		}
	}
	if r.IntN(2) == 0 {
		l.exec("BEGIN IMMEDIATE")
		l.put(0, 10)
	}
}

func (l *crashLog) close() {
	for _, s := range l.stmts {
		s.Close()
	}
	for _, c := range []*sqlite3.Conn{l.c, l.mover, l.reader} {
		c.Exec("ROLLBACK")
		c.Close()
	}
}

// cutPower writes, cuts the power, opens the result with this package and
// returns how many acknowledged events are lost. Any other damage fails.
func cutPower(t *testing.T, seed uint64, synchronous, dir string) (lost uint64) {
	r := rand.New(rand.NewPCG(seed, 0))
	fs := &crashFS{dir: t.TempDir(), files: make(map[string]*crashFile)}
	name := fmt.Sprintf("crash-%s-%d", synchronous, seed)
	vfs.Register(name, fs)
	defer vfs.Unregister(name)
	w := newCrashLog(t, fs, name, synchronous)
	w.write(r, 1+r.IntN(40))
	path := filepath.Join(dir, name)
	for _, suffix := range []string{"", "-wal"} {
		if f := fs.files["/log.db"+suffix]; f != nil {
			if err := os.WriteFile(path+suffix, f.afterCut(r), 0o600); err != nil {
				t.Fatal(err)
			}
		}
	}
	w.close()
	l, err := Open(t.Context(), path, Options{Synchronous: "NORMAL"})
	if err != nil {
		t.Errorf("cut %d: %v", seed, err)
		return 0
	}
	defer l.Close()
	for _, run := range w.runs {
		report, err := eventlog.CheckRun(t.Context(), l, run.chain.RunID, eventlog.CheckOptions{Strict: true, AllowOpen: true})
		if err != nil && synchronous == "FULL" {
			t.Errorf("cut %d: %v", seed, err)
		}
		lost += run.acked - min(run.acked, report.Events)
	}
	return lost
}

func TestPowerCutsLoseNothing(t *testing.T) {
	t.Parallel()
	const at = 4 // a time
	cuts := uint64(treetest.Count(40, 40, 400))
	for first := range uint64(at) {
		t.Run(fmt.Sprint("from cut ", first), func(t *testing.T) {
			t.Parallel()
			dir := t.TempDir()
			for seed := first; seed < cuts; seed += at {
				if lost := cutPower(t, seed, "FULL", dir); lost > 0 {
					t.Errorf("cut %d: %d acknowledged events are lost", seed, lost)
				}
			}
		})
	}
}

// TestPowerCutsLoseWithoutSyncs shows that the simulation can tell: with
// synchronous=NORMAL, the same cuts lose acknowledged events.
func TestPowerCutsLoseWithoutSyncs(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	losses := 0
	for seed := range uint64(20) {
		if cutPower(t, seed, "NORMAL", dir) > 0 {
			losses++
		}
	}
	if losses == 0 {
		t.Error("20 cuts without a sync per commit lost nothing")
	}
	t.Logf("%d of 20 cuts lost acknowledged events", losses)
}
