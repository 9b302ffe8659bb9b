// Package provider defines the interface of a model.
//
// A [Provider] takes a [Request] and answers with an [EventStream]: chunks of
// text, of reasoning and of tool uses, in the order in which the model produces
// them, the counts of tokens, and one [ChunkEnd]. Each adapter below this folder
// turns that into the protocol of one vendor and back, and passes the suite of
// providertest. Nothing else of the runtime knows a vendor.
//
// Package step consumes the stream, checks it ([ErrInvalidStream] there) and
// records the outcome. For a run to be replayed, a Request must be a function of
// the run's log alone. So the arguments of tool uses in its history are
// canonical JSON, whatever spaces, key order or escapes the model wrote, and a
// replay compares [Request.Hash].
package provider
