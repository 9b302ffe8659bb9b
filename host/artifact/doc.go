// Package artifact finds tools by their names, and hands them to others: modules in OCI
// registries, in OCI layout folders and at addresses, with signatures and pinned digests.
//
//	dice.wasm, ./dice                                   a file, a folder: package guest finds them
//	oci://registry.example.com/tools/dice:1.0           a tag, pinned in starling.lock when first used
//	oci://registry.example.com/tools/dice@sha256:HEX    a digest of a manifest
//	oci-layout:FOLDER:1.0                               the same in a folder
//	https://example.com/dice.wasm@sha256:HEX            a file whose bytes have the digest
//	HEX                                                 a module of the database, by its digest
//
// [Finder.Find] uses the network only for a name that begins with oci:// or https://, and only if
// the module is not in the cache, an OCI layout folder of the user. A registry is not trusted: what
// it sends has the size and the digest that were asked for, or is refused.
package artifact
