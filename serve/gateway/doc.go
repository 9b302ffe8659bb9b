// Package gateway serves one user of this machine, without tenants and keys: tools and a
// database to assistants that speak the Model Context Protocol, and a database to a browser.
//
// [Tools] are modules, which run in the sandbox, and tools of other MCP servers. Each call is a
// recorded run. A [Server] connects in the background, and its descriptions of tools are pinned
// when it is first seen ([Pins]): a description is an instruction to the model, so a changed one
// is left out until the user accepts it. The servers themselves are not sandboxed.
//
//	tools := gateway.NewTools(db, starling.ToolOptions{}, warn)
//	err := tools.Add(ctx, "dice.wasm")
//	err = gateway.Service{Tools: tools}.Serve(ctx, os.Stdin, os.Stdout)
//
// A [Service] serves tools, a [Database], or both. [NewWebView] shows a database in a browser.
// [Setup] writes the configuration that makes an assistant start such a service.
package gateway
