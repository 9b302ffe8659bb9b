module github.com/starling-host/starling/examples/receipts

go 1.26.0

require (
	github.com/fxamacker/cbor/v2 v2.10.0
	github.com/secure-systems-lab/go-securesystemslib v0.11.1
	github.com/transparency-dev/merkle v0.0.2
	github.com/veraison/go-cose v1.3.0
)

require (
	github.com/x448/float16 v0.8.4 // indirect
	golang.org/x/crypto v0.55.0 // indirect
	golang.org/x/sys v0.47.0 // indirect
)
