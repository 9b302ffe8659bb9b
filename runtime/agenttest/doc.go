// Package agenttest is for the tests of programs that use agents.
//
// [ScriptedProvider] is a model that says what a test wants it to say:
//
//	model := agenttest.ScriptedProvider{Turns: []agenttest.Turn{
//		agenttest.Call("c1", "weather", `{"city":"Oslo"}`),
//		agenttest.Say("It is clear in Oslo."),
//	}}
//
// [AssertReplayMatches] and [AssertReplayDiverges] hold an agent to a recorded run.
// A run that was recorded once, in a database that is committed, is a regression
// test for ever: it fails when a prompt, a tool or the order of a plan changes, and
// needs neither key nor network. [AppendRunStarted] begins a run by hand, for tests
// of what reads logs.
package agenttest
