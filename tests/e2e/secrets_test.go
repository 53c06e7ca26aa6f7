//go:build e2e

package e2e

import (
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"ai-sandbox/tests/e2e/drive"

	"ai-sandbox/policy"
	"ai-sandbox/tests/e2e/canary"
)

// A canary that came in by any channel is nowhere but in the command: not at rest
// while a run lasts, after it has ended, failed or was killed; not in podman's
// store, database, inspect and events, and no image's layer; not in the journal;
// not in what ai-sandbox says, and not in what ps shows of anybody. --keep, which
// leaves a sandbox behind, does not exist yet.
func TestCanaries(t *testing.T) {
	u := newPiUser(t)
	b := u.Box
	c := canary.New()
	u.hasKeys(c)
	byName, filed, token := c.Add("NAME"), c.Add("FILE"), c.Add("TOKEN")
	own := t.TempDir()
	file := filepath.Join(own, "env")
	if err := os.WriteFile(file, []byte("FILED="+filed+"\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	b.Env = append(b.Env, "BY_NAME="+byName, "AI_API_TOKEN="+token)
	for n := range 190 {
		b.Env = append(b.Env, fmt.Sprintf("HOST_%d=%s", n, c.Add(fmt.Sprintf("HOST%d", n))))
	}
	for _, n := range []string{"HTTP_PROXY", "http_proxy", "HTTPS_PROXY", "https_proxy", "ALL_PROXY", "all_proxy"} {
		b.Env = append(b.Env, n+"=http://user:"+c.Add(n)+"@proxy.test:1")
	}
	for _, n := range []string{"AWS_SECRET_ACCESS_KEY", "GITHUB_TOKEN", "SSH_AUTH_SOCK", "LC_MINE"} {
		b.Env = append(b.Env, n+"="+c.Add(n))
	}
	bin := filepath.Join(b.Dir, "bin")
	if err := os.Mkdir(bin, 0o755); err != nil {
		t.Fatal(err)
	}
	// A pi of the test's own, which PATH finds first.
	if err := drive.WriteProgram(filepath.Join(bin, "pi"), []byte(fakePi)); err != nil {
		t.Fatal(err)
	}
	args := []string{"--env", "BY_NAME", "--env-file", file, "--env", "PUBLIC=of all", "--env", "PATH=" + bin + ":/usr/local/bin:/usr/bin:/bin", "--allow", b.Host("ok.test")}

	began := time.Now()
	podmanSays := func(args ...string) string { // what it says of what has gone meanwhile is no matter
		out, _ := exec.Command("podman", args...).CombinedOutput()
		return string(out)
	}
	dirs := []string{
		filepath.Join(w.home, "e2e", "state"), filepath.Join(w.home, "e2e", "cache"), filepath.Join(w.home, "e2e", "config"),
		filepath.Join(os.Getenv("XDG_RUNTIME_DIR"), "ai-sandbox"), filepath.Join(os.Getenv("XDG_RUNTIME_DIR"), "containers"), b.Dir,
	}
	store := filepath.Join(w.home, ".local/share/containers")
	meta := []string{} // all but the file systems
	for _, name := range []string{"overlay-containers", "overlay-images", "overlay-layers", "libpod", "volumes", "secrets", "db.sql", "db.sql-wal"} {
		meta = append(meta, filepath.Join(store, "storage", name))
	}
	exists := func(list []string) (out []string) {
		for _, d := range list {
			if _, err := os.Stat(d); err == nil {
				out = append(out, d)
			}
		}
		return out
	}
	sweep := func(when string, more ...string) {
		t.Helper()
		// As root of podman's user namespace: files of containers are there, too.
		hits, err := c.Sweep([]string{"podman", "unshare"}, exists(append(append([]string{}, dirs...), more...))...)
		if err != nil || len(hits) > 0 {
			t.Errorf("%s: %v, %q", when, err, hits)
		}
		for _, what := range [][]string{{"events", "--stream=false", "--since", began.Add(-time.Minute).Format(time.RFC3339)}, {"ps", "-a", "--no-trunc", "--format", "json"}} {
			out := podmanSays(what...)
			if in := c.In(out); len(in) > 0 || !strings.Contains(out, "aisb-") && what[0] == "events" {
				t.Errorf("%s, podman %s has %q: %s", when, what[0], in, drive.Tail(out))
			}
		}
	}
	silent := func(when string, r drive.Result) {
		t.Helper()
		if in := c.In(r.Out + r.Err); len(in) > 0 {
			t.Errorf("%s, the output has %q: %s", when, in, r)
		}
	}
	watch := c.Watch(func(argv string) bool {
		return strings.Contains(argv, b.Bin) || strings.Contains(argv, b.Token) || argv == "env -i sleep 1000 "
	})
	const script = `printf %s "$BY_NAME$FILED$AI_API_TOKEN" | { read -r x; test ${#x} -gt 90 && echo up >up; }; read -r x || :`

	// Success, with the harness's token.
	l := b.Start(t, append(args, "pi", "sh", "-c", script, b.Token)...)
	b.File(t, "up")
	id := sessionOf(t, b)
	for _, name := range []string{"aisb-" + id, "aisb-gate-" + id} {
		out := drive.Output(t, "podman", "inspect", name)
		if in := c.In(out); len(in) > 0 || !strings.Contains(out, name) {
			t.Errorf("podman inspect %s has %q: %s", name, in, drive.Tail(out))
		}
		if out := podmanSays("logs", name); len(c.In(out)) > 0 {
			t.Errorf("podman logs %s: %s", name, drive.Tail(out))
		}
	}
	sweep("while it runs", meta...)
	l.In.Close()
	r := l.Wait(30 * time.Second)
	silent("success", r)
	if r.Code != 0 || !strings.Contains(r.Err, "ai-sandbox: AI_API_TOKEN is passed to pi, which needs it\n") {
		t.Errorf("the token is not told, or does not reach pi: %s", r)
	}
	sweep("after success", meta...)

	// SIGKILL of ai-sandbox, and what a later command finds.
	if err := os.Remove(filepath.Join(b.Dir, "up")); err != nil {
		t.Fatal(err)
	}
	l = b.Start(t, append(args, "pi", "sh", "-c", script, b.Token)...)
	b.File(t, "up")
	_ = l.Cmd.Process.Kill()
	sweep("after SIGKILL", meta...)
	silent("SIGKILL", l.Wait(10*time.Second))
	silent("clean", b.OK("clean"))
	sweep("after the reaping", meta...)

	// A sandbox that stays: its log has the command's output, and it is at rest.
	up := b.OK(append(append([]string{"up", "--json"}, args...), ".", "--", "sh", "-c",
		`printf 'name %s\nfile ' "$BY_NAME"; for i in 1 2 3; do printf %.9s "$FILED"; FILED=${FILED#?????????}; done; printf '%s\n' "$FILED"; exec env -i sleep 1000`, b.Token)...)
	silent("up", up)
	var h struct {
		ID  string `json:"sandbox_id"`
		PID int    `json:"pid"`
		Log string `json:"log"`
	}
	if err := json.Unmarshal([]byte(up.Out), &h); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { b.Run("down", h.ID) })
	drive.Eventually(t, 20*time.Second, "the log without secrets", func() bool {
		data, err := os.ReadFile(h.Log)
		return err == nil && strings.Contains(string(data), "name [BY_NAME]\nfile [FILED]\n")
	})
	sweep("while a sandbox is up", meta...)
	silent("wait", b.OK("wait", h.ID, "--ready", "--json"))
	silent("exec", b.OK("exec", h.ID, "--", "sh", "-c", `test -n "$BY_NAME"`, b.Token))
	if err := syscall.Kill(h.PID, syscall.SIGKILL); err != nil {
		t.Error(err)
	}
	sweep("after SIGKILL of a supervisor", meta...)
	silent("wait", b.OK("wait", h.ID, "--exit", "--json"))
	silent("down", b.OK("down", h.ID))

	planted := c.Add("PLANTED")
	for _, p := range [][2]string{{planted, "X=1"}, {"sleep", "X=" + planted}} {
		p, err := os.StartProcess("/usr/bin/sleep", []string{p[0], "600"}, &os.ProcAttr{Env: p[1:], Files: []*os.File{nil, nil, nil}})
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() {
			_ = p.Kill() // it may have ended
			_, _ = p.Wait()
		})
	}
	watch.Round()
	rounds, hits, seen := watch.Stop()
	for _, name := range []string{"conmon", "pasta", "aisb-entrypoint", "squid", "podman"} {
		if !slices.ContainsFunc(seen, func(a string) bool { return strings.Contains(a, name) }) {
			t.Errorf("looked %d times, and never at %s", rounds, name)
		}
	}
	found := 0
	for _, hit := range hits {
		if strings.HasSuffix(hit, ": PLANTED") {
			found++
			continue
		}
		t.Errorf("ps shows the %s", hit)
	}
	if rounds < 50 || found < 2 {
		t.Errorf("looked %d times, and the controls are not found: %q", rounds, hits)
	}

	// Failure: what can't be run quotes the command line, here with a value in it.
	report := filepath.Join(own, "report.json")
	r = b.Run(append(append([]string{"--report", report}, args...), "--", "/no/such/"+byName)...)
	silent("failure", r)
	if text, err := os.ReadFile(report); r.Code != 127 || !strings.Contains(r.Err, "/no/such/[BY_NAME]: ") || err != nil || len(c.In(string(text))) > 0 || !strings.Contains(string(text), "[BY_NAME]") {
		t.Errorf("%s %s (%v)", r, text, err)
	}
	// A line of squid's: a host that the gate refused is what the command asked for.
	host := strings.ToLower(strings.ReplaceAll(filed, "_", "-"))
	b.Env = append(b.Env, "HOSTLIKE="+host)
	r = b.Run("--env", "HOSTLIKE", "--report", report, "--allow", b.Host("ok.test"), "--", "sh", "-c", "curl -s http://$HOSTLIKE.no.test/; exit 4")
	if text, err := os.ReadFile(report); r.Code != 4 || strings.Contains(r.Err, host) || !strings.Contains(r.Err, "[HOSTLIKE].no.test") || err != nil || strings.Contains(string(text), host) || !strings.Contains(string(text), "[HOSTLIKE].no.test") {
		t.Errorf("%s %s (%v)", r, text, err)
	}
	b.Env = append(b.Env, "AISB_NODE_MIRROR=https://u:"+byName+"@m.test/"+filed)
	for _, format := range []string{"--json=true", "--json=false"} {
		silent("config", b.OK(append([]string{"config", format}, args...)...))
	}
	b.Env = b.Env[:len(b.Env)-1]
	for _, flag := range []string{"--print-policy", "--print-policy=json", "--dry-run"} {
		basic := base64.StdEncoding.EncodeToString([]byte("u:" + filed))
		r := b.OK(append(append([]string{flag}, args...), "pi", "-p", byName, basic, token)...)
		silent(flag, r)
		if strings.Contains(r.Out, basic) || !strings.Contains(r.Out, "[AI_API_TOKEN]") {
			t.Errorf("%s: %s", flag, r)
		}
	}
	c.Verbs(t, b, byName, args)
	// The command's own output is the user's, byte for byte.
	if r := b.OK(append(args, "--", "printenv", "BY_NAME", "FILED", "PUBLIC")...); r.Out != byName+"\n"+filed+"\nof all\n" {
		t.Errorf("%s", r)
	}
	if in := c.In(b.OK(append(args, "--", "env")...).Out); !slices.Equal(in, []string{"FILE", "NAME"}) {
		t.Errorf("inside there are %q", in)
	}

	// What --keep leaves, here of a command line with a value in it.
	r = b.OK(append(append([]string{"--keep", "--ephemeral-home"}, args...), "--", "sh", "-c", `test -n "$FILED" && echo x >~/kept`, byName)...)
	silent("--keep", r)
	id = drive.Kept(t, r)
	t.Cleanup(func() { b.Run("rm", id) })
	if out := drive.Output(t, "podman", "inspect", "aisb-"+id); len(c.In(out)) > 0 || !regexp.MustCompile(`"Status": "(exited|stopped)"`).MatchString(out) {
		t.Errorf("podman inspect of what is kept has %q: %s", c.In(out), drive.Tail(out))
	}
	if out := podmanSays("diff", "aisb-"+id); len(c.In(out)) > 0 {
		t.Errorf("podman diff: %s", out)
	}
	sweep("after --keep", meta...)
	for _, verb := range [][]string{{"ls"}, {"ls", "--json"}, {"logs", id}, {"logs", id, "--json"}} {
		r := b.OK(verb...)
		silent(verb[0], r)
		if !strings.Contains(r.Out, "[BY_NAME]") {
			t.Errorf("%q: %s", verb, r)
		}
	}
	if text, err := os.ReadFile(filepath.Join(w.home, "e2e", "state", "ai-sandbox", "sessions", id, "policy.json")); err != nil || !strings.Contains(string(text), `"[BY_NAME]"`) {
		t.Errorf("the policy: %s (%v)", text, err)
	}

	// At the end everything of podman's, the images' layers and what is kept too, and
	// the journal.
	name := "e2e-control-" + strings.ToLower(b.Token)
	drive.Output(t, "podman", "create", "--name", name, "--label", "control="+planted, "--env", "CONTROL="+planted, imageIDs(t, b)[0], "true")
	t.Cleanup(func() { podmanSays("rm", "-f", name) })
	for _, what := range [][]string{{"inspect", name}, {"events", "--stream=false", "--since", began.Format(time.RFC3339)}, {"ps", "-a", "--no-trunc", "--format", "json"}} {
		if out := podmanSays(what...); !slices.Equal(c.In(out), []string{"PLANTED"}) {
			t.Errorf("the control is not in podman %s: %q %s", what[0], c.In(out), drive.Tail(out))
		}
	}
	hits, err := c.Sweep([]string{"podman", "unshare"}, exists(append(dirs, store))...)
	if err != nil || len(hits) == 0 {
		t.Errorf("the control is not in the store: %v", err)
	}
	for _, hit := range hits {
		// The control's own record, and nothing else.
		data, err := exec.Command("podman", "unshare", "cat", hit).Output()
		if in := c.In(string(data)); err != nil || !slices.Equal(in, []string{"PLANTED"}) {
			t.Errorf("%s has %q (%v)", hit, in, err)
		}
	}
	// The test host has no journal, and so nothing of it; the test VM has (TestJournal).
	if in, _, err := c.Journal(began); len(in) > 0 || err != nil && !errors.Is(err, canary.ErrNoJournal) {
		t.Errorf("the journal has %q (%v)", in, err)
	}
	b.OK("rm", id)
	for _, what := range [][]string{{"container", "exists", "aisb-" + id}, {"volume", "exists", "aisb-home-" + id}} {
		if err := exec.Command("podman", what...).Run(); err == nil {
			t.Errorf("rm leaves: podman %q", what)
		}
	}
}

// What changes programs' behaviour can be passed, and reaches the command alone:
// no program on the host or in the sandbox's own start, which is root's there,
// loads it, runs it or is found by it. What obeys a variable leaves a marker here.
func TestLoaderVariables(t *testing.T) {
	t.Parallel()
	b := newBox(t)
	put := func(name, text string, mode os.FileMode) {
		t.Helper()
		path := filepath.Join(b.Dir, name)
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, []byte(text), mode); err != nil {
			t.Fatal(err)
		}
	}
	var p policy.Policy
	if err := json.Unmarshal([]byte(b.OK("--print-policy=json", "--", "true").Out), &p); err != nil {
		t.Fatal(err)
	}
	if p.Workdir != b.Dir {
		t.Fatalf("the project is at %s inside, so nothing on the host would find a payload in it", p.Workdir)
	}
	so, err := canary.Preload(b.Dir + "/loaded")
	if err != nil {
		t.Fatal(err)
	}
	put("evil.so", string(so), 0o755)
	put("evil.sh", "cat /proc/self/status >>"+b.Dir+"/sourced\n", 0o644)
	for _, name := range []string{"crun", "conmon", "pasta", "podman", "nft", "squid", "aisb-entrypoint", "newuidmap", "true"} {
		put("bin/"+name, "#!/bin/bash\necho $0 >>"+b.Dir+"/found\n", 0o755)
	}
	args := []string{"--allow", b.Host("ok.test")}
	for _, e := range []string{
		"LD_PRELOAD=" + b.Dir + "/evil.so", "BASH_ENV=" + b.Dir + "/evil.sh", "PATH=" + b.Dir + "/bin:/usr/bin:/bin", "LD_AUDIT=" + b.Dir + "/missing-audit.so",
		"GLIBC_TUNABLES=glibc.malloc.check=3", "GCONV_PATH=" + b.Dir + "/gconv", "NODE_OPTIONS=--require=" + b.Dir + "/x.js", "IFS=0123456789",
	} {
		args = append(args, "--env", e)
	}
	r := b.Run(append(args, "--", "true")...)
	if r.Code != 0 || b.File(t, "found") != b.Dir+"/bin/true" {
		t.Errorf("PATH does not reach the command, or more than the command: %q, %s", b.File(t, "found"), r)
	}
	for _, marker := range []string{"sourced", "loaded"} {
		var names []string
		for _, s := range strings.Split(b.File(t, marker), "Name:\t")[1:] {
			name, _, _ := strings.Cut(s, "\n")
			names = append(names, name)
			for _, want := range []string{"\nUid:\t1000\t1000\t1000\t1000\n", "\nCapPrm:\t0000000000000000\n", "\nCapBnd:\t0000000000000000\n", "\nNoNewPrivs:\t1\n", "\nSeccomp:\t2\n"} {
				if !strings.Contains(s, want) {
					t.Errorf("%s: %q is not in the status of %s: %s", marker, want, name, s)
				}
			}
		}
		// The command, which is a script, and the cat that it runs.
		if len(names) != map[string]int{"sourced": 1, "loaded": 2}[marker] || !slices.Contains(names, "cat") {
			t.Errorf("%s by %q", marker, names)
		}
	}
	// PID 1 has none of it, and tells nobody.
	b.Env = append(b.Env, "SECRET=sesame-"+b.Token)
	r = b.OK("--env", "SECRET", "--net", "none", "--", "sh", "-c", "cat /proc/self/environ | tr '\\0' '\\n' | grep -c "+b.Token+"; cat /proc/1/environ; echo $?")
	if r.Out != "1\n1\n" || !strings.Contains(r.Err, "/proc/1/environ: Permission denied") {
		t.Errorf("/proc/1/environ: %s", r)
	}
}
