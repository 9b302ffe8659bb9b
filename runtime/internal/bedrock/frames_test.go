package bedrock_test

import (
	"bytes"
	"encoding/binary"
	"encoding/hex"
	"hash/crc32"
	"io"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"testing/iotest"

	"pgregory.net/rapid"

	"github.com/starling-host/starling/runtime/internal/bedrock"
)

// frames encodes events as AWS sends them. A line is the type of an event and its
// payload; an exception has an exclamation mark before its type.
func frames(t testing.TB, lines string) []byte {
	t.Helper()
	var body bytes.Buffer
	for line := range strings.Lines(lines) {
		kind, payload, _ := strings.Cut(strings.TrimSpace(line), " ")
		message, header := "event", ":event-type"
		if name, ok := strings.CutPrefix(kind, "!"); ok {
			kind, message, header = name, "exception", ":exception-type"
		}
		headers := stringHeader(header, kind) + stringHeader(":content-type", "application/json") + stringHeader(":message-type", message)
		body.WriteString(frame(headers, payload))
	}
	return body.Bytes()
}

// stringHeader encodes a header.
func stringHeader(name, value string) string {
	b := append([]byte{byte(len(name))}, name...)
	b = append(b, 7)
	b = binary.BigEndian.AppendUint16(b, uint16(len(value)))
	return string(append(b, value...))
}

// frame encodes a frame, whose headers are encoded.
func frame(headers, payload string) string {
	b := binary.BigEndian.AppendUint32(nil, uint32(16+len(headers)+len(payload)))
	b = binary.BigEndian.AppendUint32(b, uint32(len(headers)))
	b = binary.BigEndian.AppendUint32(b, crc32.ChecksumIEEE(b))
	b = append(append(b, headers...), payload...)
	return string(binary.BigEndian.AppendUint32(b, crc32.ChecksumIEEE(b)))
}

// encoded writes the frames of a file with events to a file of its own.
func encoded(t testing.TB, file string) string {
	t.Helper()
	lines, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	path := filepath.Join(t.TempDir(), filepath.Base(file)+".bin")
	if err := os.WriteFile(path, frames(t, string(lines)), 0o600); err != nil {
		t.Fatal(err)
	}
	return path
}

// TestPublishedFrames has the frames that AWS publishes with its SDKs
// (eventstream/testdata/encoded of github.com/aws/smithy-go).
func TestPublishedFrames(t *testing.T) {
	const payload = "{'foo':'bar'}"
	json := map[string]string{"content-type": "application/json"}
	for name, tc := range map[string]struct {
		frame   string // in hexadecimal
		headers map[string]string
		payload string
		err     string
	}{
		"all_headers": {"000000cc000000af0fae64ca0a6576656e742d74797065040000a00c0c636f6e74656e742d747970650700106170706c69636174696f6e2f6a736f6e" +
			"0a626f6f6c2066616c73650109626f6f6c207472756500046279746502cf08627974652062756606001449276d2061206c6974746c6520746561706f74210974696d65" +
			"7374616d70080000000000845fed05696e74313603002a05696e7436340500000000028757b20475756964090102030405060708090a0b0c0d0e0f107b27666f6f273a" +
			"27626172277daba5f10c", json, payload, ""},
		"empty_message":          {"000000100000000005c248eb7d98c8ff", map[string]string{}, "", ""},
		"int32_header":           {"0000002d0000001041c424b80a6576656e742d74797065040000a00c7b27666f6f273a27626172277d36f480a0", map[string]string{}, payload, ""},
		"payload_no_headers":     {"0000001d00000000fd528c5a7b27666f6f273a27626172277dc3653936", map[string]string{}, payload, ""},
		"payload_one_str_header": {"0000003d0000002007fd83960c636f6e74656e742d747970650700106170706c69636174696f6e2f6a736f6e7b27666f6f273a27626172277d8d9c08b1", json, payload, ""},
		"corrupted_header_len":   {"0000003d0000002107fd83960c636f6e74656e742d747970650700106170706c69636174696f6e2f6a736f6e7b27666f6f273a27626172277d8d9c08b1", nil, "", "lengths"},
		"corrupted_headers":      {"0000003d0000002007fd83960c636f6e74656e742d747970650700106170706c69636174696f6e2f6a736f6e7b61666f6f273a27626172277d8d9c08b1", nil, "", "a frame is wrong"},
		"corrupted_length":       {"0000003e0000002007fd83960c636f6e74656e742d747970650700106170706c69636174696f6e2f6a736f6e7b27666f6f273a27626172277d8d9c08b1", nil, "", "lengths"},
		"corrupted_payload":      {"0000001d00000000fd528c5a5b27666f6f273a27626172277dc3653936", nil, "", "a frame is wrong"},
	} {
		b, err := hex.DecodeString(tc.frame)
		if err != nil {
			t.Fatal(err)
		}
		headers, got, err := bedrock.ReadFrame(bytes.NewReader(b))
		if (err == nil) != (tc.err == "") || err != nil && !strings.Contains(err.Error(), tc.err) || !maps.Equal(headers, tc.headers) || string(got) != tc.payload {
			t.Errorf("%s: got %v, %q, %v", name, headers, got, err)
		}
	}
}

// TestFrames encodes any frames, and reads them whole, cut and with a wrong byte.
func TestFrames(t *testing.T) {
	// sizes has the sizes of values, by their type. Values of types 6 and 7 have any size.
	sizes := []int{0, 0, 1, 2, 4, 8, -1, -1, 8, 16}
	rapid.Check(t, func(t *rapid.T) {
		var body string
		var ends []int
		var all []map[string]string
		var payloads []string
		for range rapid.IntRange(1, 4).Draw(t, "frames") {
			headers, encoded := map[string]string{}, ""
			for _, name := range rapid.SliceOfNDistinct(rapid.StringMatching(`[:a-z]{0,20}`), 0, 5, rapid.ID[string]).Draw(t, "names") {
				kind := rapid.IntRange(0, 9).Draw(t, "type")
				size := sizes[kind]
				if size < 0 {
					size = rapid.IntRange(0, 300).Draw(t, "size")
				}
				value := string(rapid.SliceOfN(rapid.Byte(), size, size).Draw(t, "value"))
				one := []byte(stringHeader(name, value))
				one[1+len(name)] = byte(kind)
				if sizes[kind] >= 0 { // which do not say their size
					one = append(one[:2+len(name)], value...)
				}
				encoded += string(one)
				if kind == 7 {
					headers[name] = value
				}
			}
			payloads = append(payloads, string(rapid.SliceOf(rapid.Byte()).Draw(t, "payload")))
			all = append(all, headers)
			body += frame(encoded, payloads[len(payloads)-1])
			ends = append(ends, len(body))
		}
		// read returns how many frames are read before the error, and checks each.
		read := func(body string) (int, error) {
			r := iotest.OneByteReader(strings.NewReader(body))
			for n := 0; ; n++ {
				headers, payload, err := bedrock.ReadFrame(r)
				if err != nil {
					return n, err
				}
				if !maps.Equal(headers, all[n]) || string(payload) != payloads[n] {
					t.Fatalf("frame %d: got %v, %q, want %v, %q", n, headers, payload, all[n], payloads[n])
				}
			}
		}
		if n, err := read(body); n != len(ends) || err != io.EOF {
			t.Fatalf("got %d frames of %d, %v", n, len(ends), err)
		}
		at := rapid.IntRange(0, len(body)-1).Draw(t, "at")
		whole, within := slices.BinarySearch(ends, at)
		want := io.ErrUnexpectedEOF
		if within {
			whole++
		}
		if within || at == 0 {
			want = io.EOF
		}
		if n, err := read(body[:at]); n != whole || err != want {
			t.Fatalf("cut at %d: got %d frames, %v, want %d, %v", at, n, err, whole, want)
		}
		wrong := []byte(body)
		wrong[at] ^= rapid.ByteRange(1, 255).Draw(t, "flipped")
		if n, err := read(string(wrong)); n != whole || err == nil || !strings.Contains(err.Error(), "checksum") {
			t.Fatalf("a wrong byte at %d: got %d frames, %v, want %d and a wrong checksum", at, n, err, whole)
		}
	})
}

// TestWrongHeaders has frames whose checksums are right.
func TestWrongHeaders(t *testing.T) {
	for _, headers := range []string{"\x00", "\x05:a", "\x01a", "\x01a\x0a", "\x01a\x07\x00", "\x01a\x07\x00\x02b", "\x01a\x04abc"} {
		if got, _, err := bedrock.ReadFrame(strings.NewReader(frame(headers, "{}"))); err == nil || !strings.Contains(err.Error(), "the headers of a frame") {
			t.Errorf("%q: got %v, %v", headers, got, err)
		}
	}
}
