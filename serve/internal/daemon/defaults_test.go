package daemon

import (
	"encoding/json"
	"fmt"
	"os"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/starling-host/starling/host/sandbox"
	"github.com/starling-host/starling/internal/display"
	"github.com/starling-host/starling/serve/queue"
	"github.com/starling-host/starling/serve/tenant"
	"github.com/starling-host/starling/spec"
)

// TestDocumentedDefaults holds the tables of docs/defaults.md to the defaults of the code.
func TestDocumentedDefaults(t *testing.T) {
	page, err := os.ReadFile("../../../docs/defaults.md")
	if err != nil {
		t.Fatal(err)
	}
	size := func(n int64) string {
		unit := 0
		for ; n%1024 == 0 && unit < 3; unit++ {
			n /= 1024
		}
		return fmt.Sprint(n) + []string{"B", "KiB", "MiB", "GiB"}[unit]
	}
	short := func(d time.Duration) string {
		return regexp.MustCompile(`([mh])0[ms](0s)?$`).ReplaceAllString(d.String(), "$1")
	}
	call, limits, c := sandbox.DefaultLimits(), tenant.DefaultLimits(), Config{}.complete()
	for row, want := range map[string]string{
		"fuel": display.Fuel(call.Fuel), "memory": size(int64(call.MemoryPages) * sandbox.PageSize), "time": short(time.Duration(call.TimeoutMs) * time.Millisecond),
		"effects": fmt.Sprint(call.Effects), "bytes of all effects": size(int64(call.EffectBytes)), "input": size(int64(call.InputBytes)),
		"output": size(int64(call.OutputBytes)), "text on standard output and error": size(int64(call.LogBytes)),
		"`running`": fmt.Sprint(limits.Running), "`waiting`": fmt.Sprint(limits.Waiting), "`compiling`": fmt.Sprint(limits.Compiling),
		"`connections`": fmt.Sprint(limits.Connections), "`requests_per_second`": fmt.Sprint(limits.RequestsPerSecond),
		"`module_bytes`": size(limits.Modules), "`uploads_per_hour`": fmt.Sprint(limits.UploadsPerHour),
		"`recorded_per_day`": size(limits.RecordedPerDay), "`recorded`": size(limits.Recorded),
		"`workers`": fmt.Sprint(queue.DefaultWorkers), "`queue.max_waiting`": fmt.Sprint(queue.DefaultMaxWaiting), "`queue.lease`": short(queue.DefaultLease),
		"`queue.grace`": short(queue.DefaultGrace), "`queue.attempts`": fmt.Sprint(c.MaxAttempts), "`drain`": short(c.Drain),
		"`requests.module`": size(c.Requests.Module), "`requests.modules`": fmt.Sprint(c.Requests.Modules), "`requests.wait`": short(c.Requests.Wait),
		"`requests.streams`": fmt.Sprint(c.Requests.Streams), "`requests.replays`": fmt.Sprint(c.Requests.Replays), "`requests.loaded_modules`": fmt.Sprint(c.Requests.Loaded),
		"`connections.max`": fmt.Sprint(c.Connections.Max), "`connections.request`": short(c.Connections.Request), "`connections.idle`": short(c.Connections.Idle),
		"`retention.every`": short(c.Retention.Every),
	} {
		if !strings.Contains(string(page), "\n| "+row+" | "+want+" |") {
			t.Errorf("docs/defaults.md does not give %s as %s", row, want)
		}
	}
	var schema struct {
		Properties map[string]struct{ Properties map[string]any }
	}
	if err := json.Unmarshal(spec.HostSchema(), &schema); err != nil {
		t.Fatal(err)
	}
	for _, part := range []string{"limits", "queue", "requests", "connections", "space"} {
		for key := range schema.Properties[part].Properties {
			if !strings.Contains(string(page), "\n| `"+strings.TrimPrefix(part+"."+key, "limits.")+"` | ") {
				t.Errorf("docs/defaults.md does not give the default of %s.%s", part, key)
			}
		}
	}
}
