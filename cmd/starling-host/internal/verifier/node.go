package verifier

import (
	"bufio"
	"bytes"
	"context"
	_ "embed"
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"sync"

	"github.com/starling-host/starling/eventlog"
	"github.com/starling-host/starling/eventlog/event"
	"github.com/starling-host/starling/eventlog/seal"
	"github.com/starling-host/starling/host/guest"
	"github.com/starling-host/starling/host/sandbox"
	"github.com/starling-host/starling/runtime/agent"
	"github.com/starling-host/starling/runtime/step"
)

//go:embed node.js
var nodeScript string

// oldestNode is the oldest major version of Node that this package is tested with.
const oldestNode = 20

// ErrNoNode means that there is no V8: Node is not installed, or is too old.
var ErrNoNode = errors.New("engine v8 needs Node " + strconv.Itoa(oldestNode) + " or newer in PATH")

// Node replays runs in processes of Node, as many as it is asked for at once. It must be
// closed. Use [NewNode].
type Node struct {
	path string

	mu   sync.Mutex // guards idle
	idle []*process
}

// NewNode looks for Node. The error is [ErrNoNode] without a recent enough version.
func NewNode(ctx context.Context) (*Node, error) {
	path, err := exec.LookPath("node")
	if err != nil {
		return nil, fmt.Errorf("%w: there is none", ErrNoNode)
	}
	cmd := exec.CommandContext(ctx, path, "--version")
	cmd.Env = environment()
	said, err := cmd.Output()
	version := strings.TrimSpace(string(said))
	major, _, _ := strings.Cut(strings.TrimPrefix(version, "v"), ".")
	if n, errVersion := strconv.Atoi(major); err != nil || errVersion != nil || n < oldestNode {
		return nil, fmt.Errorf("%w: %s says %q", ErrNoNode, path, version)
	}
	return &Node{path: path}, nil
}

// environment returns an environment without variables that change the behaviour of Node.
func environment() []string { return []string{"PATH=" + os.Getenv("PATH")} }

// Close ends the processes. No replay may be in progress.
func (n *Node) Close() {
	for _, p := range n.idle {
		p.end()
	}
	n.idle = nil
}

// process is one process of Node that has the program.
type process struct {
	cmd    *exec.Cmd
	in     io.WriteCloser
	out    *bufio.Reader
	stderr bytes.Buffer
}

func (n *Node) take() (*process, error) {
	n.mu.Lock()
	defer n.mu.Unlock()
	if last := len(n.idle) - 1; last >= 0 {
		p := n.idle[last]
		n.idle = n.idle[:last]
		return p, nil
	}
	quoted, err := json.Marshal(glue)
	if err != nil {
		return nil, err
	}
	p := &process{cmd: exec.Command(n.path, "-e", "const GLUE = "+string(quoted)+";\n"+nodeScript)}
	p.cmd.Env, p.cmd.Stderr = environment(), &p.stderr
	if p.in, err = p.cmd.StdinPipe(); err != nil {
		return nil, err
	}
	out, err := p.cmd.StdoutPipe()
	if err != nil {
		return nil, err
	}
	p.out = bufio.NewReader(out)
	if err := p.cmd.Start(); err != nil {
		return nil, fmt.Errorf("%w: %w", ErrNoNode, err)
	}
	if err := p.send(program); err != nil {
		return nil, p.died(err)
	}
	return p, nil
}

func (p *process) send(frame []byte) error {
	if _, err := p.in.Write(binary.LittleEndian.AppendUint32(nil, uint32(len(frame)))); err != nil {
		return err
	}
	_, err := p.in.Write(frame)
	return err
}

// end kills the process.
func (p *process) end() {
	p.in.Close()
	_ = p.cmd.Process.Kill() // it may have ended by itself
	_ = p.cmd.Wait()
}

// died is the error of a process that ended.
func (p *process) died(err error) error {
	p.end()
	said := strings.TrimSpace(p.stderr.String())
	if said == "" {
		said = err.Error()
	}
	return fmt.Errorf("Node ended: %.500s", said)
}

// Replay is [agent.Replay] in a process of Node, with its modules. A call that is
// too deep for the stack there is [sandbox.ErrTooDeep].
func (n *Node) Replay(ctx context.Context, events []event.Event, modules eventlog.ModuleReader) (agent.Verdict, error) {
	var bundle seal.Bundle
	if err := bundle.Add(ctx, events, modules); err != nil {
		return agent.Verdict{}, err
	}
	file, err := bundle.Bytes()
	if err != nil {
		return agent.Verdict{}, err
	}
	p, err := n.take()
	if err != nil {
		return agent.Verdict{}, err
	}
	stop := context.AfterFunc(ctx, func() { _ = p.cmd.Process.Kill() })
	doc, err := p.replay(file)
	if !stop() && ctx.Err() != nil {
		p.end()
		return agent.Verdict{}, context.Cause(ctx)
	}
	if err != nil {
		return agent.Verdict{}, p.died(err)
	}
	n.mu.Lock()
	n.idle = append(n.idle, p)
	n.mu.Unlock()
	return verdictOf(doc)
}

// said is what this package reads of the program's messages.
type said struct {
	Verdict *agent.ReplayDocument `json:"verdict"`
	Error   string                `json:"error"`
	Done    bool                  `json:"done"`
}

// replay has the program replay the one run of a bundle.
func (p *process) replay(file []byte) (agent.ReplayDocument, error) {
	doc := agent.ReplayDocument{Verdict: agent.NotReplayed}
	if err := p.send(file); err != nil {
		return doc, err
	}
	for {
		line, err := p.out.ReadBytes('\n')
		if err != nil {
			return doc, err
		}
		var m said
		if err := json.Unmarshal(line, &m); err != nil {
			return doc, err
		}
		if m.Verdict != nil {
			doc = *m.Verdict
		}
		if m.Error != "" {
			doc.Error = m.Error
		}
		if m.Done {
			return doc, nil
		}
	}
}

// verdictOf returns the verdict in a document.
func verdictOf(doc agent.ReplayDocument) (agent.Verdict, error) {
	v := agent.Verdict{RunID: doc.RunID, Events: doc.Events, Open: doc.Open}
	switch d := doc.Divergence; {
	case doc.Verdict == agent.Diverged && d != nil:
		v.Divergence = &agent.Divergence{RunID: doc.RunID, MismatchError: step.MismatchError{
			Seq: d.Seq, Kind: event.KindNamed(d.Kind), ExpectedKind: event.KindNamed(d.ExpectedKind), Class: step.MismatchClass(d.Class),
			Reason: d.Reason, Field: d.Field, Expected: d.Expected, Got: d.Got,
		}}
	case doc.Verdict == agent.NotDecided:
		return v, sandbox.ErrTooDeep
	case doc.Verdict != agent.Identical:
		return v, &guest.RecordedError{Reason: doc.Error}
	}
	return v, nil
}
