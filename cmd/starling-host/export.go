package main

import (
	"context"

	"github.com/spf13/cobra"

	"github.com/starling-host/starling"
	"github.com/starling-host/starling/eventlog/event"
)

const exportHelp = `Write the events of a run as NDJSON, one object per line (docs/cli-json.md).

Each line has the event's envelope as hexadecimal CBOR, which is what is hashed,
and its hash. From these anyone can check the chain. The payload is shown as JSON
for reading. Nothing is checked here: see validate.`

func (a *app) exportCommand() *cobra.Command {
	var f readFlags
	cmd := &cobra.Command{
		Use:     "export DB RUN",
		Short:   "write a run as NDJSON",
		Long:    exportHelp,
		Example: "  starling-host export starling.db @last",
		RunE: func(cmd *cobra.Command, args []string) error {
			return a.export(cmd.Context(), f, args[0], args[1])
		},
	}
	f.add(cmd)
	return cmd
}

func (a *app) export(ctx context.Context, f readFlags, path, run string) error {
	events, err := f.readRun(ctx, path, run)
	if err != nil {
		return err
	}
	for _, ev := range events {
		line, err := event.ToJSON(ev)
		if err != nil {
			return err
		}
		if err := a.writeDocument(line); err != nil {
			return err
		}
	}
	return nil
}

// readRun returns the events of the run that a command's arguments name.
func (f *readFlags) readRun(ctx context.Context, path, run string) ([]event.Event, error) {
	log, err := f.open(ctx, path)
	if err != nil {
		return nil, err
	}
	defer log.Close()
	runID, err := starling.FindRun(ctx, log, run)
	if err != nil {
		return nil, err
	}
	return log.Read(ctx, runID)
}
