package egress

import (
	"fmt"
	"strings"
	"testing"
)

// BenchmarkScrub searches a response of 1 MiB for secrets that are not in it.
func BenchmarkScrub(b *testing.B) {
	var secrets []Secret
	for i := range 10 {
		secrets = append(secrets, Secret{fmt.Sprint("K", i), fmt.Appendf(nil, "sk-live-%032x/+=", uint64(i)*0x9e3779b97f4a7c15)})
	}
	for _, body := range []struct{ name, text string }{
		{"text", "The quick brown fox jumps over the lazy dog. "},
		{"json", `{"id":12345,"name":"Ada \"the\" Lovelace","url":"https:\/\/example.com\/a?b=c&d=%20e"},` + "\n"},
		{"escapes", `%73\u0073&#115;`},
		{"near", "sk-live-00000000"},
	} {
		text := []byte(strings.Repeat(body.text, 1<<20/len(body.text)))
		for _, many := range []int{1, 10} {
			b.Run(fmt.Sprintf("%s/%d", body.name, many), func(b *testing.B) {
				b.SetBytes(int64(len(text)))
				for b.Loop() {
					newScrubber(secrets[:many], len(text)).clean(text)
				}
			})
		}
	}
}
