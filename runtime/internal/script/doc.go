// Package script is a model whose answers are written down before, so that agents
// run with no key and no network: in tests, in demonstrations, and to try a tool.
//
// A script is a file in YAML or JSON, or a Go value. It is a list of turns:
//
//	# The model asks for a tool, and then talks about the result.
//	- reasoning: I should roll them.
//	  text: Let me roll two dice.
//	  tool_calls:
//	    - name: dice
//	      args: {rolls: 2}
//	- when: {contains: '"total":7'}
//	  text: Seven, the most likely of all.
//	- text: You have rolled.
//
// [Load] reads the file, and [New] makes a provider of a script:
//
//	s, err := script.Load("dice.script.yaml")
//	p, err := script.New(s)
//
// # Which turn is taken
//
// The turns are taken in order, one for each request. A turn with a guard is an
// alternative to the turn after it: such a group is one step of the conversation,
// which takes its first turn whose guard holds.
//
// The step is the number of assistant messages in the request. Nothing else is
// remembered, so one provider serves any number of runs at the same time, and a
// resumed run continues where it was. It also means that a turn that fails fails
// again when the request is made again.
//
// # What is sent
//
// Reasoning, text and tool calls come in this order, divided into chunks of words
// or of Turn.Chunk characters, then the counts of tokens and the end. A scripted
// model has no options: a request with Params is refused, as an adapter refuses
// options that it does not know. Everything else of a request is accepted.
package script
