// Package policy decides what the tools of a run may do.
//
// A policy is a file. The operator of a host has one and each tenant may have one; both must allow an action. Actions
// without a matching rule are denied. Rules only add permissions, so their order matters only for which of them a
// decision names:
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
// spec/policy.md describes the keys, and spec/policy.schema.json the form of a file. An invalid file results in a
// [*config.Error] with line, caret and hint.
//
// [Decide] is a function of its arguments: the two policies, the request, and the use so far. A [Run] keeps that use,
// and restores it from recorded events when a run resumes ([Run.Resume]). The network asks it about each exchange
// ([Run.Exchange]), and it guards the tools of an agent ([Run.Guard]).
//
// Each decision is recorded with its effect or call: the digest of the policy, the side, the rule and its line. A
// replay uses the record; it has no policy and decides nothing.
package policy
