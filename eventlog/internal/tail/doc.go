// Package tail follows runs: what is stored first, then what is added, for any
// backend that can read a page of a run.
//
// A stream is a position in the log and no more. When its run grows it is woken
// and reads on from its position, at the pace of its reader, so that it can
// neither miss an event, nor see one twice, nor pile up what a slow reader
// leaves. The alternative, a buffer per reader that the writer fills, has to
// choose between blocking the writer and dropping the reader.
package tail
