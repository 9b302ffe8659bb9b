package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"strings"

	"github.com/spf13/cobra"

	"github.com/starling-host/starling"
	"github.com/starling-host/starling/eventlog/canon"
	"github.com/starling-host/starling/internal/display"
	"github.com/starling-host/starling/internal/hint"
	"github.com/starling-host/starling/internal/lists"
	"github.com/starling-host/starling/internal/workspace"
	"github.com/starling-host/starling/internal/workspace/folder"
)

func (a *app) workspaceCommand() *cobra.Command {
	var before bool
	get := readCommand("get [DB] RUN FOLDER", "write the files of a run to a new folder", func(ctx context.Context, log database, args []string) error {
		given, left, err := workspaceOf(ctx, log, args[1])
		if before {
			left = given
		}
		if err == nil && left == nil {
			err = usagef("--before writes those that it was given", "%s left no files, because its call did not complete", args[1])
		}
		if err != nil {
			return err
		}
		none := workspace.Encode(nil)
		get := func(digest canon.Hash) ([]byte, error) {
			if digest == canon.Sum(none) {
				return none, nil
			}
			return log.Module(ctx, digest)
		}
		changes, err := workspace.Diff(get, canon.Sum(none), canon.Hash(left))
		if err != nil {
			return err
		}
		if err := os.Mkdir(args[2], 0o777); errors.Is(err, fs.ErrExist) {
			return notOver(args[2], err)
		} else if err != nil {
			return err
		}
		to, err := folder.Open(args[2])
		if err != nil {
			return err
		}
		defer to.Close()
		to.LeaveOut = func(link error) { a.warn("left out: " + link.Error()) }
		if _, err := to.WriteBack(ctx, get, changes); err != nil {
			_ = os.Remove(args[2]) // if it is empty
			return err
		}
		return a.stdout.Printf("the files of %s are in %s\n", args[1], args[2])
	}, func(cmd *cobra.Command) {
		cmd.Flags().BoolVar(&before, "before", false, "write the files that the run was given")
	})
	diff := readCommand("diff [DB] RUN", "print which files a run changed", func(ctx context.Context, log database, args []string) error {
		given, left, err := workspaceOf(ctx, log, args[1])
		if err != nil {
			return err
		}
		if left == nil {
			left = given
		}
		get := func(digest canon.Hash) ([]byte, error) { return log.Module(ctx, digest) }
		changes, err := workspace.Diff(get, canon.Hash(given), canon.Hash(left))
		doc := changesDocument{Changes: []fileChange{}}
		for _, c := range changes {
			e, what := c.New, "changed"
			switch {
			case c.Old.Kind == 0:
				what = "added"
			case c.New.Kind == 0:
				e, what = c.Old, "removed"
			}
			list := func(below string, e workspace.Entry) error {
				doc.Changes = append(doc.Changes, fileChange{path.Join("/", c.Path, below), what, e.Kind.String(), e.Size})
				return nil
			}
			if _ = list("", e); err == nil && e.Kind == workspace.Folder { // all that is in it came, or went
				what = strings.Replace(what, "changed", "added", 1)
				err = workspace.Walk(get, e.Digest, list)
			}
		}
		if err != nil {
			return err
		}
		return a.emit(doc, func() {
			for _, c := range doc.Changes {
				a.stdout.Printf("%-7s  %s\n", c.Change, c.Path)
			}
		})
	}, a.outputFlag)
	return parent("workspace", "the files of a run: what it changed, and how to get them", diff, get)
}

type changesDocument struct {
	Changes []fileChange `json:"changes"`
}

type fileChange struct {
	Path   string `json:"path"`
	Change string `json:"change"`
	Kind   string `json:"kind"`
	Bytes  uint64 `json:"bytes"`
}

// workspaceOf returns the roots of the files that the call of a run was given and left, or no second one.
func workspaceOf(ctx context.Context, log database, run string) (given, left []byte, err error) {
	events, err := readRun(ctx, log, run)
	if err != nil {
		return nil, nil, err
	}
	first, left, err := starling.FilesOf(events)
	if err != nil {
		return nil, nil, err
	}
	if first == nil {
		return nil, nil, usagef("run --dir gives a call files", "%s was given no files", run)
	}
	return first.Root, left, nil
}

// dirFlag adds --dir.
func dirFlag(cmd *cobra.Command, dirs *[]string, whom string) {
	cmd.Flags().StringArrayVar(dirs, "dir", nil, "give "+whom+" the files of a folder, as `FOLDER[:AT][:rw]`; may be repeated")
}

// warnOfDirs warns that nothing looks for the files of --dir.
func (a *app) warnOfDirs(who string) {
	a.warn(who + " for the files of --dir: programs for WASI do, run_js, run_py, tools in Python, and those in JavaScript that import fs")
}

// writeBack changes the folders of --dir to what a run has left, and returns the paths.
func writeBack(ctx context.Context, files *starling.Files, runID string) (changed []string, err error) {
	if changed, err = files.WriteBack(context.WithoutCancel(ctx), runID); err != nil { // the run has ended
		err = fmt.Errorf("--dir %w", err)
	}
	return changed, err
}

// reportChanged prints what writeBack has changed.
func (a *app) reportChanged(paths []string) {
	shown := lists.Map(paths[:min(20, len(paths))], display.ShellWord)
	if more := len(paths) - len(shown); more > 0 {
		shown = append(shown, fmt.Sprintf("and %d more", more))
	}
	if len(shown) > 0 {
		a.stderr.Printf("changed: %s\n", strings.Join(shown, " "))
	}
}

// foldersOf returns the folders of --dir.
func foldersOf(flags []string) (folders []starling.Folder) {
	for _, flag := range flags {
		f := starling.Folder{}
		f.Path, f.Writable = strings.CutSuffix(flag, ":rw")
		if i := strings.LastIndex(f.Path, ":/"); i > 1 || i == 1 && filepath.VolumeName(f.Path) == "" {
			f.Path, f.At = f.Path[:i], f.Path[i+1:]
		}
		folders = append(folders, f)
	}
	return folders
}

// giveFolders reads the folders of --dir into the database.
func giveFolders(ctx context.Context, db *starling.DB, flags []string) (*starling.Files, error) {
	files, err := db.Files(ctx, foldersOf(flags)...)
	if bad, ok := errors.AsType[*starling.FolderError](err); ok {
		return nil, usagef(cmp.Or(hint.Of(bad), "--dir ./data gives a folder at "+starling.DefaultMount+", --dir ./data:/data at /data, and with :rw the tool can change it"), "--dir %v", bad)
	}
	return files, err
}
