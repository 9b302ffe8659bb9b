package systemtest

import (
	"fmt"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/starling-host/starling/internal/pgtest"
	"github.com/starling-host/starling/internal/treetest"
)

// machine is a machine of its own as far as the network goes: a network namespace
// with one cable, whose other end is here.
type machine struct {
	name  string
	cable string // the end that is here
	here  string // its address
}

// network is a number N such that the addresses 10.N.0.0/16 are this test's, and of
// nobody else who tests on this machine.
type network int

// claimNetwork finds one: whoever has its address everywhere has the network.
func claimNetwork(t *testing.T) network {
	t.Helper()
	treetest.Needs(t, "netns")
	var refusal []byte
	for n := network(64); n < 128; n++ {
		out, err := exec.Command("ip", "addr", "add", n.everywhere()+"/32", "dev", "lo").CombinedOutput()
		if err == nil {
			t.Cleanup(func() { exec.Command("ip", "addr", "del", n.everywhere()+"/32", "dev", "lo").Run() })
			return n
		}
		refusal = out
	}
	t.Skipf("SKIPPED: this machine takes no address more: %s", refusal)
	return 0
}

// everywhere is an address of this machine that all others reach.
func (n network) everywhere() string { return fmt.Sprintf("10.%d.255.1", n) }

// connect makes machines that are connected to this one.
func (n network) connect(t *testing.T, count int) []machine {
	t.Helper()
	machines := make([]machine, count)
	for i := range machines {
		machines[i] = n.newMachine(t, i)
	}
	return machines
}

func (n network) newMachine(t *testing.T, i int) machine {
	t.Helper()
	id := fmt.Sprintf("%d-%d", os.Getpid()%100000, i)
	m := machine{name: "starling-" + id, cable: "st" + id, here: fmt.Sprintf("10.%d.%d.1", n, i)}
	if out, err := exec.Command("ip", "netns", "add", m.name).CombinedOutput(); err != nil {
		t.Skipf("SKIPPED: no network namespace can be made here: %s", out)
	}
	t.Cleanup(func() { exec.Command("ip", "netns", "del", m.name).Run() })
	for _, command := range []string{
		"link add " + m.cable + " type veth peer name eth0 netns " + m.name,
		"addr add " + m.here + "/24 dev " + m.cable,
		"link set " + m.cable + " up",
		fmt.Sprintf("-n %s addr add 10.%d.%d.2/24 dev eth0", m.name, n, i),
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

// openPostgres starts a server that the machines reach, and returns the address of
// an empty database on it.
func (n network) openPostgres(t *testing.T) string {
	t.Helper()
	dir := t.TempDir()
	for folder := dir; folder != os.TempDir() && len(folder) > 1; folder = filepath.Dir(folder) {
		os.Chmod(folder, 0o755) // the server is another user
	}
	hba := filepath.Join(dir, "hba")
	if err := os.WriteFile(hba, fmt.Appendf(nil, "local all all trust\nhost all all 10.%d.0.0/16 trust\n", n), 0o644); err != nil {
		t.Fatal(err)
	}
	local, err := url.Parse(pgtest.Start(t, "listen_addresses="+n.everywhere(), "hba_file="+hba).Database(t))
	if err != nil {
		t.Fatal(err)
	}
	return "postgres://" + pgtest.Superuser + "@" + n.everywhere() + ":5432" + local.Path + "?connect_timeout=5"
}

// TestThreeHostsOnOneDatabase has three machines serve from one PostgreSQL. Under
// load one is cut off from the network for longer than its lease, and comes back,
// and another one is killed. Every run ends exactly once, no order whose answer was
// recorded is sent again, and every run validates and replays.
func TestThreeHostsOnOneDatabase(t *testing.T) {
	skipShort(t)
	t.Parallel()
	n := claimNetwork(t)
	machines, database := n.connect(t, 3), n.openPostgres(t)
	const items = 3
	s := openShop(t, n.everywhere()+":0")
	c := newShopCluster(t, t.TempDir(), database, s)
	var hosts []*host
	for i, m := range machines {
		c.listen = "unix:" + c.path(fmt.Sprintf("host%d.sock", i))
		hosts = append(hosts, c.start("queue: {lease: 10s}\n", m.inside))
	}
	hosts[0].upload("alice")
	runs := promised{runs: map[string]string{}}
	var stops []func()
	for _, h := range hosts {
		stops = append(stops, runs.load(t, h, s.URL, 2, items))
	}
	s.await(t, 50)
	machines[1].cut(t)
	s.await(t, 50)
	hosts[2].kill()
	s.remember(c.openRuns())
	s.await(t, 50)
	for _, stop := range stops {
		stop()
	}
	// The host that was killed had leases, so this takes as long as one lasts. On a slow machine
	// it takes minutes, in which the host that is cut off would stop writing for good.
	finished, plugged := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(plugged)
		for !strings.Contains(hosts[1].stderr.String(), "the lease was lost") {
			select {
			case <-finished:
				return
			case <-time.After(20 * time.Millisecond):
			}
		}
		_ = exec.Command("ip", "link", "set", machines[1].cable, "up").Run() // plug, which may not end the test from here
	}()
	hosts[0].finish()
	close(finished)
	<-plugged
	machines[1].plug(t)
	hosts[1].finish() // it is there again, and says the same
	hosts[0].stop()
	hosts[1].stop()
	t.Logf("%d runs, %d orders", len(runs.runs), s.taken)
	s.check(t, runs.of("alice"), items)
	c.proved(len(runs.runs))
}
