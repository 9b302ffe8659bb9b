package sqlitelog

import (
	"fmt"
	"testing"

	"github.com/starling-host/starling/eventlog/logtest"
)

// BenchmarkPutContents stores trees of 1,000 files of 1 KB: new ones, and the same one again.
func BenchmarkPutContents(b *testing.B) {
	tree := func(n int) map[string]string {
		files := map[string]string{}
		for i := range 1000 {
			files[fmt.Sprintf("%d/%d", i%10, i)] = fmt.Sprintf("%0512d %0512d", n, i)
		}
		return files
	}
	l := open(b)
	b.Run("new", func(b *testing.B) {
		for n := 0; b.Loop(); n++ {
			contents, _ := logtest.Tree(tree(n))
			if err := l.PutContents(b.Context(), "", contents); err != nil {
				b.Fatal(err)
			}
		}
	})
	b.Run("known", func(b *testing.B) {
		contents, _ := logtest.Tree(tree(0))
		for b.Loop() {
			if err := l.PutContents(b.Context(), "", contents); err != nil {
				b.Fatal(err)
			}
		}
	})
}
