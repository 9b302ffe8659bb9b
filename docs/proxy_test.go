package docs_test

import (
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/starling-host/starling/internal/treetest"
)

// TestProxy serves behind nginx as docs/proxy.md says, without and with certificates of
// clients.
func TestProxy(t *testing.T) {
	t.Parallel()
	treetest.Needs(t, "nginx", "openssl", "curl")
	port, dir, page := treetest.FreePort(t), t.TempDir(), treetest.Read(t, "docs/proxy.md")
	treetest.BuildHost(t, dir)
	here := strings.NewReplacer("/run/starling", dir, "/etc/ssl/private", dir, "/etc/ssl", dir, "listen 443", "listen 127.0.0.1:"+port,
		"https://starling.example", "https://starling.example:"+port)
	block := func(kind string, n int) string {
		found := regexp.MustCompile("(?s)```"+kind+"\n(.*?)```").FindAllStringSubmatch(page, -1)
		return here.Replace(found[n][1])
	}
	commands := func(first string) string {
		_, rest, _ := strings.Cut(page, "\n    "+first)
		lines, _, _ := strings.Cut(rest, "\n\n")
		return here.Replace(first + strings.ReplaceAll(lines, "\n    ", "\n"))
	}
	plain := block("nginx", 0)
	mutual := strings.Replace(plain, "    location / {", block("nginx", 1)+"    location / {", 1)
	for name, text := range map[string]string{"host.yaml": block("yaml", 0), "plain.conf": treetest.Nginx(plain), "mutual.conf": treetest.Nginx(mutual)} {
		treetest.Write(t, filepath.Join(dir, name), text)
	}
	curl := strings.NewReplacer("curl ", "curl -sS --max-time 20 --cacert starling.crt --resolve starling.example:"+port+":127.0.0.1 -o answer -w '%{http_code}\\n' ").Replace
	script := `trap 'kill $(jobs -p) 2> /dev/null || :' EXIT
openssl req -x509 -newkey ec -pkeyopt ec_paramgen_curve:P-256 -nodes -subj /CN=starling.example -addext subjectAltName=DNS:starling.example -keyout starling.key -out starling.crt
` + commands("openssl req -x509") + `
mv starling.key tls.key; starling-host tenant keygen starling.key; starling-host tenant create acme --db starling.db --key-file starling.key > acme.key
sed -i s,starling.key,tls.key, plain.conf mutual.conf
starling-host serve --config host.yaml &
front() {
	nginx -p . -c $1.conf & echo $! > front
	for i in $(seq 500); do (: < /dev/tcp/127.0.0.1/` + port + `) 2> /dev/null && test -S host.sock && break; sleep 0.02; done
}
expect() { test "$got" = "$1" || { echo "$2: $got, not $1"; cat answer; exit 1; }; }
front plain
` + curl(`
head -c 9000000 /dev/zero > large
got=$(curl -H "Authorization: Bearer $(cat acme.key)" https://starling.example:`+port+`/api/v1/runs); expect 200 runs
got=$(curl https://starling.example:`+port+`/api/v1/runs); expect 401 'without a key'
got=$(curl -H "Authorization: Bearer $STARLING_METRICS_KEY" https://starling.example:`+port+`/metrics); expect 404 metrics
got=$(curl https://starling.example:`+port+`/inspect/sign-in); expect 200 'the web view'
got=$(curl -H 'Host: other.example' https://starling.example:`+port+`/inspect/sign-in); expect 421 'another name'
got=$(curl -H "Authorization: Bearer $(cat acme.key)" -H 'Content-Type: application/wasm' --data-binary @large 'https://starling.example:`+port+`/api/v1/modules?name=large'); expect 422 'a large module'
kill $(cat front); wait $(cat front) || :
front mutual
got=$(`+commands("curl --cert")+`); expect 200 'with a certificate'
got=$(curl -H "Authorization: Bearer $(cat acme.key)" https://starling.example:`+port+`/api/v1/runs); expect 400 'without a certificate'
`)
	shell := exec.CommandContext(t.Context(), "bash", "-e", "-c", script)
	shell.Dir, shell.WaitDelay = dir, time.Second
	shell.Env = append(os.Environ(), "PATH="+dir+string(os.PathListSeparator)+os.Getenv("PATH"), "STARLING_METRICS_KEY=0123456789abcdef0123456789abcdef")
	if out, err := shell.CombinedOutput(); err != nil {
		t.Errorf("%v\n%s", err, out)
	}
}
