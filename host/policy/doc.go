// Package policy decides what the tools of a run may do.
//
// A policy is a file. The operator of a host has one, and each tenant has one;
// both must allow what is done. What no rule allows is denied, rules only add to
// each other, and their order decides nothing but which of them is named:
//
//	# yaml-language-server: $schema=https://raw.githubusercontent.com/starling-host/starling/main/spec/policy.schema.json
//	version: "1.0"
//	permissions:
//	  network:
//	    allow:
//	      - host: api.stripe.com
//	        methods: [POST]
//	        paths: [/v1/charges, /v1/charges/*]
//	        max_calls: 20
//	  tools:
//	    charge:
//	      arguments:
//	        type: object
//	        required: [amount]
//	        properties: {amount: {type: integer, maximum: 10000}, currency: {enum: [eur, usd]}}
//	resources:
//	  limits: {fuel: 1G, memory: 64MiB, deadline: 10s}
//	secrets:
//	  - {name: STRIPE_KEY, audience: [api.stripe.com], header: Authorization}
//
// spec/policy.md says what each key means, and spec/policy.schema.json what a file may
// have. What is wrong with a file is a [*config.Error] with line, caret and hint.
//
// [Decide] is a function of its arguments: the two policies, the request, and what
// the run has used so far. A [Run] keeps the latter, and can be made again from
// the recorded events of a run that is resumed ([Run.Resume]). It is what the
// network asks about each exchange ([Run.Exchange]) and what the tools of an agent
// are guarded with ([Run.Guard]).
//
// Every decision is recorded where it was made, with the digest of the policy, the
// side, the rule and its line. A replay takes it from there: it has no policy, and
// decides nothing.
package policy
