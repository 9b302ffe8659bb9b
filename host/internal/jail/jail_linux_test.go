//go:build amd64 || arm64

package jail

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/tetratelabs/wazero"
	"golang.org/x/sys/unix"
)

// A test runs its own program again, as an inmate: it enters the jail and tries
// to do something, on several threads at once.
const inmateVariable = "JAIL_INMATE"

func TestMain(m *testing.M) {
	if name := os.Getenv(inmateVariable); name != "" {
		inmate(name)
		os.Exit(0)
	}
	os.Exit(m.Run())
}

// attempts are actions of an inmate that must not succeed.
var attempts = map[string]func() error{
	"open a file":     func() error { _, err := os.ReadFile("/etc/passwd"); return err },
	"make a file":     func() error { return os.WriteFile("/tmp/jail-escaped", nil, 0o600) },
	"list a folder":   func() error { _, err := os.ReadDir("/"); return err },
	"open a socket":   func() error { _, err := unix.Socket(unix.AF_INET, unix.SOCK_STREAM, 0); return err },
	"connect":         func() error { _, err := net.Dial("tcp", "127.0.0.1:1"); return unexpectedly(err, unix.ECONNREFUSED) },
	"execute":         func() error { return unix.Exec("/bin/true", []string{"true"}, nil) },
	"start a process": func() error { return exec.Command("/bin/true").Run() },
	"fork": func() error {
		_, _, e := unix.RawSyscall(unix.SYS_CLONE, uintptr(unix.SIGCHLD), 0, 0)
		return errnoOf(e)
	},
	"kill the parent":               func() error { return unix.Kill(os.Getppid(), unix.SIGUSR1) },
	"signal a thread of the parent": func() error { return unix.Tgkill(os.Getppid(), os.Getppid(), unix.SIGUSR1) },
	"trace the parent":              func() error { return unix.PtraceAttach(os.Getppid()) },
	"read the parent's memory": func() error {
		_, err := unix.ProcessVMReadv(os.Getppid(), []unix.Iovec{{Base: new(byte), Len: 1}}, []unix.RemoteIovec{{Base: 1, Len: 1}}, 0)
		return unexpectedly(err, unix.EFAULT)
	},
	"a namespace":     func() error { return unix.Unshare(unix.CLONE_NEWUSER) },
	"io_uring":        func() error { _, _, e := unix.Syscall(unix.SYS_IO_URING_SETUP, 1, 0, 0); return errnoOf(e) },
	"bpf":             func() error { _, _, e := unix.Syscall(unix.SYS_BPF, 0, 0, 0); return errnoOf(e) },
	"userfaultfd":     func() error { _, _, e := unix.Syscall(unix.SYS_USERFAULTFD, 0, 0, 0); return errnoOf(e) },
	"perf events":     func() error { _, _, e := unix.Syscall(unix.SYS_PERF_EVENT_OPEN, 0, 0, 0); return errnoOf(e) },
	"another ioctl":   func() error { _, err := unix.IoctlGetInt(1, unix.TIOCGWINSZ); return err },
	"become dumpable": func() error { return unix.Prctl(unix.PR_SET_DUMPABLE, 1, 0, 0, 0) },
	"higher limits":   func() error { return unix.Setrlimit(unix.RLIMIT_NOFILE, &unix.Rlimit{Cur: 1 << 20, Max: 1 << 20}) },
}

func errnoOf(e unix.Errno) error {
	if e != 0 {
		return e
	}
	return nil
}

// unexpectedly is nil, as a success is, for an error that comes from beyond the
// jail.
func unexpectedly(err error, beyond error) error {
	if errors.Is(err, beyond) {
		return nil
	}
	return err
}

// configOf returns the configuration that confines an inmate. JAIL_READ and JAIL_WRITE are its
// folders.
func configOf(name string) Config {
	c := Config{Memory: 1 << 30, CPU: time.Minute, FileSize: 1 << 30, Files: 64}
	switch name {
	case "folders":
		c.Read, c.Write = []string{os.Getenv("JAIL_READ")}, []string{os.Getenv("JAIL_WRITE")}
	case "memory":
		c.Memory = 256 << 20
	case "cpu":
		c.CPU = time.Second
	}
	return c
}

// inmate is the life of the process that is confined.
func inmate(name string) {
	pagemap, err := os.Open("/proc/self/pagemap")
	if err != nil {
		fmt.Println(err)
	}
	if name == "compiler" { // confined before it became this program
		tryCompiler()
		fmt.Println("end")
		return
	}
	if name == "started" { // and not entered: without the filter of system calls
		onThreads(tryLandlock)
		fmt.Println("end")
		return
	}
	report, err := Enter(configOf(name))
	if err != nil {
		fmt.Println("enter:", err)
		os.Exit(1)
	}
	for _, l := range report.Layers {
		if !l.On {
			fmt.Printf("missing %s: %s\n", l.Name, l.Why)
		}
	}
	lives[name](pagemap)
	fmt.Println("end")
}

var lives = map[string]func(pagemap *os.File){
	"attempts": func(*os.File) { onThreads(func() { tryAll() }) },
	"work":     work,
	"folders":  func(*os.File) { tryFolders() },
	"memory":   func(*os.File) { hoard() },
	"cpu":      func(*os.File) { spin() },
	"inherits": func(*os.File) { readInherited() },
}

const inheritable = "what the host's own parent left open"

func readInherited() {
	for fd := 3; fd < 60; fd++ {
		b := make([]byte, len(inheritable))
		if n, err := unix.Pread(fd, b, 0); err == nil && string(b[:n]) == inheritable {
			fmt.Printf("escaped: read descriptor %d\n", fd)
		}
	}
}

// TestNoInheritedDescriptorIsLeft: a file that was open in the host is not open in a
// worker.
func TestNoInheritedDescriptorIsLeft(t *testing.T) {
	path := filepath.Join(t.TempDir(), "left")
	if err := os.WriteFile(path, []byte(inheritable), 0o600); err != nil {
		t.Fatal(err)
	}
	file, err := os.Open(path)
	if err != nil {
		t.Fatal(err)
	}
	defer file.Close()
	start, err := configOf("inherits").Environment()
	if err != nil {
		t.Fatal(err)
	}
	cmd := exec.CommandContext(t.Context(), "/proc/self/exe")
	cmd.Env = append(os.Environ(), append(start, inmateVariable+"=inherits")...)
	for range 40 {
		cmd.ExtraFiles = append(cmd.ExtraFiles, file)
	}
	out, err := cmd.CombinedOutput()
	if err != nil || !strings.HasSuffix(string(out), "end\n") || strings.Contains(string(out), "escaped") {
		t.Errorf("%v\n%s", err, out)
	}
}

// onThreads calls f on four threads of their own.
func onThreads(f func()) {
	var group sync.WaitGroup
	for range 4 {
		group.Go(func() {
			runtime.LockOSThread()
			defer runtime.UnlockOSThread()
			f()
		})
	}
	group.Wait()
}

// tryLandlock tries the actions that only Landlock forbids, if this kernel's version can.
func tryLandlock() {
	version, err := landlockVersion()
	report("landlock", err)
	for name, since := range map[string]int{
		"open a file": 1, "make a file": 1, "list a folder": 1, "execute": 1, "trace the parent": 1, "read the parent's memory": 1,
		"connect": 4, "kill the parent": 6, "signal a thread of the parent": 6,
	} {
		if version >= since && attempts[name]() == nil {
			fmt.Printf("escaped: %s\n", name)
		}
	}
	for _, path := range []string{"/proc/self/environ", "/proc/self/mountinfo", "/proc/1/cmdline", "/proc/self/exe/..", "/etc/ld.so.conf"} {
		if _, err := os.ReadFile(path); err == nil {
			fmt.Printf("escaped: read %s\n", path)
		}
	}
}

func tryAll() {
	for name, attempt := range attempts {
		if err := attempt(); err == nil {
			fmt.Printf("escaped: %s\n", name)
		}
	}
}

// work is typical work of a worker: goroutines, timers, collections, threads, a
// sealed file in memory, machine code, and a query for written pages.
func work(pagemap *os.File) {
	var group sync.WaitGroup
	for range 100 {
		group.Go(func() {
			runtime.LockOSThread()
			runtime.UnlockOSThread()
			<-time.After(time.Millisecond)
			_ = make([]byte, 1<<20)
		})
	}
	group.Wait()
	runtime.GC()
	fd, err := unix.MemfdCreate("image", unix.MFD_ALLOW_SEALING)
	report("memfd", err)
	report("ftruncate", unix.Ftruncate(fd, 4096))
	_, err = unix.Pwrite(fd, []byte("x"), 0)
	report("pwrite", err)
	_, err = unix.FcntlInt(uintptr(fd), unix.F_ADD_SEALS, unix.F_SEAL_WRITE)
	report("seal", err)
	_, err = unix.Mmap(fd, 0, 4096, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_PRIVATE)
	report("map", err)
	_, _, errno := unix.Syscall(unix.SYS_IOCTL, pagemap.Fd(), pagemapScan, 0)
	if errno == unix.EPERM {
		report("pagemap scan", errno)
	}
	r := wazero.NewRuntimeWithConfig(context.Background(), wazero.NewRuntimeConfigCompiler())
	// (module (func (export "f") (result i32) i32.const 42))
	m, err := r.Instantiate(context.Background(), []byte("\x00asm\x01\x00\x00\x00\x01\x05\x01\x60\x00\x01\x7f\x03\x02\x01\x00\x07\x05\x01\x01f\x00\x00\x0a\x06\x01\x04\x00\x41\x2a\x0b"))
	report("wazero", err)
	if out, err := m.ExportedFunction("f").Call(context.Background()); err != nil || out[0] != 42 {
		fmt.Println("compiled code:", out, err)
	}
}

func report(what string, err error) {
	if err != nil {
		fmt.Printf("%s: %v\n", what, err)
	}
}

func tryFolders() {
	read, write := os.Getenv("JAIL_READ"), os.Getenv("JAIL_WRITE")
	_, err := os.ReadFile(read + "/given")
	report("read the given file", err)
	report("write a file", os.WriteFile(write+"/new", []byte("made"), 0o600))
	report("make a folder", os.MkdirAll(write+"/a/b", 0o700))
	report("rename", os.Rename(write+"/new", write+"/a/renamed"))
	onThreads(func() {
		if os.WriteFile(read+"/other", nil, 0o600) == nil {
			fmt.Println("escaped: wrote where only reading is allowed")
		}
		if _, err := os.ReadFile("/etc/passwd"); err == nil {
			fmt.Println("escaped: read another file")
		}
		if os.Symlink("/etc", write+"/link") == nil {
			fmt.Println("escaped: made a link")
		}
	})
}

// hoard asks the system for memory, gives it back, and makes the runtime ask for more.
func hoard() {
	var given [][]byte
	for len(given) < 1<<12 {
		b, err := unix.Mmap(-1, 0, 1<<20, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_ANON|unix.MAP_PRIVATE)
		if err != nil {
			break
		}
		given = append(given, b)
	}
	fmt.Println("given MiB:", len(given))
	for _, b := range given {
		if err := unix.Munmap(b); err != nil {
			fmt.Println(err)
		}
	}
	var all [][]byte
	for {
		b := make([]byte, 1<<20)
		b[0] = 1
		all = append(all, b)
		if len(all) > 1<<12 {
			return
		}
	}
}

func spin() {
	for n := 0; ; n++ {
		if n < 0 {
			return
		}
	}
}

// jailed runs an inmate and returns its output and how it ended.
func jailed(t *testing.T, name string, env ...string) (string, error) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	for _, v := range env {
		key, value, _ := strings.Cut(v, "=")
		t.Setenv(key, value)
	}
	start, err := configOf(name).Environment()
	if err != nil {
		t.Fatal(err)
	}
	cmd := exec.CommandContext(ctx, "/proc/self/exe")
	cmd.Env = append(os.Environ(), append(start, inmateVariable+"="+name)...)
	out, err := cmd.CombinedOutput()
	for line := range strings.Lines(string(out)) {
		if strings.HasPrefix(line, "missing ") {
			t.Logf("not tested here, %s", line)
		}
	}
	return string(out), err
}

// has reports whether this system has a layer.
func has(name string) bool {
	for _, l := range Probe().Layers {
		if l.Name == name {
			return l.On
		}
	}
	return false
}

func needSeccomp(t *testing.T) {
	t.Helper()
	if !has(layerSeccomp) {
		t.Skipf("SKIPPED: no seccomp here: %+v", Probe())
	}
}

func TestJailBlocksNetworkAndFiles(t *testing.T) {
	needSeccomp(t)
	out, err := jailed(t, "attempts")
	if err != nil || !strings.HasSuffix(out, "end\n") || strings.Contains(out, "escaped") {
		t.Errorf("%v\n%s", err, out)
	}
}

// TestLandlockHoldsForAllThreads, whether the program is linked with cgo or not, and also
// where the filter of system calls lets something through.
func TestLandlockHoldsForAllThreads(t *testing.T) {
	if !has(layerLandlock) {
		t.Skipf("SKIPPED: no Landlock here: %+v", Probe())
	}
	out, err := jailed(t, "started")
	if err != nil || out != "end\n" {
		t.Errorf("%v\n%s", err, out)
	}
}

// TestJailRefusesUnconfinedThreads: a process that already has unconfined threads
// must not continue.
func TestJailRefusesUnconfinedThreads(t *testing.T) {
	if err := checkFiles(Config{}); !errors.Is(err, errNotStarted) {
		t.Errorf("without Landlock: %v", err)
	}
}

func TestAWorkerCanWork(t *testing.T) {
	out, err := jailed(t, "work")
	for line := range strings.Lines(out) {
		if line != "end\n" && !strings.HasPrefix(line, "missing ") {
			t.Errorf("%s", line)
		}
	}
	if err != nil || !strings.HasSuffix(out, "end\n") {
		t.Errorf("%v\n%s", err, out)
	}
}

func TestFoldersAreAllThereIs(t *testing.T) {
	needSeccomp(t)
	read, write := t.TempDir(), t.TempDir()
	if err := os.WriteFile(filepath.Join(read, "given"), nil, 0o600); err != nil {
		t.Fatal(err)
	}
	out, err := jailed(t, "folders", "JAIL_READ="+read, "JAIL_WRITE="+write)
	if !has(layerLandlock) {
		t.Logf("only what seccomp stops is tested: %+v", Probe())
		out = strings.ReplaceAll(out, "escaped: wrote where only reading is allowed\n", "")
		out = strings.ReplaceAll(out, "escaped: read another file\n", "")
	}
	if err != nil || !strings.HasSuffix(out, "end\n") || strings.Contains(out, "escaped") || strings.Contains(out, ": ") && !strings.Contains(out, "missing") {
		t.Errorf("%v\n%s", err, out)
	}
	if made, err := os.ReadFile(filepath.Join(write, "a", "renamed")); err != nil || string(made) != "made" {
		t.Errorf("what it wrote: %q, %v", made, err)
	}
}

// TestMemoryIsBounded: how the runtime reacts to a lack of memory is its own affair. It
// prints that and ends, or touches memory it does not have.
func TestMemoryIsBounded(t *testing.T) {
	out, err := jailed(t, "memory")
	var given int
	if _, after, ok := strings.Cut(out, "given MiB: "); ok {
		fmt.Sscan(after, &given)
	}
	if given == 0 || given >= 256 {
		t.Errorf("the system gave %d MiB, %v\n%.300s", given, err, out)
	}
	if err == nil || strings.HasSuffix(out, "end\n") {
		t.Errorf("a program that hoards has not ended: %v\n%.300s", err, out)
	}
}

func TestProcessorTimeIsBounded(t *testing.T) {
	_, err := jailed(t, "cpu")
	var exit *exec.ExitError
	if !errors.As(err, &exit) {
		t.Fatalf("it ended with %v", err)
	}
	status := exit.Sys().(syscall.WaitStatus)
	if sig := status.Signal(); !status.Signaled() || sig != syscall.SIGXCPU && sig != syscall.SIGKILL {
		t.Errorf("it ended with %v", err)
	}
}

// TestPinsLeaveDescriptorsAlone: the runtime polls the network on a descriptor that it has
// by then, and stops the program when that is another file.
func TestPinsLeaveDescriptorsAlone(t *testing.T) {
	open := func() map[string]string {
		entries, err := os.ReadDir("/proc/self/fd")
		if err != nil {
			t.Fatal(err)
		}
		files := map[string]string{}
		for _, e := range entries {
			if target, err := os.Readlink("/proc/self/fd/" + e.Name()); err == nil { // the folder's own is closed by now
				files[e.Name()] = target
			}
		}
		return files
	}
	before := open()
	if err := pin(); err != nil {
		t.Fatal(err)
	}
	pinned := 0
	for fd, path := range open() {
		if was, is := before[fd]; is && was != path {
			t.Errorf("descriptor %s was %s and is %s", fd, was, path)
		} else if !is {
			pinned++
			n, _ := strconv.Atoi(fd)
			unix.Close(n)
		}
	}
	if pinned != len(ownFiles) {
		t.Errorf("%d descriptors more, want %d", pinned, len(ownFiles))
	}
}

// tryCompiler reports what a confined command can do beside its work, and what of its work it cannot.
func tryCompiler() {
	for _, name := range []string{"open a file", "make a file", "list a folder", "open a socket", "connect", "execute", "start a process", "trace the parent", "io_uring"} {
		if attempts[name]() == nil {
			fmt.Println("could", name)
		}
	}
	for what, attempt := range map[string]func() error{
		"open a socket for datagrams": func() error { _, err := unix.Socket(unix.AF_INET, unix.SOCK_DGRAM, 0); return err },
		"open a socket of the system": func() error { _, err := unix.Socket(unix.AF_UNIX, unix.SOCK_STREAM, 0); return err },
		"write what it reads":         func() error { return os.WriteFile(filepath.Join(os.Getenv("JAIL_READ"), "x"), nil, 0o600) },
		"read a file of a link":       func() error { _, err := os.ReadFile(filepath.Join(os.Getenv("JAIL_READ"), "link")); return err },
	} {
		if attempt() == nil {
			fmt.Println("could", what)
		}
	}
	written := filepath.Join(os.Getenv("JAIL_WRITE"), "x")
	_, err := os.ReadFile(filepath.Join(os.Getenv("JAIL_READ"), "given"))
	if err := errors.Join(err, os.WriteFile(written, nil, 0o600), os.Remove(written)); err != nil {
		fmt.Println("could not work:", err)
	}
}

// TestConfine runs a command that keeps its work, and nothing else.
func TestConfine(t *testing.T) {
	if !Confines() {
		t.Skip("SKIPPED: this kernel has no Landlock")
	}
	read, write := t.TempDir(), t.TempDir()
	if err := errors.Join(os.WriteFile(filepath.Join(read, "given"), nil, 0o600), os.Symlink("/etc/passwd", filepath.Join(read, "link"))); err != nil {
		t.Fatal(err)
	}
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	load, err := programFiles()
	if err != nil {
		t.Fatal(err)
	}
	cmd := exec.CommandContext(t.Context(), self)
	cmd.Env = append(os.Environ(), inmateVariable+"=compiler", "JAIL_READ="+read, "JAIL_WRITE="+write)
	if err := Confine(cmd, self, Config{Read: []string{read}, Write: []string{write}, Load: load}); err != nil {
		t.Fatal(err)
	}
	if out, err := cmd.CombinedOutput(); err != nil || string(out) != "end\n" {
		t.Errorf("%v\n%s", err, out)
	}
}
