// Command release builds the files of a release from the commit that is checked out.
//
// It clones the repository into a temporary folder, tags the clone with the version, and builds
// there, so that nothing that is not committed gets into a release, and Go stamps the version
// into the program. Then it does the same in a second folder with an empty build cache, and fails
// if a byte differs. Without a version or a tag the program says the commit instead.
package main

import (
	"archive/tar"
	"archive/zip"
	"bytes"
	"cmp"
	"compress/gzip"
	"crypto/sha256"
	"debug/buildinfo"
	"flag"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"time"
)

const (
	program    = "starling-host"
	cyclonedx  = "github.com/CycloneDX/cyclonedx-gomod/cmd/cyclonedx-gomod@v1.10.0"
	repository = "https://github.com/starling-host/starling"
	platforms  = "linux/amd64,linux/arm64,darwin/amd64,darwin/arm64,windows/amd64,windows/arm64"
	about      = "Run untrusted tools of LLM agents in a sandbox, and prove what they did"
)

func main() {
	version := flag.String("version", "", "`VERSION` of the release, such as v0.1.0; by default the tag of the commit, if it has one")
	out := flag.String("out", "dist", "`FOLDER` for the files, which is made anew")
	list := flag.String("platforms", platforms, "`LIST` of systems and processors")
	once := flag.Bool("once", false, "do not build a second time to compare")
	flag.Parse()
	if err := run(*version, *out, strings.Split(*list, ","), *once); err != nil {
		fmt.Fprintln(os.Stderr, "error: release:", err)
		os.Exit(1)
	}
}

var versions = regexp.MustCompile(`^v\d+\.\d+\.\d+(-[0-9A-Za-z.-]+)?$`)

func run(version, out string, platforms []string, once bool) error {
	if version != "" && !versions.MatchString(version) {
		return fmt.Errorf("%q is not a version\nhint: make release VERSION=v0.1.0", version)
	}
	temporary, err := os.MkdirTemp("", "release")
	if err != nil {
		return err
	}
	defer os.RemoveAll(temporary)
	first, err := build(filepath.Join(temporary, "first"), version, platforms)
	if err != nil {
		return err
	}
	if !once {
		if err := os.Setenv("GOCACHE", filepath.Join(temporary, "cache")); err != nil {
			return err
		}
		second, err := build(filepath.Join(temporary, "the", "second"), version, platforms)
		if err != nil {
			return err
		}
		if a, b := first.checksums(), second.checksums(); a != b {
			return fmt.Errorf("two builds of the same commit differ:\n%s\n%s", a, b)
		}
	}
	if err := os.RemoveAll(out); err != nil {
		return err
	}
	for name, data := range first.files {
		if err := write(filepath.Join(out, name), data); err != nil {
			return err
		}
	}
	fmt.Printf("%s of %s in %s\n%s", program, first.tag, out, first.checksums())
	return write(filepath.Join(out, "SHA256SUMS"), []byte(first.checksums()))
}

func write(path string, data []byte) error {
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		return err
	}
	mode := fs.FileMode(0o644)
	if strings.HasSuffix(path, ".sh") {
		mode = 0o755
	}
	return os.WriteFile(path, data, mode)
}

// release is one build.
type release struct {
	source   string    // the clone
	tag      string    // v0.1.0, or a pseudo-version that names the commit
	version  string    // the same without v
	commit   time.Time // when it was made: everything that is packed is that old
	programs []built
	native   string            // the path of the program for this machine
	docs     []entry           // pages of the manual and completions
	licenses entry             // of everything that is inside of the program
	files    map[string][]byte // what is released, by name
}

// built is the program for one platform.
type built struct {
	os, arch, path string
	data           []byte
}

// exe is the file name of the program.
func (b built) exe() string {
	if b.os == "windows" {
		return program + ".exe"
	}
	return program
}

// entry is a file in an archive.
type entry struct {
	name  string
	mode  fs.FileMode
	data  []byte
	owner int
}

func build(folder, version string, platforms []string) (*release, error) {
	r := &release{source: filepath.Join(folder, "source"), files: map[string][]byte{}}
	root, err := output(".", "git", "rev-parse", "--show-toplevel")
	if err != nil {
		return nil, err
	}
	if _, err := output(".", "git", "clone", "-q", root, r.source); err != nil {
		return nil, err
	}
	if version != "" {
		if _, err := output(r.source, "git", "tag", "--force", version); err != nil {
			return nil, err
		}
	}
	seconds, err := output(r.source, "git", "log", "-1", "--format=%ct")
	if err != nil {
		return nil, err
	}
	unix, err := strconv.ParseInt(seconds, 10, 64)
	if err != nil {
		return nil, err
	}
	r.commit = time.Unix(unix, 0).UTC()
	native := runtime.GOOS + "/" + runtime.GOARCH
	if !slices.Contains(platforms, native) {
		return nil, fmt.Errorf("%s is not built, and so could not print its manual\nhint: add %s to -platforms", native, native)
	}
	for _, platform := range platforms {
		system, arch, _ := strings.Cut(platform, "/")
		b := built{os: system, arch: arch, path: filepath.Join(folder, system+"_"+arch, program)}
		cmd := exec.Command("go", "build", "-buildvcs=true", "-trimpath", "-ldflags=-s -w", "-o", b.path, "./cmd/"+program)
		cmd.Dir, cmd.Env = r.source, append(os.Environ(), "CGO_ENABLED=0", "GOWORK=off", "GOOS="+system, "GOARCH="+arch)
		if text, err := cmd.CombinedOutput(); err != nil {
			return nil, fmt.Errorf("%s: %w\n%s", platform, err, text)
		}
		if b.data, err = os.ReadFile(b.path); err != nil {
			return nil, err
		}
		r.programs = append(r.programs, b)
		if platform == native {
			r.native = b.path
		}
	}
	if err := r.describe(); err != nil {
		return nil, err
	}
	return r, r.pack()
}

// describe has the program say its version, and print its manual and completions.
func (r *release) describe() error {
	info, err := buildinfo.ReadFile(r.native)
	if err != nil {
		return err
	}
	if r.tag = info.Main.Version; !versions.MatchString(r.tag) {
		return fmt.Errorf("the program has the version %q", r.tag)
	}
	r.version = strings.TrimPrefix(r.tag, "v")
	if err := r.manual("run untrusted tools and prove what they did"); err != nil {
		return err
	}
	text, err := output(".", r.native, "version", "--licenses")
	if err != nil {
		return err
	}
	r.licenses = entry{name: "LICENSES.txt", mode: 0o644, data: []byte(text + "\n")}
	for shell, name := range map[string]string{"bash": "bash/" + program, "zsh": "zsh/_" + program, "fish": "fish/" + program + ".fish", "powershell": "powershell/" + program + ".ps1"} {
		text, err := output(".", r.native, "completion", shell)
		if err != nil {
			return err
		}
		r.docs = append(r.docs, entry{name: "completions/" + name, mode: 0o644, data: []byte(text + "\n")})
	}
	slices.SortFunc(r.docs, func(a, b entry) int { return cmp.Compare(a.name, b.name) })
	return nil
}

// manual makes a page of each command from its help, which is written for a terminal and so
// stays as it is. Completion knows the commands and their summaries.
func (r *release) manual(summary string, command ...string) error {
	help, err := output(r.source, r.native, append(slices.Clone(command), "--help")...)
	if err != nil {
		return err
	}
	name := strings.Join(append([]string{program}, command...), "-")
	page := fmt.Sprintf(".TH %q 1 %q %q\n.SH NAME\n%s \\- %s\n.SH DESCRIPTION\n.nf\n", strings.ToUpper(name), r.commit.Format(time.DateOnly), program+" "+r.version, name, roff(summary))
	for line := range strings.Lines(help) {
		line = strings.TrimSuffix(line, "\n")
		if title, section := strings.CutSuffix(line, ":"); section && line[0] >= 'A' && line[0] <= 'Z' && len(strings.Fields(line)) <= 4 {
			page += ".fi\n.SH " + strings.ToUpper(title) + "\n.nf\n"
			continue
		}
		page += roff(line) + "\n"
	}
	r.docs = append(r.docs, entry{name: "man/man1/" + name + ".1", mode: 0o644, data: []byte(page + ".fi\n")})
	below, err := output(r.source, r.native, append(append([]string{"__complete"}, command...), "")...)
	if err != nil {
		return err
	}
	if len(command) == 0 {
		below += "\nexit-codes\tthe exit codes of all commands"
	}
	for line := range strings.Lines(below) {
		sub, summary, described := strings.Cut(strings.TrimSuffix(line, "\n"), "\t")
		if !described || strings.HasPrefix(sub, "-") || sub == "help" || sub == "completion" {
			continue
		}
		if err := r.manual(summary, append(slices.Clone(command), sub)...); err != nil {
			return err
		}
	}
	return nil
}

// roff escapes a line of text.
func roff(line string) string {
	line = strings.NewReplacer(`\`, `\e`, "-", `\-`).Replace(line)
	if strings.HasPrefix(line, ".") || strings.HasPrefix(line, "'") {
		return `\&` + line
	}
	return line
}

// pack makes the files of the release.
func (r *release) pack() error {
	for _, step := range []func() error{r.archives, r.npm, r.bundles, r.bills, r.image, r.debian, r.installer} {
		if err := step(); err != nil {
			return err
		}
	}
	return nil
}

// archives has the program, its manual and completions for each platform.
func (r *release) archives() error {
	texts, err := r.committed(map[string]string{"LICENSE": "LICENSE", "README.md": "README.md", "CHANGELOG.md": "CHANGELOG.md"})
	if err != nil {
		return err
	}
	for _, b := range r.programs {
		entries := append(append([]entry{{name: b.exe(), mode: 0o755, data: b.data}, r.licenses}, texts...), r.docs...)
		name := r.name(b)
		if b.os == "windows" {
			r.files[name+".zip"] = r.zip(name+"/", entries)
		} else {
			r.files[name+".tar.gz"] = r.tarGz(name+"/", entries)
		}
	}
	return nil
}

// name is what the files for a platform begin with.
func (r *release) name(b built) string {
	return strings.Join([]string{program, r.version, b.os, b.arch}, "_")
}

// committed are files of the repository, by the names that they get in an archive.
func (r *release) committed(files map[string]string) (entries []entry, err error) {
	for name, path := range files {
		data, err := os.ReadFile(filepath.Join(r.source, path))
		if err != nil {
			return nil, err
		}
		entries = append(entries, entry{name: name, mode: 0o644, data: data})
	}
	slices.SortFunc(entries, func(a, b entry) int { return cmp.Compare(a.name, b.name) })
	return entries, nil
}

func (r *release) tarGz(prefix string, entries []entry) []byte {
	return gzipped(r.tar(prefix, entries))
}

func gzipped(data []byte) []byte {
	var file bytes.Buffer
	w, _ := gzip.NewWriterLevel(&file, gzip.BestCompression)
	w.Write(data)
	w.Close()
	return file.Bytes()
}

func (r *release) tar(prefix string, entries []entry) []byte {
	var file bytes.Buffer
	w := tar.NewWriter(&file)
	for _, e := range entries {
		h := &tar.Header{Typeflag: tar.TypeReg, Name: prefix + e.name, Mode: int64(e.mode.Perm()), Size: int64(len(e.data)), ModTime: r.commit, Uid: e.owner, Gid: e.owner}
		if e.mode.IsDir() {
			h.Typeflag = tar.TypeDir
		}
		w.WriteHeader(h) // to memory, where nothing fails but a name that no file can have
		w.Write(e.data)
	}
	w.Close()
	return file.Bytes()
}

func (r *release) zip(prefix string, entries []entry) []byte {
	var file bytes.Buffer
	w := zip.NewWriter(&file)
	for _, e := range entries {
		h := &zip.FileHeader{Name: prefix + e.name, Method: zip.Deflate, Modified: r.commit}
		h.SetMode(e.mode)
		f, _ := w.CreateHeader(h)
		f.Write(e.data)
	}
	w.Close()
	return file.Bytes()
}

// bills lists the modules in each program, as CycloneDX.
func (r *release) bills() error {
	for _, b := range r.programs {
		text, err := output(r.source, "go", "run", cyclonedx, "bin", "-json", "-std", "-noserial", "-notimestamp", "-version", r.tag, b.path)
		if err != nil {
			return err
		}
		r.files[r.name(b)+".cdx.json"] = []byte(text + "\n")
	}
	return nil
}

// installer is install.sh with the version and the checksums of the archives in it.
func (r *release) installer() error {
	text, err := os.ReadFile(filepath.Join(r.source, "release", "install.sh"))
	if err != nil {
		return err
	}
	var sums strings.Builder
	for line := range strings.Lines(r.checksums()) {
		if strings.HasSuffix(line, ".tar.gz\n") {
			sums.WriteString(line)
		}
	}
	r.files["install.sh"] = []byte(strings.NewReplacer("@VERSION@", r.version, "@TAG@", r.tag, "@REPOSITORY@", repository, "@SHA256SUMS@", strings.TrimSpace(sums.String())).Replace(string(text)))
	return nil
}

// checksums lists the files as sha256sum does.
func (r *release) checksums() string {
	var lines []string
	for name, data := range r.files {
		lines = append(lines, fmt.Sprintf("%x  %s\n", sha256.Sum256(data), name))
	}
	slices.SortFunc(lines, func(a, b string) int { return cmp.Compare(a[66:], b[66:]) })
	return strings.Join(lines, "")
}

// output runs a command in a folder and returns what it prints, without the last newline.
func output(folder, name string, args ...string) (string, error) {
	cmd := exec.Command(name, args...)
	var stderr bytes.Buffer
	cmd.Dir, cmd.Stderr = folder, &stderr
	text, err := cmd.Output()
	if err != nil {
		return "", fmt.Errorf("%s: %w\n%s", cmd, err, stderr.String())
	}
	return strings.TrimSuffix(string(text), "\n"), nil
}
