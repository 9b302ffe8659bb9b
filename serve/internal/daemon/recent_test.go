package daemon

import (
	"fmt"
	"reflect"
	"strings"
	"testing"
	"time"
)

// TestRecent: what is used stays, and the rest does not grow without end.
func TestRecent(t *testing.T) {
	var r rates
	for i := range 5 * mostRecent {
		if r.wait("steady", 1, time.Hour) > 0 != (i > 0) {
			t.Fatalf("request %d: the count of a tenant that asks all the time was lost", i)
		}
		r.wait(fmt.Sprint(i), 1, time.Hour)
		if n := len(r.limiters.now) + len(r.limiters.old); n > 2*mostRecent {
			t.Fatalf("%d tenants are kept", n)
		}
	}
	if _, known := r.limiters.find("0", nil); known {
		t.Error("a tenant that asked long ago is kept")
	}
}

// bounded are the maps that a daemon holds, with what bounds them.
var bounded = map[string]string{
	"agents":        "the configuration",
	"outbound.of":   "the loaded modules",
	"failing.since": "the checks of readiness",
	"validKeys.now": "mostRecent", "validKeys.old": "mostRecent",
	"requests.limiters.now": "mostRecent", "requests.limiters.old": "mostRecent",
	"uploads.limiters.now": "mostRecent", "uploads.limiters.old": "mostRecent",
	"volume.of.now": "mostRecent", "volume.of.old": "mostRecent",
}

// TestMapsOfADaemonAreBounded finds the maps of this package that live as long as a host.
func TestMapsOfADaemonAreBounded(t *testing.T) {
	found := map[string]bool{}
	var walk func(at string, of reflect.Type)
	walk = func(at string, of reflect.Type) {
		for of.Kind() == reflect.Pointer {
			of = of.Elem()
		}
		switch {
		case of.Kind() == reflect.Map, of.PkgPath() == "sync" && of.Name() == "Map":
			found[at] = true
			if bounded[at] == "" {
				t.Errorf("%s grows with the clients: use a recent, or say in bounded what bounds it", at)
			}
		case of.Kind() == reflect.Struct && strings.HasSuffix(of.PkgPath(), "/daemon") && of.Name() != "Config":
			for i := range of.NumField() {
				walk(strings.TrimPrefix(at+"."+of.Field(i).Name, "."), of.Field(i).Type)
			}
		}
	}
	walk("", reflect.TypeFor[Daemon]())
	for at := range bounded {
		if !found[at] {
			t.Errorf("there is no map %s", at)
		}
	}
}
