package main

import (
	"context"
	"os"

	"github.com/spf13/cobra"

	"github.com/starling-host/starling/host/policy"
	"github.com/starling-host/starling/host/sandbox"
	"github.com/starling-host/starling/runtime/tool"
)

// policyFlag adds --policy to the commands that run tools.
func policyFlag(cmd *cobra.Command, value *string) {
	cmd.Flags().StringVar(value, "policy", "", "let the policy in `FILE` decide what tools may do")
}

// openPolicy reads the policy of a run; without one the run has none.
func openPolicy(path string) (*policy.Run, error) {
	if path == "" {
		return nil, nil
	}
	p, err := loadPolicy(path)
	if err != nil {
		return nil, err
	}
	return policy.NewRun(p, nil, environment{}), nil
}

// environment has secrets in variables of this process.
type environment struct{}

// secretPrefix begins the names of these variables.
const secretPrefix = "STARLING_SECRET_"

// Secret implements [policy.Secrets].
func (environment) Secret(_ context.Context, name string) ([]byte, bool, error) {
	value, ok := os.LookupEnv(secretPrefix + name)
	return []byte(value), ok, nil
}

// narrowed returns the limits of a module under a policy, which has no say about
// what it does not name. Without a policy zero fields are the host's defaults.
func narrowed(run *policy.Run, l sandbox.Limits) sandbox.Limits {
	if run == nil {
		return l
	}
	return run.Narrow(sandbox.WithDefaults(l))
}

// guarded returns tools whose calls the policy has to allow.
func guarded(run *policy.Run, tools []tool.Tool) []tool.Tool {
	all := make([]tool.Tool, len(tools))
	for i, t := range tools {
		all[i] = run.Guard(t)
	}
	return all
}
