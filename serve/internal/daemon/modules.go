package daemon

import (
	"context"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"time"

	"github.com/starling-host/starling/abi"
	"github.com/starling-host/starling/eventlog"
	"github.com/starling-host/starling/eventlog/canon"
	"github.com/starling-host/starling/host/artifact"
	"github.com/starling-host/starling/host/guest"
	"github.com/starling-host/starling/host/sandbox"
	"github.com/starling-host/starling/internal/lists"
	"github.com/starling-host/starling/serve/internal/share"
	"github.com/starling-host/starling/serve/tenant"
)

// moduleDocument is a module of a tenant.
type moduleDocument struct {
	Name       string   `json:"name"`
	Digest     string   `json:"digest"`
	Size       int64    `json:"size"`
	Trusted    bool     `json:"trusted"`
	UploadedAt string   `json:"uploaded_at"`
	Tools      []string `json:"tools"`
}

// owned is a module of a tenant with its description.
type owned struct {
	tenant.Module
	tools []abi.ToolDescription
	size  int // of the description, in bytes
}

func (o owned) document() moduleDocument {
	return moduleDocument{
		Name: o.Name, Digest: o.Digest.String(), Size: o.Size, Trusted: o.Trusted, UploadedAt: o.Uploaded.UTC().Format(time.RFC3339Nano),
		Tools: lists.Map(o.tools, func(t abi.ToolDescription) string { return t.Name }),
	}
}

func (d *Daemon) listModules(r *request) (list[moduleDocument], error) {
	return list[moduleDocument]{Items: lists.Map(r.tenant.snapshot.modules, owned.document)}, nil
}

func (d *Daemon) getModule(r *request) (moduleDocument, error) {
	m, err := r.tenant.snapshot.module(r.PathValue("name"))
	return m.document(), err
}

// deleteModule takes a module from the tenant. Calls in progress finish normally. Recorded runs
// stay, and can be replayed. The bytes are removed if no run refers to them.
func (d *Daemon) deleteModule(w http.ResponseWriter, r *request) error {
	name := r.PathValue("name")
	if err := d.config.Tenants.RemoveModule(r.Context(), r.tenant.ID, name); err != nil {
		return err
	}
	d.modules.Drop(func(k moduleKey) bool { return k.tenant == r.tenant.ID && k.name == name })
	w.WriteHeader(http.StatusNoContent)
	return nil
}

const wasmType = "application/wasm"

// uploadModule takes a module. It is checked, compiled and asked for its description, all
// as untrusted, before it is added to the tenant's modules.
func (d *Daemon) uploadModule(w http.ResponseWriter, r *request) error {
	name := r.query.text("name")
	switch {
	case name == "":
		return badQuery.because("the name of the module is missing: %s", tenant.ModuleNameRule).in("name").hint("send it as " + base + "/modules?name=NAME")
	case tenant.ValidModuleName(name) != nil:
		return badQuery.because("%q is not a valid module name: %s", clip(name), tenant.ModuleNameRule).in("name")
	}
	if err := d.takesWork(); err != nil {
		return err
	}
	size := d.config.Requests.Module
	if r.ContentLength >= 0 {
		size = min(size, r.ContentLength)
	}
	release, err := d.disk.takeModule(size)
	if err != nil {
		return err
	}
	defer release()
	wasm, err := d.readBody(w, r.Request, wasmType, d.config.Requests.Module, share.Module)
	if err != nil {
		return err
	}
	if m, err := r.tenant.snapshot.module(name); err != nil || m.Digest != canon.Sum(wasm) {
		if wait := d.uploads.wait(r.tenant.ID, r.tenant.Limits.UploadsPerHour, time.Hour); wait > 0 {
			return rateLimited.because("the tenant has uploaded %d modules within the hour, its limit", r.tenant.Limits.UploadsPerHour).retry(wait)
		}
	}
	end, err := enter(r.Context(), d.compiles, r.tenant.Tenant, r.tenant.Limits.Compiling) // after the body, so that no one waits for a slow upload
	if err != nil {
		return err
	}
	defer end()
	signature, err := base64.StdEncoding.DecodeString(r.Header.Get(SignatureHeader))
	if err != nil {
		return badQuery.because("%s is not base64", SignatureHeader)
	}
	m, created, err := d.install(r.Context(), r.tenant, name, wasm, signature)
	if err != nil {
		return err
	}
	status := http.StatusOK
	if created {
		status = http.StatusCreated
	}
	w.Header().Set("Location", base+"/modules/"+m.Name)
	writeJSON(w, status, m.document())
	return nil
}

// SignatureHeader has the signature of an uploaded module, a signed note, in base64.
const SignatureHeader = "Starling-Signature"

// install adds a module to the tenant. If the tenant has the same module under the same name, it
// stays unchanged. For a component, the module is the core module that joins its parts.
func (d *Daemon) install(ctx context.Context, a Account, name string, upload, signature []byte) (installed owned, created bool, err error) {
	source, err := guest.FromBytes(ctx, d.config.Isolated, name, upload, func(bytes int) error {
		return share.Hold(ctx, share.Module*int64(bytes))
	})
	if err != nil {
		return owned{}, false, refused(err)
	}
	wasm := source.Wasm
	if d.config.Check != nil {
		if err := d.config.Check(name, wasm, signature); err != nil {
			return owned{}, false, refused(err)
		}
	}
	tools, err := d.inspectModule(ctx, a, name, wasm)
	if err != nil {
		return owned{}, false, err
	}
	m := owned{Module: tenant.Module{Name: name, Digest: canon.Sum(wasm), Size: int64(len(wasm))}, tools: tools}
	for range mostLooks {
		installed, created, err = d.add(ctx, a.ID, m, wasm)
		if !errors.Is(err, tenant.ErrChanged) {
			break
		}
	}
	return installed, created, err
}

// mostLooks is how often an upload tries to be added. It fails when another request has
// added or removed a module meanwhile.
const mostLooks = 100

// add stores a module and adds it to the tenant's if there is room, or returns the same one if the
// tenant has it. If another host has changed them in the meantime, the error is
// [tenant.ErrChanged].
func (d *Daemon) add(ctx context.Context, id string, m owned, wasm []byte) (owned, bool, error) {
	a, err := d.account(ctx, id)
	if err != nil {
		return owned{}, false, err
	}
	if other, err := a.snapshot.module(m.Name); err == nil && other.Digest == m.Digest {
		return other, false, eventlog.Confirm(ctx, d.config.Log)
	}
	if err := d.room(a.snapshot.modules, m); err != nil {
		return owned{}, false, err
	}
	if most := d.config.Space.Modules; most > 0 {
		stored, err := eventlog.CountModules(ctx, d.config.Log, "")
		if err != nil {
			return owned{}, false, err
		}
		if stored.Bytes+m.Size > most {
			return owned{}, false, noSpace.because("the host has reached its operator's limit of module bytes").retry(roomAfter)
		}
	}
	describes, _ := json.Marshal(m.tools) // their schemas are JSON
	m.Module, err = d.config.Tenants.AddModule(ctx, id, m.Name, wasm, string(describes), a.snapshot.Modules, a.Limits.Modules)
	if full, ok := errors.AsType[*tenant.NoRoomError](err); ok {
		return owned{}, false, moduleLimit.because("the tenant's modules take %d bytes, %d of them for removed modules that runs still use; with this module they would exceed %d",
			full.Held, full.Removed, full.Most).hint("delete an unused module, or ask the operator to remove old runs")
	}
	return m, true, err
}

// room refuses a module that does not fit among the others. Names of tools are unique, so that an
// upload cannot take over the calls of another module's tools.
func (d *Daemon) room(all []owned, m owned) error {
	if len(all) >= d.config.Requests.Modules {
		return moduleLimit.because("the tenant has %d modules", len(all)).hint("delete an unused module")
	}
	taken := map[string]string{}
	for _, other := range all {
		if other.Name == m.Name {
			return nameTaken.because("the tenant has another module %q", m.Name).hint("delete it first, or use another name")
		}
		for _, t := range other.tools {
			taken[t.Name] = other.Name
		}
	}
	for _, t := range m.tools {
		if owner, is := taken[t.Name]; is {
			return nameTaken.because("the module %q also has a tool %q", owner, t.Name).hint("delete that module first, or give this one's tool another name")
		}
	}
	return nil
}

// inspectModule loads a module and returns its description.
func (d *Daemon) inspectModule(ctx context.Context, a Account, name string, wasm []byte) ([]abi.ToolDescription, error) {
	if a.snapshot.unreadable != nil {
		return nil, a.snapshot.unreadable
	}
	m, err := guest.Load(ctx, d.config.Isolated, wasm, guest.Options{Limits: a.limits, Name: name, New: true})
	if err != nil {
		return nil, refused(err)
	}
	defer m.Close(context.WithoutCancel(ctx))
	return lists.Map(m.Tools(), (*guest.Tool).Describe), nil
}

// refused returns the response for a module that was refused.
func refused(err error) error {
	if r, ok := errors.AsType[*sandbox.Refusal](err); ok {
		p := moduleRefused.because("%s", r.What).hint(r.Hint)
		p.FunctionName, p.Limit, p.Value = r.FuncName, r.Limit, r.Value
		if r.Func >= 0 {
			p.Function = &r.Func
		}
		if r.Offset >= 0 {
			p.Offset = &r.Offset
		}
		return p
	}
	if r, ok := errors.AsType[*artifact.Error](err); ok {
		return moduleRefused.because("%s", r.Reason).hint("send the signature, the file NAME.wasm.sig in base64, in the header " + SignatureHeader)
	}
	if r, ok := errors.AsType[*guest.DescriptionError](err); ok {
		if r.Script != "" {
			return moduleRefused.because("its source does not load: %s", r.Script).hint(r.Advice())
		}
		return moduleRefused.because("its description %v", r.Err).hint(r.Advice())
	}
	return err
}

// moduleKey is under what a loaded module is kept.
type moduleKey struct {
	tenant  string // instances are never shared
	name    string
	digest  canon.Hash
	trusted bool
	limits  sandbox.Limits // which are part of its code
}

// takeFunc returns a loaded module, and a function that releases it.
type takeFunc func(context.Context, moduleKey) (*guest.Module, func(), error)

// takeInTime is a [takeFunc] for a client that waits. If ctx ends before the module is loaded, the caller gets an
// error, and the loading goes on while the daemon serves: the next caller has the module sooner.
func (d *Daemon) takeInTime(ctx context.Context, k moduleKey) (*guest.Module, func(), error) {
	type taken struct {
		module  *guest.Module
		release func()
		err     error
	}
	loaded := make(chan taken)
	d.loads.Go(func() {
		serving, stop := d.whileServing(context.WithoutCancel(ctx))
		defer stop()
		module, release, err := d.modules.Take(serving, k)
		select {
		case loaded <- taken{module, release, err}:
		case <-ctx.Done():
			if err == nil {
				release()
			}
		}
	})
	select {
	case t := <-loaded:
		return t.module, t.release, t.err
	case <-ctx.Done():
	}
	if errors.Is(ctx.Err(), context.DeadlineExceeded) {
		return nil, nil, busy.because("the module %q is still being loaded", k.name).retry(2 * time.Second)
	}
	return nil, nil, ctx.Err()
}

// load loads a module of a tenant for the cache.
func (d *Daemon) load(ctx context.Context, k moduleKey) (*guest.Module, error) {
	a, err := d.account(ctx, k.tenant)
	if err != nil {
		return nil, err
	}
	leave, err := enter(ctx, d.compiles, a.Tenant, a.Limits.Compiling)
	if err != nil {
		return nil, err
	}
	defer leave()
	wasm, err := d.config.Log.Module(ctx, k.digest)
	if err != nil {
		return nil, fmt.Errorf("daemon: module %s: %w", k.digest, err) // by no name of the tenant's: the host's log has it
	}
	engine := d.config.Isolated
	if k.trusted {
		engine = d.config.Inline
	}
	loaded, err := guest.Load(ctx, engine, wasm, guest.Options{Limits: k.limits, Egress: d.outbound.client(a.Tenant), Name: k.name})
	if err != nil {
		return nil, refused(err)
	}
	return loaded, nil
}
