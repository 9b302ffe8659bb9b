package starling_test

import (
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"maps"
	"path"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

// parsers are the functions whose cost is up to the data that they read, by the import path of their
// package.
var parsers = map[string][]string{
	"archive/tar":           {"NewReader"},
	"archive/zip":           {"NewReader", "OpenReader"},
	"bufio":                 {"NewReader", "NewReaderSize", "NewScanner"},
	"compress/bzip2":        {"NewReader"},
	"compress/flate":        {"NewReader"},
	"compress/gzip":         {"NewReader"},
	"compress/lzw":          {"NewReader"},
	"compress/zlib":         {"NewReader"},
	"debug/dwarf":           {"New"},
	"debug/gosym":           {"NewTable"},
	"encoding/asn1":         {"Unmarshal"},
	"encoding/csv":          {"NewReader"},
	"encoding/gob":          {"NewDecoder"},
	"encoding/json":         {"Compact", "Indent", "NewDecoder", "Unmarshal", "Valid"},
	"encoding/pem":          {"Decode"},
	"encoding/xml":          {"NewDecoder", "Unmarshal"},
	"go/parser":             {"ParseDir", "ParseExpr", "ParseFile"},
	"io":                    {"ReadAll"},
	"io/ioutil":             {"ReadAll", "ReadFile"},
	"os":                    {"ReadFile"},
	"regexp":                {"Compile", "CompilePOSIX", "Match", "MatchString"},
	"regexp/syntax":         {"Parse"},
	"golang.org/x/net/html": {"NewTokenizer", "Parse", "ParseFragment"},

	"github.com/fxamacker/cbor/v2":             {"NewDecoder", "Unmarshal", "UnmarshalFirst", "Wellformed"},
	"github.com/BurntSushi/toml":               {"Decode", "NewDecoder", "Unmarshal"},
	"github.com/goccy/go-yaml":                 {"NewDecoder", "Unmarshal", "UnmarshalWithOptions", "YAMLToJSON"},
	"github.com/goccy/go-yaml/lexer":           {"Tokenize"},
	"github.com/goccy/go-yaml/parser":          {"Parse", "ParseBytes", "ParseFile"},
	"github.com/google/pprof/profile":          {"Parse", "ParseData"},
	"github.com/klauspost/compress/zstd":       {"NewReader"},
	"github.com/santhosh-tekuri/jsonschema/v6": {"NewCompiler", "UnmarshalJSON"},
	"golang.org/x/tools/txtar":                 {"Parse", "ParseFile"},
	"oras.land/oras-go/v2/content":             {"FetchAll", "ReadAll"},
	modulePath + "/eventlog/canon":             {"DocOf", "FromJSON", "JSON", "Parse", "Unmarshal"},
	modulePath + "/internal/zstd":              {"Decompress", "NewReader"},
}

// byHand are the packages that parse without a library. Each exported function of theirs that takes
// bytes is a parser, unless it appends to them.
var byHand = []string{"host/internal/component", "host/internal/interp", "host/internal/rewrite", "host/internal/source", "internal/wasm"}

// reading is a group of functions that parse without a budget.
type reading struct {
	whose     string // data
	why       string // it needs no budget
	functions string // in the form folder.Function or folder.Type.Method, separated by spaces
}

// TestParsersHaveBudgets finds all functions of the product that parse. Each of them draws from a
// [work.Budget], or a reading says why it needs none.
func TestParsersHaveBudgets(t *testing.T) {
	found := findParsers(t)
	listed := map[string]bool{}
	for _, r := range withoutBudget {
		if r.whose == "" || r.why == "" {
			t.Errorf("the reading of %q does not say whose data it is, and why it needs no budget", r.functions)
		}
		for _, f := range strings.Fields(r.functions) {
			budgeted, parses := found[f]
			switch {
			case listed[f]:
				t.Errorf("%s is listed twice", f)
			case !parses:
				t.Errorf("%s is listed, and parses nothing: remove it from the list", f)
			case budgeted:
				t.Errorf("%s is listed, and has a budget: remove it from the list", f)
			}
			listed[f] = true
		}
	}
	for _, f := range slices.Sorted(maps.Keys(found)) {
		if !found[f] && !listed[f] {
			t.Errorf("%s parses, and draws from no *work.Budget: give it one, or list in parsers_test.go whose data it reads and why it needs none", f)
		}
	}
}

// findParsers returns the functions of the product that parse, and whether they draw from a budget: one
// that they make, or that a parameter or the receiver is or holds.
func findParsers(t *testing.T) map[string]bool {
	t.Helper()
	files := map[string]*ast.File{}
	err := filepath.WalkDir(".", func(name string, d fs.DirEntry, err error) error {
		name = filepath.ToSlash(name)
		folder := path.Base(name)
		switch {
		case err != nil:
			return err
		case d.IsDir() && name != "." && (strings.HasPrefix(folder, ".") || strings.HasSuffix(folder, "test") || folder == "testdata" || folder == "node_modules" ||
			folder == "guest-sdk" || slices.Contains(folders, name)):
			return fs.SkipDir
		case d.IsDir() || path.Ext(name) != ".go" || strings.HasSuffix(name, "_test.go"):
			return nil
		}
		files[name], err = parser.ParseFile(token.NewFileSet(), name, nil, parser.SkipObjectResolution)
		return err
	})
	if err != nil || len(files) < 300 {
		t.Fatalf("%d files: %v", len(files), err)
	}
	holders := budgetHolders(files)
	found := map[string]bool{}
	for name, file := range files {
		folder, imports := folderOf(name), importsOf(file)
		for _, decl := range file.Decls {
			f, isFunction := decl.(*ast.FuncDecl)
			id := folder + "." + strings.TrimSuffix(path.Base(name), ".go") // of variables
			if isFunction {
				id = folder + "." + f.Name.Name
				if f.Recv != nil {
					id = folder + "." + typeName(f.Recv.List[0].Type) + "." + f.Name.Name
				}
			}
			parses := isFunction && f.Recv == nil && f.Name.IsExported() && slices.Contains(byHand, folder) && takesBytes(f.Type) && !strings.HasPrefix(f.Name.Name, "Append")
			ast.Inspect(decl, func(n ast.Node) bool {
				if s, ok := n.(*ast.SelectorExpr); ok {
					x, ok := s.X.(*ast.Ident)
					parses = parses || ok && slices.Contains(parsers[imports[x.Name]], s.Sel.Name)
				}
				return true
			})
			if parses {
				found[id] = isFunction && drawsFromBudget(f, folder, imports, holders)
			}
		}
	}
	return found
}

const budgetType = "internal/work.Budget"

// budgetHolders returns the types that are or hold a budget, in the form folder.Type, with the names of
// the fields that do.
func budgetHolders(files map[string]*ast.File) map[string][]string {
	holders := map[string][]string{budgetType: {"Spend", "Hold", "ReadAll", "Context"}}
	for more := true; more; { // a holder of a holder is one
		more = false
		for name, file := range files {
			folder, imports := folderOf(name), importsOf(file)
			ast.Inspect(file, func(n ast.Node) bool {
				spec, ok := n.(*ast.TypeSpec)
				if !ok {
					return true
				}
				s, ok := spec.Type.(*ast.StructType)
				if id := folder + "." + spec.Name.Name; ok && holders[id] == nil {
					for _, field := range s.Fields.List {
						if is := qualified(field.Type, folder, imports); holders[is] != nil {
							holders[id], more = append(holders[id], is[strings.LastIndex(is, ".")+1:]), true
							for _, name := range field.Names {
								holders[id] = append(holders[id], name.Name)
							}
						}
					}
				}
				return true
			})
		}
	}
	for name, file := range files { // methods that charge for the other methods of a package
		for _, decl := range file.Decls {
			f, ok := decl.(*ast.FuncDecl)
			if !ok || f.Recv == nil || holders[folderOf(name)+"."+typeName(f.Recv.List[0].Type)] == nil || f.Name.Name != "spend" && f.Name.Name != "hold" {
				continue
			}
			for id := range holders {
				if strings.HasPrefix(id, folderOf(name)+".") {
					holders[id] = append(holders[id], f.Name.Name)
				}
			}
		}
	}
	return holders
}

// drawsFromBudget reports whether a function names a budget: one that a parameter, a parameter of a
// function within it, or its receiver is or holds, or one that it makes.
func drawsFromBudget(f *ast.FuncDecl, folder string, imports map[string]string, holders map[string][]string) bool {
	budgets, uses := map[string]bool{}, false
	list := func(fields *ast.FieldList) {
		if fields == nil {
			return
		}
		for _, field := range fields.List {
			if is := qualified(field.Type, folder, imports); holders[is] != nil {
				for _, name := range field.Names {
					budgets[name.Name] = budgets[name.Name] || is == budgetType
				}
				for _, name := range holders[is] {
					budgets[name] = true
				}
			}
		}
	}
	list(f.Recv)
	ast.Inspect(f, func(n ast.Node) bool {
		if function, ok := n.(*ast.FuncType); ok {
			list(function.Params)
		}
		return true
	})
	if f.Body == nil {
		return false
	}
	ast.Inspect(f.Body, func(n ast.Node) bool {
		switch x := n.(type) {
		case *ast.Ident:
			uses = uses || budgets[x.Name]
		case *ast.SelectorExpr:
			p, ok := x.X.(*ast.Ident)
			uses = uses || budgets[x.Sel.Name] || ok && imports[p.Name] == modulePath+"/internal/work" && slices.Contains([]string{"New", "For", "Trusted"}, x.Sel.Name)
		}
		return !uses
	})
	return uses
}

// folderOf returns the folder of a file, as [local] does.
func folderOf(file string) string {
	if folder := path.Dir(file); folder != "." {
		return folder
	}
	return "starling"
}

func importsOf(file *ast.File) map[string]string {
	imports := map[string]string{}
	for _, spec := range file.Imports {
		imported := strings.Trim(spec.Path.Value, `"`)
		name := path.Base(imported)
		if len(name) > 1 && name[0] == 'v' && strings.Trim(name[1:], "0123456789") == "" {
			name = path.Base(path.Dir(imported))
		}
		if name = strings.TrimPrefix(name, "go-"); spec.Name != nil {
			name = spec.Name.Name
		}
		imports[name] = imported
	}
	return imports
}

// qualified returns a type in the form folder.Type, without pointers to it.
func qualified(e ast.Expr, folder string, imports map[string]string) string {
	switch x := e.(type) {
	case *ast.StarExpr:
		return qualified(x.X, folder, imports)
	case *ast.SelectorExpr:
		if p, ok := x.X.(*ast.Ident); ok {
			in, _ := local(imports[p.Name])
			return in + "." + x.Sel.Name
		}
	case *ast.Ident:
		return folder + "." + x.Name
	}
	return ""
}

// typeName returns the name of a receiver's type.
func typeName(e ast.Expr) string {
	switch x := e.(type) {
	case *ast.StarExpr:
		return typeName(x.X)
	case *ast.IndexExpr:
		return typeName(x.X)
	case *ast.Ident:
		return x.Name
	}
	return "?"
}

func takesBytes(f *ast.FuncType) bool {
	return slices.ContainsFunc(f.Params.List, func(p *ast.Field) bool {
		array, ok := p.Type.(*ast.ArrayType)
		if !ok {
			return false
		}
		element, ok := array.Elt.(*ast.Ident)
		return ok && array.Len == nil && element.Name == "byte"
	})
}

// withoutBudget are the functions that need none.
var withoutBudget = []reading{
	{"folders of files", "The caller has read the folder, whose size is bounded, and canon decodes in linear time; what walks a tree reads no folder twice, or stops at workspace.MaxEntries.", `internal/workspace.Decode`},
	{"the journal of a write-back", "It has at most 16 MiB, and canon decodes in linear time", `internal/workspace/folder.Folder.Recover`},
	{"events of a log", "An event has at most eventlog.MaxPayloadBytes; canon decodes in linear time and bounds the depth; a host reserves 16 bytes for each that it reads", `
		cmd/starling-host.app.said cmd/starling-host/internal/view.texts starling.canonical cmd/starling-host.headOf eventlog.RunSummary.add
		eventlog.decodePart eventlog/event.Decode eventlog/event.FromJSON eventlog/event.Indented eventlog/event.LongTexts
		eventlog/event.ParseClaims eventlog/event.SideEffectRecorded.ModelFailure eventlog/event.Unmarshal eventlog/event.summarizeEffect
		eventlog/event.summarizeHTTP eventlog/event.summary eventlog/receipt.Statement.effect eventlog/receipt.Text eventlog/seal.Certificate.text eventlog/seal.LeafOf eventlog/internal/cipherlog.readContent eventlog/span.Builder.effect eventlog/span.Run.Document
		eventlog/span.result host/policy.Run.resume host/policy.history.countEffect host/policy.history.effect starling.lastDenied
		runtime/agent.conversation.readCall runtime/agent.recordedInput runtime/internal/script.refuseParams runtime/step.Context.earlierResult
		runtime/step.Do runtime/step.ParseInput runtime/step.ReplayDurationMs
		runtime/step.Attempt.earlierCall runtime/step.Attempt.judge runtime/step.Attempt.run runtime/step.ExecuteJSON runtime/step.draw
		runtime/step.readable runtime/step.setVariables
		serve/internal/eventview.without serve/internal/inspect.arguments serve/internal/inspect.decision serve/internal/inspect.httpMessage
		serve/internal/inspect.parts`},
	{"frames of stored modules and payloads", "Its caller gives the most bytes that it may become", `
		eventlog/internal/dblog.unpack internal/zstd.Decompress`},
	{"frames of an archive", "Its window is bounded, and the reader of the archive charges each line that comes out", `
		internal/zstd.NewReader`},
	{"the input of a call", "The input limit of the tool bounds it, and canon parses in linear time with a bound on the depth", `
		host/policy.callQuestion cmd/starling-host.app.readWhole internal/schema.Defaults.fillArray internal/schema.Defaults.fillObject
		internal/schema.decode runtime/internal/validate.values.string runtime/internal/validate.valuesOf runtime/agent.subagent.Execute runtime/provider.partImages runtime/tool.Registry.Execute
		runtime/tool.WithVariablesJSON runtime/tool.decodeVariables runtime/tool.input.read runtime/tool.ExportOpenAI
		runtime/tool.variable`},
	{"schemas of tools", "They are compiled, which bounds them, before a type is written of them; the text has at most maxTypeSchema bytes", `
		runtime/tool.typer.at runtime/tool.typer.object runtime/tool.typer.own runtime/tool.typer.typeAt`},
	{"schemas of tools", "A schema is compiled beside it under a budget, or the program wrote it; each function is linear, and the SDK for Go has a copy of internal/schema", `
		internal/schema.ParseDefaults internal/schema.node.value runtime/internal/validate.IsObject`},
	{"a server that a tool called", "The limits on a response bound it, which the log records whole; each function is linear", `
		runtime/egress.Client.readBody runtime/egress.Client.receive runtime/egress.ParseResponse runtime/egress.Request.oneWay
		runtime/egress.filler.body runtime/internal/builtin.read`},
	{"a model and its provider", "An event of a stream has at most converse.MaxEvent bytes, and an error maxFault; each function is linear", `
		runtime/internal/anthropic.fault runtime/internal/bedrock.blocks runtime/internal/bedrock.fault
		runtime/internal/bedrock.piece.UnmarshalJSON runtime/internal/converse.API.post runtime/internal/converse.Declare
		runtime/internal/converse.Decode runtime/internal/converse.NewEventReader runtime/internal/converse.Params
		runtime/internal/gemini.fault runtime/internal/gemini.outcome runtime/internal/openai.arguments.UnmarshalJSON
		runtime/internal/openai.call.isOver runtime/internal/openai.parseFault`},
	{"the user of the command", "A terminal, a pipe or a file that the user names, with a bound on what is read of it", `
		cmd/starling-host.app.confirm cmd/starling-host.app.readSecret 
		host/debug.Prompt.reader host/debug.programOf cmd/starling-host.holdsSomethingElse cmd/starling-host/internal/dap.Serve
		cmd/starling-host/internal/dap.decode cmd/starling-host/internal/toolcase.Body.bytes
		cmd/starling-host/internal/toolcase.Headers.UnmarshalJSON cmd/starling-host/internal/toolcase.Parse
		cmd/starling-host/internal/toolcase.Effect.check cmd/starling-host/internal/toolcase.decode cmd/starling-host/internal/toolcase.newBody
		cmd/starling-host/internal/toolcase.newCall cmd/starling-host/internal/toolcase.newEffect host/debug.Files.read`},
	{"requests of tenants and of assistants", "A body has at most 1 MiB, and a message for MCP mcpsrv.maxBody, or mcpsrv.maxMessage from one's own client; a host reserves 32 bytes for each byte; each function decodes it once", `
		serve/internal/daemon.Daemon.orderOf
		serve/internal/daemon.decodeJSON serve/internal/daemon.merge serve/internal/daemon.parseCursor
		serve/internal/mcpsrv.ServeStdio serve/internal/mcpsrv.cancelledID
		serve/internal/mcpsrv.checkMessages internal/rpcline.ID serve/internal/mcpsrv.lines.Read
		serve/internal/mcpsrv.reading serve/internal/mcpsrv.tasks.list serve/internal/mcpsrv.tasks.note serve/internal/mcpsrv.tasks.offering serve/internal/mcpsrv.peeked serve/gateway.session.request serve/gateway.session.Request
		serve/internal/mcpsrv.wire.incoming serve/internal/mcpsrv.wire.outgoing serve/internal/mcpsrv.wire.handler serve/internal/mcpsrv.wire.ask
		serve/internal/mcpsrv.clientOf serve/internal/mcpsrv.identityOf serve/internal/mcpsrv.answerOf serve/internal/mcpsrv.remoteCall runtime/mcptool.conversation.reply serve/internal/mcpsrv.greets serve/internal/mcpsrv.listed eventlog/canon.Split`},
	{"rows of the database of the host", "The host wrote them, after it had checked the request or the module that they come from", `
		serve/internal/daemon.Daemon.describe serve/internal/daemon.order.decode serve/gateway.Recording.compare`},
	{"MCP servers", "A message has at most mcptool.maxMessageBytes, and a list maxListBytes and maxItems, which mcptool.New promises; each function reads it once, and canon bounds the depth", `
		runtime/mcptool.Client.Request runtime/mcptool.Recorded runtime/mcptool.conversation.askForInput runtime/mcptool.conversation.request runtime/mcptool.greetingOf
		runtime/mcptool.inFlight.answer runtime/mcptool.wire.answered runtime/mcptool.Definition.Canonical runtime/mcptool.ToolError.Error runtime/mcptool.connection.pages
		runtime/mcptool.definition runtime/mcptool.eventStream.Read
		runtime/mcptool.processConn.decode runtime/mcptool.processConn.read runtime/mcptool.remade runtime/mcptool.remoteTool.OutputSchema
		runtime/mcptool.onlyText runtime/mcptool.remoteTool.ExecuteParsed runtime/mcptool.remoteTool.read runtime/mcptool.wire.incoming runtime/mcptool.wire.outgoing runtime/mcptool.wiredHTTP.RoundTrip
		runtime/mcptool.withoutCopies serve/gateway.session.itemsOf serve/gateway.renamed serve/gateway.harmless serve/gateway.comparable 
		serve/internal/mcpsrv.Result.present serve/internal/mcpsrv.wholeResult.MarshalJSON`},
	{"documents that a module returns", "The limit on its output bounds them, and canon parses in linear time with a bound on the depth; the validator bounds a schema", `
		host/guest.openOutput host/guest.printed host/guest.program.answer host/guest.reported
		host/guest.textOf`},
	{"files of the host itself", "Only the owner of the host can write them, or they are part of the program", `
		cmd/starling-host.app.versionCommand host/internal/cachefile.Read host/internal/interp.decompress host/internal/machine.main host/internal/jail.programFiles
		internal/keyfile.Read internal/keyfile.ReadFile host/internal/registry.linkedWith runtime/mcptool.authorizer.token serve/gateway.Pins.read
		serve/tenant.scanSecret serve/tenant.scanTenant spec.Lines internal/config.MustSchema internal/config.Schema.UnmarshalJSON`},
	{"a process of the host", "The host started it, and a frame has at most as many bytes as its kind allows", `
		cmd/starling-host/internal/verifier.Node.take cmd/starling-host/internal/verifier.process.replay host/internal/registry.buildScript
		host/internal/worker.newFrameReader host/internal/worker.ownSettings host/internal/worker.process.greet
		host/internal/jail.startAgain`},
	{"receipts that the host has just signed", "It reads the one form that the host wrote", "eventlog/receipt.OfCall"},
	{"parts of a receipt, a proof and a manifest", "The reader of the whole has charged for all bytes and holds them; each is read once, into a few texts", `
		eventlog/seal.ParseLeaf host/artifact.cosigned.verify host/artifact.typeOf host/internal/component.comment.UnmarshalJSON`},
	{"the folder of a tool", "All of its files together have at most maxSources bytes, counted as often as they are read; a toolchain lists them once", `
		host/internal/registry.toolchain.key host/internal/registry.folder.options host/internal/registry.folder.read`},
	{"programs and keys of the user", "A manifest of a compiler in PATH and the file of a public key, read once", `
		host/artifact.readCosignKey host/internal/registry.native.findAsc`},
	{"a service that the operator configured", "At most some KiB of an answer are read", `
		serve.Cosign serve.File.Ready serve.otlpClient.post`},
	{"modules", "It compares the first eight bytes, reads the frame of at most 1,012 sections and searches one of them, or makes a reader that its caller charges; an interpreter's own section has at most 4 KiB", `
		host/internal/component.Needed host/internal/interp.Of internal/wasm.IsComponent internal/wasm.NewReader internal/wasm.Split`},
}
