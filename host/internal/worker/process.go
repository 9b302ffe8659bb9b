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
	"github.com/starling-host/starling/host/internal/scheduler"
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

// A call that computes for long is demoted: its process gets the lowest priority that the
// system has. So a short call is answered as if there were no long ones beside it, and an
// otherwise idle machine gives the long ones all of its time. It is the feedback queue of
// time-sharing systems (Corbato and others, 1962), with the system's scheduler for the
// queue. A tenant gains nothing by many calls that are just short enough: they share CPU
// slots.
const (
	// effectPause is how long, at least, the host waits before each effect of a demoted call
	// while others hold CPU slots, because the host itself, which performs the effect, is not
	// demoted. An idle system rounds it up to a millisecond. Many effects count as
	// computing. Together, demoted calls have a quarter of the processors for their
	// effects.
	effectPause = 200 * time.Microsecond
	manyEffects = 20 // in a stretch

	// demotedStartTimeout bounds the start of a process that is demoted from the
	// beginning, and its loading.
	demotedStartTimeout = 10 * time.Second

	stretch  = 10 * time.Millisecond // between two readings of a call's usage; the second one decides
	niceness = 5                     // of a new process, so that modules never starve the host
	lowest   = 19                    // of a demoted one, and of compilers
)

// demote lowers the priority of the process for good, because the system lets no process raise its
// priority again. The process is kept only while its calls are long: starting another one takes
// milliseconds from other calls.
func (p *process) demote() {
	if !p.demoted.Swap(true) {
		lowerPriority(p.os.Pid)
	}
}

// within returns how long to wait for a process. A demoted process gets less than
// usual, because another one can be started instead.
func (p *process) within(usual time.Duration) time.Duration {
	if p.demoted.Load() {
		return min(usual, demotedStartTimeout)
	}
	return usual
}

// spent reports whether the process is unusable for another call: it has ended, it is
// demoted and its last call was short, or it has used much of its processor time.
func (p *process) spent() bool {
	return !p.alive() || p.demoted.Load() && p.calls > 0 && !p.watch.wasLong() || processorTime(p.os.Pid) > lifetime/2
}

// lifetime is the processor time that a process may use in its life, beside what the fuel of
// one call can take. The system ends a process that uses more: something in it computes
// outside of any call. An honest process is replaced before that.
const lifetime = time.Hour

// leastFuel is the least fuel that a call burns in a second of a slow processor.
const leastFuel = 1e6

// processorBound is the processor time after which the system ends a process whose calls have the
// given limit of fuel.
func processorBound(fuel uint64) time.Duration {
	return lifetime + time.Duration(min(fuel/leastFuel, 1e9))*time.Second
}

// callSlot is the CPU slot of a call that computes. It is released when the call ends,
// waits for an exchange, or has taken longer than a stretch. A computing call is then
// demoted soon; a sleeping one no longer holds the slot. The call of a demoted process
// needs no slot: it computes only when other processes are idle.
type callSlot struct {
	scheduler *scheduler.Scheduler

	mu      sync.Mutex      // guards what follows
	process *process        // nil until there is one
	slot    *scheduler.Slot // nil for no slot
}

// acquire waits for a slot, if the call needs one. The error is the scheduler's.
func (s *callSlot) acquire(ctx context.Context) error {
	if !s.needed() {
		return nil
	}
	slot, err := s.scheduler.Acquire(ctx)
	if err != nil {
		return err
	}
	s.mu.Lock()
	s.slot = slot
	s.mu.Unlock()
	if !s.needed() { // it was demoted before it held the slot
		s.release()
	}
	return nil
}

func (s *callSlot) needed() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.process == nil || !s.process.demoted.Load()
}

// runsIn sets the process that computes.
func (s *callSlot) runsIn(p *process) {
	s.mu.Lock()
	s.process = p
	s.mu.Unlock()
	if !s.needed() {
		s.release()
	}
}

// release gives the slot back, if there is one.
func (s *callSlot) release() {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.slot != nil {
		s.slot.Release()
		s.slot = nil
	}
}
