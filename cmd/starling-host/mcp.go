package main

import (
	"context"
	"errors"
	"io/fs"
	"log/slog"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/starling-host/starling"
	"github.com/starling-host/starling/internal/display"
	"github.com/starling-host/starling/runtime/agent"
	"github.com/starling-host/starling/runtime/agentfile"
	"github.com/starling-host/starling/serve"
	"github.com/starling-host/starling/serve/gateway"
)

// mcpFlags are the flags of mcp.
type mcpFlags struct {
	callFlags
	read    readFlags
	tools   []string
	folders []string
	dirs    []string
	servers []string
	headers []string
	choices []string
	sets    []string
	log     bool
	code    string // the language of the programs, or empty
	listen  string
	replay  string // the database that answers; empty for none
	live    bool

	receipts string // file of the key that signs them; empty for none
}

func (f *mcpFlags) add(cmd *cobra.Command) {
	flags := cmd.Flags()
	dirFlag(cmd, &f.dirs, "the tools")
	flags.StringArrayVar(&f.tools, "tool", nil, "serve the tools of this `FILE|FOLDER`; may be repeated")
	flags.StringArrayVar(&f.folders, "tools", nil, "serve the tools of all modules and tool folders in `FOLDER`; may be repeated")
	flags.StringArrayVar(&f.servers, "server", nil, "serve the tools of this MCP server, `[NAME=]COMMAND|URL`; may be repeated")
	f.addServers(flags)
	flags.BoolVar(&f.log, "log", false, "also serve the seven tools that read the database of --db")
	choiceFlag(cmd, "code", "", "serve only run_js, whose programs call the tools, or run_py for python", choice(&f.code, "javascript", "python"))
	flags.Lookup("code").NoOptDefVal = "javascript"
	flags.StringVar(&f.listen, "listen", "", "serve over HTTP at this `ADDRESS` of this machine; port 0 picks a free port")
	flags.StringVar(&f.replay, "replay", "", "answer as in the recorded calls of this `DB`, without the tools")
	flags.BoolVar(&f.live, "live", false, "with --replay: pass calls that are not recorded to --tool and --server, and record them")
	flags.StringVar(&f.receipts, "receipts", "", "sign a receipt of each call with the key in `KEYFILE`, in the result's _meta")
	f.callFlags.add(cmd)
	f.read.add(cmd)
}

// addServers adds the flags that say how servers are used.
func (f *mcpFlags) addServers(flags *pflag.FlagSet) {
	flags.StringArrayVar(&f.headers, "server-header", nil, "send a header to a server with a URL, `NAME: HEADER: VALUE`, with $VARIABLE for a secret; may be repeated")
	flags.StringArrayVar(&f.choices, "server-tools", nil, "serve only some tools of a server, `NAME: TOOL,!TOOL,TOOL=OTHER`; may be repeated")
	flags.StringArrayVar(&f.sets, "server-set", nil, "how a server is used, `NAME: shared, strict, timeout=TIME, arguments=SIZE`; may be repeated")
}

func (a *app) mcpCommand() *cobra.Command {
	var f mcpFlags
	cmd := subcommand("mcp [DB]", "serve tools or a database to an assistant over MCP", func(cmd *cobra.Command, args []string) error {
		ctx := cmd.Context()
		refs, args, err := f.refs(args)
		if err != nil {
			return err
		}
		var listener net.Listener
		if f.listen != "" {
			at, err := f.address()
			if err != nil {
				return err
			}
			if listener, err = at.Listen(); err != nil {
				return usagef("", "--listen: %v", err)
			}
			defer listener.Close()
		}
		service := gateway.Service{Version: agent.Version(), Logger: slog.New(slog.NewTextHandler(a.stderr.Lines(), nil))}
		receipts, err := issuerOf(f.receipts)
		if err != nil {
			return err
		}
		where := f.database
		if f.calls(refs) || f.replay != "" {
			db, err := a.open(ctx, f.database, f.isolation, f.trust, receipts)
			if err != nil {
				return err
			}
			defer db.Close()
			if service.Tools, err = a.localTools(ctx, db, refs, f); err != nil {
				return err
			}
			defer service.Tools.Close()
			if f.replay != "" {
				log, err := f.read.open(ctx, f.replay)
				if err != nil {
					return err
				}
				defer log.Close()
				recording, err := gateway.NewRecording(ctx, log, named(f.replay), a.warn)
				if err != nil {
					return err
				}
				defer recording.Close()
				service.Tools.Replay(recording)
			}
			if f.calls(refs) {
				if _, err := db.Log(ctx); err != nil { // which makes it
					return err
				}
			}
		} else {
			where = args[0]
		}
		if f.log || service.Tools == nil {
			log, err := f.read.open(ctx, where)
			if err != nil {
				return err
			}
			defer log.Close()
			if service.Database, err = databaseOf(ctx, where, log); err != nil {
				return err
			}
			service.Database.Receipts = receipts
		}
		if listener != nil {
			a.stderr.Printf("serving at http://%s/mcp; stop with Ctrl-C\n", listener.Addr())
			return service.Listen(ctx, listener)
		}
		return service.Serve(ctx, a.stdin, a.stdout.Exact())
	}, f.add)
	cmd.AddCommand(a.mcpConfigCommand(), a.mcpTrustCommand(), a.mcpLoginCommand(), a.mcpVerifyCommand())
	return cmd
}

// address returns the address of --listen. It must be on this machine, since mcp requires no key.
func (f *mcpFlags) address() (serve.Address, error) {
	at, err := serve.ParseAddress(f.listen)
	if err != nil || at.Network != "tcp" {
		return at, usagef("", "--listen: %q is not an address such as 127.0.0.1:8400", f.listen)
	}
	if !at.Local() {
		return at, usagef("to share tools over a network, with keys: starling-host serve --help",
			"--listen: %s can be reached from other machines, and mcp asks for no key", f.listen)
	}
	return at, nil
}

// refs returns the modules that the flags name: those of --tool, and for each folder of --tools,
// its files NAME.wasm and NAME.py and its folders, by name. If there are none, it returns the given DB, or else
// starling.db.
func (f *mcpFlags) refs(db []string) (refs, dbs []string, err error) {
	refs = slices.Clone(f.tools)
	for _, folder := range f.folders {
		entries, err := os.ReadDir(folder)
		if errors.Is(err, fs.ErrNotExist) {
			return nil, nil, usagef("", "--tools: no folder %s", folder)
		}
		if err != nil {
			return nil, nil, usagef("if it is one tool: "+display.Command("starling-host mcp --tool", folder), "--tools: %v", err)
		}
		found := false
		for _, e := range entries {
			hidden := strings.HasPrefix(e.Name(), ".")
			if !hidden && (e.IsDir() || strings.HasSuffix(e.Name(), ".wasm") || strings.HasSuffix(e.Name(), ".py")) {
				refs, found = append(refs, filepath.Join(folder, e.Name())), true
			}
		}
		if !found {
			return nil, nil, usagef("if it is one tool: "+display.Command("starling-host mcp --tool", folder), "--tools: %s has no .wasm file, no file in Python and no folder", folder)
		}
	}
	switch {
	case f.live && f.replay == "" || f.replay != "" && (f.live != f.calls(refs) || f.code != "" || len(db) > 0):
		return nil, nil, usagef("", "give --replay alone, or with --live and tools to ask: --tool, --tools or --server; it excludes DB and --code")
	case len(f.dirs) > 0 && len(refs) == 0 && f.code == "":
		return nil, nil, usagef("", "--dir is for tools: give --tool, --tools or --code")
	case f.replay != "":
	case f.code != "" && len(db) > 0 && agentfile.Programs[db[0]] != "":
		return nil, nil, usagef("write it with a sign of equality: --code="+db[0], "--code: %s is read as a DB", db[0])
	case f.calls(refs) && len(db) > 0:
		return nil, nil, usagef("", "DB and tools exclude each other: to let the assistant read the database of --db, add --log")
	case f.calls(refs):
	case f.log:
		return nil, nil, usagef("", "give --tool, --tools or --server, or a DB to read")
	case len(db) == 0:
		if isNew(defaultDatabase) {
			return nil, nil, usagef("", "give --tool, --tools or --server, or a DB to read: there is no %s here", defaultDatabase)
		}
		db = []string{defaultDatabase}
	}
	return refs, db, nil
}

// calls reports whether there are tools to call.
func (f *mcpFlags) calls(refs []string) bool { return len(refs)+len(f.servers) > 0 || f.code != "" }

// parsedServers returns the servers that the flags name.
func (f *mcpFlags) parsedServers() ([]gateway.Server, error) {
	var servers []gateway.Server
	for _, text := range f.servers {
		server, err := gateway.ParseServer(text)
		if err != nil {
			return nil, usagef("", "--server: %v", err)
		}
		servers = append(servers, server)
	}
	for _, flag := range []struct {
		name  string
		texts []string
		set   func([]gateway.Server, string) error
	}{
		{"server-header", f.headers, gateway.AddHeader}, {"server-tools", f.choices, gateway.ChooseTools}, {"server-set", f.sets, gateway.Set},
	} {
		for _, text := range flag.texts {
			if err := flag.set(servers, text); err != nil {
				return nil, usagef("", "--%s: %v", flag.name, err)
			}
		}
	}
	return servers, nil
}

// localTools loads modules, and adds servers, which connect in the background. It warns about
// modules that cannot be loaded, and fails if nothing else is left.
func (a *app) localTools(ctx context.Context, db *starling.DB, refs []string, f mcpFlags) (*gateway.Tools, error) {
	options, err := f.options()
	if err != nil {
		return nil, err
	}
	tools := gateway.NewTools(db, options, a.warn)
	for _, folder := range foldersOf(f.dirs) {
		folder.Path = absolute(folder.Path) // as clients need it
		tools.Folders = append(tools.Folders, folder)
	}
	if _, err := giveFolders(ctx, db, f.dirs); err != nil {
		return nil, err
	}
	var first error
	add := func(name string, err error) {
		if err != nil && (len(refs)+len(f.servers) > 1 || f.code != "") {
			a.warn(name + " is left out: " + strings.TrimPrefix(explain(err).message, name+": "))
		}
		if first == nil {
			first = err
		}
	}
	for _, ref := range refs {
		add(ref, tools.Add(ctx, ref))
	}
	servers, err := f.parsedServers()
	if err != nil {
		return nil, err
	}
	for _, server := range servers {
		pins, err := gateway.DefaultPins()
		if err == nil {
			err = tools.AddServer(server, pins)
		}
		if err != nil {
			return nil, usagef("", "--server: %v", err)
		}
	}
	switch {
	case ctx.Err() != nil:
		return nil, ctx.Err()
	case tools.Len() == 0 && f.code == "" && f.replay == "":
		return nil, first
	}
	if f.code != "" {
		err = tools.AddCode(ctx, f.code)
	}
	if err == nil && len(f.dirs) > 0 && !tools.FindsFiles() {
		a.warnOfDirs("no tool looks")
	}
	return tools, err
}
