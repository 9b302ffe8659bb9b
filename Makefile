.PHONY: fuzz

# Compares original with metered modules, and compiler with interpreter, on
# random programs until a difference is found. FUZZTIME=1m ends it earlier.
fuzz:
	go test -run '^$$' -fuzz '^FuzzDifferential$$' $(if $(FUZZTIME),-fuzztime $(FUZZTIME)) ./host/rewrite
