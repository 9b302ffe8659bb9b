package canon_test

import (
	"fmt"

	"github.com/starling-host/starling/eventlog/canon"
)

func ExampleJSON() {
	text, err := canon.JSON([]byte(`{"b": 1e2, "a": "\u00e9\/", "id": 12345678901234567890}`))
	fmt.Println(string(text), err)

	_, err = canon.JSON([]byte("{\"limit\": 10,\n \"\\u006cimit\": 20}"))
	fmt.Println(err)
	// Output:
	// {"a":"é/","b":100.0,"id":12345678901234567890} <nil>
	// canon: JSON line 2 column 2 at "/limit": key "limit" appears twice in one object
}

func ExampleFromJSON() {
	raw, err := canon.FromJSON([]byte(`{"city": "Ulm", "n": 1, "x": 1.0}`))
	fmt.Printf("%x %v\n", []byte(raw), err)

	text, err := canon.ToJSON(raw)
	fmt.Println(string(text), err)
	// Output:
	// a3616e016178f93c00646369747963556c6d <nil>
	// {"city":"Ulm","n":1,"x":1.0} <nil>
}

// The worked example of the package comment.
func Example() {
	doc := []byte(`{ "n": 1, "pi": 3.5, "id": 18446744073709551616, "s": "\u0061\/" }`)
	text, err := canon.JSON(doc)
	fmt.Println(string(text), err)
	raw, err := canon.FromJSON(doc)
	fmt.Printf("%x %v\n", []byte(raw), err)
	// Output:
	// {"id":18446744073709551616,"n":1,"pi":3.5,"s":"a/"} <nil>
	// a4616e01617362612f626964c249010000000000000000627069f94300 <nil>
}

func ExampleRender() {
	raw, err := canon.Marshal(map[string][]byte{
		"request": []byte("GET / HTTP/1.1\r\n"),
		"digest":  {0xca, 0xfe},
	})
	if err != nil {
		fmt.Println(err)
	}
	shown, err := canon.Render(raw)
	fmt.Println(string(shown), err)
	// Output:
	// {"digest":"h'cafe'","request":{"$text":"GET / HTTP/1.1\r\n"}} <nil>
}

func ExampleDifference() {
	expected, _ := canon.FromJSON([]byte(`{"rows":[{"id":1},{"id":2}]}`))
	got, _ := canon.FromJSON([]byte(`{"rows":[{"id":1},{"id":3}]}`))
	path, want, have := canon.Difference(expected, got)
	fmt.Printf("%s: %x, %x\n", path, []byte(want), []byte(have))
	// Output:
	// rows[1].id: 02, 03
}
