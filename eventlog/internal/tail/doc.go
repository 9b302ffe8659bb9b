// Package tail follows runs: first the stored events, then new ones, for any backend
// that can read a page of a run.
//
// A stream is a position in the log. When its run grows, the stream wakes and reads on
// from its position at the pace of its reader. So it cannot miss an event, see one
// twice, or pile up unread events. The alternative, a buffer per reader that the
// writer fills, has to choose between blocking the writer and dropping the reader.
//
// This process's own events are handed to the streams, so that a reader who keeps up
// does not read each event from the log again. That is only a shortcut, and bounded: a
// stream that has no room for an event, or finds that its predecessor is missing,
// reads the log instead.
package tail
