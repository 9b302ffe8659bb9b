package main

import (
	"bytes"
	"cmp"
	"crypto/md5"
	"crypto/sha256"
	"encoding/json"
	"encoding/pem"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"golang.org/x/crypto/x509roots/fallback/bundle"
)

// object is a JSON object. Its members are written in the order of their names.
type object map[string]any

func (o object) json() []byte {
	var text bytes.Buffer
	enc := json.NewEncoder(&text)
	enc.SetEscapeHTML(false)
	enc.SetIndent("", "  ")
	enc.Encode(o) // of strings, lists and objects, which cannot fail
	return text.Bytes()
}

// nodeNames are the names that Node has for systems and processors.
var nodeNames = strings.NewReplacer("windows", "win32", "amd64", "x64")

const (
	npmScope   = "@starling-host/"
	mcpName    = "io.github.starling-host/starling-host"
	imageName  = "ghcr.io/starling-host/starling-host"
	mcpSchema  = "https://static.modelcontextprotocol.io/schemas/2025-12-11/server.schema.json"
	imageFiles = "var/lib/starling-host"
)

// npm makes a package with the program for each platform, and one that depends on all of them,
// of which npm installs the one that fits.
func (r *release) npm() error {
	common := func(more object) []byte {
		maps.Copy(more, object{"version": r.version, "license": "Apache-2.0", "homepage": repository, "repository": object{"type": "git", "url": "git+" + repository + ".git"}})
		return more.json()
	}
	optional := object{}
	for _, b := range r.programs {
		platform := nodeNames.Replace(b.os + "-" + b.arch)
		optional[npmScope+platform] = r.version
		r.files[program+"-"+platform+"-"+r.version+".tgz"] = r.tarGz("package/", []entry{
			{name: "package.json", mode: 0o644, data: common(object{
				"name": npmScope + platform, "description": program + " for " + platform,
				"os": []string{nodeNames.Replace(b.os)}, "cpu": []string{nodeNames.Replace(b.arch)}, "preferUnplugged": true,
			})},
			{name: b.exe(), mode: 0o755, data: b.data},
			r.licenses,
		})
	}
	entries, err := r.committed(map[string]string{"README.md": "release/npm/README.md", "LICENSE": "LICENSE", "install.js": "release/npm/install.js", "platform.js": "release/npm/platform.js", "bin/" + program: "release/npm/shim.js"})
	if err != nil {
		return err
	}
	for i := range entries {
		if strings.HasPrefix(entries[i].name, "bin/") {
			entries[i].mode = 0o755
		}
	}
	r.files[program+"-"+r.version+".tgz"] = r.tarGz("package/", append(entries, entry{name: "package.json", mode: 0o644, data: common(object{
		"name": program, "description": about, "mcpName": mcpName, "keywords": []string{"mcp", "webassembly", "sandbox", "agents"},
		"bin": object{program: "bin/" + program}, "scripts": object{"postinstall": "node install.js"},
		"engines": object{"node": ">=18"}, "optionalDependencies": optional,
	})}))
	return nil
}

// bundles makes an MCP bundle for each platform, and the entry for the registry of MCP servers.
// Their arguments are those that "mcp config" prints.
func (r *release) bundles() error {
	const tools, database = "${user_config.tools}", "${user_config.database}"
	folder, err := os.MkdirTemp("", "tools")
	if err != nil {
		return err
	}
	defer os.RemoveAll(folder)
	tool, err := r.committed(map[string]string{"tool.wasm": "spec/tck/modules/clock.wasm"}) // for the command to load
	if err != nil {
		return err
	}
	if err := write(filepath.Join(folder, tool[0].name), tool[0].data); err != nil {
		return err
	}
	text, err := output(folder, r.native, "mcp", "config", "claude-desktop", "--tools", folder, "--db", filepath.Join(folder, "calls.db"), "--log")
	if err != nil {
		return err
	}
	var printed struct {
		MCPServers struct{ Starling struct{ Args []string } }
	}
	if err := json.Unmarshal([]byte(text), &printed); err != nil {
		return err
	}
	args := printed.MCPServers.Starling.Args
	for i, arg := range args {
		args[i] = strings.NewReplacer(filepath.Join(folder, "calls.db"), database, folder, tools).Replace(arg)
	}
	settings := object{
		"tools":    object{"type": "directory", "title": "Tools", "description": "Folder with WebAssembly tools: .wasm files", "required": true},
		"database": object{"type": "file", "title": "Database", "description": "File in which calls are recorded", "default": "${HOME}/starling.db", "required": false},
	}
	var arguments []object // the same for npx
	for i := 0; i < len(args); i++ {
		name := strings.TrimPrefix(args[i], "--")
		setting, known := settings[name]
		if name == "db" {
			setting, known = settings["database"], true
		}
		switch {
		case known:
			i++
			argument := object{"type": "named", "name": "--" + name, "format": "filepath", "description": setting.(object)["description"], "isRequired": setting.(object)["required"]}
			arguments = append(arguments, argument)
		case name != args[i]:
			arguments = append(arguments, object{"type": "named", "name": args[i]})
		default:
			arguments = append(arguments, object{"type": "positional", "value": args[i]})
		}
	}
	stdio := object{"type": "stdio"}
	packages := []object{{"registryType": "npm", "identifier": program, "version": r.version, "runtimeHint": "npx", "packageArguments": arguments, "transport": stdio}}
	for _, b := range r.programs {
		manifest := object{
			"manifest_version": "0.3", "name": program, "display_name": "Starling", "version": r.version, "description": about, "license": "Apache-2.0",
			"author": object{"name": "The starling-host authors", "url": repository}, "repository": object{"type": "git", "url": repository},
			"server": object{"type": "binary", "entry_point": "server/" + b.exe(), "mcp_config": object{"command": "${__dirname}/server/" + b.exe(), "args": args}},
			// The host of a bundle tells systems apart, and not processors.
			"compatibility": object{"platforms": []string{nodeNames.Replace(b.os)}}, "user_config": settings, "tools_generated": true,
		}
		name := r.name(b) + ".mcpb"
		r.files[name] = r.zip("", []entry{{name: "manifest.json", mode: 0o644, data: manifest.json()}, {name: "server/" + b.exe(), mode: 0o755, data: b.data}, r.licenses})
		packages = append(packages, object{
			"registryType": "mcpb", "identifier": repository + "/releases/download/" + r.tag + "/" + name, "version": r.version,
			"fileSha256": fmt.Sprintf("%x", sha256.Sum256(r.files[name])), "transport": stdio,
		})
	}
	r.files["server.json"] = object{
		"$schema": mcpSchema, "name": mcpName, "title": "Starling", "description": about, "version": r.version, "websiteUrl": repository,
		"repository": object{"url": repository, "source": "github"}, "packages": packages,
	}.json()
	return nil
}

// image makes a container image for Linux, as an OCI layout: the program, the certificates of
// the public authorities, and a folder for data. It has no shell, and its user is not root.
func (r *release) image() error {
	var roots bytes.Buffer
	for root := range bundle.Roots() {
		if root.Constraint == nil { // which a file of certificates cannot express
			pem.Encode(&roots, &pem.Block{Type: "CERTIFICATE", Bytes: root.Certificate})
		}
	}
	labels := object{
		"org.opencontainers.image.title": program, "org.opencontainers.image.description": about, "org.opencontainers.image.source": repository,
		"org.opencontainers.image.version": r.version, "org.opencontainers.image.licenses": "Apache-2.0", "io.modelcontextprotocol.server.name": mcpName,
	}
	const user = 65532
	var layout []entry
	blob := func(mediaType string, data []byte, more object) object {
		digest := fmt.Sprintf("%x", sha256.Sum256(data))
		layout = append(layout, entry{name: "blobs/sha256/" + digest, mode: 0o644, data: data})
		more["mediaType"], more["digest"], more["size"] = mediaType, "sha256:"+digest, len(data)
		return more
	}
	var manifests []object
	for _, b := range r.programs {
		if b.os != "linux" {
			continue
		}
		entries := []entry{
			{name: "etc/ssl/certs/ca-certificates.crt", mode: 0o644, data: roots.Bytes()},
			{name: "etc/passwd", mode: 0o644, data: fmt.Appendf(nil, "%s:x:%d:%d::/%s:/none\n", program, user, user, imageFiles)},
			{name: "tmp/", mode: os.ModeDir | os.ModeSticky | 0o777},
			{name: imageFiles + "/", mode: os.ModeDir | 0o700, owner: user},
			{name: program, mode: 0o755, data: b.data},
			r.licenses,
		}
		layer, created := r.tarGz("", entries), r.commit.Format(time.RFC3339)
		config := object{
			"architecture": b.arch, "os": b.os, "created": created,
			"config": object{
				"User": fmt.Sprintf("%d:%d", user, user), "WorkingDir": "/" + imageFiles, "Entrypoint": []string{"/" + program},
				"Cmd": []string{"serve", "--config", "/etc/starling-host/host.yaml"}, "Volumes": object{"/" + imageFiles: object{}}, "ExposedPorts": object{"8300/tcp": object{}},
				"Env": []string{"HOME=/" + imageFiles, "PATH=/"}, "Labels": labels, "StopSignal": "SIGTERM",
				"Healthcheck": object{"Test": []string{"CMD", "/" + program, "ready", "--config", "/etc/starling-host/host.yaml"}, "Interval": 10 * time.Second, "Timeout": 5 * time.Second, "StartPeriod": 30 * time.Second},
			},
			"rootfs":  object{"type": "layers", "diff_ids": []string{fmt.Sprintf("sha256:%x", sha256.Sum256(r.tar("", entries)))}},
			"history": []object{{"created": created, "created_by": "make release"}},
		}
		manifest := object{
			"schemaVersion": 2, "mediaType": "application/vnd.oci.image.manifest.v1+json", "annotations": labels,
			"config": blob("application/vnd.oci.image.config.v1+json", config.json(), object{}),
			"layers": []object{blob("application/vnd.oci.image.layer.v1.tar+gzip", layer, object{})},
		}
		manifests = append(manifests, blob("application/vnd.oci.image.manifest.v1+json", manifest.json(), object{"platform": object{"os": b.os, "architecture": b.arch}}))
	}
	if manifests == nil {
		return nil
	}
	const indexType = "application/vnd.oci.image.index.v1+json"
	index := blob(indexType, object{"schemaVersion": 2, "mediaType": indexType, "manifests": manifests, "annotations": labels}.json(),
		object{"annotations": object{"org.opencontainers.image.ref.name": r.version, "io.containerd.image.name": imageName + ":" + r.version}})
	layout = append(layout, entry{name: "index.json", mode: 0o644, data: object{"schemaVersion": 2, "mediaType": indexType, "manifests": []object{index}}.json()},
		entry{name: "oci-layout", mode: 0o644, data: []byte(`{"imageLayoutVersion":"1.0.0"}`)})
	r.files[program+"_"+r.version+"_image.oci.tar"] = r.tar("", layout)
	return nil
}

const debControl = `Package: starling-host
Version: %s
Architecture: %s
Maintainer: The starling-host authors <noreply@github.com>
Installed-Size: %d
Depends: systemd
Recommends: ca-certificates
Section: admin
Priority: optional
Homepage: ` + repository + `
Description: host for untrusted tools of LLM agents
 Tools are WebAssembly modules, which run in a sandbox. Everything that they
 ask of the outside world is recorded, so that a call can be run again and
 compared.
`

// debian makes a package with a systemd unit for each Linux.
func (r *release) debian() error {
	for _, b := range r.programs {
		if b.os != "linux" {
			continue
		}
		// Before the release of which they are forerunners come those with a commit.
		version := strings.Replace(r.version, "-", "~", 1)
		entries, err := r.committed(map[string]string{
			"DEBIAN/conffiles": "release/deb/conffiles", "DEBIAN/postinst": "release/deb/postinst", "DEBIAN/prerm": "release/deb/prerm", "DEBIAN/postrm": "release/deb/postrm",
			"etc/starling-host/host.yaml":                        "release/deb/host.yaml",
			"usr/share/doc/starling-host/copyright":              "release/deb/copyright",
			"usr/share/lintian/overrides/starling-host":          "release/deb/lintian-overrides",
			"lib/systemd/system/starling-host.service":           "release/deb/starling-host.service",
			"usr/lib/sysusers.d/starling-host.conf":              "release/deb/sysusers.conf",
			"usr/share/doc/starling-host/grafana-dashboard.json": "docs/grafana-dashboard.json",
		})
		if err != nil {
			return err
		}
		changes := fmt.Sprintf("%s (%s) unstable; urgency=medium\n\n  * See %s/blob/%s/CHANGELOG.md\n\n -- The starling-host authors <noreply@github.com>  %s\n",
			program, version, repository, r.tag, r.commit.Format(time.RFC1123Z))
		entries = append(entries, entry{name: "usr/bin/" + program, mode: 0o755, data: b.data},
			entry{name: "usr/share/doc/starling-host/LICENSES.gz", mode: 0o644, data: gzipped(r.licenses.data)},
			entry{name: "usr/share/doc/starling-host/changelog.gz", mode: 0o644, data: gzipped([]byte(changes))})
		for _, doc := range r.docs {
			switch kind, name, _ := strings.Cut(doc.name, "/"); {
			case kind == "man":
				entries = append(entries, entry{name: "usr/share/" + doc.name + ".gz", mode: 0o644, data: gzipped(doc.data)})
			case strings.HasPrefix(name, "bash/"):
				entries = append(entries, entry{name: "usr/share/bash-completion/completions/" + program, mode: 0o644, data: doc.data})
			case strings.HasPrefix(name, "zsh/"):
				entries = append(entries, entry{name: "usr/share/zsh/vendor-completions/_" + program, mode: 0o644, data: doc.data})
			case strings.HasPrefix(name, "fish/"):
				entries = append(entries, entry{name: "usr/share/fish/vendor_completions.d/" + program + ".fish", mode: 0o644, data: doc.data})
			}
		}
		slices.SortFunc(entries, func(a, b entry) int { return cmp.Compare(a.name, b.name) })
		var control, data []entry
		folders, sums, size := map[string]bool{}, "", 0
		for _, e := range entries {
			if bytes.HasPrefix(e.data, []byte("#!")) {
				e.mode = 0o755
			}
			if name, is := strings.CutPrefix(e.name, "DEBIAN/"); is {
				control = append(control, entry{name: name, mode: e.mode, data: e.data})
				continue
			}
			for i, c := range e.name { // dpkg needs an entry for each folder, before what is in it
				if folder := e.name[:i+1]; c == '/' && !folders[folder] {
					folders[folder] = true
					data = append(data, entry{name: folder, mode: os.ModeDir | 0o755})
				}
			}
			data = append(data, e)
			sums += fmt.Sprintf("%x  %s\n", md5.Sum(e.data), e.name)
			size += len(e.data)
		}
		control = append(control, entry{name: "md5sums", mode: 0o644, data: []byte(sums)}, entry{name: "control", mode: 0o644, data: fmt.Appendf(nil, debControl, version, b.arch, size/1024)})
		file := bytes.NewBufferString("!<arch>\n") // an archive of ar(1), which deb(5) describes
		for _, member := range []entry{
			{name: "debian-binary", data: []byte("2.0\n")},
			{name: "control.tar.gz", data: r.tarGz("./", control)},
			{name: "data.tar.gz", data: r.tarGz("./", data)},
		} {
			fmt.Fprintf(file, "%-16s%-12d%-6d%-6d%-8o%-10d`\n%s", member.name, r.commit.Unix(), 0, 0, 0o100644, len(member.data), member.data)
			if len(member.data)%2 == 1 {
				file.WriteByte('\n')
			}
		}
		r.files[fmt.Sprintf("%s_%s_%s.deb", program, version, b.arch)] = file.Bytes()
	}
	return nil
}
