package main

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"

	"github.com/spf13/cobra"

	"github.com/starling-host/starling"
	"github.com/starling-host/starling/cmd/starling-host/internal/dap"
	"github.com/starling-host/starling/eventlog"
	"github.com/starling-host/starling/eventlog/event"
	"github.com/starling-host/starling/host/debug"
	"github.com/starling-host/starling/host/guest"
	"github.com/starling-host/starling/internal/display"
	"github.com/starling-host/starling/runtime/agentfile"
	"github.com/starling-host/starling/serve"
)

type debugFlags struct {
	at      string
	source  string
	symbols string
	dap     bool
	listen  string
}

func (a *app) debugCommand() *cobra.Command {
	var f debugFlags
	var launch bool
	var cmd *cobra.Command
	cmd = readCommand("debug [DB] RUN", "step through a recorded call, forwards and backwards", func(ctx context.Context, log database, args []string) error {
		if f.listen != "" && !f.dap && !launch {
			return usagef("", "debug: --listen requires --dap")
		}
		symbols, err := f.find(ctx)
		if err != nil {
			return err
		}
		db := starling.Over(log, starling.Options{})
		defer db.Close()
		runID, err := db.Find(ctx, args[1])
		if err != nil {
			return err
		}
		checked, err := db.Validate(ctx, runID)
		if err == nil && checked.Err != nil {
			err = &failure{code: exitInvalid, message: "run " + runID + " is not valid, so it is not executed: " + eventlog.Corruption(checked.Err)}
		}
		if err != nil {
			return err
		}
		events, err := log.Read(ctx, runID)
		if err != nil {
			return unreadable(ctx, err)
		}
		target, err := debug.Find(events, f.at)
		if err != nil {
			return a.noCall(err)
		}
		if launch {
			return a.printLaunch(cmd, args[0], runID, f)
		}
		return a.debug(ctx, log, events, target, symbols, f)
	})
	cmd.Flags().StringVar(&f.at, "at", "", "debug `CALL[/FUEL]`: an event of the call or its id, and the fuel to begin at")
	cmd.Flags().StringVar(&f.source, "source", "", "show lines of the files below `FOLDER` (default the folder of --symbols, or this one)")
	cmd.Flags().StringVar(&f.symbols, "symbols", "", "take lines and variables from `TOOL`, another build of the same code")
	cmd.Flags().BoolVar(&f.dap, "dap", false, "speak the Debug Adapter Protocol on standard input and output")
	cmd.Flags().StringVar(&f.listen, "listen", "", "with --dap, listen on this `HOST:PORT` of this machine; port 0 picks a free port")
	cmd.Flags().BoolVar(&launch, "launch-json", false, "print a launch.json for an editor")
	return cmd
}

// find returns the module of --symbols, if there is one, and sets the folder of the source.
func (f *debugFlags) find(ctx context.Context) ([]byte, error) {
	if info, err := os.Stat(f.symbols); err == nil && info.IsDir() {
		f.source = cmp.Or(f.source, f.symbols)
	}
	f.source = cmp.Or(f.source, ".")
	if info, err := os.Stat(f.source); err != nil || !info.IsDir() {
		return nil, usagef("", "--source: there is no folder %q", f.source)
	}
	if f.symbols == "" {
		return nil, nil
	}
	found, err := guest.Find(ctx, f.symbols)
	return found.Wasm, err
}

// debug opens sessions on a call: for a prompt, or for clients of the protocol, one after the other.
func (a *app) debug(ctx context.Context, log database, events []event.Event, target debug.Target, symbols []byte, f debugFlags) error {
	engine, err := starling.NewEngine(ctx, starling.EngineOptions{Warn: a.warn})
	if err != nil {
		return err
	}
	defer engine.Close()
	files, found := debug.NewFiles(f.source), false
	own := func(file string) bool { // motions by lines stop there: without the SDK that "tool new" writes
		path, _ := files.Lines(file)
		found = found || path != ""
		return path != "" && !strings.Contains(filepath.ToSlash(path), "/sdk/")
	}
	open := func(ctx context.Context) (*debug.Session, error) {
		if a.stderr.Terminal {
			defer a.stderr.Doing("executing call " + target.Call.CallID)()
		}
		s, err := debug.Open(ctx, events, target, debug.Options{Modules: log, Symbols: symbols, Own: own, Engine: engine, Native: agentfile.Offline})
		return s, a.noCall(err)
	}
	if !f.dap {
		s, err := open(ctx)
		if err != nil {
			return err
		}
		p := &debug.Prompt{Stdin: a.stdin, Stdout: a.stdout, Stderr: a.stderr, Session: s, Files: files}
		switch ok, err := p.Run(ctx, events, target.Call, found); {
		case err != nil:
			return silent(exitCancelled)
		case !ok:
			return silent(exitFailed)
		}
		return nil
	}
	if f.listen == "" {
		return dap.Serve(ctx, a.stdin, a.stdout.Raw(), open, f.source)
	}
	at, err := serve.ParseAddress(f.listen)
	if err != nil || at.Network != "tcp" || !at.Local() {
		return usagef("--listen 127.0.0.1:0", "--listen: %q is not an address of this machine alone", f.listen)
	}
	listener, err := at.Listen()
	if err != nil {
		return usagef("", "--listen: %v", err)
	}
	defer context.AfterFunc(ctx, func() { listener.Close() })()
	defer listener.Close()
	a.stdout.Printf("%s\n", listener.Addr())
	for {
		client, err := listener.Accept()
		if ctx.Err() != nil {
			return nil
		} else if err != nil {
			return err
		}
		stop := context.AfterFunc(ctx, func() { client.Close() })
		if err := dap.Serve(ctx, client, client, open, f.source); err != nil && ctx.Err() == nil {
			a.warn("the client has left: " + starling.PlainError(err))
		}
		stop()
		client.Close()
	}
}

// noCall explains that there is nothing to debug.
func (a *app) noCall(err error) error {
	none, ok := errors.AsType[*debug.NoCallError](err)
	switch {
	case err == nil:
		return nil
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
		f.details = append(f.details, display.Printable(fmt.Sprintf("%6d  %-9s  %s %s", c.First, c.State, c.Name, c.CallID)))
	}
	f.hint = fmt.Sprintf("--at %d", none.Calls[len(none.Calls)-1].First)
	return f
}

// printLaunch prints a launch.json with the flags of the command.
func (a *app) printLaunch(cmd *cobra.Command, where, runID string, f debugFlags) error {
	folder, err := filepath.Abs(f.source)
	if err != nil {
		return err
	}
	if path, err := filepath.Abs(where); err == nil && !onServer(where) {
		where = path
	}
	words := []string{"debug", "--dap", named(where), runID, "--source", folder}
	for _, name := range []string{"symbols", "at", "key-file"} {
		if value := cmd.Flag(name).Value.String(); value != "" {
			words = append(words, "--"+name, value)
		}
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
