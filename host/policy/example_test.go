package policy_test

import (
	"fmt"

	"github.com/starling-host/starling/host/policy"
)

// What a policy does not allow is denied, and the reason names the rule that is missing.
func ExampleDecideCall() {
	operator, err := policy.Parse("policy.yaml", []byte(`version: "1.0"
permissions:
  tools:
    charge:
      arguments:
        type: object
        required: [cents]
        properties: {cents: {type: integer, maximum: 10000}}
`))
	if err != nil {
		fmt.Println(err)
		return
	}
	for _, arguments := range []string{`{"cents": 500}`, `{"cents": 50000}`} {
		decision, _ := policy.DecideCall(operator, nil, "charge", []byte(arguments))
		fmt.Printf("%s: %q\n", arguments, decision.Reason())
	}
	// Output:
	// {"cents": 500}: ""
	// {"cents": 50000}: "the operator's policy does not allow it: the argument /cents must match maximum: 10000"
}
