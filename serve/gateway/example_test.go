package gateway_test

import (
	"fmt"

	"github.com/starling-host/starling/serve/gateway"
)

// A server is named after its package. The configuration of an assistant starts the command.
func ExampleSetup_For() {
	server, err := gateway.ParseServer("npx -y @modelcontextprotocol/server-everything")
	fmt.Println(server.Name, err)
	setup := gateway.Setup{Name: "starling", Command: "/usr/bin/starling-host", Args: []string{"mcp", "--tool", "/tools/my dice.wasm"}}
	where, text, err := setup.For("claude-code")
	fmt.Println(where, err)
	fmt.Println(text)
	_, _, err = setup.For("emacs")
	fmt.Println(err)
	// Output:
	// everything <nil>
	// run this in a terminal <nil>
	// claude mcp add starling -- /usr/bin/starling-host mcp --tool '/tools/my dice.wasm'
	// unknown assistant "emacs"
}
