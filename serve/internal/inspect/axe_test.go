package inspect_test

import (
	"fmt"
	"os"
	"path/filepath"
	"testing"
)

// TestPagesAreAccessible runs axe-core on every page: light, dark, and on a phone.
func TestPagesAreAccessible(t *testing.T) {
	if testing.Short() {
		t.Skip("SKIPPED in short mode: a browser takes its time")
	}
	axe, err := os.ReadFile(filepath.Join("testdata", "axe", "node_modules", "axe-core", "axe.min.js"))
	if err != nil {
		t.Skip("SKIPPED: there is no axe-core: npm ci in testdata/axe")
	}
	c := newChromium(t, withForms(t, galleryView(t)))
	for name, path := range galleryPages {
		c.open(path)
		c.eval(string(axe)+"; 0", nil)
		for _, look := range []struct {
			name, scheme string
			width        int
		}{{"light", "light", 1280}, {"dark", "dark", 1280}, {"phone", "light", 390}} {
			c.call("Emulation.setEmulatedMedia", map[string]any{"features": []map[string]string{{"name": "prefers-color-scheme", "value": look.scheme}}}, nil)
			c.call("Emulation.setDeviceMetricsOverride", map[string]any{"width": look.width, "height": 900, "deviceScaleFactor": 1, "mobile": look.width < 500}, nil)
			var found []struct {
				ID, Help string
				Nodes    []struct{ HTML, FailureSummary string }
			}
			c.eval(`axe.run({ resultTypes: ["violations"] }).then((r) => r.violations.map(({ id, help, nodes }) =>
				({ id, help, nodes: nodes.slice(0, 3).map(({ html, failureSummary }) => ({ html, failureSummary })) })))`, &found)
			for _, one := range found {
				t.Errorf("%s, %s: %s: %s: %s", name, look.name, one.ID, one.Help, fmt.Sprintf("%.700s", one.Nodes))
			}
		}
	}
}
