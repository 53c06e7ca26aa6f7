package policy

import (
	"encoding/json"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"testing"

	"ai-sandbox/tests/schema"
)

const schemaFile = "../docs/policy.schema.json"

// many are policies of both runtimes, with all that can be asked for in many ways
// of putting it together.
func many(t testing.TB) map[string]Policy {
	t.Helper()
	out := map[string]Policy{}
	add := func(name string, in Input) {
		p, err := Resolve(in)
		if err != nil {
			t.Fatalf("%s: %v", name, err)
		}
		if p.Runtime == RuntimePodman {
			p = p.WithRuleset("table inet aisb {\n}\n")
		}
		out[name] = p
	}
	all := func(in Input) Input {
		in.Allow, in.AllowPrivate = []Entry{entry(t, "*.example.com:8443")}, []Entry{entry(t, "127.0.0.1:5432")}
		in.EphemeralHome, in.ExtraCA, in.ReadOnly = true, true, true
		in.Upstream = &Upstream{Host: "proxy.example.com", Port: 3128, Credentials: true}
		in.Env = []string{"TOKEN", "A=b"}
		in.Limits = LimitInputs{Memory: LimitInput{"1g", "--memory"}, CPUs: LimitInput{"2", "--cpus"}, Pids: LimitInput{"none", "--pids"}, Time: LimitInput{"1h", "--time"}}
		in.Facts.Limits.Pids = Enforcement{Why: "no"}
		in.Loud = []string{"LOUD: more"}
		in.Image.Harnesses = []Harness{{"pi", "1.6.0"}, {"claude", "2.1.332"}}
		in.Image.Apt, in.Image.Setup = []string{"gcc", "make=4.4.1-2"}, &Setup{".ai-sandbox/setup", strings.Repeat("ab", 32)}
		in.Harness, in.Thinking = "claude", &Thinking{Level: "xhigh", As: "--effort xhigh"}
		return in
	}
	for _, net := range []string{NetGated, NetUnix, NetNone, NetHost} {
		for _, engine := range []string{"", EngineBuiltin} {
			in, jail := plain(), jailed()
			in.Net, jail.Net, in.Engine, jail.Engine = net, net, engine, engine
			jail.Links = []HomeLink{{Path: "a", To: "/run/aisb-harness/a"}, {Path: "b"}}
			jail.Seeds = []HomeSeed{{Path: "c", Mode: 0o600, Content: []byte("x")}}
			jail.Managed = []HomeManaged{
				{Path: "d", Mode: 0o600, Content: []byte("{}"), Keys: true, Fixed: []HomeKey{{Key: "level", Value: "high"}, {Key: "more"}}},
				{Path: "e", Mode: 0o600, None: true},
			}
			jail.Binds = []Mount{{Kind: KindBind, Source: "/home/dev/.claude", Target: HomeDir + "/.claude", Why: "the agent's own directory"}}
			if net != NetHost {
				add("podman "+net+engine, in)
				add("podman all "+net+engine, all(in))
			}
			if net != NetGated {
				add("local "+net+engine, jail)
				add("local all "+net+engine, all(jail))
			}
		}
	}
	in := plain()
	in.GateName, in.Hold, in.Command, in.Harness, in.Facts.SELinux = "work", true, nil, "", true
	in.Facts.Project = "/tmp/a project"
	add("named", in)
	in = plain()
	in.Image.BaseDigest, in.Image.RecordedID, in.Image.GateID = "", "sha256:1", "sha256:2"
	add("unpinned", in)
	return out
}

// What is printed is what the schema says, field by field.
func TestSchema(t *testing.T) {
	all := many(t)
	for name, f := range map[string]InForce{"shown": {Hash: strings.Repeat("ab", 32), Confirmed: true}, "shown without a gate": {}} {
		p := all["named"]
		p.InForce = &f
		if !Diff(p, all["named"]).Empty() {
			t.Errorf("%s is another policy", name)
		}
		all[name] = p
	}
	for name, p := range all {
		text, err := p.JSON()
		if err != nil {
			t.Fatal(err)
		}
		if err := schema.InFile(schemaFile, "policy", text); err != nil {
			t.Errorf("%s: %v\n(a field that is new belongs into docs/policy.schema.json, with its type and a description)", name, err)
		}
	}
	// It is not a schema that takes anything.
	for _, text := range []string{`{}`, `{"version":2}`} {
		if schema.InFile(schemaFile, "policy", []byte(text)) == nil {
			t.Errorf("the schema takes %s", text)
		}
	}
}

// The schema and the type have the same fields, each with its description, and
// the schema takes no other.
func TestSchemaIsComplete(t *testing.T) {
	text, err := os.ReadFile(filepath.FromSlash(schemaFile))
	if err != nil {
		t.Fatal(err)
	}
	var s map[string]any
	if err := json.Unmarshal(text, &s); err != nil {
		t.Fatal(err)
	}
	var walk func(at string, s map[string]any, typ reflect.Type)
	walk = func(at string, s map[string]any, typ reflect.Type) {
		if d, _ := s["description"].(string); d == "" {
			t.Errorf("docs/policy.schema.json: %s has no description: say what it means", at)
		}
		for typ.Kind() == reflect.Pointer {
			typ = typ.Elem()
		}
		switch {
		case typ == reflect.TypeFor[Entry](): // a string (MarshalText)
		case typ.Kind() == reflect.Slice:
			items, _ := s["items"].(map[string]any)
			if items == nil {
				t.Errorf("docs/policy.schema.json: %s has no items: say what is in the list", at)
			} else if typ.Elem().Kind() == reflect.Struct && typ.Elem() != reflect.TypeFor[Entry]() {
				walk(at+"[]", items, typ.Elem())
			}
		case typ.Kind() == reflect.Struct:
			if s["additionalProperties"] != false {
				t.Errorf("docs/policy.schema.json: %s needs \"additionalProperties\": false", at)
			}
			properties, _ := s["properties"].(map[string]any)
			required, _ := s["required"].([]any)
			var names []string
			for i := range typ.NumField() {
				name, options, _ := strings.Cut(typ.Field(i).Tag.Get("json"), ",")
				if name == "-" {
					continue
				}
				names = append(names, name)
				p, _ := properties[name].(map[string]any)
				if p == nil {
					t.Errorf("docs/policy.schema.json: %s lacks %q, which is field %s of policy.%s: add it, with its type and a description", at, name, typ.Field(i).Name, typ.Name())
					continue
				}
				if must := !strings.Contains(options, "omitempty") && !strings.Contains(options, "omitzero"); must != slices.Contains(required, any(name)) {
					t.Errorf("docs/policy.schema.json: %s.%s is always printed: %v; \"required\" has to say the same", at, name, must)
				}
				walk(at+"."+name, p, typ.Field(i).Type)
			}
			for name := range properties {
				if !slices.Contains(names, name) {
					t.Errorf("docs/policy.schema.json: %s has %q, and policy.%s has no such field: take it out", at, name, typ.Name())
				}
			}
		}
	}
	walk("policy", s, reflect.TypeFor[Policy]())
}
