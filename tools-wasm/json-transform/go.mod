module github.com/starling-host/starling/tools-wasm/json-transform

go 1.26.0

require (
	github.com/itchyny/gojq v0.12.20
	github.com/starling-host/starling v0.0.0
)

require github.com/itchyny/timefmt-go v0.1.9 // indirect

replace github.com/starling-host/starling => ../..
