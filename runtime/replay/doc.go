// Package replay makes a recorded run again, with the record in place of the
// world, and says whether it is the same run.
//
// The verdict is about the record and not about the run: a run that failed, or
// was cancelled, replays as identical if it fails in the same way after doing
// the same. What the run itself came to is in the verdict's Result.
//
//	verdict, err := replay.Run(ctx, events, resolve, replay.Options{})
//	if d := verdict.Divergence; d != nil {
//		fmt.Printf("differs at event %d: %s\n", d.Seq, d.Reason)
//	}
//
// A replay needs the tools of the run, which the caller finds by their recorded
// identity ([Resolver]). It needs no network, no clock and no log, appends
// nothing and leaves nothing behind. spec/replay.md is the normative text.
//
// Before anything is executed the record itself is checked; one that does not
// hold together is refused with a [*eventlog.CorruptError].
package replay
