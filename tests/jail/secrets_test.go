//go:build e2e

package jail

import (
	"encoding/base64"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"ai-sandbox/tests/e2e/drive"

	"ai-sandbox/tests/e2e/canary"
)

// canaries gives a box one canary for each way that a value may come: the
// environment, a file, the harness's token, and 200 variables of the host that
// nobody asked for, proxies with passwords among them.
func canaries(t *testing.T, b *box) (c *canary.Set, args []string, byName, filed, token string) {
	t.Helper()
	c = canary.New()
	byName, filed, token = c.Add("NAME"), c.Add("FILE"), c.Add("TOKEN")
	file := filepath.Join(t.TempDir(), "env")
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
	return c, []string{"--env", "BY_NAME", "--env-file", file, "--env", "PUBLIC=of all"}, byName, filed, token
}

// A canary that came in by any channel is nowhere but in the command: not at rest
// while a run lasts, after it has ended, failed or was killed, not in what --keep
// leaves, not in what ai-sandbox says, and not in what ps shows of anybody.
func TestCanaries(t *testing.T) {
	b := newBox(t)
	home := b.ofUser(t, ".local/bin")
	write(t, filepath.Join(home, ".local/bin/pi"), "#!/bin/sh\n"+tool, 0o755)
	write(t, filepath.Join(home, ".pi/agent/models.json"), `{"providers":{"acme":{"apiKey":"$AI_API_TOKEN"}}}`, 0o600)
	c, args, byName, filed, token := canaries(t, b)
	args = append(args, "--allow", b.Host("ok.test"))
	sweep := func(when string) {
		t.Helper()
		hits, err := c.Sweep(nil, stateDir(), runtimeDir(), filepath.Join(w.own, "tmp"), filepath.Join(w.own, "home"), home, b.Dir)
		if err != nil || len(hits) > 0 {
			t.Errorf("%s: %v, %q", when, err, hits)
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

	// Success, with the harness's token. The script is all built in: a program
	// that it started would have its environment.
	const script = `printf %s "$BY_NAME$FILED$AI_API_TOKEN" | { read -r x; test ${#x} -gt 90 && echo up >up; }; read -r x || :`
	l, stop := b.Background(t, append(args, "pi", "run", "sh", "-c", script, b.Token)...)
	b.File(t, "up")
	sweep("while it runs")
	stop()
	r := l.Wait(time.Second)
	silent("success", r)
	if !strings.Contains(r.Err, "ai-sandbox: AI_API_TOKEN is passed to pi, which needs it\n") {
		t.Errorf("the token is not told: %s", r)
	}
	sweep("after success")
	// SIGKILL of ai-sandbox, and what a later command finds.
	if err := os.Remove(filepath.Join(b.Dir, "up")); err != nil {
		t.Fatal(err)
	}
	l = b.Start(t, append(args, "pi", "run", "sh", "-c", script, b.Token)...)
	b.File(t, "up")
	_ = l.Cmd.Process.Kill()
	sweep("after SIGKILL")
	silent("SIGKILL", l.Wait(10*time.Second))
	silent("clean", b.OK("clean"))
	sweep("after the reaping")
	if err := os.Remove(filepath.Join(b.Dir, "up")); err != nil {
		t.Fatal(err)
	}
	// A sandbox that stays: its log has the command's output, and it is at rest.
	h := b.up(t, append(append([]string{}, args...), ".", "--", "sh", "-c",
		`printf 'name %s\nfile ' "$BY_NAME"; for i in 1 2 3; do printf %.9s "$FILED"; FILED=${FILED#?????????}; done; printf '%s\n' "$FILED"; exec env -i sleep 1000`, b.Token)...)
	drive.Eventually(t, 10*time.Second, "the log without secrets", func() bool {
		data, err := os.ReadFile(h.Log)
		log := string(data)
		return err == nil && strings.Contains(log, "name [BY_NAME]\nfile [FILED]\n")
	})
	sweep("while a sandbox is up")
	silent("wait", b.OK("wait", h.ID, "--ready", "--json"))
	silent("exec", b.exec(h, "sh", "-c", `test -n "$BY_NAME"`, b.Token))
	if err := syscall.Kill(h.PID, syscall.SIGKILL); err != nil {
		t.Error(err)
	}
	sweep("after SIGKILL of a supervisor")
	silent("wait", b.OK("wait", h.ID, "--exit", "--json"))
	silent("down", b.OK("down", h.ID))
	sweep("after down")

	planted := c.Add("PLANTED")
	plant(t, []string{planted, "5"}, nil)
	plant(t, []string{"sleep", "5"}, []string{"X=" + planted})
	watch.Round()
	rounds, hits, seen := watch.Stop()
	if rounds < 20 || !slices.ContainsFunc(seen, func(a string) bool { return strings.Contains(a, "bwrap") }) || !slices.ContainsFunc(seen, func(a string) bool { return strings.Contains(a, "aisb-entrypoint") }) {
		t.Errorf("looked %d times, and not at bubblewrap and the entrypoint: %q", rounds, seen)
	}
	found := 0
	for _, hit := range hits {
		if strings.HasSuffix(hit, ": PLANTED") {
			found++
			continue
		}
		t.Errorf("ps shows the %s", hit)
	}
	if found < 2 {
		t.Errorf("the controls are not found: %q", hits)
	}

	// Failure: what can't be run quotes the command line, here with a value in it.
	report := filepath.Join(t.TempDir(), "report.json")
	r = b.Run(append(append([]string{"--report", report}, args...), "--", "/no/such/"+byName)...)
	silent("failure", r)
	const want = "/no/such/[BY_NAME]: "
	text, err := os.ReadFile(report)
	if r.Code != 127 || !strings.Contains(r.Err, want) || err != nil || len(c.In(string(text))) > 0 || !strings.Contains(string(text), want) {
		t.Errorf("%s %s (%v)", r, text, err)
	}
	// A host that the gate refused is what the command asked for.
	host := strings.ToLower(strings.ReplaceAll(filed, "_", "-"))
	b.Env = append(b.Env, "HOSTLIKE="+host)
	r = b.Run("--env", "HOSTLIKE", "--report", report, "--allow", b.Host("ok.test"), "--", "sh", "-c", "curl -s http://$HOSTLIKE.no.test/; exit 4")
	text, err = os.ReadFile(report)
	if r.Code != 4 || strings.Contains(r.Err, host) || !strings.Contains(r.Err, "[HOSTLIKE].no.test") || err != nil || strings.Contains(string(text), host) || !strings.Contains(string(text), "[HOSTLIKE].no.test") {
		t.Errorf("%s %s (%v)", r, text, err)
	}
	sweep("after failures")
	// What --keep leaves, here of a command line with a value in it.
	r = b.OK(append(append([]string{"--keep", "--ephemeral-home"}, args...), "--", "sh", "-c", `test -n "$FILED" && echo x >~/kept`, byName)...)
	silent("--keep", r)
	id := drive.Kept(t, r)
	if _, err := os.Stat(filepath.Join(stateDir(), "homes", "aisb-home-"+id, "kept")); err != nil {
		t.Errorf("the home is not kept: %v", err)
	}
	sweep("after --keep")
	for _, verb := range [][]string{{"ls"}, {"ls", "--json"}, {"logs", id}, {"logs", id, "--json"}} {
		r := b.OK(verb...)
		silent(verb[0], r)
		if !strings.Contains(r.Out, "[BY_NAME]") {
			t.Errorf("%q: %s", verb, r)
		}
	}
	if text, err := os.ReadFile(filepath.Join(stateDir(), "sessions", id, "policy.json")); err != nil || !strings.Contains(string(text), `"[BY_NAME]"`) {
		t.Errorf("the policy: %s (%v)", text, err)
	}
	b.OK("clean", "--volumes")
	if _, err := os.Stat(filepath.Join(stateDir(), "homes", "aisb-home-"+id, "kept")); err != nil {
		t.Errorf("the home is cleaned away: %v", err)
	}
	b.OK("rm", id)
	if _, err := os.Stat(filepath.Join(stateDir(), "homes", "aisb-home-"+id)); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("the home is not removed: %v", err)
	}
	b.Env = append(b.Env, "AISB_NODE_MIRROR=https://u:"+byName+"@m.test/"+filed)
	for _, format := range []string{"--json=true", "--json=false"} {
		silent("config", b.OK(append([]string{"config", format}, args...)...))
	}
	b.Env = b.Env[:len(b.Env)-1]
	for _, flag := range []string{"--print-policy", "--print-policy=json", "--dry-run"} {
		r := b.OK(append(append([]string{flag}, args...), "pi", "-p", byName, base64.StdEncoding.EncodeToString([]byte("u:"+filed)), token)...)
		silent(flag, r)
		if strings.Contains(r.Out, base64.StdEncoding.EncodeToString([]byte("u:"+filed))) || !strings.Contains(r.Out, "[AI_API_TOKEN]") {
			t.Errorf("%s: %s", flag, r)
		}
	}
	c.Verbs(t, b.Box, byName, args)
	// The command's own output is the user's, byte for byte.
	if r := b.OK(append(args, "--", "printenv", "BY_NAME", "FILED", "PUBLIC")...); r.Out != byName+"\n"+filed+"\nof all\n" {
		t.Errorf("%s", r)
	}
	// And nothing of the host's came in.
	r = b.OK(append(args, "--", "env")...)
	if in := c.In(r.Out); !slices.Equal(in, []string{"FILE", "NAME"}) {
		t.Errorf("inside there are %q", in)
	}
}

// plant starts a process that is found, and ends it with the test.
func plant(t *testing.T, argv, env []string) {
	t.Helper()
	p, err := os.StartProcess("/usr/bin/sleep", argv, &os.ProcAttr{Env: env, Files: []*os.File{nil, nil, nil}})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = p.Kill() // it may have ended
		_, _ = p.Wait()
	})
}

// What changes programs' behaviour can be passed, and reaches the command alone:
// no program on the host or in the sandbox's own start loads it, runs it or is
// found by it. A variable that programs obey at once leaves a marker here.
func TestLoaderVariables(t *testing.T) {
	b := newBox(t)
	inside := b.printed("--", "true").Workdir
	so, err := canary.Preload(inside + "/loaded")
	if err != nil {
		t.Fatal(err)
	}
	write(t, filepath.Join(b.Dir, "evil.so"), string(so), 0o755)
	write(t, filepath.Join(b.Dir, "evil.sh"), "cat /proc/self/status >>"+inside+"/sourced\n", 0o644)
	for _, name := range []string{"bwrap", "aisb-entrypoint", "true", "podman", "nft", "squid"} {
		write(t, filepath.Join(b.Dir, "bin", name), "#!/bin/bash\necho $0 >>"+inside+"/found\n", 0o755)
	}
	file := write(t, filepath.Join(t.TempDir(), "env"), "LD_PRELOAD="+inside+"/evil.so\nBASH_ENV="+inside+"/evil.sh\nPATH="+inside+"/bin:/usr/bin:/bin\n"+
		"LD_AUDIT="+inside+"/missing-audit.so\nGLIBC_TUNABLES=glibc.malloc.check=3:glibc.malloc.perturb=1\nGCONV_PATH="+inside+"/gconv\nNODE_OPTIONS=--require="+inside+"/x.js\nIFS=0123456789\n", 0o600)
	r := b.Run("--env-file", file, "--net", "none", "--", "true")
	if r.Code != 0 || b.File(t, "found") != inside+"/bin/true" {
		t.Errorf("PATH does not reach the command, or more than the command: %s", r)
	}
	if n := len(onlyCommand(t, b, "sourced")); n != 1 {
		t.Errorf("%d programs sourced it", n)
	}
	// The command, which is a script, and the cat that it runs.
	names := onlyCommand(t, b, "loaded")
	slices.Sort(names)
	if !slices.Equal(names, []string{"cat", "true"}) {
		t.Errorf("loaded by %q", names)
	}
	if strings.Contains(r.Err, "bwrap") || strings.Count(r.Err, "missing-audit.so") > 2*len(names) {
		t.Errorf("%s", r)
	}
	// PID 1 has none of it, and tells nobody.
	r = b.OK("--env", "LD_LIBRARY_PATH=/nowhere-"+b.Token, "--net", "none", "--", "sh", "-c", "cat /proc/self/environ | tr '\\0' '\\n' | grep -c "+b.Token+"; cat /proc/1/environ; echo $?; ls -ln /proc/1/environ")
	if !strings.HasPrefix(r.Out, "1\n1\n") || !strings.Contains(r.Err, "/proc/1/environ: Permission denied") {
		t.Errorf("/proc/1/environ: %s", r)
	}
}

// onlyCommand reads /proc/self/status of each program that left a marker, all of
// which have to be without any privilege, and returns their names.
func onlyCommand(t *testing.T, b *box, marker string) (names []string) {
	t.Helper()
	for _, s := range strings.Split(b.File(t, marker), "Name:\t")[1:] {
		name, _, _ := strings.Cut(s, "\n")
		names = append(names, name)
		for _, want := range []string{"\nUid:\t1000\t1000\t1000\t1000\n", "\nCapPrm:\t0000000000000000\n", "\nCapBnd:\t0000000000000000\n", "\nNoNewPrivs:\t1\n", "\nSeccomp:\t2\n"} {
			if !strings.Contains(s, want) {
				t.Errorf("%s: %q is not in the status of %s: %s", marker, want, name, s)
			}
		}
	}
	return names
}
