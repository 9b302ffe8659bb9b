package provider_test

import (
	"errors"
	"fmt"
	"net/http"

	"github.com/starling-host/starling/runtime/provider"
)

// An error of a vendor is classified once, by its status. The runtime asks again for what
// may pass.
func ExampleWrapHTTPStatus() {
	for _, status := range []int{http.StatusTooManyRequests, http.StatusUnauthorized} {
		err := provider.WrapHTTPStatus(errors.New("the vendor says no"), status)
		fmt.Println(err, provider.Transient(err))
	}
	// Output:
	// provider: rate limit: the vendor says no true
	// provider: not authorised: the vendor says no false
}
