module github.com/starling-host/starling/tools-wasm

go 1.26.0

require (
	github.com/itchyny/gojq v0.12.20
	github.com/starling-host/starling/guest-sdk/go v0.0.0
	pgregory.net/rapid v1.3.0
)

require github.com/itchyny/timefmt-go v0.1.9 // indirect

replace github.com/starling-host/starling/guest-sdk/go => ../guest-sdk/go
