module github.com/starling-host/starling/guest-sdk/go

go 1.24.0
