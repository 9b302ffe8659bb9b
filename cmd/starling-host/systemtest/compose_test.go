package systemtest

import (
	"net/http"
	"net/url"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/starling-host/starling/internal/pgtest"
	"github.com/starling-host/starling/internal/treetest"
)

// TestCompose starts what release/compose does, with its files but without containers: each host of
// compose.yaml with host.yaml, and nginx with nginx.conf, before a PostgreSQL server. Requests through nginx
// are carried out when one of the hosts is killed, too.
func TestCompose(t *testing.T) {
	skipShort(t)
	t.Parallel()
	treetest.Needs(t, "nginx")
	folder, dir := filepath.Join("..", "..", "..", "release", "compose"), t.TempDir()
	c := newClusterIn(t, dir, pgtest.Database(t), closedPolicy, "alice")
	c.askFreely("alice")
	c.tool = "draw"
	server, err := url.Parse(c.database)
	c.must(err)
	c.env = []string{"STARLING_METRICS_KEY=" + strings.Repeat("0123456789abcdef", 4)}

	front, proxy := "127.0.0.1:"+treetest.FreePort(t), treetest.Read(t, filepath.Join(folder, "nginx.conf"))
	hosts := map[string]*host{}
	for _, service := range regexp.MustCompile(`(?m)^  (\w+): \*host$`).FindAllStringSubmatch(treetest.Read(t, filepath.Join(folder, "compose.yaml")), -1) {
		name := service[1]
		here := "127.0.0.1:" + treetest.FreePort(t)
		proxy = strings.ReplaceAll(proxy, "server "+name+":8300", "server "+here)
		config := treetest.Read(t, filepath.Join(folder, "host.yaml"))
		for from, to := range map[string]string{
			"0.0.0.0:8300": here, "http://127.0.0.1:8300": "http://" + front, "postgres://starling@db/starling": server.String(),
			"/var/lib/starling-host/starling.key": "host.key",
		} {
			if !strings.Contains(config, from) {
				t.Fatalf("host.yaml has no %s any more", from)
			}
			config = strings.ReplaceAll(config, from, to)
		}
		hosts[name] = c.startWith(config+"queue: {host: "+name+", lease: 1s}\n", nil)
	}
	if len(hosts) != 2 {
		t.Fatalf("compose.yaml has %d hosts", len(hosts))
	}
	c.upload("alice")
	treetest.Write(t, c.path("nginx.conf"), treetest.Nginx(strings.Replace(proxy, "listen 8300", "listen "+front, 1)))
	nginx := exec.Command("nginx", "-p", dir, "-c", "nginx.conf")
	var out lockedBuffer
	nginx.Stderr, nginx.WaitDelay = &out, time.Second
	c.must(nginx.Start())
	t.Cleanup(func() { nginx.Process.Signal(syscall.SIGTERM); nginx.Wait() })
	balanced := &host{cluster: c, client: &http.Client{Timeout: awaitTime}, url: "http://" + front}
	until(t, "nginx serves", &out, func() bool {
		status, _, err := balanced.document("", "GET", "/runs?limit=1", nil)
		return err == nil && status == http.StatusOK
	})
	submit := func(n int) {
		for range n {
			if status, doc, err := balanced.document("", "POST", "/runs", []byte(`{"tool":"draw","input":{}}`)); err != nil || status != http.StatusAccepted {
				t.Fatalf("%d %v %v\n%s", status, doc, err, &out)
			}
		}
	}
	submit(10)
	hosts["one"].kill()
	submit(10)
	balanced.finish()
	if status, _, err := balanced.ask("alice", "GET", "/metrics", "", nil); err != nil || status != http.StatusNotFound {
		t.Errorf("metrics through nginx: %d %v", status, err)
	}
	hosts["two"].stop()
	c.proved(20)
}
