package pglog

import (
	"math"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgtype"
)

// TestParametersAreWhatTheDriverMakesOfThem compares with pgx's own encoding.
func TestParametersAreWhatTheDriverMakesOfThem(t *testing.T) {
	t.Parallel()
	ints := []int64{0, 1, -1, math.MaxInt64, math.MinInt64}
	small := []int32{0, -1, math.MaxInt32}
	matrix := [][]int64{{1, 2, 3}, {-1, 0, math.MaxInt64}}
	floats := []float64{0, -1.5, math.MaxFloat64, math.Inf(1)}
	texts := []string{"", "run", "\u00e9\n"}
	blobs := [][]byte{nil, {1, 2, 3}, {0}}
	var p params
	for range 2 { // in new memory, and in that of before
		p.reset()
		p.array(pgtype.Int8OID, len(ints), func(i int) { p.int8(ints[i]) })
		p.array(pgtype.Int4OID, len(small), func(i int) { p.int4(small[i]) })
		p.array(pgtype.Float8OID, len(floats), func(i int) { p.float8(floats[i]) })
		p.array(pgtype.TextOID, len(texts), func(i int) { p.text(texts[i]) })
		p.array(pgtype.ByteaOID, len(blobs), func(i int) { p.bytesOrNull(blobs[i]) })
		p.matrix(len(matrix), len(matrix[0]), func(i int) { p.int8s(matrix[i]...) })
		p.boolean(true)
		p.boolean(false)
		want := [][]byte{
			driver(t, pgtype.Int8ArrayOID, ints), driver(t, pgtype.Int4ArrayOID, small),
			driver(t, pgtype.Float8ArrayOID, floats), driver(t, pgtype.TextArrayOID, texts), driver(t, pgtype.ByteaArrayOID, blobs),
			driver(t, pgtype.Int8ArrayOID, matrix), driver(t, pgtype.BoolOID, true), driver(t, pgtype.BoolOID, false),
		}
		if diff := cmp.Diff(want, p.values(), cmp.Transformer("maybeNull", maybeNull)); diff != "" {
			t.Error(diff)
		}
	}
}

// maybeNull marks an array that may contain NULLs, as the driver needs to know.
func maybeNull(param []byte) string {
	if len(param) < 8 {
		return string(param)
	}
	return string(param[:7]) + "\x01" + string(param[8:])
}

func driver(t *testing.T, oid uint32, value any) []byte {
	t.Helper()
	buf, err := pgtype.NewMap().Encode(oid, pgx.BinaryFormatCode, value, nil)
	if err != nil {
		t.Fatal(err)
	}
	return buf
}

func TestALotOfMemoryIsNotKept(t *testing.T) {
	var p params
	big := make([]byte, keptParams+1)
	p.array(pgtype.ByteaOID, 1, func(int) { p.bytes(big) })
	if p.reset(); cap(p.buf) != 0 {
		t.Errorf("%d bytes are kept", cap(p.buf))
	}
}
