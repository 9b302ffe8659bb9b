// Package archive writes runs to a file that outlives the database they were
// recorded in, and reads them back, byte for byte.
//
// # The format
//
// An archive is NDJSON: one JSON object per line, each line ended by a line feed.
//
//	{"archive":"starling-host/1"}
//	{"module":"2bf8…","wasm":"AGFzbQEAAAA…"}
//	{"envelope":"a662…","hash":"6c1e…","kind":"RunStarted","payload":{…},"run_id":"…","seq":1,"ts":…}
//	…
//	{"events":76,"hash":"90ab…","modules":1,"runs":8}
//
// The first line names the format. An event is encoded by [event.ToJSON]; its key envelope holds
// the event, the others are for readers. The events of a run stand together, in order; runs are in
// the order in which they began. A module, in base64, stands before the first run that names it, so
// an archive can be replayed without the database. The last line counts, and has the BLAKE3 of all
// lines before it: an archive that was cut off has none. The whole may be compressed, with zstd.
//
// Files that a call was given or left stand before the event that names their root, also between the
// events of a run, each once:
//
//	{"file":"51d0…","bytes":"aGVsbG8K"}
//	{"folder":"a3f1…","bytes":"gYRqaGVsbG8u…"}
//
// The bytes of a folder are its list (spec/workspace.md), and everything that it lists stands before it.
// The last line then has their number, as "files".
//
// # What is checked
//
// Each line has one spelling, so a reader rebuilds every line from what it parsed and compares the
// bytes: a payload that is shown but differs from the envelope is an error like any other. Every
// run is checked as [eventlog.Check] does in strict mode, when it is written and when it is read.
//
// Runs whose payloads are encrypted are archived as they are stored. Erasing the data key erases
// the copies in archives as well. The modules of such runs are not visible, so the archive lacks
// them. A [Log] that decrypts its runs archives them as they were before encryption.
package archive
