package config_test

import (
	"fmt"
	"time"

	"github.com/starling-host/starling/internal/config"
)

// A file is what its schema says. What is wrong is said with its place.
func ExampleSchema_Load() {
	schema := config.MustSchema([]byte(`{
		"type": "object", "required": ["memory"], "additionalProperties": false,
		"properties": {"memory": {"type": "string"}, "wait": {"type": "string"}}
	}`), nil)
	var file struct {
		Memory int64         `yaml:"memory"`
		Wait   time.Duration `yaml:"wait"`
	}
	_, err := schema.Load("host.yaml", []byte("memory: 64MiB\nwait: 90s\n"), &file)
	fmt.Println(file.Memory, file.Wait, err)

	_, err = schema.Load("host.yaml", []byte("memory: 64MiB\nweit: 90s\n"), &file)
	fmt.Println(err)
	// Output:
	// 67108864 1m30s <nil>
	// host.yaml:2:1: unknown key "weit"
	//   2 | weit ...
	//     | ^
	// hint: did you mean "wait"?
}
