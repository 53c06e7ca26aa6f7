package policy

import (
	"bytes"
	"encoding/json"
	"fmt"
	"net/netip"
	"reflect"
	"slices"
	"strings"
	"testing"
	"unicode"
)

// A range of link-local addresses lets through none that is not listed by itself.
func TestDiffLinkLocal(t *testing.T) {
	in := plain()
	in.AllowPrivate = []Entry{entry(t, "169.254.0.0/16")}
	a, err1 := Resolve(in)
	in.AllowPrivate = append(in.AllowPrivate, entry(t, "169.254.169.254"))
	b, err2 := Resolve(in)
	if err1 != nil || err2 != nil {
		t.Fatal(err1, err2)
	}
	const line = "allow_private 169.254.169.254 (these addresses, ports 80 and 443; may lead to private addresses)"
	if d, back := Diff(a, b), Diff(b, a); !slices.Equal(d.More, []string{line}) || !slices.Equal(back.Less, []string{"no " + line}) {
		t.Errorf("%+v, and back %+v", d, back)
	}
}

// What changes is named in words, on the right side.
func TestDiff(t *testing.T) {
	for name, tc := range map[string]struct {
		change                func(*Input)
		more, less, otherwise string // each line, and no other
	}{
		"nothing": {change: func(*Input) {}},
		"host": {change: func(in *Input) { in.Allow = append(in.Allow, entry(t, "b.example.com:22")) },
			more: "allow b.example.com:22 (this host, port 22)"},
		"host gone": {change: func(in *Input) { in.Allow = in.Allow[1:] },
			less: "no allow a.example.com (this host, ports 80 and 443)"},
		"wider": {change: func(in *Input) { in.Allow[0] = entry(t, ".example.com") },
			more: "allow .example.com (this domain and all below it, ports 80 and 443)"},
		"fewer ports": {change: func(in *Input) { in.Allow[0].Port = 443 },
			less: "no allow a.example.com (this host, ports 80 and 443)"},
		"port by port": {change: func(in *Input) {
			in.Allow = append(in.Allow, in.Allow[0], in.Allow[0])
			in.Allow[0].Port, in.Allow[2].Port = 80, 443
		},
			otherwise: ""},
		"range in halves": {change: func(in *Input) {
			in.Allow[1] = entry(t, "192.0.2.0/25")
			in.Allow = append(in.Allow, entry(t, "192.0.2.128/25"))
		}, otherwise: "the allowlist is written in another way, and lets the same through"},
		"private": {change: func(in *Input) { in.AllowPrivate = []Entry{entry(t, "a.example.com")} },
			more:      "allow_private a.example.com (this host, ports 80 and 443; may lead to private addresses)",
			otherwise: "marked: PRIVATE: some entries may lead to this machine or its local network"},
		"read-only": {change: func(in *Input) { in.ReadOnly = true },
			less: "/home/dev/work/shop at /home/dev/work/shop: read-only, not read-write"},
		"protected": {change: func(in *Input) {
			in.Binds = []Mount{{Kind: KindBind, Source: "/home/dev/work/shop/x/hooks", Target: "/home/dev/work/shop/x/hooks", ReadOnly: true, Why: "x"}}
		}, less: "/home/dev/work/shop/x/hooks at /home/dev/work/shop/x/hooks: read-only, not read-write"},
		"bind": {change: func(in *Input) {
			in.Binds = []Mount{{Kind: KindBind, Source: "/srv/data", Target: "/data", Why: "x"}}
		}, more: "/srv/data at /data: read-write"},
		"passed": {change: func(in *Input) { in.Env = append(in.Env, "TOKEN") }, more: "variable TOKEN with the value from host"},
		"token by hand": {change: func(in *Input) { in.Token = "KEY" },
			more: "variable KEY with the value from harness"},
		"constant gone": {change: func(in *Input) { in.Env = []string{"A"} },
			more: "variable A=b -> A with the value from host"},
		"own path": {change: func(in *Input) { in.Env = append(in.Env, "PATH=/x") },
			otherwise: "variable PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/home/sandbox/.local/bin -> PATH=/x"},
		"caller's path": {change: func(in *Input) { in.Env = append(in.Env, "PATH") },
			more: "variable PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/home/sandbox/.local/bin -> PATH with the value from host"},
		"unheld": {change: func(in *Input) { in.Facts.Tree.Found[".envrc"] = FoundLink },
			more:      "/home/dev/work/shop/.envrc at /home/dev/work/shop/.envrc: read-write, not read-only|protected, but can be replaced inside: /home/dev/work/shop/.envrc",
			otherwise: "marked: NOT HELD: .envrc is a symbolic link, which can't be mounted over: inside, it can be replaced; a change is named at the end"},
		"value": {change: func(in *Input) { in.Env = []string{"A=c"} }, otherwise: "variable A=b -> A=c"},
		"argument": {change: func(in *Input) { in.Command = []string{"pi", "\x1b[2J\u202e"} },
			otherwise: `command: pi -> pi "\x1b[2J\u202e"`},
		"unpinned": {change: func(in *Input) { in.Image.BaseDigest = "" }, more: "a base image that no digest pins",
			otherwise: "marked: UNPINNED: the base image has no recorded digest yet; the next build records one"},
		"agents": {change: func(in *Input) { in.Image.Harnesses = []Harness{{"pi", "1.7.0"}, {"codex", "1.0.0"}} },
			otherwise: "agents in the image: pi 1.6.0 -> pi 1.7.0, codex 1.0.0"},
		"toolchain": {change: func(in *Input) { in.Image.Apt, in.Image.Setup = []string{"gcc"}, &Setup{"x.sh", "ab"} },
			more: "Debian package gcc in the image|a setup script is run as root when the image is built: x.sh sha256:ab"},
		"limits": {change: func(in *Input) { in.Limits.Pids.Text, in.Limits.Memory.Text = "100", "none" },
			more: "memory_bytes: no limit, not 1073741824", less: "pids: 100, not 200"},
		"published": {change: func(in *Input) { in.Publish = []Publish{{HostPort: 8080, Port: 3000}, {Addr: "127.0.0.1", Port: 3001}} },
			more: "published: 127.0.0.1:8080 leads to port 3000 inside|published: 127.0.0.1:<free-port> leads to port 3001 inside"},
		"keep-root": {change: func(in *Input) { in.KeepRoot = true },
			more:      "the command runs as root of the container|volume aisb-home-shop-7d474397-root at /home/sandbox: read-write|tmpfs at /run: read-write, not read-only",
			less:      "no volume aisb-home-shop-7d474397 at /home/sandbox",
			otherwise: `what /run is for: "mount point of /run/aisb; nothing the command can write" -> "mount point of /run/aisb; root's, and so the command's to write"|home: aisb-home-shop-7d474397 -> aisb-home-shop-7d474397-root|variable LOGNAME=sandbox -> LOGNAME=root|variable USER=sandbox -> USER=root|marked: KEEP-ROOT: the command is uid 0 inside; it has no capability, but owns what the image's root owns, and one mistake of the kernel's is worth more to it`},
		"engine": {change: func(in *Input) { in.Engine = EngineBuiltin },
			otherwise: "gate's image: localhost/ai-sandbox-gate:ba9876543210 -> nothing|gate engine: squid -> builtin"},
	} {
		in := plain()
		in.Allow, in.Env = []Entry{entry(t, "a.example.com"), entry(t, "192.0.2.0/24")}, []string{"A=b"}
		in.Facts.EnvSet = func(n string) bool { return slices.Contains([]string{"A", "KEY", "PATH", "TOKEN"}, n) }
		in.Facts.Tree.Found = map[string]string{".envrc": FoundFile}
		in.Limits.Memory.Text, in.Limits.Pids.Text = "1g", "200"
		in.Facts.Limits.Memory.By, in.Facts.Limits.Pids.By = ByCgroup, ByCgroup
		a, err := Resolve(in)
		if err != nil {
			t.Fatal(err)
		}
		tc.change(&in)
		b, err := Resolve(in)
		if err != nil {
			t.Fatalf("%s: %v", name, err)
		}
		d, back := Diff(a, b), Diff(b, a)
		split := func(s string) []string { return strings.FieldsFunc(s, func(r rune) bool { return r == '|' }) }
		for _, c := range []struct {
			what string
			got  []string
			want string
		}{{"more", d.More, tc.more}, {"less", d.Less, tc.less}, {"otherwise", d.Otherwise, tc.otherwise}} {
			if name == "port by port" && c.what == "otherwise" {
				continue
			}
			if !slices.Equal(c.got, split(c.want)) && len(c.got)+len(c.want) > 0 {
				t.Errorf("%s: %s: %q", name, c.what, c.got)
			}
		}
		if len(d.More) != len(back.Less) || len(d.Less) != len(back.More) {
			t.Errorf("%s: the other way around it is %+v", name, back)
		}
	}
}

// Two policies differ where their printouts do, and nowhere else.
func TestDiffIsComplete(t *testing.T) {
	all := many(t)
	text := map[string]string{}
	for name, p := range all {
		b, err := p.JSON()
		if err != nil {
			t.Fatal(err)
		}
		text[name] = string(b)
	}
	for na, a := range all {
		for nb, b := range all {
			d := Diff(a, b)
			if d.Empty() != (text[na] == text[nb]) {
				t.Errorf("%s and %s: %+v", na, nb, d)
			}
			if !reflect.DeepEqual(d, Diff(a, b)) {
				t.Errorf("%s and %s: another answer each time", na, nb)
			}
		}
	}
}

// Whichever field changes, it is named: also one that is new.
func TestDiffNamesEveryField(t *testing.T) {
	all := many(t)
	for _, name := range []string{"podman all gated", "local all unix"} {
		base := all[name]
		fields := 0
		var walk func(at string, root Policy, v func(p *Policy) reflect.Value)
		walk = func(at string, root Policy, v func(p *Policy) reflect.Value) {
			p := clone(t, root)
			f := v(&p)
			switch {
			case f.Type() == reflect.TypeFor[Entry]():
				f.Set(reflect.ValueOf(entry(t, "changed.example.com:4711")))
			case f.Kind() == reflect.Pointer:
				if !f.IsNil() {
					walk(at, root, func(p *Policy) reflect.Value { return v(p).Elem() })
				}
				return
			case f.Kind() == reflect.Struct:
				for i := range f.NumField() {
					if tag := f.Type().Field(i).Tag.Get("json"); tag != "-" {
						walk(at+"."+f.Type().Field(i).Name, root, func(p *Policy) reflect.Value { return v(p).Field(i) })
					}
				}
				return
			case f.Kind() == reflect.Slice && f.Len() > 0 && f.Type().Elem().Kind() != reflect.Uint8:
				walk(at+"[0]", root, func(p *Policy) reflect.Value { return v(p).Index(0) })
				f.Set(f.Slice(1, f.Len())) // and one is gone
			case f.Kind() == reflect.Slice:
				one := reflect.New(f.Type().Elem()).Elem()
				if one.Kind() == reflect.String {
					one.SetString("changed")
				}
				f.Set(reflect.Append(f, one))
			case f.Kind() == reflect.String:
				f.SetString("changed")
			case f.Kind() == reflect.Bool:
				f.SetBool(!f.Bool())
			case f.CanInt():
				f.SetInt(f.Int() + 1)
			case f.CanUint():
				f.SetUint(f.Uint() + 1)
			case f.CanFloat():
				f.SetFloat(f.Float() + 1)
			default:
				t.Fatalf("%s is a %s: this test does not know how to change it", at, f.Kind())
			}
			fields++
			if at == ".Version" {
				return // Decode takes one version alone
			}
			if d := Diff(base, p); d.Empty() {
				t.Errorf("%s: a change of %s is not named; add it to policy/diff.go", name, at)
			}
		}
		walk("", base, func(p *Policy) reflect.Value { return reflect.ValueOf(p).Elem() })
		if fields < 40 {
			t.Errorf("%s: only %d fields were changed", name, fields)
		}
	}
}

// clone is a copy that shares nothing, by way of JSON.
func clone(t *testing.T, p Policy) Policy {
	t.Helper()
	text, err := p.JSON()
	if err != nil {
		t.Fatal(err)
	}
	var out Policy
	if err := json.Unmarshal(text, &out); err != nil {
		t.Fatal(err)
	}
	return out
}

func TestCovered(t *testing.T) {
	for _, tc := range []struct {
		list, p string
		want    bool
	}{
		{"10.0.0.0/8", "10.1.0.0/16", true},
		{"10.0.0.0/9 10.128.0.0/9", "10.0.0.0/8", true},
		{"10.0.0.0/9 10.128.0.0/10", "10.0.0.0/8", false},
		{"2001:db8::/33 2001:db8:8000::/33", "2001:db8::/32", true},
		{"10.0.0.0/8", "2001:db8::/32", false},
		{"192.0.2.0/32 192.0.2.1/32", "192.0.2.0/31", true},
		{"192.0.2.0/32", "192.0.2.0/31", false},
		{"", "192.0.2.0/24", false},
	} {
		var list []netip.Prefix
		for s := range strings.FieldsSeq(tc.list) {
			list = append(list, netip.MustParsePrefix(s))
		}
		if got := covered(list, netip.MustParsePrefix(tc.p)); got != tc.want {
			t.Errorf("%s in %s: %v", tc.p, tc.list, got)
		}
	}
}

// What JSON renders, Decode reads, as the same.
func TestDecode(t *testing.T) {
	for name, p := range many(t) {
		text, err := p.JSON()
		if err != nil {
			t.Fatal(err)
		}
		got, err := Decode(bytes.NewReader(text))
		if err != nil {
			t.Errorf("%s: %v", name, err)
			continue
		}
		again, err := got.JSON()
		if err != nil || !bytes.Equal(again, text) || !Diff(p, got).Empty() {
			t.Errorf("%s reads back as %s, %v", name, again, err)
		}
	}
}

// Decode tells keys apart by their letters, so they have to be of these.
func TestKeyLetters(t *testing.T) {
	seen := map[reflect.Type]bool{}
	var walk func(reflect.Type)
	walk = func(typ reflect.Type) {
		switch {
		case seen[typ]:
		case typ.Kind() == reflect.Pointer || typ.Kind() == reflect.Slice:
			walk(typ.Elem())
		case typ.Kind() == reflect.Map:
			t.Errorf("%s: the keys of a map are not looked at", typ)
		case typ.Kind() == reflect.Struct && typ != reflect.TypeFor[Entry]():
			seen[typ] = true
			for _, f := range reflect.VisibleFields(typ) {
				name, _, _ := strings.Cut(f.Tag.Get("json"), ",")
				if name == "" || name != "-" && strings.Trim(name, keyLetters) != "" {
					t.Errorf("%s.%s has the key %q", typ, f.Name, name)
				}
				if name != "-" {
					walk(f.Type)
				}
			}
		}
	}
	walk(reflect.TypeFor[Policy]())
	if len(seen) < 8 {
		t.Errorf("only %d types were looked at", len(seen))
	}
}

func TestDecodeRefuses(t *testing.T) {
	good, err := many(t)["podman all gated"].JSON()
	if err != nil {
		t.Fatal(err)
	}
	change := func(old, with string) string {
		if !strings.Contains(string(good), old) {
			t.Fatalf("the policy has no %s", old)
		}
		return strings.Replace(string(good), old, with, 1)
	}
	for name, tc := range map[string][2]string{
		"empty":         {"", "no policy in JSON"},
		"text":          {"command pi", "no policy in JSON"},
		"null":          {"null", "no policy in JSON"},
		"list":          {"[]", "no policy in JSON"},
		"no version":    {`{"runtime":"podman"}`, "no policy in JSON"},
		"version":       {change(`"version": 1`, `"version": 2`), "version 2"},
		"unknown field": {change(`"version": 1`, `"version": 1, "new": 1`), `unknown field "new"`},
		"hostile field": {change(`"version": 1`, `"version": 1, "\u001b[2J": 1`), `\x1b[2J`},
		"twice":         {string(good) + string(good), "no policy in JSON"},
		"behind":        {string(good) + "x", "no policy in JSON"},
		"bytes":         {change(`"podman"`, "\"\xff\""), "not UTF-8 text; give what"},
		"long":          {change(`"podman"`, `"`+strings.Repeat("x", MaxJSON)+`"`), "longer than 8 MiB; give what"},
		"deep":          {strings.Repeat("[", 1<<20), "no policy in JSON"},
		"runtime":       {change(`"runtime": "podman"`, `"runtime": "docker"`), "runtime docker is not known"},
		"kind":          {change(`"kind": "tmpfs"`, `"kind": "overlay"`), "kind of mount overlay is not known"},
		"target":        {change(`"target": "/tmp"`, `"target": "/tmp/../etc"`), "not a plain absolute path"},
		"size":          {change(`"size_bytes": 67108864`, `"size_bytes": -1`), "negative"},
		"variable":      {change(`"name": "TOKEN"`, `"name": "TO KEN"`), "not a variable's name"},
		"field twice":   {change(`"version": 1`, `"version": 1, "mounts": []`), "mounts stands there twice"},
		"twice below":   {change(`"read_only": true`, `"read_only": true, "read_only": false`), "read_only stands there twice"},
		"other case":    {change(`"mounts"`, `"Mounts"`), "Mounts is not written as in a printout"},
		"both cases":    {change(`"version": 1`, `"version": 1, "Mounts": []`), "Mounts is not written"},
		"case below":    {change(`"read_only"`, `"Read_Only"`), "Read_Only is not written"},
		"folded":        {change(`"kind": "tmpfs"`, `"\u212aind": "tmpfs"`), "\u212aind is not written"},
		"wide list":     {change(`".example.com:8443"`, `"*"`), "every host"},
	} {
		p, err := Decode(strings.NewReader(tc[0]))
		if err == nil || !strings.Contains(err.Error(), tc[1]) || !reflect.DeepEqual(p, Policy{}) {
			t.Errorf("%s: %v, want %q in it", name, err, tc[1])
			continue
		}
		if strings.ContainsFunc(err.Error(), func(r rune) bool { return r != '\n' && !unicode.IsPrint(r) }) {
			t.Errorf("%s: the error holds what a terminal obeys: %q", name, err)
		}
	}
	if _, err := Decode(bytes.NewReader(good)); err != nil {
		t.Errorf("the positive control: %v", err)
	}
}

// FuzzDecode: whatever is read, it reads back as the same, and no printout of it
// says anything to a terminal but text.
func FuzzDecode(f *testing.F) {
	for _, name := range []string{"podman all gated", "local all unix", "named"} {
		text, err := many(f)[name].JSON()
		if err != nil {
			f.Fatal(err)
		}
		f.Add(text)
	}
	f.Add([]byte(`{"version":1,"runtime":"local","isolation":"process","command":["\u001b]52;c;x\u0007","\u009b1m"],"net":{"mode":"host","allow":null}}`))
	f.Fuzz(func(t *testing.T, b []byte) {
		p, err := Decode(bytes.NewReader(b))
		if err != nil {
			checkPrinted(t, "error", err.Error())
			return
		}
		text, err := p.JSON()
		if err != nil {
			t.Fatal(err)
		}
		again, err := Decode(bytes.NewReader(text))
		if err != nil {
			t.Fatalf("%s: %v", text, err)
		}
		if twice, err := again.JSON(); err != nil || !bytes.Equal(text, twice) {
			t.Fatalf("%s\nreads back as\n%s", text, twice)
		}
		checkPrinted(t, "JSON", string(text))
		checkPrinted(t, "text", p.Text())
		checkPrinted(t, "difference", Diff(Policy{}, p).Text()+Diff(p, Policy{}).Text())
		for _, m := range p.Mounts {
			checkPrinted(t, "mount", m.Line()+fmt.Sprint(p.Inside(m.Target).Access))
		}
	})
}

// checkPrinted holds text to what may go to a terminal: lines of printable
// characters.
func checkPrinted(t *testing.T, what, text string) {
	t.Helper()
	for _, r := range text {
		if r != '\n' && r != '\t' && !unicode.IsPrint(r) {
			t.Fatalf("%s holds %q: %q", what, r, text)
		}
	}
}
