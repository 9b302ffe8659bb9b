package main

import (
	"compress/gzip"
	"context"
	"errors"
	"io"
	"io/fs"
	"os"

	"github.com/schollz/progressbar/v3"

	"github.com/starling-host/starling"
	"github.com/starling-host/starling/eventlog"
	"github.com/starling-host/starling/eventlog/span"
	"github.com/starling-host/starling/host/guest"
	"github.com/starling-host/starling/host/sandbox"
	"github.com/starling-host/starling/internal/await"
	"github.com/starling-host/starling/internal/keyfile"
	"github.com/starling-host/starling/internal/profile"
)

// observers watch a replay. They see the actions of the recorded call, on whatever machine it ran.
type observers struct {
	app   *app
	flags replayFlags
	names *guest.Symbols           // of the functions of the run's modules
	file  *os.File                 // of the profile; nil without one
	bar   *progressbar.ProgressBar // how far one run is; nil if stderr is not a terminal

	profile *profile.Profile
}

// attach makes an engine report the data that the flags request.
func (o *observers) attach(c *sandbox.Config) {
	if o.flags.profile != "" {
		c.Profile = func(tool string) sandbox.Profiler { return o.profile.Call(tool) }
	}
	if o.app.stderr.Terminal {
		c.Progress = func(fuel uint64) {
			if o.bar != nil {
				_ = o.bar.Add64(int64(fuel)) // an error means more fuel than recorded
			}
		}
	}
}

// prepare opens the file of the profile and the module's names of functions, and
// begins to show how far the run is.
func (o *observers) prepare(ctx context.Context, db *starling.DB, r *starling.Replayer, runID string) error {
	if o.app.stderr.Terminal {
		o.bar = o.app.progressBar(int(recordedFuel(ctx, db, runID)))
	}
	if o.flags.profile == "" {
		return nil
	}
	var err error
	if o.names, err = r.Symbols(ctx, runID); errors.Is(err, eventlog.ErrModuleNotFound) {
		return &failure{code: exitRefused, message: "run " + runID + " has no module to profile"}
	}
	if err != nil {
		return unreadable(ctx, err)
	}
	if holdsSomethingElse(o.flags.profile) {
		return notOver(o.flags.profile, fs.ErrExist)
	}
	if o.file, err = await.Do(ctx, func() (*os.File, error) {
		return os.OpenFile(o.flags.profile, os.O_WRONLY|os.O_CREATE|os.O_TRUNC, 0o666)
	}); err != nil {
		return &failure{code: exitUsage, message: err.Error()}
	}
	return nil
}

// holdsSomethingElse reports whether there is a file with something in it that does not
// begin as a profile: an older profile is replaced, and the database is not. A link to a
// file, or to none, is not followed: the author of the folder would choose the file.
func holdsSomethingElse(path string) bool {
	info, err := os.Stat(path)
	link, linkErr := os.Lstat(path)
	if linkErr == nil && link.Mode().Type() == fs.ModeSymlink && (err != nil || info.Mode().IsRegular()) {
		return true
	}
	if err != nil || !info.Mode().IsRegular() || info.Size() == 0 {
		return false
	}
	f, err := keyfile.Open(path)
	if err != nil {
		return true
	}
	defer f.Close()
	content, err := gzip.NewReader(f)
	if err != nil {
		return true
	}
	const sampleType = 0x0a // the tag of the field that stands first, in profile.proto
	var head [1]byte
	_, err = io.ReadFull(content, head[:])
	return err != nil || head[0] != sampleType
}

// recordedFuel returns the fuel that the calls of a run have spent. It ignores unreadable events,
// which the replay reports.
func recordedFuel(ctx context.Context, db *starling.DB, runID string) uint64 {
	var b span.Builder
	for ev, err := range db.Events(ctx, runID) {
		if err != nil {
			break
		}
		_ = b.Add(ev)
	}
	return b.Run().Fuel
}

// close writes the profile.
func (o *observers) close(ctx context.Context) error {
	if o.bar != nil {
		_ = o.bar.Finish()
	}
	if o.file == nil {
		return nil
	}
	_, err := await.Do(ctx, func() (any, error) { return nil, errors.Join(o.profile.Write(o.file), o.file.Close()) })
	return err
}
