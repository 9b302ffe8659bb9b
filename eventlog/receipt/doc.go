// Package receipt makes and checks receipts of tool calls: statements that a library which never
// heard of this project can verify. spec/receipt.md specifies them.
//
// A [Receipt] is a DSSE envelope with an in-toto Statement about one call: which tool, which input,
// which result, who asked, what the policies decided, and whether anybody can compute the result
// again from the run. Its subject is also the run's leaf in the log of runs (package seal), so a
// later checkpoint proves that the run behind it is the one that was kept.
//
//	statements, err := receipt.Of(events, leaf, receipt.Options{})
//	r, err := statements[0].Sign(key)
//	err = r.Attach(key, leaf, proof) // once a checkpoint has the run
//	statement, err := r.Check(ctx, policy)
package receipt
