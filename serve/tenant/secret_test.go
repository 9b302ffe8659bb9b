package tenant_test

import (
	"testing"

	"github.com/starling-host/starling/runtime/egress"
	"github.com/starling-host/starling/serve/tenant"
)

// TestWhereASecretMayBeSent: the stored bounds of a secret hold, whatever a
// policy allows.
func TestWhereASecretMayBeSent(t *testing.T) {
	sec := tenant.Secret{Name: "KEY", Audience: []string{"api.example.com", ".example.org", "10.0.0.7:8080"}, Place: tenant.PlaceHeader}
	header := egress.Placeholder{Name: "KEY", Place: egress.PlaceHeader, Field: "Authorization"}
	query := egress.Placeholder{Name: "KEY", Place: egress.PlaceQuery, Field: "key"}
	for _, tt := range []struct {
		at     egress.Placeholder
		scheme string
		host   string
		port   uint16
		want   bool
	}{
		{header, "https", "api.example.com", 443, true},
		{header, "https", "api.example.com", 8443, false},
		{header, "https", "other.example.com", 443, false},
		{header, "https", "a.example.org", 443, true},
		{header, "https", "example.org", 443, false},
		{header, "http", "10.0.0.7", 8080, true},
		{header, "http", "10.0.0.7", 80, false},
		{query, "https", "api.example.com", 443, false},
	} {
		if got := sec.For(tt.at, egress.Access{Scheme: tt.scheme, Host: tt.host, Port: tt.port}); got != tt.want {
			t.Errorf("in %s to %s://%s:%d: %t", tt.at.Place, tt.scheme, tt.host, tt.port, got)
		}
	}
}
