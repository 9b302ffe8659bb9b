package sandbox

import (
	"cmp"
	"context"
	"errors"
	"fmt"

	"github.com/starling-host/starling/abi"
	"github.com/starling-host/starling/host/internal/machine"
	"github.com/starling-host/starling/internal/workspace"
)

// Call describes a call and how it ends.
type Call struct {
	// Tool is the tool's name. A guest sees it as args[0].
	Tool string

	// Args are the arguments after args[0], and Env the environment, as NAME=VALUE. No text in
	// them has a zero byte.
	Args, Env []string

	// Input is the document that the guest receives: the envelope of
	// spec/abi.md for a starling:v1 tool, the tool's own input for a WASI
	// command.
	Input []byte

	// Files, unless it is nil, are the files of the call. Start-up and descriptions have none.
	Files *Files

	// Probe, unless it is nil, is called once before anything runs, with a
	// function that reads the meter. Imports may call that function while they
	// answer; after Call has returned it returns the final reading.
	Probe func(meter func() Meter)

	// Begin, if not nil, is called when the call has everything that it waits for, right
	// before the guest runs. If it fails, nothing runs, and Call returns its error.
	Begin func() error

	// NoTimeout disables Limits.TimeoutMs. Replay sets it: the record shows whether the
	// deadline ended the call, and the replaying machine may be slower.
	NoTimeout bool

	// Rules is the version of the rules of spec/determinism.md, section 8, that the call follows.
	Rules uint32

	// StopErr, unless it is nil, replays a call that was interrupted while it
	// computed: the guest is stopped at the same check, and Call returns StopErr.
	// StopAt is the recorded count of fuel; zero means that the call was interrupted
	// before it began.
	StopAt  uint64
	StopErr error

	// Recorded, if not nil, receives the recording of the last export that the call has
	// executed, however that ended, before Call returns. Only the machine records.
	Recorded func(*machine.Recording)
}

// Result is the result of a call.
type Result struct {
	// Output is the guest's document, unchecked. It is nil when the call failed.
	Output []byte

	// Meter is the consumption of the call, also when it failed.
	Meter Meter

	// Left is the root of the tree that a successful call with files leaves. A call that failed
	// leaves nothing. Contents are those that the tree has and that of Files.Root, as far as the
	// call has read it, had not: each before the folder that lists it, and none twice, although
	// a file can have the bytes of a folder.
	Left     Digest
	Contents []workspace.Content
}

// Call makes one call, in a sandbox that equals that of every other call.
//
// The error matches the class of its cause in package tool: ErrPanicked (the
// guest trapped, broke the contract, or is a tool that exited), ErrFuel,
// ErrLimit, ErrTimeout, ErrCancelled. A WASI command that exits with a code
// other than zero is an error of no class, the tool's own failure. An error
// with which Imports panicked comes back unchanged. Everything that an error
// text says is determined by the module, the input and the effects, so it is
// the same on replay. An error of the host itself matches abi.ErrHost, and is
// not an outcome of the call.
func (m *Module) Call(ctx context.Context, c Call, imports Imports) (r Result, err error) {
	if !m.enter() {
		return Result{}, ErrClosed
	}
	defer m.leave()
	var p *probed // nil without a probe, so that such a call allocates nothing for it
	if c.Probe != nil {
		p = &probed{}
		c.Probe(p.meter)
	}
	switch {
	case c.Recorded != nil && !m.engine.machine:
		return Result{}, errors.New("sandbox: only the machine records a call")
	case c.StopErr != nil && c.StopAt == 0:
		return Result{}, c.StopErr
	case ctx.Err() != nil:
		return Result{}, abi.ErrCancelled
	case m.start.failure != nil:
		if p != nil {
			p.last = m.start.meter
		}
		return Result{Meter: m.start.meter}, m.start.failure
	}
	if c.Begin != nil {
		if err := c.Begin(); err != nil {
			return Result{}, err
		}
	}
	s, err := m.begin()
	if err != nil {
		return Result{}, err
	}
	if p != nil {
		p.live = s
	}
	defer func() {
		if p != nil {
			p.last, p.live = s.meter(), nil
		}
		if m.engine.machine {
			m.engine.observed(s.instance, c)
		}
		if broken := m.end(s); broken != nil {
			r, err = Result{}, broken
		}
	}()
	s.endStart()
	s.name, s.args, s.env, s.imports, s.rules = c.Tool, c.Args, c.Env, imports, c.Rules
	s.stopAt, s.stop, s.record = c.StopAt, c.StopErr, c.Recorded != nil
	s.attend(ctx, !c.NoTimeout)
	s.allow(m.limits.Fuel)
	s.watch = m.engine.watched(c.Tool)
	defer s.watch.end(s)
	if c.Files != nil {
		s.attach(c.Files)
	}
	if m.abi == abi.Command {
		r.Output, err = s.runCommand(c.Input)
	} else {
		r.Output, err = s.execute(c.Input)
	}
	if err == nil && c.Files != nil {
		err = s.leave(&r)
	}
	r.Meter = s.meter()
	return r, err
}

// begin returns the session of a new call, still in its start-up.
func (m *Module) begin() (*session, error) {
	i, err := m.acquire()
	if err != nil {
		return nil, err
	}
	i.session = session{instance: i, limits: m.limits, clock: m.start.clock}
	return &i.session, nil
}

// end returns the instance of a call to the pool.
func (m *Module) end(s *session) error {
	if s.cancel != nil {
		s.cancel()
	}
	return m.giveBack(s.instance)
}

// probed is the source of a call's probe: the meter while the call is in progress, and
// then the last reading, since the instance serves other calls.
type probed struct {
	live *session
	last Meter
}

func (p *probed) meter() Meter {
	if p.live != nil {
		return p.live.meter()
	}
	return p.last
}

// Describe returns the document of starling_describe. It runs as start-up does: a
// description is a function of the module's bytes. Limits on the output of calls that are below the default do not apply to
// it.
func (m *Module) Describe(ctx context.Context) (doc []byte, err error) {
	if m.abi != abi.Version {
		return nil, errors.New("sandbox: a WASI command has no description")
	}
	if !m.enter() {
		return nil, ErrClosed
	}
	defer m.leave()
	if m.start.failure != nil {
		return nil, m.start.failure
	}
	s, err := m.begin()
	if err != nil {
		return nil, err
	}
	defer func() { err = cmp.Or(m.end(s), err) }()
	m.start.resume(s)
	s.attend(ctx, true)
	s.allow(m.limits.Fuel)
	packed, err := s.invoke(abi.ExportDescribe)
	if err != nil {
		return nil, s.exited(err)
	}
	return s.document(abi.ExportDescribe, packed, max(m.limits.OutputBytes, DefaultLimits().OutputBytes))
}

// execute is a call of a starling:v1 tool: ask for room, write the input
// there, execute, copy the output.
func (s *session) execute(input []byte) ([]byte, error) {
	length := uint32(len(input))
	result, err := s.invoke(abi.ExportAlloc, uint64(length))
	if err != nil {
		return nil, s.exited(err)
	}
	address := uint32(result)
	if address == 0 || !s.instance.has(address, uint64(length)) {
		return nil, s.failure(abi.ErrPanicked, outside("what "+abi.ExportAlloc+" returned", address, length))
	}
	s.copyIn(address, input)
	packed, err := s.invoke(abi.ExportExecute, uint64(address), uint64(length))
	if err != nil {
		return nil, s.exited(err)
	}
	return s.document(abi.ExportExecute, packed, s.limits.OutputBytes)
}

// document copies the document that an export returned, of at most the given number of bytes.
func (s *session) document(export string, packed, most uint64) ([]byte, error) {
	address, length := abi.Unpack(packed)
	switch {
	case uint64(length) > most:
		return nil, fmt.Errorf("%w: output of %d bytes, more than %d", abi.ErrLimit, length, most)
	case !s.instance.has(address, uint64(length)):
		return nil, s.failure(abi.ErrPanicked, outside("what "+export+" returned", address, length))
	}
	return s.copyOut(address, length), nil
}

// exited is the error of a tool that called proc_exit. A library must not exit, with any
// code.
func (s *session) exited(err error) error {
	if e, ok := errors.AsType[*exit](err); ok {
		return s.failure(abi.ErrPanicked, e.Error()+" before there was a result")
	}
	return err
}

// runCommand is a call of a WASI command: it reads the input on fd 0 and writes the output
// on fd 1, and has succeeded when it returns or exits with code zero. With another code,
// the error has the code and what the command has printed.
func (s *session) runCommand(input []byte) ([]byte, error) {
	s.stdin, s.stdout = input, []byte{}
	_, err := s.invoke(abi.ExportStart)
	if e, ok := errors.AsType[*exit](err); ok {
		text := s.printed()
		switch {
		case e.code == 0:
			err = nil
		case text != "":
			err = fmt.Errorf("%w: %s", e, text)
		}
	}
	if err != nil {
		return nil, err
	}
	return s.stdout, nil
}
