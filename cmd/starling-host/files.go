package main

import (
	"cmp"
	"context"
	"errors"
	"path/filepath"
	"strings"

	"github.com/starling-host/starling"
	"github.com/starling-host/starling/internal/hint"
)

// giveFolders reads the folders of --dir into the database.
func giveFolders(ctx context.Context, db *starling.DB, flags []string) (*starling.Files, error) {
	var folders []starling.Folder
	for _, flag := range flags {
		f := starling.Folder{}
		f.Path, f.Writable = strings.CutSuffix(flag, ":rw")
		if i := strings.LastIndex(f.Path, ":/"); i > 1 || i == 1 && filepath.VolumeName(f.Path) == "" {
			f.Path, f.At = f.Path[:i], f.Path[i+1:]
		}
		folders = append(folders, f)
	}
	files, err := db.Files(ctx, folders...)
	if bad, ok := errors.AsType[*starling.FolderError](err); ok {
		return nil, usagef(cmp.Or(hint.Of(bad), "--dir ./data gives a folder at "+starling.DefaultMount+", --dir ./data:/data at /data, and with :rw the tool can change it"), "--dir %v", bad)
	}
	return files, err
}
