package receipt

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"io"

	"github.com/starling-host/starling/internal/work"
)

// Split returns the receipts in a text: JSON documents one after the other, of one receipt each, or
// an array of them, also as the items of a page of the API.
func Split(ctx context.Context, doc []byte) (all []json.RawMessage, err error) {
	b := work.For(ctx, len(doc))
	decoder := json.NewDecoder(bytes.NewReader(doc))
	for {
		var one json.RawMessage
		if err := decoder.Decode(&one); errors.Is(err, io.EOF) {
			return all, nil
		} else if err != nil {
			return append(all, doc[decoder.InputOffset():]), nil // it has a clear error
		}
		if err := cmp.Or(b.Spend(1+len(one)/64), b.Hold(24*len(one))); err != nil { // an item may have two bytes
			return nil, err
		}
		var page struct{ Items []json.RawMessage }
		if json.Unmarshal(one, &page.Items) != nil && (json.Unmarshal(one, &page) != nil || page.Items == nil) {
			page.Items = []json.RawMessage{one}
		}
		all = append(all, page.Items...)
	}
}
