package main

import (
	"context"

	"github.com/spf13/cobra"

	"github.com/starling-host/starling"
	"github.com/starling-host/starling/eventlog/event"
)

const exportHelp = `Write the events of a run as NDJSON, one object per line (docs/cli-json.md).

Each line has the event's envelope as hexadecimal CBOR and its hash. From these anyone
can check the chain. The payload is repeated as JSON for reading. Export checks
nothing: see validate.`

func (a *app) exportCommand() *cobra.Command {
	return readCommand(&cobra.Command{
		Use:     "export [DB] RUN",
		Short:   "write a run as NDJSON",
		Long:    exportHelp,
		Example: "  starling-host export @last",
	}, func(ctx context.Context, log database, args []string) error {
		events, err := readRun(ctx, log, args[1])
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
	})
}

// readRun returns the events of the run that a command's argument names.
func readRun(ctx context.Context, log database, run string) ([]event.Event, error) {
	runID, err := starling.FindRun(ctx, log, run)
	if err != nil {
		return nil, err
	}
	return log.Read(ctx, runID)
}
