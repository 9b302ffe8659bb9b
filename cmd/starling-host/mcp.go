package main

import (
	"context"

	"github.com/spf13/cobra"

	"github.com/starling-host/starling/host/mcpsrv"
)

const mcpHelp = `Serve a database to an assistant that speaks the Model Context Protocol, over
standard input and output. The database is opened for reading only, and read again
at each call.

There are seven tools: list_runs, get_run, get_event, summarize_run, validate_run,
diff_runs and search_runs. None of them changes anything.

An assistant is told to start this command, for example in its mcp.json:

    {"mcpServers": {"starling": {"command": "starling-host", "args": ["mcp", "/path/starling.db"]}}}`

func (a *app) mcpCommand() *cobra.Command {
	var f readFlags
	cmd := &cobra.Command{
		Use:     "mcp DB",
		Short:   "serve a database to an assistant, over MCP",
		Long:    mcpHelp,
		Example: "  starling-host mcp starling.db",
		GroupID: groupLook,
		Args:    arguments(1, "DB"),
		RunE: func(cmd *cobra.Command, args []string) error {
			return a.mcp(cmd.Context(), f, args[0])
		},
	}
	f.add(cmd)
	return cmd
}

func (a *app) mcp(ctx context.Context, f readFlags, path string) error {
	log, err := f.open(ctx, path)
	if err != nil {
		return err
	}
	defer log.Close()
	view, err := logViewOf(ctx, path, log)
	if err != nil {
		return err
	}
	return mcpsrv.ServeStdio(ctx, mcpsrv.View{Log: &view}, mcpsrv.Options{Version: programVersion()}, a.stdin, a.stdout.exact())
}
