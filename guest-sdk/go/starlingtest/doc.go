//go:build !wasip1

// Package starlingtest calls tools in ordinary Go tests.
//
// A test of the program that registers the tools replaces starling-host with a
// [Host] and calls them by name:
//
//	func TestDice(t *testing.T) {
//		host := starlingtest.Host{Random: func() uint64 { return 3 }}
//		got := host.Call(t, "dice", `{"rolls":2}`)
//		if got.Failure != nil || got.Output != `{"rolls":[4,4]}` {
//			t.Errorf("got %+v", got)
//		}
//	}
//
// The call takes the same path as in a module, through both envelopes and the
// protocol of the http import, so an output that is not JSON, or a request that
// the SDK refuses to send, shows here. Package time is virtual, see [Host]. The rest
// needs the real host: the input is not checked against the schema, the test's
// handler is the policy, and nothing is recorded or metered. crypto/rand is the
// machine's. Calls of parallel tests run one after
// another, as they would in one instance of a module.
package starlingtest
