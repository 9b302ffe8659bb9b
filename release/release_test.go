package main

import (
	"archive/tar"
	"bytes"
	"compress/gzip"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"path"
	"path/filepath"
	"runtime"
	"strings"
	"testing"

	"github.com/goccy/go-yaml"
	"github.com/rogpeppe/go-internal/testscript"
	"github.com/santhosh-tekuri/jsonschema/v6"
)

// TestReleases installs what a release consists of, and uses it: no script sees the tree. By day
// it is a release for this platform, of which the scripts of the night are left out. At night it
// is all of it, built twice and compared, and an older one to upgrade from.
func TestReleases(t *testing.T) {
	nightly := os.Getenv("STARLING_NIGHTLY") != ""
	native := runtime.GOOS + "/" + runtime.GOARCH
	all, dist, older := native, t.TempDir(), t.TempDir()
	if nightly {
		all = platforms
		if err := run("v0.0.9", older, []string{native}, true); err != nil {
			t.Fatal(err)
		}
	}
	if err := run("v0.1.0", dist, strings.Split(all, ","), !nightly); err != nil {
		t.Fatal(err)
	}
	server := httptest.NewServer(mirror(t, dist))
	t.Cleanup(server.Close) // the scripts are parallel
	testscript.Run(t, testscript.Params{
		Dir: "testdata",
		Setup: func(env *testscript.Env) error {
			source, err := filepath.Abs("..")
			env.Vars = append(env.Vars, "DIST="+dist, "OLDER="+older, "SOURCE="+source, "ARCH="+runtime.GOARCH, "URL="+server.URL,
				"PROGRAM="+program, "NAME="+program+"_0.1.0_"+strings.ReplaceAll(native, "/", "_"), "HOME="+env.WorkDir+"/home",
				"npm_config_update_notifier=false", "npm_config_cache="+env.WorkDir+"/npm")
			for _, name := range []string{"GOMODCACHE", "GOCACHE", "GOPROXY"} {
				value, err := output(".", "go", "env", name)
				if err != nil {
					return err
				}
				env.Setenv(name, value)
			}
			return err
		},
		Cmds: map[string]func(*testscript.TestScript, bool, []string){"valid": valid},
		Condition: func(name string) (bool, error) {
			if name != "nightly" {
				return false, fmt.Errorf("unknown condition %q", name)
			}
			return nightly, nil
		},
	})
}

// TestWhatIsNoReleaseNamesItsCommit builds without a version.
func TestWhatIsNoReleaseNamesItsCommit(t *testing.T) {
	if os.Getenv("STARLING_NIGHTLY") == "" {
		t.Skip("NIGHTLY: builds another program")
	}
	commit, err := output(".", "git", "rev-parse", "--short=12", "HEAD")
	if err != nil {
		t.Fatal(err)
	}
	if tag, err := output(".", "git", "describe", "--exact-match", "--tags"); err == nil {
		commit = tag
	}
	r, err := build(t.TempDir(), "", []string{runtime.GOOS + "/" + runtime.GOARCH})
	if err != nil {
		t.Fatal(err)
	}
	if !strings.HasSuffix(r.tag, commit) {
		t.Errorf("%s, want the commit %s", r.tag, commit)
	}
}

// valid is the command "valid SCHEMA FILE" of scripts: the document in FILE, JSON or YAML, matches the JSON Schema.
func valid(ts *testscript.TestScript, _ bool, args []string) {
	schema, err := jsonschema.NewCompiler().Compile(args[0])
	ts.Check(err)
	data, err := os.ReadFile(args[1])
	ts.Check(err)
	if strings.HasSuffix(args[1], ".yaml") {
		data, err = yaml.YAMLToJSON(data)
		ts.Check(err)
	}
	doc, err := jsonschema.UnmarshalJSON(bytes.NewReader(data))
	ts.Check(err)
	ts.Check(schema.Validate(doc))
}

// mirror serves the files of a release, each with its last byte changed below /damaged, and its
// packages below /npm as their registry does.
func mirror(t *testing.T, dist string) http.Handler {
	mux := http.NewServeMux()
	mux.Handle("/", http.FileServer(http.Dir(dist)))
	mux.HandleFunc("/damaged/{name}", func(w http.ResponseWriter, r *http.Request) {
		data, err := os.ReadFile(filepath.Join(dist, r.PathValue("name")))
		if err != nil {
			t.Error(err)
			return
		}
		data[len(data)-1] ^= 1
		w.Write(data)
	})
	packages, err := filepath.Glob(filepath.Join(dist, "*.tgz"))
	if err != nil || packages == nil {
		t.Fatal("no packages: ", err)
	}
	described := map[string]object{}
	for _, file := range packages {
		data, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		unzipped, err := gzip.NewReader(bytes.NewReader(data))
		if err != nil {
			t.Fatal(err)
		}
		for archive := tar.NewReader(unzipped); ; {
			h, err := archive.Next()
			if err == io.EOF {
				break
			} else if err != nil {
				t.Fatal(err)
			}
			if h.Name == "package/package.json" {
				var manifest object
				if err := json.NewDecoder(archive).Decode(&manifest); err != nil {
					t.Fatal(err)
				}
				described[manifest["name"].(string)] = manifest
				manifest["dist"] = object{"tarball": path.Base(file)}
			}
		}
	}
	mux.HandleFunc("/npm/", func(w http.ResponseWriter, r *http.Request) {
		manifest, known := described[strings.TrimPrefix(r.URL.Path, "/npm/")]
		if !known {
			http.NotFound(w, r)
			return
		}
		file := path.Base(manifest["dist"].(object)["tarball"].(string))
		manifest["dist"] = object{"tarball": "http://" + r.Host + "/" + file}
		version := manifest["version"].(string)
		w.Write(object{"name": manifest["name"], "dist-tags": object{"latest": version}, "versions": object{version: manifest}}.json())
	})
	return mux
}
