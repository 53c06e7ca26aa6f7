//go:build e2e

package e2e

import (
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"net/url"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"ai-sandbox/policy"
	"ai-sandbox/tests/e2e/agenttest"
	"ai-sandbox/tests/e2e/canary"
	"ai-sandbox/tests/e2e/drive"
)

// A piUser is who works with pi on this machine: files below the home that every
// other test has too, so that no other one may run meanwhile.
type piUser struct {
	*drive.Box
	t     *testing.T
	agent string
}

func newPiUser(t *testing.T) piUser {
	t.Helper()
	u := piUser{newBox(t), t, filepath.Join(w.home, ".pi", "agent")}
	t.Cleanup(func() { removeAll(t, filepath.Join(w.home, ".pi")) })
	return u
}

func (u piUser) has(name, text string) {
	u.t.Helper()
	path := filepath.Join(u.agent, name)
	if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
		u.t.Fatal(err)
	}
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		u.t.Fatal(err)
	}
}

// fakePi runs what follows the level.
const fakePi = "#!/bin/sh\ntest \"$1\" != --thinking || shift 2\nexec \"$@\"\n"

// fakePi makes pi a program of the test's own, which runs what follows.
func (u piUser) fakePi() []string {
	u.t.Helper()
	bin := filepath.Join(u.Dir, "bin")
	if err := os.MkdirAll(bin, 0o755); err != nil {
		u.t.Fatal(err)
	}
	if err := drive.WriteProgram(filepath.Join(bin, "pi"), []byte(fakePi)); err != nil {
		u.t.Fatal(err)
	}
	return []string{"--net", "none", "--env", "PATH=" + bin + ":/usr/local/bin:/usr/bin:/bin", "pi"}
}

// keyless are the two files of pi without what could be a key.
const (
	keylessModels   = `{"providers":{"acme":{"baseUrl":"https://llm.ok.test/v1","api":"openai-completions","apiKey":"$AI_API_TOKEN","models":[{"id":"acme-large"}]}}}`
	keylessSettings = `{"defaultModel":"acme-large","defaultProvider":"acme","quietStartup":true,"theme":"light"}`
)

// Pi's configuration of this machine over several runs in one home: what is brought
// in, what stays, what is told; and the same with the real pi.
func TestPiConfiguration(t *testing.T) {
	u := newPiUser(t)
	u.has("models.json", keylessModels)
	u.has("settings.json", keylessSettings)

	// Without its token pi could reach no model: refused, also where it is empty.
	for _, env := range [][]string{nil, {"AI_API_TOKEN="}} {
		u.Env = env
		if r := u.Run("--net", "none", "pi", "--version"); r.Code != 125 || !strings.Contains(r.Err, "take their key from AI_API_TOKEN in a sandbox, and it is unset or empty here") {
			t.Errorf("with %q: %s", env, r)
		}
	}
	u.OK("--net", "none", "--no-pi-config", "pi", "--version")
	u.Env = []string{"AI_API_TOKEN=token-" + u.Token + "-0123"}

	u.Env = append(u.Env, "AISB_THINKING=host")
	pi := u.fakePi()
	run := func(script string) drive.Result {
		t.Helper()
		return u.OK(append(pi, "sh", "-euc", "cd ~/.pi/agent; "+script)...)
	}
	compact := func(text string) string {
		t.Helper()
		var v any
		if err := json.Unmarshal([]byte(text), &v); err != nil {
			t.Fatalf("%v: %s", err, text)
		}
		out, err := json.Marshal(v)
		if err != nil {
			t.Fatal(err)
		}
		return string(out)
	}
	holds := func(what, file, want string, told string) {
		t.Helper()
		r := run("cat " + file)
		if got := compact(r.Out); got != compact(want) {
			t.Errorf("%s: %s has %s, want %s", what, file, got, want)
		}
		switch {
		case told == "" && strings.Contains(r.Err, ".pi/agent"):
			t.Errorf("%s: told %s", what, r.Err)
		case !strings.Contains(r.Err, told):
			t.Errorf("%s: %q is not told: %s", what, told, r.Err)
		}
	}

	r := run(`stat -c "%u %a %n" models.json settings.json .aisb-*.wrote; stat -c "%a" .; test "$AI_API_TOKEN" = token-` + u.Token + "-0123")
	if want := "1000 600 models.json\n1000 600 settings.json\n1000 600 .aisb-models.json.wrote\n1000 600 .aisb-settings.json.wrote\n700\n"; r.Out != want {
		t.Errorf("%s", r)
	}
	if !strings.Contains(r.Err, "AI_API_TOKEN is passed to pi, which needs it\n") {
		t.Errorf("the token is not told: %s", r)
	}
	holds("the first time", "models.json", keylessModels, "")
	holds("the first time", "settings.json", keylessSettings, "")

	// Both sides change settings.
	run(`sed -i 's/"light"/"dark"/; s/^{/{"lastChangelogVersion":"1.6.0",/' settings.json`)
	u.has("settings.json", `{"defaultModel":"acme-small","defaultProvider":"acme","theme":"solarized","hideThinkingBlock":true}`)
	const both = `{"defaultModel":"acme-small","defaultProvider":"acme","theme":"dark","hideThinkingBlock":true,"lastChangelogVersion":"1.6.0"}`
	holds("changed on both sides", "settings.json", both, "")
	holds("and once more", "settings.json", both, "")
	// How much to reason is the policy's, and no run changes it for the next one.
	run(`sed -i 's/^{/{"modelThinkingLevels":{"acme\/acme-large":"off"},"defaultThinkingLevel":"off",/' settings.json`)
	set := func(args ...string) string {
		return compact(u.OK(append(args, append(pi, "cat", "/home/sandbox/.pi/agent/settings.json")...)...).Out)
	}
	for level, flags := range map[string][]string{"xhigh": {"--thinking", "xhigh"}, "low": {"--thinking=low"}, "off": {"--thinking", "off"}} {
		if got := set(flags...); !strings.Contains(got, `"defaultThinkingLevel":"`+level+`"`) || strings.Contains(got, "modelThinkingLevels") {
			t.Errorf("%s: %s", level, got)
		}
	}
	if r := u.Run("--thinking", "much", "pi"); r.Code != 125 || !strings.Contains(r.Err, "xhigh") {
		t.Errorf("%s", r)
	}
	holds("left to the host", "settings.json", both, "")
	// A volume from before, which was frozen.
	run(`rm .aisb-settings.json.wrote; echo '{"lastChangelogVersion":"1.4.0"}' >settings.json`)
	holds("frozen", "settings.json", `{"defaultModel":"acme-small","defaultProvider":"acme","theme":"solarized","hideThinkingBlock":true,"lastChangelogVersion":"1.4.0"}`, "")
	run(`echo '{"theme":' >settings.json`)
	holds("not JSON", "settings.json", `{"defaultModel":"acme-small","defaultProvider":"acme","theme":"solarized","hideThinkingBlock":true}`, "~/.pi/agent/settings.json in this sandbox could not be parsed, and is this machine's again")

	// models.json is one thing.
	other := strings.Replace(keylessModels, "acme-large", "acme-huge", 1)
	u.has("models.json", other)
	holds("changed on this machine", "models.json", other, "")
	const mine = `{"providers":{}}`
	run(`echo '` + mine + `' >models.json`)
	holds("changed inside", "models.json", mine, "~/.pi/agent/models.json was changed in this sandbox, so this machine's was not brought in")
	u.has("models.json", keylessModels)
	holds("and on this machine", "models.json", mine, "was changed in this sandbox")
	run("rm models.json")
	holds("removed inside", "models.json", keylessModels, "")
	if err := os.Remove(filepath.Join(u.agent, "models.json")); err != nil {
		t.Fatal(err)
	}
	if r := run("ls; echo {} >models.json"); strings.Contains(r.Out, "models.json") {
		t.Errorf("removed on this machine: %s", r)
	}
	if r := run("rm models.json"); strings.Contains(r.Err, "models.json") {
		t.Errorf("made inside: %s", r)
	}
	u.has("models.json", keylessModels)
	run("echo {} >models.json")
	if err := os.Remove(filepath.Join(u.agent, "models.json")); err != nil {
		t.Fatal(err)
	}
	if r := run("rm models.json"); !strings.Contains(r.Err, "~/.pi/agent/models.json was changed in this sandbox, and stays although this machine has none any more") {
		t.Errorf("changed inside, and removed on this machine: %s", r)
	}
	u.has("models.json", keylessModels)

	// What a sandbox can plant leads nowhere, and what can't be read is told with
	// what mends it, which does.
	fix := regexp.MustCompile(`mend it with: ai-sandbox (.*?)(?:, or where.*)?\n`)
	if err := os.WriteFile(filepath.Join(u.Dir, "victim"), []byte("untouched"), 0o600); err != nil {
		t.Fatal(err)
	}
	run(`rm models.json .aisb-*; for f in models.json .aisb-models.json.wrote models.json.new; do ln -s ` + u.Dir + `/victim $f; done`)
	holds("links", "models.json", keylessModels, "")
	run(`cd; rm -rf .pi; ln -s ` + u.Dir + ` .pi`)
	mended2 := u.OK(append(pi, "ls", u.Dir)...)
	if strings.Contains(mended2.Out, "agent") || u.File(t, "victim") != "untouched" {
		t.Errorf("a link was followed: %s", mended2)
	}
	u.OK("--net", "none", "--", "sh", "-c", "test -L ~/.pi")
	m := fix.FindStringSubmatch(mended2.Err)
	if m == nil || !strings.HasSuffix(m[1], "-- rm -rf /home/sandbox/.pi") {
		t.Fatalf("%s", mended2)
	}
	u.OK(append([]string{"--net", "none"}, strings.Fields(m[1])...)...)
	holds("mended", "models.json", keylessModels, "")
	u.CheckPlanted(t, keylessModels, pi...)
	volume := policy.HomeVolume(u.Dir)
	mount := strings.TrimSpace(drive.Output(t, "podman", "volume", "inspect", "-f", "{{.Mountpoint}}", volume))
	drive.Output(t, "podman", "unshare", "sh", "-c", `cd "$1" && rm models.json && echo {} >models.json && chown 5:5 models.json && chmod 600 models.json`, "-", filepath.Join(mount, ".pi", "agent"))
	r = run("true")
	if m = fix.FindStringSubmatch(r.Err); m == nil {
		t.Fatalf("a file of another user: %s", r)
	}
	u.OK(append([]string{"--net", "none"}, strings.Fields(m[1])...)...)
	holds("a file of another user", "models.json", keylessModels, "")
}

// The real pi reads what was brought in, and what it writes itself comes to stay.
func TestPiReadsConfiguration(t *testing.T) {
	u := newPiUser(t)
	u.has("models.json", keylessModels)
	u.has("settings.json", `{"defaultProvider":"acme","defaultModel":"acme-large","theme":"dark","retry":{"enabled":false},"extensions":["./x.ts"],"packages":["npm:nothing"]}`)
	u.Env = []string{"AI_API_TOKEN=token-" + u.Token + "-0123"}
	args := []string{"--net", "none", "--env", "PI_OFFLINE=1", "pi"}
	if r := u.OK(append(args, "--list-models")...); !regexp.MustCompile(`(?m)^acme +acme-large `).MatchString(r.Out) {
		t.Errorf("%s", r)
	}
	// Not the provider of its own, which would want a login.
	if r := u.Run(append(args, "-p", "hello")...); r.Code == 0 || !strings.Contains(strings.ToLower(r.Err+r.Out), "connection error") {
		t.Errorf("%s", r)
	}
	if r := u.OK(append(args, "--list-models")...); strings.Contains(r.Err, ".pi/agent") {
		t.Errorf("what pi wrote is told: %s", r)
	}
	if r := u.OK("--net", "none", "--", "cat", "/home/sandbox/.pi/agent/settings.json"); strings.Contains(r.Out, "x.ts") || !strings.Contains(r.Out, `"dark"`) {
		t.Errorf("%s", r)
	}
	// Where its model is said to be is where it asks: not of the default one or the first
	// one, which have no key inside, and of the project's before all.
	u.has("models.json", strings.Replace(keylessModels, `{"acme":`, `{"first":{"baseUrl":"https://first.ok.test/v1","api":"openai-completions","models":[{"id":"f"}]},
		"own":{"baseUrl":"https://own.ok.test/v1","api":"openai-completions","apiKey":"x","models":[{"id":"o"}]},"acme":`, 1))
	u.has("settings.json", `{"defaultProvider":"anthropic","defaultModel":"claude-opus-5-5","retry":{"enabled":false}}`)
	for _, host := range []string{"own.ok.test", "llm.ok.test"} {
		r := u.Run("--env", "PI_OFFLINE=1", "pi", "-p", "hello")
		if r.Code == 0 || !strings.Contains(r.Err, "pi has its model at "+host+", which") || !strings.Contains(r.Err, "refused: "+host+",") || strings.Count(r.Err, "refused: ") != 1 {
			t.Errorf("%s: %s", host, r)
		}
		project := filepath.Join(u.Dir, ".pi")
		if err := errors.Join(os.MkdirAll(project, 0o755), os.WriteFile(filepath.Join(project, "settings.json"), []byte(`{"defaultProvider":"acme","defaultModel":"acme-large"}`), 0o644)); err != nil {
			t.Fatal(err)
		}
	}
	agenttest.Flags(t, u.Box, "pi")
	// Where its own providers are, and in which variables it looks for their keys.
	list, err := os.ReadFile("/src/cmd/ai-sandbox/internal/harness/pibridge/providers.txt")
	if err != nil {
		t.Fatal(err)
	}
	if r := u.RunWith(strings.NewReader(ownProviders), "--net", "none", "--", "sh", "-c",
		`cat >/tmp/list.mjs; node /tmp/list.mjs "$(dirname "$(find /opt/aisb -path '*/@earendil-works/pi-ai' -prune | head -1)")"`); r.Out != string(list) {
		t.Errorf("providers.txt is not as the real ones are: %s\n%s", r.Err, r.Out)
	}
	// Its settings are those that are followed or left, each by decision.
	r := u.OK("--net", "none", "--", "sh", "-c", "cat $(find /opt/aisb -path '*pi-coding-agent/schemas/settings.schema.json')")
	var schema struct {
		Properties map[string]any `json:"properties"`
	}
	if err := json.Unmarshal([]byte(r.Out), &schema); err != nil {
		t.Fatalf("%v: %s", err, r)
	}
	known, err := os.ReadFile("/src/cmd/ai-sandbox/internal/harness/pibridge/testdata/settings.txt")
	if err != nil {
		t.Fatal(err)
	}
	names := strings.Fields(string(known))
	for _, name := range names {
		if schema.Properties[name] == nil {
			t.Errorf("pi has no setting %s any more", name)
		}
	}
	if len(schema.Properties) != len(names)+1 { // and $schema
		t.Errorf("pi has %d settings, and %d are known", len(schema.Properties), len(names))
	}
}

// ownProviders prints pi's own providers in the order in which it takes the first that has
// a key: the name, the one host of its models or "-", and the variables.
const ownProviders = `const root = process.argv[2];
const { builtinProviders } = await import(root + "/pi-ai/dist/providers/all.js");
const { findEnvKeys } = await import(root + "/pi-ai/dist/env-api-keys.js");
const { defaultModelPerProvider } = await import(root + "/pi-coding-agent/dist/core/model-resolver.js");
const order = Object.keys(defaultModelPerProvider);
const all = new Proxy({}, { get: () => "x" });
const at = (p) => order.indexOf(p.id) < 0 ? order.length : order.indexOf(p.id);
for (const p of builtinProviders().sort((a, b) => at(a) - at(b))) {
	const hosts = new Set(p.getModels().map((m) => m.baseUrl.replace(/^https:\/\/([^/]*).*/, "$1")));
	const host = hosts.size == 1 && [...hosts][0].match(/^[a-z0-9.-]+$/) ? [...hosts][0] : "-";
	console.log([p.id, host, ...(findEnvKeys(p.id, all) ?? [])].join(" "));
}
`

// hasKeys gives the user a key of its own in every place of pi's files that can hold
// one, and other files of pi's, which are not even opened: that would be an error. The
// keys are random, of each shape in turn.
func (u piUser) hasKeys(c *canary.Set) {
	key := func(where string) string { return c.Key(where) }
	query := func(where string) string {
		text := url.QueryEscape(c.Key(where))
		c.Know(where+", escaped", text)
		return text
	}
	u.has("models.json", fmt.Sprintf(`// %s
{"providers":{
 "acme":{"name":"%s","baseUrl":"https://u:%s@llm.ok.test/v1?key=%s#%s","api":"openai-completions","apiKey":"%s","headers":{"Authorization":"Bearer %s","X-Any":"%s","X-Run":"!echo %s","X-Ref":"$AI_API_TOKEN","%s":"$AI_API_TOKEN","User-Agent":"%s"},
  "models":[{"id":"m","name":"%s","headers":{"X-Key":"%s"},"baseUrl":"https://llm.ok.test/?k=%s","thinkingLevelMap":{"high":"%s"},
   "samplingParams":{"top_p":0.5,"user":"%s","api_key":"%s","aws_secret_access_key":"%s","secret_key":"%s","password_hash":"%s","credentials":{"main":"%s"},"auth":{"value":"%s"},"metadata":{"Token":{"v":"%s"}},"extra_headers":{"Ocp-Apim-Subscription-Key":"%s"},"x":"!echo %s","stop":["%s"],"%s":true,"service_tier":"%s"}},
   {"id":"%s","name":"of a key"}],
  "modelOverrides":{"m":{"headers":{"X-Key":"%s"},"samplingParams":{"metadata":{"x":"%s"}}},"%s":{}},
  "compat":{"chatTemplateKwargs":{"x":"%s"},"openRouterRouting":{"order":["%s"]},"thinkingFormat":"%s"},"note":"%s","%s":1},
 "%s":{"authHeader":true},
 "runs":{"baseUrl":"https://runs.ok.test","apiKey":"!cat %s; echo %s"}},"more":"%s"}`,
		key("comment"), key("name"), query("login"), query("query"), query("fragment"), key("apiKey"), key("bearer"), key("header"), key("command"), key("headerName"), key("agent"),
		key("modelName"), key("modelHeader"), query("modelQuery"), key("level"),
		key("user"), key("apiKeyField"), key("aws"), key("secretKey"), key("hash"), key("credentials"), key("auth"), key("metadataToken"), key("extra"), key("paramCommand"), key("stop"), key("param"), key("tier"),
		key("id"), key("overrideHeader"), key("metadata"), key("override"), key("kwargs"), key("routing"), key("format"), key("note"), key("field"), key("provider"), key("cat"), key("echo"), key("more")))
	u.has("settings.json", fmt.Sprintf(`{"theme":"dark","httpProxy":"http://u:%s@p.test","packages":["git:https://%s@git.test/x"],"shellCommandPrefix":"export K=%s","npmCommand":["env","K=%s"],"selfUpdateCommand":["%s"],
 "externalEditor":"code %s","trackingId":"%s","mine":{"token":"%s"},"sessionDir":"~/%s","retry":{"secret":"%s"},"enabledModels":["~/%s","%s"],"defaultModel":"%s","modelThinkingLevels":{"%s":"high"},"steeringMode":"%s"}`,
		query("proxy"), query("package"), key("prefix"), key("npm"), key("update"), key("editor"), key("tracking"), key("mine"), key("sessions"), key("retry"), key("home"), key("enabled"), key("default"), key("modelLevel"), key("steering")))
	for _, name := range []string{"auth.json", "models-store.json", "sessions/x.jsonl", "extensions/x.ts", "AGENTS.md", "keybindings.json", "mcp.json", "skills/x/SKILL.md", "trust.json"} {
		u.has(name, c.Add(name))
	}
}

// opens watches what is opened in directories: the names, each once, when it is asked.
func opens(t *testing.T, dirs ...string) func() []string {
	t.Helper()
	fd, err := unix.InotifyInit1(unix.IN_CLOEXEC | unix.IN_NONBLOCK)
	if err != nil {
		t.Fatal(err)
	}
	for _, dir := range dirs {
		if _, err := unix.InotifyAddWatch(fd, dir, unix.IN_OPEN|unix.IN_ACCESS|unix.IN_ONLYDIR); err != nil {
			t.Fatalf("%s: %v", dir, err)
		}
	}
	return func() []string {
		defer unix.Close(fd)
		names := map[string]bool{}
		for buf := make([]byte, 64<<10); ; {
			n, err := unix.Read(fd, buf)
			if errors.Is(err, unix.EAGAIN) {
				return slices.Sorted(maps.Keys(names))
			}
			if err != nil {
				t.Fatal(err)
			}
			for at := 0; at < n; { // see inotify(7)
				length := int(binary.NativeEndian.Uint32(buf[at+12:]))
				names[strings.TrimRight(string(buf[at+unix.SizeofInotifyEvent:at+unix.SizeofInotifyEvent+length]), "\x00")] = true
				at += unix.SizeofInotifyEvent + length
			}
		}
	}
}

// A key in every place of pi's files that can hold one is nowhere: not in the
// sandbox, at rest, or in what is said. Pi's other files are not opened.
func TestPiCanaries(t *testing.T) {
	u := newPiUser(t)
	c := canary.New()
	u.hasKeys(c)
	opened := opens(t, u.agent, filepath.Join(u.agent, "sessions"), filepath.Join(u.agent, "extensions"), filepath.Join(u.agent, "skills", "x"))
	token := c.Add("TOKEN")
	u.Env = []string{"AI_API_TOKEN=" + token}
	silent := func(what string, r drive.Result) {
		t.Helper()
		if in := c.In(r.Out + r.Err); len(in) > 0 {
			t.Errorf("%s has %q: %s", what, in, r)
		}
	}
	inside := u.OK(append(u.fakePi(), "sh", "-c", `cat ~/.pi/agent/models.json ~/.pi/agent/settings.json; grep -raF CANARY_ ~ /etc /tmp /run 2>/dev/null; ls ~/.pi/agent; test ${#AI_API_TOKEN} -gt 20`)...)
	silent("inside", inside)
	if got := opened(); !slices.Equal(got, []string{"models.json", "settings.json"}) {
		t.Errorf("of pi's files %q were opened", got)
	}
	if !strings.Contains(inside.Out, `"X-Ref": "$AI_API_TOKEN"`) || !strings.Contains(inside.Out, `"baseUrl": "https://llm.ok.test/v1"`) || strings.Contains(inside.Out, "mcp.json") {
		t.Errorf("%s", inside)
	}
	for _, args := range [][]string{{"--print-policy", "pi"}, {"--print-policy=json", "pi"}, {"--dry-run", "pi"}, {"config", "--json"}, {"explain", "policy"}} {
		silent(strings.Join(args, " "), u.Run(args...))
	}
	r := u.OK("inspect", "--pi")
	silent("inspect --pi", r)
	for _, want := range []string{"providers.acme.apiKey: $AI_API_TOKEN (it was the key itself)", "- providers.acme.headers.X-Run (it is a command, which is not run)", "providers.runs.apiKey: $AI_API_TOKEN (it was a command, which was not run)", "- httpProxy (", "theme"} {
		if !strings.Contains(r.Out, want) {
			t.Errorf("inspect --pi does not say %q: %s", want, r)
		}
	}
	// With no token, and with what can't be parsed.
	u.Env = nil
	silent("refused", u.Run("pi"))
	u.Env = []string{"AI_API_TOKEN=" + token}
	u.has("settings.json", `{"theme":"`+c.Add("broken")+`"`)
	silent("unparseable", u.Run("pi"))

	dirs := []string{filepath.Join(w.home, "e2e", "state"), filepath.Join(w.home, "e2e", "cache"), filepath.Join(os.Getenv("XDG_RUNTIME_DIR"), "ai-sandbox"), u.Dir}
	for _, d := range []string{"overlay-containers", "libpod", "volumes", "db.sql"} { // TestCanaries looks at the images' layers
		d = filepath.Join(w.home, ".local/share/containers/storage", d)
		if _, err := os.Stat(d); err == nil {
			dirs = append(dirs, d)
		}
	}
	hits, err := c.Sweep([]string{"podman", "unshare"}, dirs...)
	if err != nil || len(hits) > 0 {
		t.Errorf("%v %q", err, hits)
	}
	// The control: they are where they were put.
	hits, err = c.Sweep(nil, filepath.Join(u.agent, "models.json"))
	if err != nil || len(hits) != 1 {
		t.Errorf("%v %q", err, hits)
	}
}
