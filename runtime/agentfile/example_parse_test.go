package agentfile_test

import (
	"context"
	"fmt"

	"github.com/starling-host/starling/eventlog/store"
	"github.com/starling-host/starling/runtime/agentfile"
)

// An agent is a file. This one has no tools, and a script in place of a model.
func ExampleParse() {
	file, err := agentfile.Parse("agent.yaml", []byte("name: greeter\nprovider: {script: model.yaml}\nsystem: Greet people.\n"))
	if err != nil {
		fmt.Println(err)
		return
	}
	script, err := agentfile.ParseScript("model.yaml", []byte("- text: Hello, Ada.\n"))
	if err != nil {
		fmt.Println(err)
		return
	}
	model, err := agentfile.NewScript(script)
	if err != nil {
		fmt.Println(err)
		return
	}
	greeter := file.Agent(model, &agentfile.Toolbox{})
	greeter.Log = store.Memory()
	result, err := greeter.Run(context.Background(), "Greet Ada.")
	if err != nil {
		fmt.Println(err)
		return
	}
	fmt.Println(file.Name+":", result.FinalText)
	// Output: greeter: Hello, Ada.
}
