package main

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/starling-host/starling"
	"github.com/starling-host/starling/eventlog/store"
	"github.com/starling-host/starling/internal/await"
	"github.com/starling-host/starling/internal/display"
	"github.com/starling-host/starling/internal/keyfile"
	"github.com/starling-host/starling/serve/tenant"
)

func (a *app) archiveCommand() *cobra.Command {
	var s selection
	var f readFlags
	var check bool
	cmd := subcommand("archive [DB] FILE", "write runs to a file, or check an archive", func(cmd *cobra.Command, args []string) error {
		switch {
		case check && cmd.Flags().NFlag() > 1:
			return usagef("", "--check takes no other flags")
		case check:
			return a.checkArchive(cmd.Context(), args[0])
		}
		return a.archive(cmd.Context(), args[0], args[1], s, f)
	}, s.addTo, f.add)
	cmd.Flags().BoolVar(&check, "check", false, "check the archive FILE")
	return cmd
}

func (a *app) archive(ctx context.Context, where, path string, s selection, f readFlags) error {
	o, err := s.options(time.Now())
	if err != nil {
		return err
	}
	log, err := f.open(ctx, where)
	if err != nil {
		return err
	}
	defer log.Close()
	if err := s.named(ctx, log, &o); err != nil {
		return err
	}
	if u, ok := log.(*tenant.Decrypting); ok {
		log = u.InTheClear()
	}
	report, err := store.WriteArchiveFile(ctx, path, log, o)
	if err != nil {
		return notOver(path, err)
	}
	return a.stdout.Printf("archived %s in %s%s\n", contents(report), path, encrypted(report))
}

// writeFile writes a file that the user names, such as the FILE of -o. It replaces an older one in
// one step; without over it refuses to, and only the owner may read the file. What is not a regular
// file, such as a device, a pipe or a link, stays what it is and gets the content.
func writeFile(ctx context.Context, path string, content []byte, perm fs.FileMode, over bool) error {
	there, err := os.Lstat(path)
	target, targetErr := os.Stat(path)
	switch {
	case !over && targetErr == nil && target.Mode().IsRegular():
		err = fs.ErrExist
	case err == nil && !there.Mode().IsRegular():
		_, err = await.Do(ctx, func() (any, error) { return nil, os.WriteFile(path, content, perm) })
	case over:
		err = keyfile.Replace(path, content, perm)
	default:
		err = keyfile.Create(path, content)
	}
	if errors.Is(err, fs.ErrExist) {
		return notOver(path, err)
	} else if err != nil {
		return &failure{code: exitFailed, message: starling.PlainError(err)}
	}
	return nil
}

// notOver explains why a file could not be created.
func notOver(path string, err error) error {
	if errors.Is(err, fs.ErrExist) {
		return usagef("name another file", "%s already exists", path)
	}
	return err
}

// contents describes the contents of an archive.
func contents(r store.ArchiveReport) string {
	return fmt.Sprintf("%s, %s and %s%s", display.Plural(r.Runs, "run"), display.Plural(r.Events, "event"), display.Plural(r.Modules, "module"), withFiles(r.Files))
}

func withFiles(n int) string {
	if n == 0 {
		return ""
	}
	return fmt.Sprintf(", with %d files and folders", n)
}

// encrypted describes the encrypted runs of an archive, which lacks their keys and modules, if any.
func encrypted(r store.ArchiveReport) string {
	if r.Encrypted == 0 {
		return ""
	}
	return fmt.Sprintf("; encrypted, without keys and modules: %s", display.Plural(r.Encrypted, "run"))
}

// archiveDocument is the output of "verify ARCHIVE -o json".
type archiveDocument struct {
	Verdict   string `json:"verdict"` // "valid": an invalid archive is an error
	Runs      int    `json:"runs"`
	Events    int    `json:"events"`
	Modules   int    `json:"modules"`
	Encrypted int    `json:"encrypted"` // runs
}

func (a *app) checkArchive(ctx context.Context, path string) error {
	report, err := await.Do(ctx, func() (report store.ArchiveReport, err error) { // path may be a pipe
		f, err := openArchive(path)
		if err != nil {
			return report, err
		}
		defer f.Close()
		return store.CheckArchive(ctx, f)
	})
	if err != nil {
		return inArchive(path, err)
	}
	return a.emit(archiveDocument{"valid", report.Runs, report.Events, report.Modules, report.Encrypted}, func() {
		a.stdout.Printf("valid: %s%s\n", contents(report), encrypted(report))
		a.stdout.Printf("not compared with what was sealed; to do that, run %s\n", display.Command("starling-host verify DB --archive", path))
	})
}

// eachArchive calls do for every archive that --archive names. A folder stands for the files in it whose names end
// in .ndjson.zst.
func eachArchive(paths []string, do func(path string) error) error {
	for _, path := range paths {
		root, err := filepath.EvalSymlinks(path)
		if err != nil {
			return usagef("", "--archive: %v", err)
		}
		n := 0
		err = filepath.WalkDir(root, func(file string, entry fs.DirEntry, err error) error {
			if err != nil || entry.IsDir() || file != root && !strings.HasSuffix(file, store.ArchiveSuffix) {
				return err
			}
			n++
			return inArchive(file, do(file))
		})
		if err == nil && n == 0 {
			err = usagef("", "--archive: no file in %s has a name that ends in %s", path, store.ArchiveSuffix)
		}
		if err != nil {
			return err
		}
	}
	return nil
}

func openArchive(path string) (*os.File, error) {
	f, err := os.Open(path)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, usagef("", "%s: no such file", path)
	}
	return f, err
}

// inArchive names the file in which a line is wrong.
func inArchive(path string, err error) error {
	if wrong, ok := errors.AsType[*store.ArchiveError](err); ok {
		return &failure{code: exitInvalid, message: path + ": " + starling.PlainError(wrong)}
	}
	return err
}

func (a *app) importCommand() *cobra.Command {
	return subcommand("import [DB] FILE", "import archived runs into a database", func(cmd *cobra.Command, args []string) error {
		ctx, where, path := cmd.Context(), args[0], args[1]
		// Before the file is opened, because opening a named pipe waits for its other end.
		if info, err := os.Stat(path); err == nil && !info.Mode().IsRegular() {
			return usagef("an archive is checked before it is imported, so it is read twice: write it to a file first", "%s: not a regular file", path)
		}
		f, err := openArchive(path)
		if err != nil {
			return err
		}
		defer f.Close()
		if isNew(where) { // which is not created for an archive that is wrong
			if _, err := store.CheckArchive(ctx, f); err != nil {
				return inArchive(path, err)
			}
			if _, err := f.Seek(0, 0); err != nil {
				return err
			}
		}
		log, err := toCreate.open(ctx, where)
		if err != nil {
			return err
		}
		defer log.Close()
		target, err := tenant.ForImport(ctx, log)
		if err != nil {
			return err
		}
		report, err := store.ImportArchive(ctx, target, f)
		if foreign := (*tenant.ForeignRunError)(nil); errors.As(err, &foreign) {
			return &failure{code: exitRefused, message: foreign.Error(), hint: "import it into a new database"}
		} else if err != nil {
			return inArchive(path, err)
		}
		if err := log.Close(); err != nil {
			return err
		}
		if report.Known > 0 {
			a.stdout.Printf("imported %d of %s; %d already existed%s\n", report.Runs-report.Known, display.Plural(report.Runs, "run"), report.Known, encrypted(report))
		} else {
			a.stdout.Printf("imported %s%s\n", contents(report), encrypted(report))
		}
		return nil
	})
}
