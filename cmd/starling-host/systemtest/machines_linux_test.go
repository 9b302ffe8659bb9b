package systemtest

import (
	"fmt"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/starling-host/starling/internal/treetest"
)

// TestMachines sets up docs/machines.md with its own files, each machine of it a port of this one, and lets
// a host, the primary and the new primary fail while clients ask for runs. No promised run is lost, and no
// order whose answer was recorded is sent again. Its log has how long there was no answer.
func TestMachines(t *testing.T) {
	if os.Getenv("STARLING_NIGHTLY") == "" {
		t.Skip("NIGHTLY: takes minutes, and Patroni, etcd, PgBouncer and HAProxy")
	}
	treetest.Needs(t, "patroni", "etcd", "pgbouncer", "haproxy")
	page := treetest.Read(t, filepath.Join("..", "..", "..", "docs", "machines.md"))
	files := map[string]string{} // by the name that their first line has
	for _, m := range regexp.MustCompile("(?s)```\\w+\n(?:#|;) \\S*/(\\S+?)(?: of [^\n]*)?\n(.*?)```").FindAllStringSubmatch(page, -1) {
		files[m[1]] = m[2]
	}
	dir, ports := servers(t), map[string]string{}
	port := regexp.MustCompile(`\b(db\d|etcd\d|one|two|127\.0\.0\.1|0\.0\.0\.0|):(\d{4})\b`)
	// here puts the addresses of a machine's file onto ports of this one.
	here := func(text, machine string) string {
		return port.ReplaceAllStringFunc(text, func(address string) string {
			name, of, _ := strings.Cut(address, ":")
			if !regexp.MustCompile(`^(db|etcd|one|two)`).MatchString(name) {
				name = machine
			}
			if name += ":" + of; ports[name] == "" {
				ports[name] = treetest.FreePort(t)
			}
			return "127.0.0.1:" + ports[name]
		})
	}
	write := func(name, text string) string {
		path := filepath.Join(dir, name)
		if err := os.WriteFile(path, []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
		return path
	}
	etcd, peer := "http://"+here("etcd1:2379", ""), "http://"+here("etcd1:2380", "")
	daemon(t, dir, "etcd", "--data-dir", filepath.Join(dir, "etcd"), "--listen-client-urls", etcd, "--advertise-client-urls", etcd,
		"--listen-peer-urls", peer, "--initial-advertise-peer-urls", peer, "--initial-cluster", "default="+peer)
	nodes := map[string]*exec.Cmd{}
	patroni := func(db string) {
		text := strings.ReplaceAll(here(strings.ReplaceAll(files["patroni.yml"], "db1", db), db), "/var/lib/postgresql/starling", filepath.Join(dir, db))
		text = strings.ReplaceAll(text, "scram-sha-256", "trust") + "  bin_dir: " + postgresPrograms(t) + "\n  parameters: {unix_socket_directories: " + dir + "}\n"
		nodes[db] = daemon(t, dir, "patroni", write(db+".yml", text))
	}
	ask := func(path string, of ...string) (db string) {
		for _, db := range of {
			if answer, err := http.Get("http://" + here(db+":8008", "") + path); err == nil {
				answer.Body.Close()
				if answer.StatusCode == http.StatusOK {
					return db
				}
			}
		}
		return ""
	}
	await := func(what, path string, of ...string) (db string) {
		t.Helper()
		for deadline := time.Now().Add(2 * awaitTime); db == ""; time.Sleep(50 * time.Millisecond) {
			if db = ask(path, of...); db == "" && time.Now().After(deadline) {
				t.Fatal("there is no " + what)
			}
		}
		return db
	}
	all := []string{"db1", "db2", "db3"}
	patroni("db1")
	await("primary", "/primary", "db1")
	patroni("db2")
	patroni("db3")
	await("synchronous standby", "/sync", all...)
	for _, db := range all {
		text := strings.NewReplacer("= 0.0.0.0", "= 127.0.0.1", "scram-sha-256", "trust", "/etc/pgbouncer", dir).Replace(files["pgbouncer.ini"])
		here(db+":5432 "+db+":6432", "")
		text = strings.NewReplacer("port=5432", "port="+ports[db+":5432"], "listen_port = 6432", "listen_port = "+ports[db+":6432"]).Replace(text)
		write("userlist.txt", `"app" "" "postgres" ""`)
		daemon(t, dir, "pgbouncer", write(db+".ini", text+"unix_socket_dir =\n"))
	}
	psql := exec.Command("psql", "-q", "-X", "-d", "postgres://postgres@"+here("db1:5432", "")+"/postgres",
		"-c", "CREATE ROLE app LOGIN", "-c", "CREATE DATABASE starling OWNER app ENCODING 'UTF8' TEMPLATE template0")
	if out, err := psql.CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}

	s := openShop(t, "")
	address, rest := "", ""
	for line := range strings.Lines(here(files["host.yaml"], "")) {
		if database, is := strings.CutPrefix(line, "database: "); is {
			address = strings.TrimSpace(database)
		} else if strings.HasPrefix(line, "queue:") {
			rest += line
		}
	}
	c := newShopCluster(t, t.TempDir(), address, s)
	hosts := map[string]*host{}
	start := func(name string) {
		c.listen = here(name+":8300", "")
		hosts[name] = c.start(strings.Replace(rest, "{", "{host: "+name+", ", 1), nil)
	}
	start("one")
	start("two")
	c.upload("alice")
	proxy := here(files["haproxy.cfg"], "proxy")
	daemon(t, dir, "haproxy", "-db", "-f", write("haproxy.cfg", proxy))
	front := &host{cluster: c, client: &http.Client{Timeout: awaitTime}, url: "http://" + here(":8300", "proxy")}
	until(t, "the balancer serves", &front.stderr, func() bool {
		status, _, err := front.document("", "GET", "/runs?limit=1", nil)
		return err == nil && status == http.StatusOK
	})

	const items = 3
	runs := promised{runs: map[string]string{}}
	stop := runs.load(t, front, s.URL, 4, items)
	pause := func(what string) { // how long no run is accepted after a failure
		t.Helper()
		longest, began, last, had := time.Duration(0), time.Now(), time.Now(), runs.count()
		for time.Since(began) < 40*time.Second || runs.count() == had {
			if n := runs.count(); n > had {
				had, longest, last = n, max(longest, time.Since(last)), time.Now()
			}
			if time.Since(last) > 3*awaitTime {
				t.Fatalf("%s: no run is accepted any more", what)
			}
			time.Sleep(5 * time.Millisecond)
		}
		t.Logf("%s: no run was accepted for %v", what, longest.Round(10*time.Millisecond))
		s.remember(c.openRuns())
	}
	s.await(t, 30)
	pause("nothing failed")
	hosts["one"].kill()
	pause("a host is killed")
	start("one")
	leader := await("primary", "/primary", all...)
	first, err := os.ReadFile(filepath.Join(dir, leader, "postmaster.pid"))
	c.must(err)
	var server int
	fmt.Sscan(string(first), &server)
	syscall.Kill(-nodes[leader].Process.Pid, syscall.SIGKILL) // Patroni, and then its server
	c.must(syscall.Kill(server, syscall.SIGKILL))
	pause("the primary is killed")
	patroni(leader)
	await("third node", "/replica", leader)
	now := await("primary", "/primary", all...)
	command := exec.Command("patronictl", "-c", filepath.Join(dir, now+".yml"), "switchover", "--master", now, "--candidate", await("synchronous standby", "/sync", all...), "--force")
	if out, err := command.CombinedOutput(); err != nil {
		t.Errorf("switchover: %v\n%s", err, out)
	}
	pause("the primary is changed")
	stop()
	runs.repeat(t, front, s.URL, items)
	front.finish()
	for _, h := range hosts {
		h.stop()
	}
	t.Logf("%d runs, %d orders", len(runs.runs), s.taken)
	s.check(t, runs.of("alice"), items)
	c.proved(len(runs.runs))
}

// count returns how many runs were promised.
func (p *promised) count() int {
	p.mu.Lock()
	defer p.mu.Unlock()
	return len(p.runs)
}

// servers returns a folder for the files of servers that refuse to run as root.
func servers(t *testing.T) (dir string) {
	t.Helper()
	dir, err := os.MkdirTemp("", "machines")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.RemoveAll(dir) })
	if os.Getuid() == 0 {
		if out, err := exec.Command("chown", "postgres", dir).CombinedOutput(); err != nil {
			t.Fatalf("%v: %s", err, out)
		}
	}
	return dir
}

// daemon runs a server until the test ends, in a process group of its own. It fails the test with what the
// server has written if that is not here at the end.
func daemon(t *testing.T, dir, name string, args ...string) *exec.Cmd {
	t.Helper()
	all := append([]string{name}, args...)
	if os.Getuid() == 0 {
		all = append([]string{"runuser", "-u", "postgres", "--"}, all...)
	}
	cmd := exec.Command(all[0], all[1:]...)
	out := new(lockedBuffer)
	cmd.Dir, cmd.Stdout, cmd.Stderr, cmd.SysProcAttr = dir, out, out, &syscall.SysProcAttr{Setpgid: true}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		syscall.Kill(-cmd.Process.Pid, syscall.SIGTERM)
		ended := make(chan error, 1)
		go func() { ended <- cmd.Wait() }()
		select {
		case <-ended:
		case <-time.After(20 * time.Second):
			syscall.Kill(-cmd.Process.Pid, syscall.SIGKILL)
		}
		if t.Failed() {
			t.Logf("%s %s:\n%s", name, filepath.Base(fmt.Sprint(args)), tail(out.String(), 600))
		}
	})
	return cmd
}

// postgresPrograms returns the folder of the newest server's programs.
func postgresPrograms(t *testing.T) string {
	t.Helper()
	found, _ := filepath.Glob("/usr/lib/postgresql/*/bin")
	if len(found) == 0 {
		t.Skip("SKIPPED: no PostgreSQL server")
	}
	return found[len(found)-1]
}
