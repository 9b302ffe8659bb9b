package serve_test

import (
	"fmt"

	"github.com/starling-host/starling/serve"
)

// The file of a host is checked before anything listens.
func ExampleParseFile() {
	file, err := serve.ParseFile("host.yaml", []byte("listen: 127.0.0.1:8080\ndatabase: starling.db\nkey_file: master.key\n"))
	fmt.Println(file.Listen, err)
	_, err = serve.ParseFile("host.yaml", []byte("listen: 127.0.0.1:8080\ndatabase: starling.db\nworkers: many\n"))
	fmt.Println(err)
	// Output:
	// 127.0.0.1:8080 <nil>
	// host.yaml:3:10: this must be a positive whole number
	//   3 | workers: many
	//     |          ^
	// hint: write a number, or one with k, M, G or T for thousands and more, such as 10M
}
