package main

import (
	"context"
	"errors"
	"path/filepath"
	"strings"

	"github.com/starling-host/starling"
)

// giveFolders reads the folders of --dir into the database.
func giveFolders(ctx context.Context, db *starling.DB, flags []string) (*starling.Files, error) {
	var folders []starling.Folder
	for _, flag := range flags {
		f := starling.Folder{Path: flag}
		if i := strings.LastIndex(f.Path, ":/"); i > 1 || i == 1 && filepath.VolumeName(f.Path) == "" {
			f.Path, f.At = f.Path[:i], f.Path[i+1:]
		}
		folders = append(folders, f)
	}
	files, err := db.Files(ctx, folders...)
	if bad, ok := errors.AsType[*starling.FolderError](err); ok {
		return nil, usagef("--dir ./data gives a folder at "+starling.DefaultMount+", and --dir ./data:/data at /data", "--dir %v", bad)
	}
	return files, err
}
