package main

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"strings"

	"github.com/spf13/cobra"

	"github.com/starling-host/starling"
	"github.com/starling-host/starling/cmd/starling-host/internal/dap"
	"github.com/starling-host/starling/eventlog/event"
	"github.com/starling-host/starling/host/debug"
	"github.com/starling-host/starling/host/guest"
	"github.com/starling-host/starling/runtime/agentfile"
	"github.com/starling-host/starling/serve"
)

const debugHelp = `Execute one recorded call again, and move in it forwards and backwards: to its
failure, to the line before, to the last write of a variable. There is no network, and
nothing is recorded. The log is validated first.

It begins where the call failed or ended, with the commands of gdb and rr: type help. If
standard input is not a terminal, the commands come from there, one on a line.

--at CALL chooses the call, by the number of one of its events or by its id, and begins
at that event. --at CALL/FUEL begins where the call has spent that much fuel. Without it,
the call that failed last is executed, or the last one.

Lines and variables come from the module. If it was stripped, --symbols names a build of
the same code that was not. Source files are read below --source, never elsewhere.

--dap speaks the Debug Adapter Protocol on standard input and output, for an editor, or
with --listen on a port, whose address is printed. --launch-json prints the
configuration of an editor.`

const debugExample = `  starling-host debug @last
  starling-host debug starling.db @last --at 4
  starling-host debug @last --at 4/1M --source .
  echo bt | starling-host debug @last
  starling-host debug @last --dap --listen 127.0.0.1:8301`

type debugFlags struct {
	at      string
	source  string
	symbols string
	dap     bool
	listen  string
	launch  bool
	read    readFlags
}

func (a *app) debugCommand() *cobra.Command {
	var f debugFlags
	cmd := &cobra.Command{
		Use:     "debug [DB] RUN",
		Short:   "step through a recorded call, forwards and backwards",
		Long:    debugHelp,
		Example: debugExample,
		RunE: func(cmd *cobra.Command, args []string) error {
			if f.listen != "" && !f.dap && !f.launch {
				return usagef("", "debug: --listen requires --dap")
			}
			return a.debug(cmd.Context(), args, f)
		},
	}
	cmd.Flags().StringVar(&f.at, "at", "", "debug `CALL[/FUEL]`: an event of the call or its id, and the fuel to begin at")
	cmd.Flags().StringVar(&f.source, "source", "", "show lines of the files below `FOLDER` (default the folder of --symbols, or this one)")
	cmd.Flags().StringVar(&f.symbols, "symbols", "", "take lines and variables from `TOOL`, another build of the same code")
	cmd.Flags().BoolVar(&f.dap, "dap", false, "speak the Debug Adapter Protocol on standard input and output")
	cmd.Flags().StringVar(&f.listen, "listen", "", "with --dap, listen on this `HOST:PORT` of this machine; port 0 picks a free port")
	cmd.Flags().BoolVar(&f.launch, "launch-json", false, "print a launch.json for an editor")
	f.read.add(cmd)
	return cmd
}

// debug opens sessions on a call: for a prompt, or for a client of the protocol.
func (a *app) debug(ctx context.Context, args []string, f debugFlags) error {
	log, err := f.read.open(ctx, args[0])
	if err != nil {
		return err
	}
	defer log.Close()
	db := starling.Over(log, starling.Options{})
	defer db.Close()
	runID, err := db.Find(ctx, args[1])
	if err != nil {
		return err
	}
	checked, err := db.Validate(ctx, runID)
	switch {
	case err != nil:
		return err
	case checked.Err != nil:
		return &failure{code: exitInvalid, message: "run " + runID + " is not valid, so it is not executed: " + starling.Corruption(checked.Err)}
	}
	events, err := log.Read(ctx, runID)
	if err != nil {
		return unreadable(ctx, err)
	}
	target, err := debug.Find(events, f.at)
	if err != nil {
		return a.noCall(err)
	}
	if f.symbols == "" || f.launch {
		f.source = cmp.Or(f.source, f.symbols, ".")
	}
	if info, err := os.Stat(f.source); f.source != "" && (err != nil || !info.IsDir()) {
		return usagef("", "--source: there is no folder %q", f.source)
	}
	if f.launch {
		return a.printLaunch(args[0], runID, f)
	}
	symbols, err := a.symbols(ctx, &f)
	if err != nil {
		return err
	}
	engine, err := starling.NewEngine(ctx, starling.EngineOptions{Warn: a.warn})
	if err != nil {
		return err
	}
	defer engine.Close()
	open := func(ctx context.Context) (*debug.Session, error) {
		if a.stderr.terminal {
			defer a.stderr.doing("executing call " + target.Call.CallID)()
		}
		s, err := debug.Open(ctx, events, target, debug.Options{Modules: log, Symbols: symbols, Own: ownFiles(f.source), Engine: engine, Native: agentfile.Offline})
		if err != nil {
			return nil, a.noCall(err)
		}
		return s, nil
	}
	switch {
	case f.dap && f.listen != "":
		return a.listenDAP(ctx, f.listen, open, f.source)
	case f.dap:
		return dap.Serve(ctx, a.stdin, a.stdout.raw(), open, f.source)
	}
	s, err := open(ctx)
	if err != nil {
		return err
	}
	return newPrompt(a, s, events, target, f.source).loop(ctx)
}

// ownFiles returns a function that reports which source files motions by lines stop in: those below a
// folder, without the SDK that "tool new" writes.
func ownFiles(folder string) func(string) bool {
	files := debug.NewFiles(folder)
	return func(file string) bool {
		path, _ := files.Lines(file)
		return path != "" && !strings.Contains(filepath.ToSlash(path), "/sdk/")
	}
}

// symbols finds the module of --symbols. Its folder has the source, unless --source is given.
func (a *app) symbols(ctx context.Context, f *debugFlags) ([]byte, error) {
	if f.symbols == "" {
		return nil, nil
	}
	if info, err := os.Stat(f.symbols); err == nil && info.IsDir() {
		f.source = cmp.Or(f.source, f.symbols)
	}
	found, err := guest.Find(ctx, f.symbols)
	return found.Wasm, err
}

// noCall explains that there is nothing to debug.
func (a *app) noCall(err error) error {
	none, ok := errors.AsType[*debug.NoCallError](err)
	switch {
	case errors.Is(err, debug.ErrOtherCode):
		return &failure{code: exitUsage, message: "--symbols: " + err.Error(), hint: "build it from the same source with the same compiler"}
	case errors.Is(err, event.ErrEncrypted):
		return &failure{code: exitRefused, message: "the run is encrypted", hint: "pass the master key: --key-file FILE"}
	case !ok:
		return err
	case len(none.Calls) == 0:
		return &failure{code: exitRefused, message: none.Reason}
	}
	f := &failure{code: exitUsage, message: none.Reason}
	for _, c := range none.Calls[:min(len(none.Calls), 20)] {
		f.details = append(f.details, printable(fmt.Sprintf("%6d  %-9s  %s %s", c.First, c.State, c.Name, c.CallID)))
	}
	f.hint = fmt.Sprintf("--at %d", none.Calls[len(none.Calls)-1].First)
	return f
}

// listenDAP serves the protocol on a port of this machine, one client after the other.
func (a *app) listenDAP(ctx context.Context, address string, open dap.Open, source string) error {
	at, err := serve.ParseAddress(address)
	if err != nil || at.Network != "tcp" || !at.Local() {
		return usagef("--listen 127.0.0.1:0", "--listen: %q is not an address of this machine alone", address)
	}
	listener, err := at.Listen()
	if err != nil {
		return usagef("", "--listen: %v", err)
	}
	defer context.AfterFunc(ctx, func() { listener.Close() })()
	defer listener.Close()
	a.stdout.printf("%s\n", listener.Addr())
	for {
		client, err := listener.Accept()
		if ctx.Err() != nil {
			return nil
		} else if err != nil {
			return err
		}
		a.serveDAP(ctx, client, open, source)
	}
}

func (a *app) serveDAP(ctx context.Context, client net.Conn, open dap.Open, source string) {
	defer client.Close()
	defer context.AfterFunc(ctx, func() { client.Close() })()
	if err := dap.Serve(ctx, client, client, open, source); err != nil && ctx.Err() == nil {
		a.warn("the client has left: " + starling.PlainError(err))
	}
}

// printLaunch prints a launch.json.
func (a *app) printLaunch(where, runID string, f debugFlags) error {
	if !onServer(where) {
		if path, err := filepath.Abs(where); err == nil {
			where = path
		}
	}
	folder, err := filepath.Abs(f.source)
	if err != nil {
		return err
	}
	words := []string{"debug", "--dap", named(where), runID, "--source", folder}
	if f.symbols != "" {
		words = append(words, "--symbols", f.symbols)
	}
	if f.at != "" {
		words = append(words, "--at", f.at)
	}
	if f.read.keyFile != "" {
		words = append(words, "--key-file", f.read.keyFile)
	}
	program, err := os.Executable()
	if err != nil {
		return err
	}
	configuration := map[string]any{"name": "run " + runID, "type": "starling-host", "request": "launch", "program": program, "args": words}
	if _, port, found := strings.Cut(f.listen, ":"); found {
		configuration["debugServer"] = json.Number(port)
	}
	doc, err := json.MarshalIndent(map[string]any{"version": "0.2.0", "configurations": []any{configuration}}, "", "  ")
	if err != nil {
		return err
	}
	return a.writeDocument(doc)
}
