package policy

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"testing"
)

// Where a value comes from, and which ones are secret.
func TestEnvOrigins(t *testing.T) {
	in := plain()
	in.Facts.EnvSet = func(n string) bool { return n != "UNSET" }
	in.Env = []string{"A", "TERM", "B=1", "PATH=/opt/bin:/usr/bin", "TOKEN=public"}
	in.EnvFile = []Secret{NewSecret("F", "x"), NewSecret("LANG", "y")}
	in.Token = "TOKEN"
	p, err := Resolve(in)
	if err != nil {
		t.Fatal(err)
	}
	got := map[string]Env{}
	for _, e := range p.Env {
		got[e.Name] = e
	}
	for _, want := range []Env{
		{"A", "", FromHost, true}, {"TERM", "", FromHost, false}, {"B", "1", FromConstant, false}, {"F", "", FromFile, true}, {"LANG", "", FromFile, true},
		{"PATH", "/opt/bin:/usr/bin", FromConstant, false}, {"NO_COLOR", "", FromHost, false},
		{"TOKEN", "public", FromConstant, false}, // what the user says comes first
	} {
		if got[want.Name] != want {
			t.Errorf("%+v, not %+v", got[want.Name], want)
		}
	}
	in.Env, in.EnvFile = nil, nil
	if p, err = Resolve(in); err != nil || !slices.Contains(p.Env, Env{"TOKEN", "", FromHarness, true}) {
		t.Errorf("%v, %v", p.Env, err)
	}
	in.Token = "UNSET"
	if p, err = Resolve(in); err != nil || strings.Contains(p.Text(), "UNSET") {
		t.Errorf("%v, %v", p.Env, err)
	}
}

func TestEnvRefused(t *testing.T) {
	for want, f := range map[string]func(*Input){
		"env A is in an env_file and named by env too; drop one of them": func(in *Input) {
			in.Env, in.EnvFile = []string{"A=1"}, []Secret{NewSecret("A", "x")}
		},
		"env HTTPS_PROXY is set by ai-sandbox itself; take it out of the env_file":          func(in *Input) { in.EnvFile = []Secret{NewSecret("HTTPS_PROXY", "x")} },
		"env HOME is set by ai-sandbox itself; drop it":                                     func(in *Input) { in.Env = []string{"HOME"} },
		"the variable of the token, HTTPS_PROXY, is set by ai-sandbox itself; name another": func(in *Input) { in.Token = "HTTPS_PROXY" },
		"the variable of the token, PATH, is set by ai-sandbox itself; name another":        func(in *Input) { in.Token = "PATH" },
		"env PATH has an empty value; give it one or drop it":                               func(in *Input) { in.Env = []string{"PATH="} },
	} {
		in := plain()
		in.Facts.EnvSet = func(string) bool { return true }
		f(&in)
		if _, err := Resolve(in); err == nil || err.Error() != want {
			t.Errorf("%v, not %s", err, want)
		}
	}
}

// A secret that can't be hidden, and a value that no program can be started with,
// is refused by name, with what to do.
func TestCheckSecrets(t *testing.T) {
	const tooShort = "env A has a value shorter than 8 bytes, which can't be hidden without garbling other words; if it is no secret, make it a constant: env A=VALUE"
	const tooPlain = "env A has a value of fewer than 4 different characters, which can't be hidden without garbling other words; if it is no secret, make it a constant: env A=VALUE"
	const shown = "env A has a value that also stands in a path, a host or a constant of this run, where it can't be hidden; if it is no secret, make it a constant: env A=VALUE"
	for value, want := range map[string]string{
		"13572468": "", "correct horse": "", "1": tooShort, "true": tooShort, "seven77": tooShort, "a\nb\nc\nd\n": tooShort,
		"00000000": tooPlain, "aAaAbBbB": tooPlain, strings.Repeat("\n", 20) + "abc": tooShort,
		"/home/dev/work": shown, "api.example.com": shown, "a public one": shown, "temporary": shown, "/home/dev/work/shop/src": "",
		"NUL \x00 in it":                         "env A has a NUL byte in its value, which no variable can hold; encode the value",
		strings.Repeat("0123456789abcdef", 8191): "",
		strings.Repeat("0123456789abcdef", 8192): "env A has a value of 131072 bytes, and the kernel passes on at most 131069; hand it over in a file",
	} {
		in := plain()
		in.Allow = []Entry{entry(t, "api.example.com")}
		in.Env = []string{"A", "B=a public one"}
		in.Command = []string{"curl", "-H", value} // where it can be hidden
		in.Facts.EnvSet = func(n string) bool { return n == "A" }
		p, err := Resolve(in)
		if strings.Contains(value, "\x00") {
			in.Command = []string{"curl"}
			p, err = Resolve(in)
		}
		if err != nil {
			t.Fatal(err)
		}
		values := map[string]Secret{"A": NewSecret("A", value)}
		if err = p.CheckSecrets(values); fmt.Sprint(err) != cmpOr(want, "<nil>") {
			t.Errorf("%.40q: %v, not %s", value, err, want)
		}
		if err != nil {
			continue
		}
		r := NewRedactor([]Secret{values["A"]})
		shown := p.Redacted(r)
		js, jerr := shown.JSON()
		if text := shown.Text(); jerr != nil || strings.Contains(text, value) || strings.Contains(string(js), value) || !strings.Contains(text, "[A]") || !json.Valid(js) {
			t.Errorf("%.40q is shown: %s %s", value, text, js)
		}
		if p.Command[2] != value {
			t.Error("the command itself was changed")
		}
	}
	// The fixed list is no secret, and all together have a limit too.
	in := plain()
	in.Env = []string{"TERM"}
	values := map[string]Secret{"TERM": NewSecret("TERM", "xterm"), "LANG": NewSecret("LANG", "C"), "LC_CTYPE": NewSecret("LC_CTYPE", "C")}
	p, err := Resolve(in)
	if err == nil {
		err = p.CheckSecrets(values)
	}
	if err != nil {
		t.Error(err)
	}
	for n := range 12 {
		in.EnvFile = append(in.EnvFile, NewSecret(fmt.Sprintf("F%d", n), strings.Repeat("0123456789", 10000)))
		values[fmt.Sprintf("F%d", n)] = in.EnvFile[n]
	}
	if p, err = Resolve(in); err == nil {
		err = p.CheckSecrets(values)
	}
	if err == nil || !strings.Contains(err.Error(), "the environment has 12") {
		t.Error(err)
	}
}

func cmpOr(a, b string) string {
	if a == "" {
		return b
	}
	return a
}

// The lines of an env_file: what each of them means, or why it means nothing.
func TestEnvFile(t *testing.T) {
	for text, want := range map[string]string{
		"": "", "\n\n": "", "# A=1\n \t# x": "", "   \t\n#": "",
		"A=1\nB_2= \n": "!2: B_2 has a blank at the beginning or end of its value",
		"A=1\nb=2":     "A=1 b=2", "A=a b#c \\n $X `x`": "A=a b#c \\n $X `x`", "A==": "A==", "A=\xff\xfe": "A=\xff\xfe", "A=a\tb": "A=a\tb",
		"A=x'y\"z": "A=x'y\"z", "_=1": "_=1",
		`A="x"`: "A=x", `A="a\nb\r\t\\\"\/\b\f"`: "A=a\nb\r\t\\\"/\b\f", `A="\u00e9\ud83d\ude00é "`: "A=é😀é ", `A="# 'x'"`: "A=# 'x'",
		"A":             "!1: the line has no \"=\"; write NAME=value (nothing is taken from this environment: that is --env NAME)",
		"*":             "!1: the line has no \"=\"",
		"export A=1":    "!1: what stands before \"=\" is not a variable's name; write NAME=value, without \"export\" and blanks",
		"A =1":          "!1: what stands",
		" A=1":          "!1: what stands",
		"=1":            "!1: what stands",
		"1A=1":          "!1: what stands",
		"A-B=1":         "!1: what stands",
		"A=":            "!1: A has an empty value; give it one, or take the line out",
		`A=""`:          "!1: A has an empty value; give it one, or take the line out",
		"A='1'":         "!1: A has a value that begins with a single quote",
		"A=1 ":          "!1: A has a blank",
		"A=1\r\nB=2\r":  "!1: the line ends with a carriage return",
		"A=a\rb":        "!1: A has a control character",
		"A=a\x00b":      "!1: A has a control character",
		"A=\x1b[2J":     "!1: A has a control character",
		`A="\u0000"`:    "!1: A has a NUL in its value, which no variable can hold",
		`A="x" `:        "!1: A has a value in double quotes that is not a JSON string",
		`A="x" # mine`:  "!1: A has a value in double quotes",
		`A="`:           "!1: A has a value in double quotes",
		`A="x\"`:        "!1: A has a value in double quotes",
		`A="x"y"`:       "!1: A has a value in double quotes",
		`A="\x41"`:      "!1: A has a value in double quotes",
		`A="\u00"`:      "!1: A has a value in double quotes",
		`A="\u00g0"`:    "!1: A has a value in double quotes",
		`A="\ud83d"`:    "!1: A has a value in double quotes",
		`A="\ud83d\n"`:  "!1: A has a value in double quotes",
		`A="\ude00"`:    "!1: A has a value in double quotes",
		"A=\"\xff\"":    "!1: A has a value in double quotes",
		"A=\"a\tb\"":    "!1: A has a value in double quotes",
		"A=1\n#\nA=2":   "!3: A is set again, after line 1; keep one of them",
		"\ufeffA=1":     "!1: the file begins with a byte order mark",
		"A=1\nB\nC=\n ": "!2: the line has no \"=\"; write NAME=value (nothing is taken from this environment: that is --env NAME)\nenv_file /f:3: C has an empty value; give it one, or take the line out",
	} {
		list, err := ParseEnvFile("/f", []byte(text))
		var got []string
		for _, s := range list {
			got = append(got, s.Name()+"="+s.Reveal())
		}
		if bad, ok := strings.CutPrefix(want, "!"); ok {
			if err == nil || !strings.HasPrefix(err.Error(), "env_file /f:"+bad) {
				t.Errorf("%q: %v %q, not %s", text, err, got, bad)
			}
			continue
		}
		if err != nil || strings.Join(got, " ") != want {
			t.Errorf("%q: %q (%v), not %q", text, got, err, want)
		}
	}
	if _, err := ParseEnvFile("/f", make([]byte, MaxEnvFile+1)); err == nil {
		t.Error("a file of any size is read")
	}
}

// An env_file means what it says: what comes out of it says the same when it is
// written down again, and no error shows a value.
func FuzzEnvFile(f *testing.F) {
	f.Add([]byte("A=1\n# x\nB=\"a\\nb\"\n"))
	f.Add([]byte("A=\"\\ud83d\\ude00\"\n*\nLD_PRELOAD=/x\r\n"))
	f.Fuzz(func(t *testing.T, data []byte) {
		list, err := ParseEnvFile("/f", data)
		if err != nil && len(list) == 0 {
			return
		}
		lines := strings.Split(string(data), "\n")
		var again []byte
		for _, s := range list {
			if !ValidEnvName(s.Name()) || s.Reveal() == "" || strings.ContainsRune(s.Reveal(), 0) {
				t.Errorf("%s=%q", s.Name(), s.Reveal())
			}
			// No variable without a line of its own.
			if !slices.ContainsFunc(lines, func(l string) bool { return strings.HasPrefix(l, s.Name()+"=") }) {
				t.Errorf("%s has no line", s.Name())
			}
			value := s.Reveal()
			if strings.ContainsAny(value, "\n\r\"") || value[0] == '\'' || strings.TrimSpace(value) != value || strings.IndexFunc(value, func(r rune) bool { return r < ' ' || r == 0x7f }) >= 0 {
				var b strings.Builder
				enc := json.NewEncoder(&b)
				enc.SetEscapeHTML(false)
				if err := enc.Encode(value); err != nil {
					t.Fatal(err)
				}
				if strings.ContainsRune(value, '\ufffd') || !json.Valid([]byte(b.String())) {
					return
				}
				value = strings.TrimSpace(b.String())
			}
			again = append(again, s.Name()+"="+value+"\n"...)
		}
		list2, err := ParseEnvFile("/f", again)
		if err != nil || !slices.Equal(list, list2) {
			t.Errorf("%q: %v, %q", data, err, again)
		}
	})
}

// Whatever --env is given, each entry is one variable or an error, and no value
// but a constant gets into the policy.
func FuzzEnv(f *testing.F) {
	f.Add("A=1", "B", "sesame-open-1")
	f.Add("A=\nB=2", "LD_PRELOAD=/x", "a\nb\x00")
	f.Fuzz(func(t *testing.T, one, two, value string) {
		in := plain()
		in.Facts.EnvSet = func(string) bool { return true }
		in.Env = []string{one, two}
		in.EnvFile = []Secret{NewSecret("FILE", value)}
		p, err := Resolve(in)
		if err != nil {
			return
		}
		for _, e := range p.Env {
			if !ValidEnvName(e.Name) || strings.ContainsRune(e.Value, 0) || e.Passed() && e.Value != "" {
				t.Errorf("%+v", e)
			}
			if e.From == FromConstant && one != e.Name+"="+e.Value && two != e.Name+"="+e.Value {
				t.Errorf("%+v is what nobody wrote", e)
			}
		}
		if lines := strings.Count(p.Text(), "\n"); lines > 200 {
			t.Errorf("%d lines", lines)
		}
	})
}
