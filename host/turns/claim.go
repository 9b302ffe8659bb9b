package turns

import "context"

// Claim says who a turn is for.
type Claim struct {
	Tenant string
	Weight float64 // its share beside others'; zero or less is one
}

func (c Claim) weight() float64 {
	if c.Weight > 0 {
		return c.Weight
	}
	return 1
}

type claimKey struct{}

// For returns a context whose turns are those of a tenant.
func For(ctx context.Context, c Claim) context.Context { return context.WithValue(ctx, claimKey{}, c) }

// of returns who the turns of a context are for: nobody in particular if nothing
// says so, which counts as a tenant, too.
func of(ctx context.Context) Claim {
	c, _ := ctx.Value(claimKey{}).(Claim)
	return c
}
