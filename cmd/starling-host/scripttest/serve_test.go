package scripttest

import (
	"bufio"
	"encoding/base64"
	"io"
	"net/http"
	"os"
	"os/exec"
	"regexp"
	"strconv"
	"strings"
	"syscall"
	"time"

	"github.com/rogpeppe/go-internal/testscript"
)

// served is a "starling-host serve" that a script has started.
type served struct {
	cmd  *exec.Cmd
	done chan error
}

// servedKey is where a script keeps it.
const servedKey = "served"

// hostCommand is the command "host" of scripts:
//
//	host start ARGS            start serving; what it prints is in the file serve.out, and becomes $API, $INSPECTOR, $METRICS, $MCP and $KEY; $ORIGIN is what all addresses begin with
//	host ask METHOD URL [BODY] ask it with $KEY; with the module of @FILE and its FILE.sig; the status and the body are in the file answer
//	host await URL PATTERN     ask for it until the answer matches
//	host key FILE              take $KEY from a file
//	host stop                  SIGTERM, and wait until it has ended with 0
//	host stop twice            SIGTERM, another one when $API says that it is not ready, and wait until that has ended it
func hostCommand(ts *testscript.TestScript, _ bool, args []string) {
	s, _ := ts.Value(servedKey).(*served)
	switch {
	case len(args) > 1 && args[0] == "start":
		s.start(ts, args[1:])
	case len(args) >= 3 && args[0] == "ask":
		askHost(ts, args[1], args[2], strings.Join(args[3:], " "))
	case len(args) == 3 && args[0] == "await":
		awaitHost(ts, args[1], args[2])
	case len(args) == 2 && args[0] == "key":
		ts.Setenv("KEY", strings.TrimSpace(ts.ReadFile(args[1])))
	case len(args) == 1 && args[0] == "stop":
		ts.Check(s.cmd.Process.Signal(syscall.SIGTERM))
		ts.Check(<-s.done)
		s.cmd = nil
	case len(args) == 2 && args[0] == "stop" && args[1] == "twice":
		s.stopTwice(ts)
	default:
		ts.Fatalf("usage: host start ARGS|ask METHOD URL [BODY]|await URL PATTERN|key FILE|stop [twice]")
	}
}

func (s *served) stopTwice(ts *testscript.TestScript) {
	ts.Check(s.cmd.Process.Signal(syscall.SIGTERM))
	for deadline := time.Now().Add(awaitTime); ; time.Sleep(time.Millisecond) {
		answer, err := http.Get(ts.Getenv("API") + "/readyz")
		ts.Check(err)
		answer.Body.Close()
		if answer.StatusCode == http.StatusServiceUnavailable {
			break
		}
		if time.Now().After(deadline) {
			ts.Fatalf("it says that it is ready")
		}
	}
	ts.Check(s.cmd.Process.Signal(syscall.SIGTERM))
	if err := <-s.done; err == nil {
		ts.Fatalf("it has ended by itself")
	}
	s.cmd = nil
}

// lastAnnounced is the word of the last line with which a host says where it is.
var lastAnnounced = map[bool]string{true: "key", false: "MCP"}

func (s *served) start(ts *testscript.TestScript, args []string) {
	s.cmd = exec.Command("starling-host", append([]string{"serve"}, args...)...)
	s.cmd.Dir = ts.MkAbs(".")
	s.cmd.Env = append(os.Environ(), "XDG_CACHE_HOME="+ts.Getenv("XDG_CACHE_HOME"))
	log, err := os.Create(ts.MkAbs("serve.log"))
	ts.Check(err)
	s.cmd.Stderr = log
	out, err := s.cmd.StdoutPipe()
	ts.Check(err)
	ts.Check(s.cmd.Start())
	ts.Defer(func() {
		if s.cmd != nil {
			_ = s.cmd.Process.Kill()
		}
	})
	last := lastAnnounced[strings.Contains(strings.Join(args, " "), "--dev")]
	said, err := os.Create(ts.MkAbs("serve.out"))
	ts.Check(err)
	defer said.Close()
	lines := bufio.NewScanner(io.TeeReader(out, said))
	for lines.Scan() {
		word, value, _ := strings.Cut(lines.Text(), " ")
		value, _, _ = strings.Cut(strings.TrimSpace(value), " ") // from who may ask for it
		ts.Setenv(strings.ToUpper(word), value)
		if word == last {
			break
		}
	}
	ts.Setenv("ORIGIN", strings.TrimSuffix(ts.Getenv("API"), "/api/v1"))
	s.done = make(chan error, 1)
	go func() {
		_, _ = io.Copy(io.Discard, out)
		s.done <- s.cmd.Wait()
	}()
}

func askHost(ts *testscript.TestScript, method, url, body string) {
	r, err := http.NewRequest(method, url, strings.NewReader(body))
	ts.Check(err)
	r.Header.Set("Authorization", "Bearer "+ts.Getenv("KEY"))
	if body != "" {
		r.Header.Set("Content-Type", "application/json")
	}
	if file, ok := strings.CutPrefix(body, "@"); ok {
		f, err := os.Open(ts.MkAbs(file))
		ts.Check(err)
		defer f.Close()
		r.Body, r.ContentLength = f, -1
		r.Header.Set("Content-Type", "application/wasm")
		if signed, err := os.ReadFile(ts.MkAbs(file + ".sig")); err == nil {
			r.Header.Set("Starling-Signature", base64.StdEncoding.EncodeToString(signed))
		}
	}
	answer, err := http.DefaultTransport.RoundTrip(r)
	ts.Check(err)
	defer answer.Body.Close()
	text, err := io.ReadAll(answer.Body)
	ts.Check(err)
	text = append([]byte(strconv.Itoa(answer.StatusCode)+"\n"), text...)
	ts.Check(os.WriteFile(ts.MkAbs("answer"), text, 0o600))
	if id := runInAnswer.FindSubmatch(text); id != nil {
		ts.Setenv("RUN", string(id[1]))
	}
}

// awaitHost waits for what a host does after it has answered.
func awaitHost(ts *testscript.TestScript, url, pattern string) {
	want, err := regexp.Compile("(?m)" + pattern)
	ts.Check(err)
	for deadline := time.Now().Add(awaitTime); ; time.Sleep(10 * time.Millisecond) {
		askHost(ts, http.MethodGet, url, "")
		if want.MatchString(ts.ReadFile("answer")) {
			return
		}
		if time.Now().After(deadline) {
			ts.Fatalf("the answer does not match %s", pattern)
		}
	}
}

// runInAnswer is the first run that an answer names; it becomes $RUN.
var runInAnswer = regexp.MustCompile(`"run_id":"([0-9A-Z]{26})"`)
