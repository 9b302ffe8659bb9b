package main

import (
	"cmp"
	"context"
	"errors"
	"io/fs"
	"strings"

	"github.com/spf13/cobra"

	"github.com/starling-host/starling"
	"github.com/starling-host/starling/cmd/starling-host/internal/view"
	"github.com/starling-host/starling/eventlog"
	"github.com/starling-host/starling/eventlog/seal"
	"github.com/starling-host/starling/internal/config"
	"github.com/starling-host/starling/internal/display"
	"github.com/starling-host/starling/internal/keyfile"
	"github.com/starling-host/starling/internal/lists"
	"github.com/starling-host/starling/internal/terminal"
	"github.com/starling-host/starling/serve"
)

type sealFlags struct {
	key        string
	witnesses  []string
	checkpoint string
	newLog     bool
	oldKeys    []string
}

func (a *app) sealCommand() *cobra.Command {
	var f sealFlags
	var key *seal.Key
	var old []string
	cmd := databaseCommand("seal [DB]", "sign the runs of a database", toChange.open, func(ctx context.Context, log database, args []string) error {
		return a.seal(ctx, log, args[0], key, old, f)
	}, a.outputFlag)
	cmd.PreRunE = func(*cobra.Command, []string) (err error) {
		if f.key == "" {
			return usagef("make one with: starling-host seal keygen seal.key", "seal: --key FILE is missing")
		}
		if key, err = readSealKey(f.key); err == nil {
			old, err = vkeysIn("--old-key", f.oldKeys)
		}
		return err
	}
	cmd.Flags().StringVar(&f.key, "key", "", "`KEYFILE` with the key that signs")
	cmd.Flags().StringArrayVar(&f.witnesses, "witness", nil, "request a cosignature from the witness at `URL`; may be repeated")
	cmd.Flags().StringVar(&f.checkpoint, "checkpoint", "", "also write the checkpoint to `FILE`, to be kept elsewhere; an older one is replaced")
	cmd.Flags().BoolVar(&f.newLog, "new-log", false, "forget the log of the database and begin another one")
	cmd.Flags().StringArrayVar(&f.oldKeys, "old-key", nil, "the `VKEY` that the key replaces, or a file with it; may be repeated")
	cmd.AddCommand(a.sealKeygenCommand())
	return cmd
}

func (a *app) sealKeygenCommand() *cobra.Command {
	var name string
	cmd := subcommand("keygen FILE", "make a key that seals databases", func(_ *cobra.Command, args []string) error {
		k, err := seal.CreateKey(args[0], name)
		if errors.Is(err, fs.ErrExist) {
			return notOver(args[0], err)
		}
		if err != nil {
			return err
		}
		return a.stdout.Printf("%s\n", k.VKey())
	})
	cmd.Flags().StringVar(&name, "name", "starling-host", "`NAME` of the key, such as a domain and a path")
	return cmd
}

// sealedDocument is the output of "seal -o json".
type sealedDocument struct {
	Checkpoint *seal.CheckpointDocument `json:"checkpoint"`
	New        bool                     `json:"new"` // it was signed now
	VKey       string                   `json:"vkey"`
	Signed     string                   `json:"signed"` // the checkpoint as a note
	Removed    int64                    `json:"removed"`
	Removals   []seal.Removal           `json:"removals,omitempty"` // that are sealed now for the first time
	Refused    []refusedDocument        `json:"refused,omitempty"`  // runs that are invalid, and were left out
}

// refusedDocument is a run that was not sealed.
type refusedDocument struct {
	RunID string `json:"run_id"`
	Error string `json:"error"`
}

func (a *app) seal(ctx context.Context, log database, where string, key *seal.Key, old []string, f sealFlags) error {
	if f.newLog {
		if err := seal.Forget(ctx, log); err != nil {
			return err
		}
	}
	sealed, err := sealNow(ctx, log, where, key, old...)
	if err != nil {
		return err
	}
	for _, url := range f.witnesses {
		if sealed.Signed, err = serve.Cosign(ctx, log, url); err != nil {
			return &failure{code: exitFailed, message: starling.PlainError(err), hint: "the checkpoint is signed; to request the cosignature again: " + display.Command("starling-host seal --key "+display.ShellWord(f.key)+" --witness "+display.ShellWord(url), named(where))}
		}
	}
	if f.checkpoint != "" {
		if err := writeFile(ctx, f.checkpoint, sealed.Signed, 0o600, true); err != nil {
			return &failure{code: exitFailed, message: "the checkpoint is signed, but not written to a file: " + err.Error()}
		}
	}
	c := sealed.Checkpoint
	refused := lists.Map(sealed.Refused, func(r seal.Refusal) refusedDocument { return refusedDocument{r.RunID, starling.PlainError(r.Err)} })
	doc := sealedDocument{c.Document(), sealed.New, sealed.VKey, string(sealed.Signed), sealed.Removed, sealed.Removals, refused}
	return cmp.Or(a.emit(doc, func() { a.printSealed(doc, c, named(where)) }), unless(len(refused) == 0, exitInvalid))
}

func (a *app) printSealed(doc sealedDocument, c seal.Checkpoint, where string) {
	what := "sealed"
	if !doc.New {
		what = "sealed already"
	}
	a.stdout.Printf("%s: %s, root %s\n", terminal.Good.Of(what), view.Leaves(c, doc.Removed), c.Root)
	view.Removals(a.stdout, doc.Removals)
	signed := doc.Signed // by the key of the log, its earlier one, and witnesses
	if n := strings.Count(signed, "\n— ") - strings.Count(signed, "\n— "+c.Origin+" "); n > 0 {
		a.stdout.Printf("cosigned by %s\n", display.Plural(n, "witness"))
	}
	a.stdout.Printf("log %s\n", doc.VKey)
	for i, r := range doc.Refused {
		if i == view.MostProblems {
			a.stdout.Printf("not sealed: %d more\n", len(doc.Refused)-i)
			break
		}
		a.stdout.Printf("%s: %s\n", terminal.Bad.Of("not sealed"), r.Error)
	}
	if len(doc.Refused) > 0 {
		a.hint(display.Command("starling-host validate", where))
	}
}

// sealNow seals a database, and explains why it cannot.
func sealNow(ctx context.Context, log database, where string, key *seal.Key, old ...string) (seal.Result, error) {
	sealed, err := seal.Seal(ctx, log, key, old...)
	switch {
	case errors.Is(err, seal.ErrOtherKey):
		err = usagef("if this key replaces the old one: --old-key VKEY; if the database is another owner's: --new-log", "%s", starling.PlainError(err))
	case errors.Is(err, eventlog.ErrLogCorrupt):
		err = &failure{code: exitInvalid, message: "nothing was signed: " + starling.PlainError(err), hint: display.Command("starling-host verify", named(where))}
	}
	return sealed, err
}

// readSealKey reads the key in a file that a flag names; nil without a file.
func readSealKey(path string) (*seal.Key, error) {
	if path == "" {
		return nil, nil
	}
	key, err := seal.ReadKey(path)
	if errors.Is(err, fs.ErrNotExist) {
		err = usagef(display.Command("starling-host seal keygen", path), "%s: no such file", path)
	}
	return key, err
}

// trustFlags say whose signatures a verification accepts.
type trustFlags struct {
	keys   []string
	policy string
}

func (f *trustFlags) add(cmd *cobra.Command) {
	cmd.Flags().StringArrayVar(&f.keys, "key", nil, "accept signatures of this `VKEY`, or a file with it; may be repeated")
	cmd.Flags().StringVar(&f.policy, "policy", "", "`FILE` that lists the logs and witnesses that must have signed (spec/seal.md, section 7)")
}

// trusted returns the policy of the flags, and nil without flags.
func (f *trustFlags) trusted() (*seal.Policy, error) {
	switch {
	case f.policy != "" && len(f.keys) > 0:
		return nil, usagef("write the key into the policy, as \"log VKEY\"", "--policy and --key exclude each other")
	case f.policy != "":
		text, err := config.ReadFile(f.policy)
		if err != nil {
			return nil, &failure{code: exitUsage, message: err.Error()}
		}
		p, err := seal.ParsePolicy(string(text))
		if err != nil {
			return nil, &failure{code: exitUsage, message: f.policy + ": " + starling.PlainError(err)}
		}
		return p, nil
	case len(f.keys) == 0:
		return nil, nil
	}
	vkeys, err := vkeysIn("--key", f.keys)
	if err != nil {
		return nil, err
	}
	return seal.Trust(vkeys...)
}

// vkeysIn returns the public keys that a flag has, or that are in the files that it names,
// also as "seal" prints one.
func vkeysIn(flag string, keys []string) (vkeys []string, err error) {
	const hint = "seal and keygen print it: NAME+HASH+BASE64"
	for _, key := range keys {
		text, err := config.ReadFile(key)
		if errors.Is(err, keyfile.ErrIrregular) {
			return nil, usagef(hint, "%s: %v", flag, err)
		}
		if err == nil {
			key = strings.TrimSpace(string(text))
			for line := range strings.Lines(key) {
				if log, ok := strings.CutPrefix(line, "log "); ok {
					key = strings.TrimSpace(log)
				}
			}
		}
		if strings.HasPrefix(key, "PRIVATE+KEY+") {
			return nil, usagef(hint, "%s: this is the private key; a verifier needs the public key", flag)
		}
		if _, err := seal.Trust(key); err != nil {
			return nil, usagef(hint, "%s: %s", flag, starling.PlainError(err))
		}
		vkeys = append(vkeys, key)
	}
	return vkeys, nil
}
