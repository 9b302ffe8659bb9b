package sandbox

import (
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"golang.org/x/sys/unix"

	"github.com/starling-host/starling/internal/workspace"
)

var errnos = map[error]errno{
	nil: success, unix.EBADF: eBadf, unix.EBUSY: eBusy, unix.EEXIST: eExist, unix.EFBIG: eFbig, unix.EINVAL: eInval, unix.EISDIR: eIsdir,
	unix.ELOOP: eLoop, unix.ENAMETOOLONG: eNametoolong, unix.ENOENT: eNoent, unix.ENOTDIR: eNotdir, unix.ENOTEMPTY: eNotempty, unix.EPERM: ePerm,
}

// pair is a sandbox's files and a folder of Linux on which the same is done.
type pair struct {
	t      *testing.T
	s      *session
	rand   *rand.Rand
	real   map[int]int // descriptors of Linux by those of the sandbox
	leaves bool        // links may lead up, and so out
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
	for fd := range p.real {
		if folder := p.s.files.descriptor(uint32(fd)).node == nil || p.s.files.descriptor(uint32(fd)).node.kind == workspace.Folder; folder == path || path && p.rand.IntN(10) == 0 {
			fds = append(fds, fd)
		}
	}
	slices.Sort(fds)
	fd := 3
	if len(fds) > 0 && (!path || p.rand.IntN(3) == 0) {
		fd = fds[p.rand.IntN(len(fds))]
	}
	return fd, p.real[fd]
}

const pairBuffer, pairVector, pairResult = 20_000, 32, 0

func (p *pair) step() {
	t, fail := p.t, func(f string, a ...any) { p.t.Helper(); p.t.Fatalf(p.did+": "+f, a...) }
	fd, real := p.descriptor(true)
	at := p.path()
	switch p.rand.IntN(17) {
	case 0, 1, 2:
		oflags, rights, follow, appends := p.rand.IntN(16), 1+p.rand.IntN(3), p.rand.IntN(2), p.rand.IntN(4)/3
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
		opened := -1
		if p.same(fmt.Sprintf("open %d %s %d rights %d follow %d appends %d", fd, at, oflags, rights, follow, appends),
			p.call("path_open", fd, follow, at, oflags, rights&1*rightRead|rights&2/2*rightWrite, 0, appends, pairResult),
			func() (err error) { opened, err = unix.Openat(real, at, flags, 0o644); return err }) {
			p.real[int(p.s.u32(pairResult))] = opened
		}
	case 3:
		p.same("mkdir "+at, p.call("path_create_directory", fd, at), func() error { return unix.Mkdirat(real, at, 0o755) })
	case 4:
		p.same("rmdir "+at, p.call("path_remove_directory", fd, at), func() error { return unix.Unlinkat(real, at, unix.AT_REMOVEDIR) })
	case 5:
		p.same("unlink "+at, p.call("path_unlink_file", fd, at), func() error { return unix.Unlinkat(real, at, 0) })
	case 6, 7:
		other, real2 := p.descriptor(true)
		to := p.path()
		p.same(fmt.Sprintf("rename %d %s to %d %s", fd, at, other, to), p.call("path_rename", fd, at, other, to), func() error { return unix.Renameat(real, at, real2, to) })
	case 8:
		other, real2 := p.descriptor(true)
		to := p.path()
		p.same("link "+at+" to "+to, p.call("path_link", fd, 0, at, other, to), func() error { return unix.Linkat(real, at, real2, to, 0) })
	case 9:
		target := p.target()
		p.same("symlink "+target+" at "+at, p.call("path_symlink", target, fd, at), func() error { return unix.Symlinkat(target, real, at) })
	case 10:
		b, n := make([]byte, 100), 0
		if p.same("readlink "+at, p.call("path_readlink", fd, at, pairBuffer, 100, pairResult), func() (err error) { n, err = unix.Readlinkat(real, at, b); return err }) {
			if got, _ := p.s.instance.memory.Read(pairBuffer, p.s.u32(pairResult)); string(got) != string(b[:n]) {
				fail("%q, not %q", got, b[:n])
			}
		}
	case 11:
		follow := p.rand.IntN(2)
		var st unix.Stat_t
		if p.same(fmt.Sprintf("stat %s %d", at, follow), p.call("path_filestat_get", fd, follow, at, pairBuffer),
			func() error { return unix.Fstatat(real, at, &st, (1-follow)*unix.AT_SYMLINK_NOFOLLOW) }) {
			p.stat(st, false)
		}
	case 12:
		follow, accessed, modified := p.rand.IntN(2), p.rand.IntN(1<<60), p.rand.IntN(1<<60)
		times := []unix.Timespec{unix.NsecToTimespec(int64(accessed)), unix.NsecToTimespec(int64(modified))}
		if p.same("utimes "+at, p.call("path_filestat_set_times", fd, follow, at, accessed, modified, setAccessed|setModified),
			func() error { return unix.UtimesNanoAt(real, at, times, (1-follow)*unix.AT_SYMLINK_NOFOLLOW) }) {
			var st unix.Stat_t
			must(t, unix.Fstatat(real, at, &st, (1-follow)*unix.AT_SYMLINK_NOFOLLOW))
			p.call("path_filestat_get", fd, follow, at, pairBuffer)
			p.stat(st, true)
		}
	case 13:
		p.list(fd, real)
	default:
		p.file()
	}
}

func (p *pair) close() {
	for fd := range p.real {
		if fd == 3 || p.rand.IntN(3) > 0 {
			continue
		}
		p.same(fmt.Sprint("close ", fd), p.call("fd_close", fd), func() error { return unix.Close(p.real[fd]) })
		delete(p.real, fd)
	}
}

func (p *pair) stat(st unix.Stat_t, times bool) {
	p.t.Helper()
	b, _ := p.s.instance.memory.Read(pairBuffer, 64)
	kind := map[uint32]byte{unix.S_IFREG: typeFile, unix.S_IFDIR: typeFolder, unix.S_IFLNK: typeLink}[st.Mode&unix.S_IFMT]
	if b[16] != kind || kind != typeFolder && (p.s.u64(pairBuffer+24) != uint64(st.Nlink) || p.s.u64(pairBuffer+32) != uint64(st.Size)) ||
		times && (kind != typeLink && p.s.u64(pairBuffer+40) != uint64(st.Atim.Nano()) || p.s.u64(pairBuffer+48) != uint64(st.Mtim.Nano())) {
		p.t.Fatalf("%s: %v, but Linux says %+v", p.did, b, st)
	}
}

func (p *pair) list(fd, real int) {
	var got, want []string
	if !p.same("readdir", p.call("fd_readdir", fd, pairBuffer, 40_000, 0, pairResult), func() error {
		if p.s.files.descriptor(uint32(fd)).node.kind == workspace.Folder { // no file's position moves
			if _, err := unix.Seek(real, 0, 0); err != nil {
				return err
			}
		}
		b := make([]byte, 64<<10)
		for { // a signal may cut an answer short
			n, err := unix.ReadDirent(real, b)
			if err != nil || n == 0 {
				return err
			}
			_, _, want = unix.ParseDirent(b[:n], -1, want)
		}
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
	if diff := cmp.Diff(append([]string{".", ".."}, want...), got); diff != "" {
		p.t.Fatal(p.did, diff)
	}
}

// file does something with an open file.
func (p *pair) file() {
	fd, real := p.descriptor(false)
	if d := p.s.files.descriptor(uint32(fd)); d.node == nil || d.node.kind == workspace.Folder {
		return
	}
	size, offset := p.rand.IntN(3000), p.rand.IntN(9000)
	data := make([]byte, size)
	for i := range data {
		data[i] = byte(p.rand.Uint32())
	}
	p.s.copyIn(pairBuffer, data)
	p.s.copyIn(pairVector, u32s(pairBuffer, uint32(size/3), pairBuffer+uint32(size/3), uint32(size-size/3)))
	n, b := 0, make([]byte, size)
	check := func(ok bool) {
		p.t.Helper()
		if got := p.s.u32(pairResult); ok && int(got) != n {
			p.t.Fatalf("%s: %d, but Linux says %d", p.did, got, n)
		}
	}
	switch p.rand.IntN(9) {
	case 0, 1:
		check(p.same(fmt.Sprint("write ", fd, size), p.call("fd_write", fd, pairVector, 2, pairResult), func() (err error) { n, err = unix.Write(real, data); return err }))
	case 2:
		check(p.same(fmt.Sprint("pwrite ", fd, size, offset), p.call("fd_pwrite", fd, pairVector, 2, offset, pairResult), func() (err error) { n, err = unix.Pwrite(real, data, int64(offset)); return err }))
	case 3, 4:
		read := func() (err error) { n, err = unix.Read(real, b); return err }
		name, params := "fd_read", []any{fd, pairVector, 2, pairResult}
		if p.rand.IntN(2) == 0 {
			read = func() (err error) { n, err = unix.Pread(real, b, int64(offset)); return err }
			name, params = "fd_pread", []any{fd, pairVector, 2, offset, pairResult}
		}
		ok := p.same(fmt.Sprint(name, fd, size, offset), p.call(name, params...), read)
		check(ok)
		if got, _ := p.s.instance.memory.Read(pairBuffer, uint32(n)); ok && string(got) != string(b[:n]) {
			p.t.Fatalf("%s: other bytes than Linux", p.did)
		}
	case 5:
		p.same(fmt.Sprint("truncate ", fd, offset), p.call("fd_filestat_set_size", fd, offset), func() error { return unix.Ftruncate(real, int64(offset)) })
	case 6:
		whence, by := p.rand.IntN(4), p.rand.IntN(9000)-3000
		var to int64
		if p.same(fmt.Sprint("seek ", fd, by, whence), p.call("fd_seek", fd, by, whence, pairResult), func() (err error) {
			if whence == 3 { // another function of Linux
				return unix.EINVAL
			}
			to, err = unix.Seek(real, int64(by), whence)
			return err
		}) && p.s.u64(pairResult) != uint64(to) {
			p.t.Fatalf("seek: to %d, but Linux says %d", p.s.u64(pairResult), to)
		}
	case 7:
		var st unix.Stat_t
		p.same(fmt.Sprint("fstat ", fd), p.call("fd_filestat_get", fd, pairBuffer), func() error { return unix.Fstat(real, &st) })
		p.stat(st, false)
	case 8:
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

// TestFilesAreThoseOfLinux does the same in a call and in a folder of Linux. The results must be the
// same, and so must what is left.
func TestFilesAreThoseOfLinux(t *testing.T) {
	counts := map[errno]int{}
	for seed := range uint64(40) {
		t.Run(fmt.Sprint(seed), func(t *testing.T) {
			store, home := tree{}, t.TempDir()
			p := &pair{t: t, s: idle(t, &world{}), rand: rand.New(rand.NewPCG(seed, 1)), real: map[int]int{}, leaves: seed%2 == 1, counts: counts}
			root := filepath.Join(home, "root")
			must(t, os.MkdirAll(filepath.Join(root, "a/b"), 0o755))
			must(t, os.WriteFile(filepath.Join(root, "a/c"), []byte("content"), 0o644))
			must(t, os.Symlink("a/b", filepath.Join(root, "e")))
			from := store.folder(map[string]any{"w": map[string]any{"a": map[string]any{"b": map[string]any{}, "c": "content"}, "e": "->a/b"}})
			p.s.attach(&Files{Digest(from), []Mount{{"/w", true}}, store.get})
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
			left, contents := p.s.files.left()
			got := store.keep(t, Result{Left: left, Contents: contents})
			want := map[string]string{"w/": ""}
			must(t, filepath.WalkDir(root, func(path string, d os.DirEntry, err error) error {
				name, _ := filepath.Rel(root, path)
				switch name = "w/" + name; {
				case err != nil || path == root:
					return err
				case d.IsDir():
					want[name+"/"] = ""
				case d.Type()&os.ModeSymlink != 0:
					target, err := os.Readlink(path)
					want[name] = "->" + target
					return err
				default:
					b, err := os.ReadFile(path)
					want[name] = string(b)
					return err
				}
				return nil
			}))
			if diff := cmp.Diff(want, got); diff != "" {
				t.Error(diff)
			}
		})
	}
	for _, e := range errnos {
		if counts[e] == 0 && e != eFbig && e != ePerm {
			t.Errorf("nothing has failed with errno %d", e)
		}
	}
	t.Log(counts)
}
