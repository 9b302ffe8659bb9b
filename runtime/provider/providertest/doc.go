// Package providertest is the contract of a provider, as a test. Every adapter
// runs it on bodies that its vendor has sent:
//
//	func TestContract(t *testing.T) {
//		providertest.Run(t, providertest.Suite{
//			New: func(t testing.TB, url string, client *http.Client) provider.Provider {
//				p, err := vendor.New(vendor.WithAPIKey(providertest.Key), vendor.WithBaseURL(url), vendor.WithHTTPClient(client))
//				if err != nil {
//					t.Fatal(err)
//				}
//				return p
//			},
//			ContentType: "text/event-stream",
//			Transcripts: []providertest.Transcript{{
//				Name:     "text",
//				File:     "testdata/text.sse",
//				Terminal: "message_stop",
//				Want:     []provider.StreamChunk{{Kind: provider.ChunkText, Text: "Hi"}, {Kind: provider.ChunkEnd, StopReason: "end_turn"}},
//			}},
//			Empty:   map[string]string{"end_turn": "data: {\"stop_reason\":\"end_turn\"}\n\n"},
//			Failure: providertest.Failure{Body: `{"error":{"message":"no such model"}}`, Want: "no such model"},
//			Broken:  []providertest.Broken{{Name: "not JSON", Body: "data: {\n\n", Want: "JSON"}},
//			Golden:  "testdata/request.golden",
//		})
//	}
//
// It checks:
//
//   - A transcript gives the wanted chunks, over a socket and in pieces of every
//     size, the hash of its body, and after the end nothing but io.EOF.
//   - A body in which the model says nothing is an answer without content, and ends with its stop
//     reason: a run asks again when it sees that.
//   - Wherever a body stops early, by a clean end or by a broken connection, the
//     stream fails with [provider.ErrNetwork] and never with a ChunkEnd.
//   - Statuses have the class that package provider gives them. The error has the
//     vendor's words, a bounded length and no key in it. A request is sent once:
//     when to try again is up to the caller.
//   - A hanging stream ends at once when its context, the context of Next or Close ends it, and leaves
//     neither a goroutine nor an open body behind.
//   - One provider serves many streams at a time.
//   - A rich request equals the golden file, byte for byte each time, and options that the adapter does
//     not know are refused before anything is sent.
//
// The suite does not ask for what the provider's capabilities rule out. Their promises must occur in a
// transcript.
//
// Most of it runs on a transport in memory, and the parts about hanging in a
// bubble of testing/synctest, so nothing waits for a clock. A test there that
// ends with "blocked goroutines remain" has found a goroutine that was left
// behind. For an adapter this means: all its traffic goes through the client that
// it is given, and whatever it starts it starts in Stream or later.
package providertest
