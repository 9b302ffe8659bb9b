package cipherlog

import (
	"errors"

	"github.com/starling-host/starling/eventlog/event"
)

// First returns the first event of a run as it is to be stored, for whoever appends
// it in a transaction of the log below.
func First(key Key, ev event.Event) (event.Event, error) {
	switch {
	case !key.Valid():
		return event.Event{}, errNoKey
	case ev.Seq != 1:
		return event.Event{}, errors.New("cipherlog: First is for first events")
	}
	c, err := key.cipher(ev.RunID)
	if err != nil {
		return event.Event{}, err
	}
	at := state{cipher: c}
	sealed, _, err := at.next(ev.RunID, ev)
	return sealed, err
}
