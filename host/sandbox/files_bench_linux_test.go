package sandbox

import (
	"fmt"
	"strings"
	"syscall"
	"testing"

	"github.com/starling-host/starling/internal/workspace"
)

func cpuTime() int64 {
	var r syscall.Rusage
	syscall.Getrusage(syscall.RUSAGE_SELF, &r)
	return r.Utime.Nano() + r.Stime.Nano()
}

// BenchmarkFiles measures the prices of files: ns/unit is the processor time of the host for a unit of
// fuel. The functions are called without a guest, whose own instructions would hide them.
func BenchmarkFiles(b *testing.B) {
	store := tree{}
	many := map[string]any{}
	for i := range 1000 {
		many[fmt.Sprintf("name%07d", i)] = "x"
	}
	huge := map[string]any{}
	for i := range 90_000 {
		huge[fmt.Sprintf("name%07d", i*7919%90_000)] = "x"
	}
	deep := map[string]any{"f": "x"}
	for range 150 {
		deep = map[string]any{"d": deep}
	}
	files := store.files(nil, map[string]any{"many": many, "huge": huge, "f": "x", "l": "->f", "deep": deep, "a": map[string]any{}, "big": strings.Repeat("x", 1<<20)})
	const result, path1, path2, buffer = 0, 64, 8192, 20000
	type step struct {
		name   string
		params []uint64
	}
	text := func(s *session, at uint32, text string) (uint64, uint64) {
		s.copyIn(at, []byte(text))
		return uint64(at), uint64(len(text))
	}
	slow := strings.Repeat("d/", 150)
	for _, c := range []struct {
		name   string
		opened bool // 5 and 6 are folders, 7 is a file
		do     func(s *session, i int) []step
	}{
		{"stat", false, func(s *session, _ int) []step {
			a, n := text(s, path1, "f")
			return []step{{"path_filestat_get", []uint64{rw, 1, a, n, buffer}}}
		}},
		{"stat deep", false, func(s *session, _ int) []step {
			a, n := text(s, path1, "deep/"+slow+"f")
			return []step{{"path_filestat_get", []uint64{rw, 1, a, n, buffer}}}
		}},
		{"stat huge", false, func(s *session, i int) []step {
			a, n := text(s, path1, fmt.Sprintf("huge/name%07d", i*7919%90_000))
			return []step{{"path_filestat_get", []uint64{rw, 1, a, n, buffer}}}
		}},
		{"stat link", false, func(s *session, _ int) []step {
			a, n := text(s, path1, "l")
			return []step{{"path_filestat_get", []uint64{rw, 1, a, n, buffer}}}
		}},
		{"open, close", false, func(s *session, _ int) []step {
			a, n := text(s, path1, "f")
			return []step{{"path_open", []uint64{rw, 1, a, n, 0, rightRead, 0, 0, result}}, {"fd_close", []uint64{5}}}
		}},
		{"tell", false, func(s *session, _ int) []step { return []step{{"fd_fdstat_get", []uint64{rw, buffer}}} }},
		{"mkdir, rmdir", false, func(s *session, _ int) []step {
			a, n := text(s, path1, "new")
			return []step{{"path_create_directory", []uint64{rw, a, n}}, {"path_remove_directory", []uint64{rw, a, n}}}
		}},
		{"mkdir, rmdir deep", false, func(s *session, _ int) []step {
			a, n := text(s, path1, "deep/"+slow+"new")
			return []step{{"path_create_directory", []uint64{rw, a, n}}, {"path_remove_directory", []uint64{rw, a, n}}}
		}},
		{"create, unlink", false, func(s *session, _ int) []step {
			a, n := text(s, path1, "new")
			return []step{{"path_open", []uint64{rw, 1, a, n, openCreate, rightWrite, 0, 0, result}}, {"fd_close", []uint64{5}}, {"path_unlink_file", []uint64{rw, a, n}}}
		}},
		{"rename", false, func(s *session, i int) []step {
			from, to := "f", "g"
			if i%2 == 1 {
				from, to = to, from
			}
			a, n := text(s, path1, from)
			b, m := text(s, path2, to)
			return []step{{"path_rename", []uint64{rw, a, n, rw, b, m}}}
		}},
		{"rename deep", false, func(s *session, i int) []step {
			from, to := "deep/d", "a/dd"
			if i%2 == 1 {
				from, to = to, from
			}
			a, n := text(s, path1, from)
			b, m := text(s, path2, to)
			return []step{{"path_rename", []uint64{rw, a, n, rw, b, m}}}
		}},
		{"rename huge", false, func(s *session, i int) []step {
			from, to := "huge", "longer"
			if i%2 == 1 {
				from, to = to, from
			}
			a, n := text(s, path1, from)
			b, m := text(s, path2, to)
			return []step{{"path_rename", []uint64{rw, a, n, rw, b, m}}}
		}},
		{"readdir 1000", true, func(s *session, _ int) []step { return []step{{"fd_readdir", []uint64{5, buffer, 40_000, 0, result}}} }},
		{"readdir 90000", true, func(s *session, _ int) []step { return []step{{"fd_readdir", []uint64{6, buffer, 40_000, 0, result}}} }},
		{"readdir on", true, func(s *session, i int) []step {
			return []step{{"fd_readdir", []uint64{6, buffer, 40_000, uint64(1 + i*7919%80_000), result}}}
		}},
		{"write 1", true, func(s *session, _ int) []step { return []step{{"fd_write", []uint64{7, 32, 1, result}}} }},
		{"read 32K", true, func(s *session, _ int) []step { return []step{{"fd_pread", []uint64{7, 40, 1, 0, result}}} }},
		{"truncate", true, func(s *session, i int) []step {
			return []step{{"fd_filestat_set_size", []uint64{7, uint64(i % 2 * 1 << 20)}}}
		}},
		{"load 1M", true, func(s *session, _ int) []step {
			a, n := text(s, path1, "big")
			return []step{{"path_open", []uint64{rw, 1, a, n, 0, rightRead, 0, 0, result}}, {"fd_pread", []uint64{8, 48, 1, 0, result}}, {"fd_close", []uint64{8}}}
		}},
	} {
		b.Run(c.name, func(b *testing.B) {
			s := idle(b, &world{})
			s.allow(1 << 62)
			s.attach(files)
			s.copyIn(32, u32s(buffer, 1, buffer, 32<<10, buffer, 1))
			do := func(name string, params ...uint64) {
				if e := wasiCall(s, name, params...); e != success {
					b.Fatalf("%s: errno %d", name, e)
				}
			}
			if c.opened {
				for _, name := range []string{"many", "huge"} {
					a, n := text(s, path1, name)
					do("path_open", rw, 1, a, n, 0, rightRead, 0, 0, result)
				}
				do("fd_readdir", 6, buffer, 40_000, 0, result)
				a, n := text(s, path1, "file")
				do("path_open", rw, 1, a, n, openCreate, bothRights, 0, 0, result)
				do("fd_filestat_set_size", 7, 1<<20)
			}
			for _, st := range c.do(s, 0) {
				do(st.name, st.params...)
			}
			if steps := c.do(s, 1); strings.HasPrefix(c.name, "rename") {
				do(steps[0].name, steps[0].params...)
			}
			cpu, before, i := cpuTime(), s.instance.fuel.Get(), 0
			for b.Loop() {
				for _, st := range c.do(s, i) {
					do(st.name, st.params...)
				}
				if i++; c.name == "write 1" && i%(1<<20) == 0 {
					do("fd_filestat_set_size", 7, 0)
					do("fd_seek", 7, 0, 0, result)
				}
			}
			spent := s.instance.fuel.Get() - before
			b.ReportMetric(float64(spent)/float64(i), "units/op")
			b.ReportMetric(float64(cpuTime()-cpu)/float64(spent), "ns/unit")
		})
	}
	for _, size := range []int{1000, 90_000} {
		entries, err := workspace.Decode(store[store.folder(map[int]map[string]any{1000: many, 90_000: huge}[size])])
		if err != nil {
			b.Fatal(err)
		}
		b.Run(fmt.Sprintf("load and leave %d", size), func(b *testing.B) {
			content := workspace.Encode(entries)
			root := store.put(workspace.Encode([]workspace.Entry{{Name: "w", Kind: workspace.Folder, Digest: store.put(content)}}))
			small := &Files{Digest(root), []Mount{{"/w", true}}, store.get}
			cpu, fuel := int64(0), uint64(0)
			for b.Loop() {
				b.StopTimer()
				s := idle(b, &world{})
				s.allow(1 << 62)
				s.attach(small)
				a, n := text(s, path1, "new")
				b.StartTimer()
				before, began := s.instance.fuel.Get(), cpuTime()
				if e := wasiCall(s, "path_create_directory", 3, a, n); e != success {
					b.Fatal(e)
				}
				s.files.left()
				cpu, fuel = cpu+cpuTime()-began, fuel+s.instance.fuel.Get()-before
			}
			b.ReportMetric(float64(cpu)/float64(fuel), "ns/unit")
		})
	}
}
