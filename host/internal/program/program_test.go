package program

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

func TestIDIsTheOneOfGosTools(t *testing.T) {
	id, err := ID()
	if err != nil {
		t.Fatal(err)
	}
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	want, err := exec.Command("go", "tool", "buildid", self).Output()
	if err != nil || id != strings.TrimSpace(string(want)) {
		t.Errorf("ID %q, want %q, %v", id, want, err)
	}
}

// TestEveryFormatHasTheID: programs for other systems, and a program linked without an ID.
func TestEveryFormatHasTheID(t *testing.T) {
	if testing.Short() {
		t.Skip("SKIPPED: takes seconds")
	}
	dir := t.TempDir()
	write(t, filepath.Join(dir, "go.mod"), "module example\ngo 1.26\n")
	write(t, filepath.Join(dir, "main.go"), "package main\nfunc main() {}\n")
	seen := map[string]string{}
	for _, system := range []string{"linux/amd64", "linux/arm64", "darwin/arm64", "windows/amd64"} {
		for _, flags := range []string{"", "-s -w", "-buildid="} {
			file := filepath.Join(dir, "program")
			goos, goarch, _ := strings.Cut(system, "/")
			build := exec.Command("go", "build", "-ldflags="+flags, "-o", file, ".")
			build.Dir, build.Env = dir, append(os.Environ(), "GOOS="+goos, "GOARCH="+goarch, "CGO_ENABLED=0", "GOFLAGS=")
			if out, err := build.CombinedOutput(); err != nil {
				t.Fatalf("%s: %v\n%s", system, err, out)
			}
			content, err := os.ReadFile(file)
			if err != nil {
				t.Fatal(err)
			}
			id := buildID(content[:min(len(content), beginBytes)])
			if other, ok := seen[id]; ok && id != "" {
				t.Errorf("%s %q has the ID of %s", system, flags, other)
			}
			seen[id] = system + " " + flags
			want, err := exec.Command("go", "tool", "buildid", file).Output()
			if err != nil || id != strings.TrimSpace(string(want)) {
				t.Errorf("%s %q: ID %q, want %q, %v", system, flags, id, want, err)
			}
		}
	}
}

func write(t *testing.T, file, text string) {
	t.Helper()
	if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
}

func TestBuildIDOfWhatIsNoProgram(t *testing.T) {
	for _, begin := range []string{"", "Go", string(noteHead), "\xff\xff\xff\xff" + string(noteHead), "1234\xff\xff\xff\xff" + string(noteHead) + "text", string(textBegin)} {
		if id := buildID([]byte(begin)); id != "" {
			t.Errorf("%q: %q", begin, id)
		}
	}
}
