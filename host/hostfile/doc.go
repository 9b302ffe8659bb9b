// Package hostfile reads host.yaml, the file that says how a host serves: where it
// listens, where its database is, which agents there are, and what tenants may use
// if nobody says otherwise.
//
//	# yaml-language-server: $schema=https://raw.githubusercontent.com/starling-host/starling/main/spec/host.schema.json
//	listen: 127.0.0.1:8300
//	database: starling.db
//	key_file: starling.key
//	agents: [agents/support.yaml]
//	policy: operator.yaml
//	limits: {running: 8, waiting: 500}
//	retention: {older_than: 720h}
//
// spec/host.schema.json describes all keys. The parser is strict: a key that it
// does not know is an error, with the line, a caret and a hint ([*yaml.Error]).
// Relative paths begin at the file's folder. The file holds no secrets.
package hostfile
