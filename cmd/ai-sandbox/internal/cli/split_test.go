package cli

import (
	"reflect"
	"slices"
	"strings"
	"testing"
)

func TestSplit(t *testing.T) {
	for _, tc := range []struct {
		line string // fields; '' stands for an empty argument
		want Invocation
		err  string // part of the error
	}{
		// The examples of the issue and the README.
		{line: "--allow api.example.com pi", want: Invocation{Flags: []string{"--allow=api.example.com"}, Harness: "pi"}},
		{line: "--allow .example.com -- curl -sS https://www.example.com/",
			want: Invocation{Flags: []string{"--allow=.example.com"}, Args: []string{"curl", "-sS", "https://www.example.com/"}}},
		{line: "--print-policy --allow api.example.com pi",
			want: Invocation{Flags: []string{"--print-policy=text", "--allow=api.example.com"}, Harness: "pi"}},
		{line: "--print-policy=json pi", want: Invocation{Flags: []string{"--print-policy=json"}, Harness: "pi"}},
		{line: "--dry-run --print-entrypoint --print-containerfile",
			want: Invocation{Flags: []string{"--dry-run=true", "--print-entrypoint=true", "--print-containerfile=true"}, Harness: "pi"}},
		{line: "pi -p hi --model x", want: Invocation{Harness: "pi", Args: []string{"-p", "hi", "--model", "x"}}},
		{line: "build", want: Invocation{Verb: "build"}},
		{line: "build --rebuild", want: Invocation{Verb: "build", Flags: []string{"--rebuild=true"}}},
		{line: "clean", want: Invocation{Verb: "clean"}},
		{line: "doctor", want: Invocation{Verb: "doctor"}},
		{line: "gate up NAME", want: Invocation{Verb: "gate up", Args: []string{"NAME"}}},
		{line: "gate down NAME", want: Invocation{Verb: "gate down", Args: []string{"NAME"}}},
		{line: "gate ls", want: Invocation{Verb: "gate ls"}},

		// What begins the harness's part.
		{line: "", want: Invocation{Help: true}},
		{line: "-h pi", want: Invocation{Help: true}},
		{line: "--allow a.example.com --help", want: Invocation{Help: true, Flags: []string{"--allow=a.example.com"}}},
		{line: "--version", want: Invocation{Version: true}},
		{line: "pi --help", want: Invocation{Harness: "pi", Args: []string{"--help"}}},
		{line: "pi --version", want: Invocation{Harness: "pi", Args: []string{"--version"}}},
		{line: "--net none", want: Invocation{Flags: []string{"--net=none"}, Harness: "pi"}},
		{line: "-p 8080:80 pi", want: Invocation{Harness: "pi", Args: []string{"-p", "8080:80", "pi"}}}, // no alias of --publish
		{line: "--publish 8080:8000 --publish :3000 pi -p hi",
			want: Invocation{Flags: []string{"--publish=8080:8000", "--publish=:3000"}, Harness: "pi", Args: []string{"-p", "hi"}}},
		{line: "--publihs 8080 pi", err: "did you mean --publish?"},
		{line: "-p hi", want: Invocation{Harness: "pi", Args: []string{"-p", "hi"}}},
		{line: "--model x pi", want: Invocation{Harness: "pi", Args: []string{"--model", "x", "pi"}}},
		{line: "describe this", want: Invocation{Harness: "pi", Args: []string{"describe", "this"}}},
		{line: "''", want: Invocation{Harness: "pi", Args: []string{""}}},
		{line: "-", want: Invocation{Harness: "pi", Args: []string{"-"}}},
		{line: "pi pi build", want: Invocation{Harness: "pi", Args: []string{"pi", "build"}}},
		{line: "pi -- x", want: Invocation{Harness: "pi", Args: []string{"--", "x"}}},
		{line: "-- pi --allow x", want: Invocation{Args: []string{"pi", "--allow", "x"}}},
		{line: "-- -- x", want: Invocation{Args: []string{"--", "x"}}},
		{line: "-- build", want: Invocation{Args: []string{"build"}}},
		{line: "--", err: "no command follows"},
		{line: "--net none --", err: "no command follows"},

		// Values.
		{line: "--net=none --gate=x pi", want: Invocation{Flags: []string{"--net=none", "--gate=x"}, Harness: "pi"}},
		{line: "--env A=b=c pi", want: Invocation{Flags: []string{"--env=A=b=c"}, Harness: "pi"}},
		{line: "--env A=b,c --env B pi", want: Invocation{Flags: []string{"--env=A=b,c", "--env=B"}, Harness: "pi"}},
		{line: "--ephemeral-home pi", want: Invocation{Flags: []string{"--ephemeral-home=true"}, Harness: "pi"}},
		{line: "--ephemeral-home=false pi", want: Invocation{Flags: []string{"--ephemeral-home=false"}, Harness: "pi"}},
		{line: "--allow", err: "--allow needs a value"},
		{line: "--allow -- true", err: "--allow needs a value"},
		{line: "--report --net none", err: "--report needs a value"},
		{line: "--allow '' pi", err: "--allow has an empty value"},
		{line: "--allow= pi", err: "--allow has an empty value"},
		{line: "--net none --net gated pi", err: "--net is given twice"},
		{line: "--dry-run --dry-run pi", err: "--dry-run is given twice"},

		// Misspelt flags of ours.
		{line: "--nte none pi", err: "unknown flag --nte; did you mean --net?"},
		{line: "--allwo x pi", err: "did you mean --allow?"},
		{line: "--alow=x", err: "unknown flag --alow; did you mean --allow?"},
		{line: "--print-polcy pi", err: "did you mean --print-policy?"},
		{line: "--ephemeral-hoem", err: "did you mean --ephemeral-home?"},
		{line: "--allow_private x", err: "did you mean --allow-private?"},
		{line: "-allow x pi", err: "unknown flag -allow; did you mean --allow?"},
		{line: "-net none", err: "did you mean --net?"},
		{line: "--session x", want: Invocation{Harness: "pi", Args: []string{"--session", "x"}}},
		{line: "--export x", want: Invocation{Harness: "pi", Args: []string{"--export", "x"}}},
		{line: "--model x", want: Invocation{Harness: "pi", Args: []string{"--model", "x"}}},
		{line: "--print hi", want: Invocation{Harness: "pi", Args: []string{"--print", "hi"}}},
		{line: "--mode json", want: Invocation{Harness: "pi", Args: []string{"--mode", "json"}}},
		{line: "--continue", want: Invocation{Harness: "pi", Args: []string{"--continue"}}},

		// Ours, but after the harness's name.
		{line: "pi --allow x", want: Invocation{Harness: "pi", Args: []string{"--allow", "x"},
			Warnings: []string{"--allow comes after pi, so pi gets it; put it first if it is meant for ai-sandbox"}}},
		{line: "pi --net=none --net=none --verbose", want: Invocation{Harness: "pi", Args: []string{"--net=none", "--net=none", "--verbose"},
			Warnings: []string{"--net comes after pi, so pi gets it; put it first if it is meant for ai-sandbox"}}},
		{line: "--model x --net none", want: Invocation{Harness: "pi", Args: []string{"--model", "x", "--net", "none"},
			Warnings: []string{"--net comes after --model, so pi gets it; put it first if it is meant for ai-sandbox"}}},
		{line: "pi -- --net none", want: Invocation{Harness: "pi", Args: []string{"--", "--net", "none"}}},
		{line: "biuld", want: Invocation{Harness: "pi", Args: []string{"biuld"},
			Warnings: []string{"biuld is not a verb, so pi gets it as an argument; did you mean build?"}}},

		// Verbs: flags on either side, in any order.
		{line: "--base x build --rebuild", want: Invocation{Verb: "build", Flags: []string{"--base=x", "--rebuild=true"}}},
		{line: "gate up work --allow a.example.com --allow b.example.com",
			want: Invocation{Verb: "gate up", Args: []string{"work"}, Flags: []string{"--allow=a.example.com", "--allow=b.example.com"}}},
		{line: "gate up -- -x", want: Invocation{Verb: "gate up", Args: []string{"-x"}}},
		{line: "build --help", want: Invocation{Verb: "build", Help: true}},
		{line: "help gate", want: Invocation{Verb: "help", Args: []string{"gate"}}},
		{line: "--net none build", err: "--net is not a flag of build"},
		{line: "build --rebiuld", err: "did you mean --rebuild?"},
		{line: "build --wat", err: "--wat is not a flag of build"},
		{line: "build x", err: "build takes no argument x"},
		{line: "gate", err: "gate needs a word more; write one of: gate up, gate down, gate ls"},
		{line: "gate rm x", err: "gate rm is not a verb"},
		{line: "gate up", err: "gate up needs NAME"},
		{line: "gate up a b", err: "gate up takes no argument b"},
		{line: "--base x build --base y", err: "--base is given twice"},
	} {
		t.Run(tc.line, func(t *testing.T) {
			args := strings.Fields(tc.line)
			for i, a := range args {
				if a == "''" {
					args[i] = ""
				}
			}
			got, err := Split(args)
			if tc.err != "" {
				if err == nil || !strings.Contains(err.Error(), tc.err) {
					t.Fatalf("error %v, want %q", err, tc.err)
				}
				return
			}
			if err != nil {
				t.Fatal(err)
			}
			if len(got.Args) == 0 && len(tc.want.Args) == 0 {
				got.Args, tc.want.Args = nil, nil
			}
			if !reflect.DeepEqual(got, tc.want) {
				t.Errorf("got  %+v\nwant %+v", got, tc.want)
			}
		})
	}
}

// What follows the harness's name is passed on as it is, whatever it is.
func FuzzSplit(f *testing.F) {
	for _, s := range []string{"pi\x00-p\x00hi", "--allow\x00x\x00pi", "--\x00x", "gate\x00up\x00--allow", "--nte\x00none"} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, s string) {
		args := strings.Split(s, "\x00")
		inv, err := Split(args)
		if err != nil || inv.Help || inv.Version || inv.Verb != "" {
			return
		}
		if !slices.Equal(args[len(args)-len(inv.Args):], inv.Args) {
			t.Errorf("%q: arguments became %q", args, inv.Args)
		}
		for _, f := range inv.Flags {
			if name, value, ok := strings.Cut(f, "="); !ok || value == "" || !strings.HasPrefix(name, "--") {
				t.Errorf("%q: flag %q", args, f)
			}
		}
		again, err := Split(slices.Concat([]string{"--net=none", "pi"}, args))
		if err != nil || !slices.Equal(again.Args, args) || again.Harness != "pi" {
			t.Errorf("%q after pi became %q (%v)", args, again.Args, err)
		}
	})
}
