// Package tail follows runs: what is stored first, then what is added, for any
// backend that can read a page of a run.
//
// A stream is a position in the log. When its run grows it is woken and reads on from
// its position, at the pace of its reader, so that it can neither miss an event, nor
// see one twice, nor pile up what a slow reader leaves. The alternative, a buffer per
// reader that the writer fills, has to choose between blocking the writer and dropping
// the reader.
//
// What this process writes itself is handed to the streams, so that a reader who keeps
// up does not have each event read from the log again. That is a shortcut and no more:
// it is bounded, and a stream that has no room for an event, or finds that one is
// missing before it, reads the log as if it had been handed nothing.
package tail
