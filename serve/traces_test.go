package serve

import (
	"fmt"
	"strings"
	"testing"
)

func TestWhetherThereAreTraces(t *testing.T) {
	file := FileTraces{Endpoint: "http://127.0.0.1:4318/v1/traces"}
	for _, c := range []struct {
		file FileTraces
		env  string // NAME=VALUE, after OTEL_
		want bool
	}{
		{FileTraces{}, "", false},
		{FileTraces{Sample: 0.5}, "", false},
		{file, "", true},
		{file, "TRACES_EXPORTER=none", true},
		{file, "SDK_DISABLED=true", false},
		{FileTraces{}, "EXPORTER_OTLP_ENDPOINT=http://127.0.0.1:4318", true},
		{FileTraces{}, "EXPORTER_OTLP_TRACES_ENDPOINT=http://127.0.0.1:4318", true},
		{FileTraces{Off: true}, "EXPORTER_OTLP_ENDPOINT=http://127.0.0.1:4318", false},
	} {
		getenv := func(name string) string {
			value, _ := strings.CutPrefix(c.env, strings.TrimPrefix(name, "OTEL_")+"=")
			if value == c.env {
				return ""
			}
			return value
		}
		if got := tracesWanted(c.file, getenv); got != c.want {
			t.Errorf("%s: %t", fmt.Sprint(c.file, " ", c.env), got)
		}
	}
}
