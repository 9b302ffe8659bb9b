package seal_test

import (
	"archive/zip"
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"hash/crc32"
	"io"
	"io/fs"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"github.com/starling-host/starling/eventlog/seal"
	"github.com/starling-host/starling/internal/treetest"
)

// rezip gives the entries of an archive, whose contents were changed in place, their right
// checksums.
func rezip(t testing.TB, file []byte) []byte {
	t.Helper()
	file = bytes.Clone(file)
	sums := map[string]uint32{}
	for at := 0; bytes.HasPrefix(file[at:], []byte("PK\x03\x04")); {
		size, name := int(binary.LittleEndian.Uint32(file[at+18:])), int(binary.LittleEndian.Uint16(file[at+26:]))
		sum := crc32.ChecksumIEEE(file[at+30+name : at+30+name+size])
		binary.LittleEndian.PutUint32(file[at+14:], sum)
		sums[string(file[at+30:at+30+name])] = sum
		at += 30 + name + size
	}
	for at := bytes.Index(file, []byte("PK\x01\x02")); bytes.HasPrefix(file[at:], []byte("PK\x01\x02")); {
		name := int(binary.LittleEndian.Uint16(file[at+28:]))
		binary.LittleEndian.PutUint32(file[at+16:], sums[string(file[at+46:at+46+name])])
		at += 46 + name
	}
	return file
}

// content is an entry of a bundle.
type content struct {
	name  string
	bytes []byte
}

// files are the entries of a bundle, as the standard library reads them.
func files(t testing.TB, bundle []byte) (all []content) {
	t.Helper()
	r, err := zip.NewReader(bytes.NewReader(bundle), int64(len(bundle)))
	if err != nil {
		t.Fatal(err)
	}
	for _, f := range r.File {
		text, err := fs.ReadFile(r, f.Name)
		if err != nil {
			t.Fatal(err)
		}
		all = append(all, content{f.Name, text})
	}
	return all
}

// archive writes entries as spec/bundle.md says.
func archive(all []content) []byte {
	var b, directory []byte
	for _, f := range all {
		common := []byte{20, 0, 0, 0, 0, 0, 0, 0, 0x21, 0}
		common = binary.LittleEndian.AppendUint32(common, crc32.ChecksumIEEE(f.bytes))
		common = binary.LittleEndian.AppendUint32(common, uint32(len(f.bytes)))
		common = binary.LittleEndian.AppendUint32(common, uint32(len(f.bytes)))
		common = binary.LittleEndian.AppendUint32(common, uint32(len(f.name))) // and no extra fields
		directory = append(append(append(directory, "PK\x01\x02\x14\x00"...), common...), make([]byte, 10)...)
		directory = append(binary.LittleEndian.AppendUint32(directory, uint32(len(b))), f.name...)
		b = append(append(append(append(b, "PK\x03\x04"...), common...), f.name...), f.bytes...)
	}
	end := append([]byte("PK\x05\x06"), 0, 0, 0, 0, byte(len(all)), 0, byte(len(all)), 0)
	end = binary.LittleEndian.AppendUint32(end, uint32(len(directory)))
	end = binary.LittleEndian.AppendUint32(end, uint32(len(b)))
	return slices.Concat(b, directory, end, []byte{0, 0})
}

// open does all that can be done with a bundle without executing it.
func open(file []byte, policy *seal.Policy) error {
	b, _, err := seal.OpenBundle(context.Background(), file)
	if err == nil {
		_, _, err = b.CheckProofs(policy)
	}
	return err
}

// TestOtherProgramsOpenABundle has the standard library check every entry.
func TestOtherProgramsOpenABundle(t *testing.T) {
	file, err := newFixture(t, 5).bundle(true, 4, 1).Bytes()
	if err != nil {
		t.Fatal(err)
	}
	r, err := zip.NewReader(bytes.NewReader(file), int64(len(file)))
	if err != nil {
		t.Fatal(err)
	}
	if len(r.File) != 7 {
		t.Errorf("%d entries", len(r.File))
	}
	for _, e := range r.File {
		in, err := e.Open()
		if err != nil {
			t.Fatal(err)
		}
		if _, err := io.Copy(io.Discard, in); err != nil || e.Method != zip.Store {
			t.Errorf("%s: %v", e.Name, err)
		}
	}
}

// TestEveryByteOfABundle flips a bit of each byte.
func TestEveryByteOfABundle(t *testing.T) {
	f := newFixture(t, 3)
	file, err := f.bundle(true, 1).Bytes()
	if err != nil {
		t.Fatal(err)
	}
	policy, err := seal.ParsePolicy(f.cosigned)
	if err != nil {
		t.Fatal(err)
	}
	if err := open(file, policy); err != nil {
		t.Fatal(err)
	}
	for i := range file {
		for _, bit := range []byte{1, 0x80} {
			file[i] ^= bit
			if err := open(file, policy); err == nil {
				t.Errorf("byte %d of %d was flipped, and nothing is said", i, len(file))
			}
			file[i] ^= bit
		}
	}
}

// TestMutatedBundles changes bundles as an attacker would who knows the format: with
// checksums that are right. An answer comes in time, and it is no.
func TestMutatedBundles(t *testing.T) {
	f := newFixture(t, 40)
	file, err := f.bundle(true, 39, 12, 30).Bytes()
	if err != nil {
		t.Fatal(err)
	}
	policy, err := seal.Trust(f.key.VKey())
	if err != nil {
		t.Fatal(err)
	}
	samples := treetest.Count(500, 500, 20_000)
	random := rand.New(rand.NewPCG(1, 2))
	for range samples {
		mutant := bytes.Clone(file)
		for range 1 + random.IntN(3) {
			at := random.IntN(len(mutant))
			switch random.IntN(4) {
			case 0:
				mutant[at] ^= 1 << random.IntN(8)
			case 1:
				mutant = append(mutant[:at], mutant[min(len(mutant), at+1+random.IntN(300)):]...)
			case 2:
				to := random.IntN(len(mutant))
				copy(mutant[to:], bytes.Clone(mutant[at:min(len(mutant), at+200)]))
			case 3:
				mutant = append(mutant[:at:at], append([]byte("\xff\xff\xff\x7f"), mutant[at:]...)...)
			}
			if len(mutant) == 0 {
				break
			}
		}
		if bytes.Equal(mutant, file) {
			continue
		}
		if len(mutant) == len(file) && bytes.Contains(mutant, []byte("PK\x01\x02")) {
			func() {
				defer func() { _ = recover() }() // of the repair, where lengths do not fit
				mutant = rezip(t, mutant)
			}()
		}
		if bytes.Equal(mutant, file) {
			continue
		}
		started := time.Now()
		if err := open(mutant, policy); err == nil {
			t.Fatalf("a mutant was accepted: %x", mutant)
		}
		if took := time.Since(started); took > 2*time.Second {
			t.Logf("an answer took %v", took)
		}
	}
}

func FuzzOpenBundle(f *testing.F) {
	x := newFixture(f, 3)
	for _, b := range []seal.Bundle{x.bundle(true, 1), x.bundle(false, 2, 0)} {
		file, err := b.Bytes()
		if err != nil {
			f.Fatal(err)
		}
		f.Add(file)
	}
	policy, err := seal.Trust(x.key.VKey())
	if err != nil {
		f.Fatal(err)
	}
	f.Fuzz(func(t *testing.T, file []byte) {
		b, _, err := seal.OpenBundle(t.Context(), file)
		if err != nil {
			return
		}
		if again, err := b.Bytes(); err != nil || !bytes.Equal(again, file) {
			t.Errorf("there are two forms of a bundle: %v", err)
		}
		if _, _, err := b.CheckProofs(policy); len(b.Proofs) == 0 && err != nil {
			t.Error(err)
		}
	})
}

func FuzzParseStatement(f *testing.F) {
	x := newFixture(f, 3)
	f.Add([]byte(x.statement(f, 1, 0)), x.cosigned)
	f.Add([]byte(x.statement(f, 2, 2)), x.policy)
	f.Fuzz(func(t *testing.T, doc []byte, policy string) {
		p, err := seal.ParsePolicy(policy)
		if err != nil {
			p = nil
		}
		s, err := seal.ParseStatement(t.Context(), doc)
		if err != nil {
			return
		}
		if _, _, err := s.Check(p); err != nil && errors.Is(err, seal.ErrNoLog) {
			t.Error(err)
		}
	})
}
