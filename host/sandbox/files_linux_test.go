package sandbox

import (
	"cmp"
	"errors"
	"fmt"
	"maps"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/starling-host/starling/internal/workspace"
)

var errnos = map[error]errno{
	nil: success, unix.EBADF: eBadf, unix.EBUSY: eBusy, unix.EEXIST: eExist, unix.EINVAL: eInval, unix.EISDIR: eIsdir, unix.ELOOP: eLoop,
	unix.ENAMETOOLONG: eNametoolong, unix.ENOENT: eNoent, unix.ENOTDIR: eNotdir, unix.ENOTEMPTY: eNotempty, unix.EROFS: eRofs,
}

// pair is a sandbox's files and a folder of Linux on which the same is done. Linux is never asked to
// write: what it says on a read-only file system is put together from what it says to readers.
type pair struct {
	t      *testing.T
	s      *session
	rand   *rand.Rand
	real   map[int]int // descriptors of Linux by those of the sandbox
	inodes map[uint64]uint64
	leaves bool // links may lead up, and so out
	did    string
	counts map[errno]int
}

// path returns a path that leads out of no folder, if no link leads up.
func (p *pair) path() string {
	depth, names := 0, []string{}
	for range 1 + p.rand.IntN(4) {
		switch n := p.rand.IntN(100); {
		case n < 6:
			names = append(names, ".")
		case n < 14 && (depth > 0 || p.leaves):
			names = append(names, "..")
			depth--
		case n < 15:
			names = append(names, strings.Repeat("n", 254+p.rand.IntN(3)))
			depth++
		default:
			names = append(names, string(rune('a'+p.rand.IntN(6))))
			depth++
		}
	}
	path := strings.Join(names, "/")
	switch p.rand.IntN(14) {
	case 0, 1:
		path += "/"
	case 2:
		path += "//."
	case 3:
		path = strings.Replace(path, "/", "//", 1)
	}
	return path
}

func (p *pair) target() string {
	names := []string{}
	if p.leaves && p.rand.IntN(2) == 0 {
		names = append(names, "..")
	}
	for range 1 + p.rand.IntN(2) {
		names = append(names, string(rune('a'+p.rand.IntN(6))))
	}
	if p.rand.IntN(8) == 0 {
		names = append(names, "")
	}
	return strings.Join(names, "/")
}

// same does something in both worlds. A path that leads out of the sandbox is not followed in the other.
func (p *pair) same(what string, got errno, do func() error) bool {
	p.t.Helper()
	p.did = what
	if p.counts[got]++; got == ePerm && p.leaves {
		return false
	}
	err := do()
	if got == eNametoolong && err != nil {
		return false // which Linux checks later
	}
	if want, ok := errnos[err]; !ok || got != want {
		p.t.Fatalf("%s: errno %d, but Linux says %v (%d)", what, got, err, want)
	}
	return got == success
}

func (p *pair) call(name string, params ...any) errno {
	at, words := uint64(64), []uint64{}
	for _, v := range params {
		switch v := v.(type) {
		case int:
			words = append(words, uint64(v))
		case string:
			p.s.copyIn(uint32(at), []byte(v))
			words = append(words, at, uint64(len(v)))
			at += 4096
		}
	}
	return wasiCall(p.s, name, words...)
}

// descriptor returns an open descriptor of both worlds: the first, or any.
func (p *pair) descriptor(path bool) (int, int) {
	var fds []int
	for _, fd := range slices.Sorted(maps.Keys(p.real)) { // so that a seed gives the same steps
		if p.folder(fd) == path || path && p.rand.IntN(10) == 0 {
			fds = append(fds, fd)
		}
	}
	fd := 3
	if len(fds) > 0 && (!path || p.rand.IntN(3) == 0) {
		fd = fds[p.rand.IntN(len(fds))]
	}
	return fd, p.real[fd]
}

func (p *pair) folder(fd int) bool {
	n := p.s.files.descriptor(uint32(fd)).node
	return n == nil || n.kind == workspace.Folder
}

// parent looks up the folder of the last name of a path, as Linux does for a name that is added or removed.
func parent(real int, path string) (dir, last string, slash bool, err error) {
	name := strings.TrimRight(path, "/")
	dir, last = filepath.Split(name)
	fd, err := unix.Openat(real, "./"+dir, unix.O_PATH|unix.O_DIRECTORY|unix.O_CLOEXEC, 0)
	if err == nil {
		unix.Close(fd)
	}
	return dir, last, name != path, err
}

// vacant is what Linux says on a read-only file system to a name that is added.
func vacant(real int, path string, folder bool) error {
	dir, last, slash, err := parent(real, path)
	var st unix.Stat_t
	switch {
	case err != nil:
		return err
	case unix.Fstatat(real, "./"+dir+last, &st, unix.AT_SYMLINK_NOFOLLOW) == nil:
		return unix.EEXIST
	case slash && !folder:
		return unix.ENOENT
	}
	return unix.EROFS
}

// removed is what Linux says on a read-only file system to a name that is removed.
func removed(real int, path string, dot, dots error) error {
	_, last, _, err := parent(real, path)
	switch {
	case err != nil:
		return err
	case last == ".":
		return dot
	case last == "..":
		return dots
	}
	return unix.EROFS
}

// opened is what Linux says on a read-only file system to a file that is opened. What it creates is removed again.
func opened(real int, path string, flags int) (int, error) {
	writes := unix.O_TRUNC | unix.O_WRONLY | unix.O_RDWR
	fd, err := unix.Openat(real, path, flags&^(writes|unix.O_CREAT|unix.O_EXCL), 0)
	if flags&unix.O_CREAT != 0 {
		created := errors.Is(err, unix.ENOENT)
		unix.Close(fd)
		if fd, err = unix.Openat(real, path, flags&^writes, 0o644); err == nil && created {
			name, _ := os.Readlink(fmt.Sprint("/proc/self/fd/", fd))
			err = errors.Join(unix.Close(fd), os.Remove(name))
			if err == nil {
				err = unix.EROFS
			}
			return -1, err
		}
	}
	if err != nil || flags&writes == 0 {
		return fd, err
	}
	var st unix.Stat_t
	defer unix.Close(fd)
	if unix.Fstat(fd, &st); st.Mode&unix.S_IFMT == unix.S_IFDIR {
		return -1, unix.EISDIR
	}
	return -1, unix.EROFS
}

const pairBuffer, pairVector, pairResult = 20_000, 32, 0

func (p *pair) step() {
	fail := func(f string, a ...any) { p.t.Helper(); p.t.Fatalf(p.did+": "+f, a...) }
	fd, real := p.descriptor(true)
	other, real2 := p.descriptor(true)
	at, to := p.path(), p.path()
	lstat := func(st *unix.Stat_t, follow int) error {
		return unix.Fstatat(real, at, st, (1-follow)*unix.AT_SYMLINK_NOFOLLOW)
	}
	var st unix.Stat_t
	follow := p.rand.IntN(2)
	switch p.rand.IntN(20) {
	case 0, 1, 2, 3:
		oflags, rights, appends := p.rand.IntN(16), 1+p.rand.IntN(3), p.rand.IntN(4)/3
		if p.rand.IntN(2) == 0 {
			oflags, rights = oflags&openFolder, 1
		}
		if oflags&3 == 3 {
			oflags &^= openFolder // older kernels differ
		}
		if len(p.real) > 12 {
			p.close()
		}
		flags := map[int]int{1: unix.O_RDONLY, 2: unix.O_WRONLY, 3: unix.O_RDWR}[rights] | appends*unix.O_APPEND | (1-follow)*unix.O_NOFOLLOW | unix.O_CLOEXEC
		for i, flag := range []int{unix.O_CREAT, unix.O_DIRECTORY, unix.O_EXCL, unix.O_TRUNC} {
			if oflags>>i&1 != 0 {
				flags |= flag
			}
		}
		if oflags&openExclusive != 0 && oflags&openCreate == 0 {
			flags &^= unix.O_EXCL
		}
		found := -1
		if p.same(fmt.Sprintf("open %d %s %d rights %d follow %d appends %d", fd, at, oflags, rights, follow, appends),
			p.call("path_open", fd, follow, at, oflags, rights&1*rightRead|rights&2/2*rightWrite, 0, appends, pairResult),
			func() (err error) { found, err = opened(real, at, flags); return err }) {
			p.real[int(p.s.u32(pairResult))] = found
		}
	case 4:
		p.same("mkdir "+at, p.call("path_create_directory", fd, at), func() error { return vacant(real, at, true) })
	case 5:
		p.same("rmdir "+at, p.call("path_remove_directory", fd, at), func() error { return removed(real, at, unix.EINVAL, unix.ENOTEMPTY) })
	case 6:
		p.same("unlink "+at, p.call("path_unlink_file", fd, at), func() error { return removed(real, at, unix.EISDIR, unix.EISDIR) })
	case 7:
		p.same(fmt.Sprintf("rename %d %s to %d %s", fd, at, other, to), p.call("path_rename", fd, at, other, to), func() error {
			from := removed(real, at, unix.EBUSY, unix.EBUSY)
			if other := removed(real2, to, unix.EBUSY, unix.EBUSY); from == unix.EROFS || from == unix.EBUSY && other != unix.EROFS {
				return other
			}
			return from
		})
	case 8:
		p.same("link "+at+" to "+to, p.call("path_link", fd, 0, at, other, to), func() error {
			if err := lstat(&st, 0); err != nil {
				return err
			}
			return vacant(real2, to, false)
		})
	case 9:
		target := p.target()
		p.same("symlink "+target+" at "+at, p.call("path_symlink", target, fd, at), func() error { return vacant(real, at, false) })
	case 10, 11:
		b, n := make([]byte, 100), 0
		if p.same("readlink "+at, p.call("path_readlink", fd, at, pairBuffer, 100, pairResult), func() (err error) { n, err = unix.Readlinkat(real, at, b); return err }) {
			if got, _ := p.s.instance.memory.Read(pairBuffer, p.s.u32(pairResult)); string(got) != string(b[:n]) {
				fail("%q, not %q", got, b[:n])
			}
		}
	case 12, 13:
		if p.same(fmt.Sprintf("stat %s %d", at, follow), p.call("path_filestat_get", fd, follow, at, pairBuffer), func() error { return lstat(&st, follow) }) {
			p.stat(st)
		}
	case 14:
		p.same("utimes "+at, p.call("path_filestat_set_times", fd, follow, at, 1, 1, 5), func() error { return cmp.Or(lstat(&st, follow), error(unix.EROFS)) })
	case 15:
		p.list(fd, real)
	default:
		p.file()
	}
}

func (p *pair) close() {
	for _, fd := range slices.Sorted(maps.Keys(p.real)) {
		if fd == 3 || p.rand.IntN(3) > 0 {
			continue
		}
		p.same(fmt.Sprint("close ", fd), p.call("fd_close", fd), func() error { return unix.Close(p.real[fd]) })
		delete(p.real, fd)
	}
}

func (p *pair) stat(st unix.Stat_t) {
	p.t.Helper()
	b, _ := p.s.instance.memory.Read(pairBuffer, 64)
	kind := map[uint32]byte{unix.S_IFREG: 4, unix.S_IFDIR: 3, unix.S_IFLNK: 7}[st.Mode&unix.S_IFMT]
	inode, known := p.inodes[st.Ino]
	if p.inodes[st.Ino] = p.s.u64(pairBuffer + 8); known && inode != p.inodes[st.Ino] || !known && inode != 0 ||
		b[16] != kind || kind != 3 && p.s.u64(pairBuffer+32) != uint64(st.Size) || p.s.u64(pairBuffer+24) != 1 {
		p.t.Fatalf("%s: %v, but Linux says %+v", p.did, b, st)
	}
}

func (p *pair) list(fd, real int) {
	var got, want []string
	if !p.same("readdir", p.call("fd_readdir", fd, pairBuffer, 40_000, 0, pairResult), func() error {
		if p.folder(fd) { // no file's position moves
			if _, err := unix.Seek(real, 0, 0); err != nil {
				return err
			}
		}
		b := make([]byte, 64<<10)
		n, err := unix.ReadDirent(real, b)
		if err != nil {
			return err
		}
		_, _, want = unix.ParseDirent(b[:n], -1, nil)
		return nil
	}) {
		return
	}
	b, _ := p.s.instance.memory.Read(pairBuffer, p.s.u32(pairResult))
	for at := 0; at < len(b); {
		length := int(p.s.u32(uint32(pairBuffer + at + 16)))
		got = append(got, string(b[at+24:at+24+length]))
		at += 24 + length
	}
	slices.Sort(want)
	if want := append([]string{".", ".."}, want...); !slices.Equal(want, got) {
		p.t.Fatalf("%s: %q, but Linux says %q", p.did, got, want)
	}
}

// file does something with an open file.
func (p *pair) file() {
	fd, real := p.descriptor(false)
	if p.folder(fd) {
		return
	}
	size, offset := p.rand.IntN(3000), p.rand.IntN(9000)
	p.s.copyIn(pairVector, u32s(pairBuffer, uint32(size/3), pairBuffer+uint32(size/3), uint32(size-size/3)))
	switch p.rand.IntN(7) {
	case 0, 1, 2, 3:
		n, b := 0, make([]byte, size)
		read := func() (err error) { n, err = unix.Read(real, b); return err }
		name, params := "fd_read", []any{fd, pairVector, 2, pairResult}
		if p.rand.IntN(2) == 0 {
			read = func() (err error) { n, err = unix.Pread(real, b, int64(offset)); return err }
			name, params = "fd_pread", []any{fd, pairVector, 2, offset, pairResult}
		}
		ok := p.same(fmt.Sprint(name, fd, size, offset), p.call(name, params...), read)
		if got, _ := p.s.instance.memory.Read(pairBuffer, uint32(n)); ok && (int(p.s.u32(pairResult)) != n || string(got) != string(b[:n])) {
			p.t.Fatalf("%s: %d bytes %q, but Linux says %d, %q", p.did, p.s.u32(pairResult), got, n, b[:n])
		}
	case 4:
		whence, by := p.rand.IntN(4), p.rand.IntN(9000)-3000
		var to int64
		if p.same(fmt.Sprint("seek ", fd, by, whence), p.call("fd_seek", fd, by, whence, pairResult), func() (err error) {
			if whence == 3 { // another function of Linux
				return unix.EINVAL
			}
			to, err = unix.Seek(real, int64(by), whence)
			return err
		}) && (p.s.u64(pairResult) != uint64(to) || p.call("fd_tell", fd, pairResult+8) != success || p.s.u64(pairResult+8) != uint64(to)) {
			p.t.Fatalf("seek: to %d, but Linux says %d", p.s.u64(pairResult), to)
		}
	case 5:
		var st unix.Stat_t
		p.same(fmt.Sprint("fstat ", fd), p.call("fd_filestat_get", fd, pairBuffer), func() error { return unix.Fstat(real, &st) })
		p.stat(st)
	case 6:
		to := -1
		for other := range p.real {
			if other > 3 && other < to || to < 0 && other > 3 {
				to = other
			}
		}
		if to > 3 && to != fd {
			p.same(fmt.Sprint("renumber ", fd, to), p.call("fd_renumber", fd, to), func() error { return unix.Close(p.real[to]) })
			p.real[to] = real
			delete(p.real, fd)
		}
	}
}

// grow makes the same random files in both worlds: folders, texts, and links that may lead nowhere, around and up.
func (p *pair) grow(dir string, depth int) map[string]any {
	must(p.t, os.MkdirAll(dir, 0o755))
	entries := map[string]any{}
	for name := 'a'; name < 'g'; name++ {
		at := filepath.Join(dir, string(name))
		switch n := p.rand.IntN(8); {
		case n < 3 && depth < 4:
			entries[string(name)] = p.grow(at, depth+1)
		case n == 3:
			text := make([]byte, p.rand.IntN(9000))
			for i := range text {
				text[i] = byte(p.rand.Uint32())
			}
			entries[string(name)] = string(text)
			must(p.t, os.WriteFile(at, text, 0o644))
		case n < 6:
			target := p.target()
			entries[string(name)] = "->" + target
			must(p.t, os.Symlink(target, at))
		}
	}
	return entries
}

// TestFilesAreThoseOfLinux does the same in a call and in a folder of Linux, and compares the answers.
func TestFilesAreThoseOfLinux(t *testing.T) {
	counts := map[errno]int{}
	for seed := range uint64(24) {
		t.Run(fmt.Sprint(seed), func(t *testing.T) {
			store := tree{}
			p := &pair{t: t, s: idle(t, &world{}), rand: rand.New(rand.NewPCG(seed, 1)), real: map[int]int{}, inodes: map[uint64]uint64{}, leaves: seed%2 == 1, counts: counts}
			root := filepath.Join(t.TempDir(), "root")
			p.s.attach(&Files{Digest(store.folder(map[string]any{"w": p.grow(root, 0)})), []Mount{{"/w"}}, store.get})
			fd, err := unix.Open(root, unix.O_RDONLY|unix.O_DIRECTORY|unix.O_CLOEXEC, 0)
			must(t, err)
			p.real[3] = fd
			defer func() {
				for _, fd := range p.real {
					unix.Close(fd)
				}
			}()
			for range 1500 {
				p.step()
			}
		})
	}
	for _, e := range errnos {
		if counts[e] < 5 && e != eBadf {
			t.Errorf("only %d steps have ended with errno %d", counts[e], e)
		}
	}
	t.Log(counts)
}
