package main

import (
	"fmt"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/starling-host/starling/eventlog/pglog/pgtest"
)

// machine is a machine of its own as far as the network goes: a network namespace
// with one cable, whose other end is here.
type machine struct {
	name  string
	cable string // the end that is here
	here  string // its address
}

// connect makes machines that are connected to this one.
func connect(t *testing.T, n int) []machine {
	t.Helper()
	if _, err := exec.LookPath("ip"); err != nil || os.Geteuid() != 0 {
		t.Skip("SKIPPED: network namespaces need root and ip: install the package iproute2")
	}
	machines := make([]machine, n)
	for i := range machines {
		machines[i] = newMachine(t, i)
	}
	return machines
}

func newMachine(t *testing.T, i int) machine {
	t.Helper()
	id := fmt.Sprintf("%d-%d", os.Getpid()%100000, i)
	m := machine{name: "starling-" + id, cable: "st" + id, here: fmt.Sprintf("10.77.%d.1", i)}
	if out, err := exec.Command("ip", "netns", "add", m.name).CombinedOutput(); err != nil {
		t.Skipf("SKIPPED: no network namespace can be made here: %s", out)
	}
	t.Cleanup(func() { exec.Command("ip", "netns", "del", m.name).Run() })
	for _, command := range []string{
		"link add " + m.cable + " type veth peer name eth0 netns " + m.name,
		"addr add " + m.here + "/24 dev " + m.cable,
		"link set " + m.cable + " up",
		fmt.Sprintf("-n %s addr add 10.77.%d.2/24 dev eth0", m.name, i),
		"-n " + m.name + " link set eth0 up",
		"-n " + m.name + " link set lo up",
		fmt.Sprintf("-n %s route add default via %s", m.name, m.here),
	} {
		m.ip(t, command)
	}
	return m
}

func (m machine) ip(t *testing.T, command string) {
	t.Helper()
	if out, err := exec.Command("ip", strings.Fields(command)...).CombinedOutput(); err != nil {
		t.Fatalf("ip %s: %v\n%s", command, err, out)
	}
}

// inside makes the arguments of a command those of a command on the machine.
func (m machine) inside(args []string) []string {
	return append([]string{"ip", "netns", "exec", m.name}, args...)
}

// cut pulls the cable, and plug puts it back.
func (m machine) cut(t *testing.T)  { m.ip(t, "link set "+m.cable+" down") }
func (m machine) plug(t *testing.T) { m.ip(t, "link set "+m.cable+" up") }

// everywhere is an address of this machine that all others reach.
func everywhere(t *testing.T) string {
	t.Helper()
	const address = "10.77.255.1"
	if out, err := exec.Command("ip", "addr", "add", address+"/32", "dev", "lo").CombinedOutput(); err != nil {
		t.Fatalf("ip addr add: %v\n%s", err, out)
	}
	t.Cleanup(func() { exec.Command("ip", "addr", "del", address+"/32", "dev", "lo").Run() })
	return address
}

// openPostgres starts a server that the machines reach, and returns the address of
// an empty database on it.
func openPostgres(t *testing.T, address string) string {
	t.Helper()
	dir := t.TempDir()
	for folder := dir; folder != os.TempDir() && len(folder) > 1; folder = filepath.Dir(folder) {
		os.Chmod(folder, 0o755) // the server is another user
	}
	hba := filepath.Join(dir, "hba")
	if err := os.WriteFile(hba, []byte("local all all trust\nhost all all 10.77.0.0/16 trust\n"), 0o644); err != nil {
		t.Fatal(err)
	}
	local, err := url.Parse(pgtest.Start(t, "listen_addresses="+address, "hba_file="+hba).Database(t))
	if err != nil {
		t.Fatal(err)
	}
	return "postgres://" + pgtest.Superuser + "@" + address + ":5432" + local.Path + "?connect_timeout=5"
}

// TestThreeHostsOnOneDatabase has three machines serve from one PostgreSQL. Under
// load one is cut off from the network for longer than its lease, and comes back,
// and another one is killed. Every run ends exactly once, no order whose answer was
// recorded is sent again, and every run validates and replays.
func TestThreeHostsOnOneDatabase(t *testing.T) {
	if testing.Short() {
		t.Skip("SKIPPED: takes a minute")
	}
	machines, address := connect(t, 3), everywhere(t)
	database := openPostgres(t, address)
	if out, err := exec.Command("starling-host", "migrate", database).CombinedOutput(); err != nil {
		t.Fatalf("migrate: %v\n%s", err, out)
	}
	const items = 3
	s := openShop(t, address+":0")
	dir, module := scene(t, s)
	var hosts []*serving
	for i, m := range machines {
		hosts = append(hosts, startServing(t, dir, database, fmt.Sprintf("host%d", i), m.inside))
	}
	for _, h := range hosts {
		h.key = hosts[2].key // the one that was made last holds
	}
	hosts[0].upload(t, module)
	runs := promised{runs: map[string]string{}}
	var stops []func()
	for _, h := range hosts {
		stops = append(stops, runs.load(t, h, s.URL, 2, items))
	}
	s.await(50)
	machines[1].cut(t)
	s.await(50)
	hosts[2].kill()
	s.remember(openRuns(t, dir, database))
	s.await(50)
	for _, stop := range stops {
		stop()
	}
	hosts[0].finish(t)
	machines[1].plug(t)
	hosts[1].finish(t) // it is there again, and says the same
	hosts[0].stop(t)
	hosts[1].stop(t)
	t.Logf("%d runs, %d orders", len(runs.runs), s.taken)
	s.check(t, runs.of("dev"), items)
	proved(t, dir, database, len(runs.runs))
}
