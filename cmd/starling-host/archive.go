package main

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
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
	a.stdout.Printf("archived %s in %s%s\n", contents(report), path, encrypted(report))
	return nil
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
	return fmt.Sprintf("%s, %s and %s", display.Plural(r.Runs, "run"), display.Plural(r.Events, "event"), display.Plural(r.Modules, "module"))
}

// encrypted describes the encrypted runs of an archive, which lacks their keys and modules, if any.
func encrypted(r store.ArchiveReport) string {
	if r.Encrypted == 0 {
		return ""
	}
	return fmt.Sprintf("; encrypted, without keys and modules: %s", display.Plural(r.Encrypted, "run"))
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
	a.stdout.Printf("valid: %s%s\n", contents(report), encrypted(report))
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
