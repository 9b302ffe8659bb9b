module github.com/starling-host/starling/cmd/starling-host/testdata/tools

go 1.26.0

require github.com/starling-host/starling/guest-sdk/go v0.0.0

replace github.com/starling-host/starling/guest-sdk/go => ../../../../guest-sdk/go
