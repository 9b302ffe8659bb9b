package sqlitelog

import (
	"os"
	"path/filepath"
	"runtime"
	"testing"
)

// TestRoomIsSetAside makes the file, even if another process died while making it,
// leaves it alone while it is whole, and gives it back.
func TestRoomIsSetAside(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "log.db")
	for _, before := range []string{"nothing", "a part of it"} {
		if given, err := GiveUp(path); given || err != nil {
			t.Errorf("nothing was given back: %t, %v", given, err)
		}
		if before != "nothing" {
			if err := os.WriteFile(path+".spare", []byte("x"), 0o600); err != nil {
				t.Fatal(err)
			}
		}
		if err := SetAside(path); err != nil {
			t.Fatal(err)
		}
		made, err := os.Stat(path + ".spare")
		if err != nil || made.Size() != spareBytes || runtime.GOOS != "windows" && made.Mode().Perm() != 0o600 {
			t.Fatalf("%+v, %v", made, err)
		}
		if err := SetAside(path); err != nil {
			t.Error(err)
		}
		if again, err := os.Stat(path + ".spare"); err != nil || !again.ModTime().Equal(made.ModTime()) {
			t.Errorf("it was made again: %v", err)
		}
		if given, err := GiveUp(path); !given || err != nil {
			t.Errorf("given back: %t, %v", given, err)
		}
	}
}
