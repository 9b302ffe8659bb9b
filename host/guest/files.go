package guest

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"github.com/starling-host/starling/abi"
	"github.com/starling-host/starling/eventlog"
	"github.com/starling-host/starling/eventlog/canon"
	"github.com/starling-host/starling/eventlog/event"
	"github.com/starling-host/starling/host/sandbox"
	"github.com/starling-host/starling/internal/lists"
	"github.com/starling-host/starling/internal/workspace"
	"github.com/starling-host/starling/runtime/step"
	"github.com/starling-host/starling/runtime/tool"
)

// In returns the tool for calls that are given files (event.ToolCallScheduled.Workspace): contents
// has them. To keep those that a call leaves, it must be an [eventlog.ModuleStore]; a replay keeps none.
func (t *Tool) In(contents eventlog.ModuleReader) *Tool {
	in := *t
	in.contents = contents
	return &in
}

// FindsFiles reports whether the tool looks for the files of a call: it is a program, or its interpreter imports what finds them.
func (t *Tool) FindsFiles() bool {
	return t.module.command() || t.module.interpreted && slices.Contains(t.module.Imports(), abi.WASIModule+".fd_prestat_get")
}

// files returns the files of a call, which are read as the guest asks for them. A content that is not
// there, or is another, is the host's failure, whatever the guest would make of it.
func (t *Tool) files(ctx context.Context, w *event.Workspace) (*sandbox.Files, error) {
	if w == nil {
		return nil, nil
	}
	if err := w.Check(); err != nil {
		return nil, fmt.Errorf("%w: %w", eventlog.ErrLogCorrupt, err)
	}
	if t.contents == nil {
		return nil, fmt.Errorf("%w: nothing here has the files of the call", tool.ErrHost)
	}
	ctx = context.WithoutCancel(ctx) // a read that is cut off would be a failure of the host
	return &sandbox.Files{
		Root:   sandbox.Digest(w.Root),
		Mounts: lists.Map(w.Mounts, func(m event.Mount) sandbox.Mount { return sandbox.Mount(m) }),
		Get: func(digest canon.Hash) ([]byte, error) {
			content, err := t.contents.Module(ctx, digest)
			if errors.Is(err, eventlog.ErrModuleNotFound) {
				err = fmt.Errorf("%w: a file or folder of the call, %v, is not there", eventlog.ErrLogCorrupt, digest)
			}
			return content, err
		},
	}, nil
}

// leave keeps the contents that a successful call leaves, and returns the root of its files.
func (t *Tool) leave(ctx context.Context, call step.Call, r sandbox.Result) (root []byte, err error) {
	if !call.Replay && len(r.Contents) > 0 {
		log, ok := t.contents.(eventlog.ModuleStore)
		if !ok {
			return nil, fmt.Errorf("%w: nothing here keeps the files of the call", tool.ErrHost)
		}
		if err := Keep(context.WithoutCancel(ctx), log, call.RunID, r.Contents); err != nil {
			return nil, fmt.Errorf("%w: %w", tool.ErrHost, err)
		}
	}
	return r.Left[:], nil
}

// Keep stores contents of files, see [eventlog.ModuleStore].
func Keep(ctx context.Context, log eventlog.ModuleStore, user string, contents []workspace.Content) error {
	return log.PutContents(ctx, user, lists.Map(contents, func(c workspace.Content) eventlog.Content {
		return eventlog.Content{Bytes: c.Bytes, Uses: c.Uses()}
	}))
}
