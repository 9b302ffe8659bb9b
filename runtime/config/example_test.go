package config_test

import (
	"fmt"
	"time"

	"github.com/starling-host/starling/runtime/config"
)

// A file is decoded strictly. What is wrong is said with its place.
func ExampleNode_Decode() {
	var file struct {
		Memory config.Size   `yaml:"memory,required"`
		Wait   config.Period `yaml:"wait"`
	}
	node, err := config.Parse("host.yaml", []byte("memory: 64MiB\nwait: 90s\n"))
	if err == nil {
		err = node.Decode(&file)
	}
	fmt.Println(file.Memory, time.Duration(file.Wait), err)

	node, err = config.Parse("host.yaml", []byte("memory: 64MiB\nweit: 90s\n"))
	if err == nil {
		err = node.Decode(&file)
	}
	fmt.Println(err)
	// Output:
	// 67108864 1m30s <nil>
	// host.yaml:2:1: there is no key "weit"
	//   2 | weit ...
	//     | ^
	// hint: did you mean "wait"?
}
