package systemtest

import (
	"encoding/json"
	"os"
	"os/exec"
	"path/filepath"
	"testing"
)

// TestClosedPipesEndNoRun gives commands that record a pipe that its reader has left: the run
// comes to its end. What was to go to standard output is lost, and that is a failure.
func TestClosedPipesEndNoRun(t *testing.T) {
	skipShort(t)
	t.Parallel()
	dir := t.TempDir()
	for name, text := range map[string]string{
		"agent.yaml": "provider: {script: turns.yaml}\ncode: {language: javascript}\ntools: []\n",
		"turns.yaml": "- tool_calls: [{name: run_js, args: {code: 'console.log(1); return 1'}}]\n- text: done\n",
	} {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	for _, args := range [][]string{
		{"agent", "run", "agent.yaml", "Go."}, {"run", "run_js", `{"code":"console.log(1); return 1"}`},
	} {
		for _, both := range []bool{false, true} {
			read, write, err := os.Pipe()
			if err != nil {
				t.Fatal(err)
			}
			read.Close()
			cmd := exec.Command("starling-host", args...)
			cmd.Dir, cmd.Stderr = dir, write
			if both {
				cmd.Stdout = write
			}
			err = cmd.Run()
			write.Close()
			if code := cmd.ProcessState.ExitCode(); code != 0 && !both || code != 1 && both {
				t.Errorf("%v: exit code %d (%v)", args, code, err)
			}
		}
	}
	cmd := exec.Command("starling-host", "runs", "-o", "json")
	cmd.Dir = dir
	out, err := cmd.Output()
	var list struct {
		Runs []struct {
			Status string `json:"status"`
		} `json:"runs"`
	}
	if err != nil || json.Unmarshal(out, &list) != nil || len(list.Runs) != 4 {
		t.Fatalf("%s (%v)", out, err)
	}
	for _, run := range list.Runs {
		if run.Status != "completed" {
			t.Errorf("a run is %s", run.Status)
		}
	}
}
