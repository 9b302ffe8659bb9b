package worker

import (
	"encoding/json"
	"fmt"
	"os"
	"runtime"
	"time"

	"github.com/starling-host/starling/host/internal/jail"
	"github.com/starling-host/starling/host/sandbox"
)

// mark is the variable that makes a process a worker. Its value is the
// settings; the rest of the environment is only for package jail.
const mark = "STARLING_HOST_WORKER"

// settings are what a worker receives before it is locked down. The host
// makes them: nothing in them comes from a module.
type settings struct {
	Compile    bool // read one module, with Rewrite, and compile it into Folder if there is one
	Link       bool // link one component instead
	Foreground bool // see Compiler
	Machine    bool // see sandbox.Config
	Profile    bool // report to the Profile of sandbox.Observers
	Source     bool // the same
	Progress   bool // the same
	Rewrite    sandbox.RewriteOptions
	Folder     string        // where compiled code is, if any: read, or written to compile
	Demoted    bool          // from the beginning
	Memory     uint64        // bytes of writable memory, see jail.Config
	CPU        time.Duration // see jail.Config
	Processors int           // how many goroutines run at once
}

// maxOpenFiles is more than a worker needs.
const maxOpenFiles = 64

// How many goroutines run at once.
const (
	callProcessors    = 2 // the guest's, and the reader's
	compileProcessors = 4 // at most; each thread takes from the memory that a compiler may have
)

func (s settings) processors() int {
	if s.Compile {
		return min(runtime.GOMAXPROCS(0), compileProcessors)
	}
	return callProcessors
}

func (s settings) environment() ([]string, error) {
	s.Processors = s.processors() // a worker cannot read how many its control group has
	b, err := json.Marshal(s)
	if err != nil {
		return nil, fmt.Errorf("worker: settings: %w", err)
	}
	env, err := s.jail().Environment()
	return append(env, mark+"="+string(b)), err
}

// ownSettings returns this process's settings, and whether it is a worker.
func ownSettings() (s settings, marked bool, err error) {
	text, marked := os.LookupEnv(mark)
	if marked {
		err = json.Unmarshal([]byte(text), &s)
	}
	return s, marked, err
}

func (s settings) jail() jail.Config {
	c := jail.Config{Memory: s.Memory, CPU: s.CPU, FileSize: s.Memory, Files: maxOpenFiles}
	switch {
	case s.Folder == "":
	case s.Compile:
		c.Write = []string{s.Folder}
	default:
		c.Read = []string{s.Folder}
	}
	return c
}

// nice is the nice value that the process starts with, zero for that of this one.
func (s settings) nice() int {
	switch {
	case s.Foreground:
		return 0
	case s.Demoted:
		return lowest
	}
	return niceness
}
