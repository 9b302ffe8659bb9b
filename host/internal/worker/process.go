package worker

import (
	"context"
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"sync"
	"sync/atomic"
	"time"

	"github.com/starling-host/starling/host/internal/jail"
	"github.com/starling-host/starling/host/internal/program"
	"github.com/starling-host/starling/host/sandbox"
)

// process is a worker as the host sees it. One goroutine at a time talks to it;
// kill and cancel may come from others.
type process struct {
	in     *os.File
	frames *frameReader
	out    *os.File
	report Report

	writing sync.Mutex        // a cancellation may come while an answer is written
	frame   []byte            // guarded by writing
	calls   uint64            // that were made
	loaded  *sandbox.Prepared // from the load of the module, until the host has taken it

	watch   *watch
	logger  *slog.Logger
	run     atomic.Value // string: the id of the run whose call it has, or had last
	killed  atomic.Bool
	demoted atomic.Bool // it has the lowest priority
	os      *os.Process
	exited  chan struct{} // closed when it was reaped
	stderr  crashText     // complete when exited is closed
	state   string        // the same
}

// crashBytes bounds the kept output of a crashing worker.
const crashBytes = 4 << 10

// crashText keeps the beginning of a worker's standard error: a Go program
// prints the reason first and then its stacks.
type crashText struct{ text []byte }

func (c *crashText) Write(p []byte) (int, error) {
	c.text = append(c.text, p[:min(len(p), crashBytes-len(c.text))]...)
	return len(p), nil
}

// start starts a worker and waits until it is locked down, or until ctx ends. It calls
// reaped when the process has exited.
func start(ctx context.Context, s settings, limit uint64, grace time.Duration, logger *slog.Logger, reaped func()) (*process, error) {
	cmd, err := command(s)
	if err != nil {
		return nil, err
	}
	theirIn, ourIn, err := os.Pipe()
	if err != nil {
		return nil, fmt.Errorf("worker: %w", err)
	}
	ourOut, theirOut, err := os.Pipe()
	if err != nil {
		return nil, fmt.Errorf("worker: %w", errors.Join(err, theirIn.Close(), ourIn.Close()))
	}
	cmd.Stdin, cmd.Stdout = theirIn, theirOut
	p := &process{in: ourIn, out: ourOut, frames: newFrameReader(ourOut, limit), logger: logger, exited: make(chan struct{})}
	p.watch = newWatch(p, grace)
	cmd.Stderr = &p.stderr
	started := make(chan error)
	go p.attend(cmd, s, started, reaped)
	err = <-started
	theirIn.Close()
	theirOut.Close()
	if err != nil {
		p.hangUp()
		return nil, fmt.Errorf("worker: cannot start a process: %w", err)
	}
	if err := p.greet(ctx); err != nil {
		return nil, err // the process has ended, and its id may be another's
	}
	if s.Compile && !s.Foreground { // not before: a busy machine would never start it
		setNice(p.os.Pid, lowest)
	}
	return p, nil
}

// command returns what runs this program again.
func command(s settings) (*exec.Cmd, error) {
	env, err := s.environment()
	if err != nil {
		return nil, err
	}
	if !called.Load() {
		return nil, errors.New("worker: the main function of this program does not call WorkerMain, so it cannot be its own worker")
	}
	path, err := program.Path()
	if err != nil {
		return nil, fmt.Errorf("worker: %w", err)
	}
	return &exec.Cmd{
		Path: path, Args: []string{"starling-host-worker"}, Env: env, Dir: rootFolder(path),
		SysProcAttr: attributes(), WaitDelay: time.Second,
	}, nil
}

// rootFolder is a folder that is always there, so that a worker keeps no other
// one from being removed.
func rootFolder(path string) string { return filepath.VolumeName(path) + string(filepath.Separator) }

// attend starts the process, waits for its end and reaps it. It keeps its thread
// for itself, because the system ends the process when the thread that started it
// ends. The thread ends with the process: given back, it would be kept, and a host
// would have as many threads as it ever had processes at once.
func (p *process) attend(cmd *exec.Cmd, s settings, started chan<- error, reaped func()) {
	runtime.LockOSThread() // for good
	defer reaped()
	err := cmd.Start()
	p.os = cmd.Process
	if nice := s.nice(); err == nil && nice > 0 {
		setNice(cmd.Process.Pid, nice) // the start-up of a program before main is a fifth of a start
	}
	if err == nil && s.Demoted {
		p.demote()
	}
	started <- err
	if err != nil {
		return
	}
	// The error adds nothing to the state.
	_ = cmd.Wait()
	p.state = cmd.ProcessState.String()
	if !p.killed.Swap(true) {
		p.logDeath()
	}
	close(p.exited)
}

// logDeath reports a process that died by itself to the operator, when it is reaped or when its
// pipe breaks, whichever comes first.
func (p *process) logDeath() {
	run, _ := p.run.Load().(string)
	p.logger.Warn("a worker process died", "run_id", run, "state", p.state, "stderr", string(p.stderr.text))
}

// greet waits for the worker's first frame. A worker that cannot lock itself
// down sends the reason and exits.
func (p *process) greet(ctx context.Context) error {
	defer time.AfterFunc(p.within(startTimeout), p.kill).Stop()
	defer context.AfterFunc(ctx, p.kill)()
	k, body, err := p.frames.next()
	if err == nil && (k != kindReady || json.Unmarshal(body, &p.report) != nil) {
		err = errProtocol
	}
	if err == nil {
		return nil
	}
	p.end()
	return fmt.Errorf("worker: the process did not get ready: %s: %s", p.state, p.stderr.text)
}

// startTimeout is how long a new process may take until it is ready. It takes
// some milliseconds; a machine may be very busy.
const startTimeout = 30 * time.Second

// say sends a frame that fill completes.
func (p *process) say(k kind, fill func(b []byte) []byte) error {
	p.writing.Lock()
	defer p.writing.Unlock()
	p.frame = fill(begin(p.frame, k))
	err := send(p.in, p.frame)
	if cap(p.frame) > maxKept {
		p.frame = nil
	}
	return err
}

// exchange sends a frame and returns the body of the next one, which must be of the given kind.
func (p *process) exchange(k kind, body []byte, answer kind) ([]byte, error) {
	p.writing.Lock()
	frame := binary.LittleEndian.AppendUint32(nil, uint32(len(body)))
	_, err := p.in.Write(append(frame, byte(k)))
	if err == nil {
		_, err = p.in.Write(body) // not copied: a module and its start can have 20 MB
	}
	p.writing.Unlock()
	if err != nil {
		return nil, err
	}
	got, body, err := p.frames.next()
	if err == nil && got != answer {
		err = errProtocol
	}
	return body, err
}

// cancel asks the worker to end a call that is no longer needed. A process that
// misses it is killed soon.
func (p *process) cancel(number uint64) {
	_ = p.say(kindCancel, func(b []byte) []byte { return appendUint(b, number) })
}

// alive reports whether the process has not been seen to end.
func (p *process) alive() bool {
	select {
	case <-p.exited:
		return false
	default:
		return !p.killed.Load()
	}
}

// kill ends the process at once.
func (p *process) kill() {
	p.killed.Store(true)
	// The error would be that it has ended already.
	_ = p.os.Kill()
}

// end kills the process, waits until it is reaped and closes the pipes.
func (p *process) end() {
	p.kill()
	<-p.exited
	p.hangUp()
}

func (p *process) hangUp() {
	p.watch.stop()
	p.in.Close()
	p.out.Close()
}

// Report lists the layers that lock a worker down, and why others do not.
type Report = jail.Report

// Probe starts a worker and returns its report about itself. The error is the
// reason why there can be no workers here.
func Probe() (Report, error) {
	p, err := start(context.Background(), settings{Memory: ownMemory}, maxCompileAnswer, 0, slog.New(slog.DiscardHandler), func() {})
	if err != nil {
		return Report{}, err
	}
	defer p.end()
	return p.report, nil
}
