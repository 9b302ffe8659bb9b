//go:build unix

package mcptool_test

import (
	"bufio"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/starling-host/starling/runtime/mcptool"
)

// A launcher's child ends with the client, and when the process of the client is killed.
func TestAServerEndsWithItsProcessGroup(t *testing.T) {
	launcher := func(file string) *exec.Cmd {
		cmd := exec.Command("sh", "-c", `(trap "" TERM; while :; do sleep 1; done) & echo $! > "$0.new"; mv "$0.new" "$0"; exec "$1"`, file, os.Args[0])
		cmd.Env = append(os.Environ(), serverVariable+"=good")
		return cmd
	}
	ends := func(file string) {
		t.Helper()
		var pid int
		for end := time.Now().Add(20 * time.Second); time.Now().Before(end); time.Sleep(10 * time.Millisecond) {
			if doc, err := os.ReadFile(file); err == nil && pid == 0 {
				pid, _ = strconv.Atoi(strings.TrimSpace(string(doc)))
			}
			if pid != 0 && syscall.Kill(pid, 0) != nil {
				return
			}
		}
		_ = syscall.Kill(pid, syscall.SIGKILL)
		t.Errorf("process %d goes on", pid)
	}
	closed := filepath.Join(t.TempDir(), "pid")
	client := open(t)(mcptool.NewCommand(t.Context(), launcher(closed), mcptool.Options{}))
	if err := client.Close(); err != nil {
		t.Error(err)
	}
	ends(closed)

	killed := filepath.Join(t.TempDir(), "pid")
	host := server("host")
	host.Args = append(host.Args, launcher(killed).Args...)
	out, err := host.StdoutPipe()
	if err == nil {
		err = host.Start()
	}
	if err == nil {
		_, err = bufio.NewReader(out).ReadString('\n') // it is connected
	}
	if err != nil {
		t.Fatal(err)
	}
	_ = host.Process.Kill()
	_ = host.Wait()
	ends(killed)
}
