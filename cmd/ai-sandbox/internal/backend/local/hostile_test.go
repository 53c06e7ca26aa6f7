package local

import (
	"fmt"
	"reflect"
	"strings"
	"testing"

	"ai-sandbox/policy"
	"ai-sandbox/tests/hostile"
)

// arity is how many arguments each option of bubblewrap that we use takes
// (bwrap(1)). There is no way to end one early: what stands there is its argument,
// whatever it looks like.
var arity = map[string]int{
	"--unshare-user": 0, "--disable-userns": 0, "--unshare-ipc": 0, "--unshare-pid": 0, "--unshare-uts": 0, "--unshare-cgroup": 0, "--unshare-net": 0,
	"--die-with-parent": 0, "--as-pid-1": 0, "--new-session": 0, "--clearenv": 0,
	"--uid": 1, "--gid": 1, "--hostname": 1, "--cap-drop": 1, "--chdir": 1, "--info-fd": 1, "--block-fd": 1, "--perms": 1, "--size": 1,
	"--tmpfs": 1, "--remount-ro": 1, "--proc": 1, "--dev": 1,
	"--bind": 2, "--ro-bind": 2, "--symlink": 2, "--file": 2,
}

// reparse reads a command line as bubblewrap does.
func reparse(argv []string) (options []option, program []string, err error) {
	for len(argv) > 0 {
		flag := argv[0]
		if flag == "--" {
			return options, argv[1:], nil
		}
		n, ok := arity[flag]
		if !ok || len(argv) < n+1 {
			return nil, nil, fmt.Errorf("bubblewrap would read %.60q as an option", flag)
		}
		o := option{flag: flag, args: argv[1 : n+1]}
		if flag == "--info-fd" || flag == "--block-fd" || flag == "--file" {
			o.args = argv[2 : n+1] // the descriptor's number is not in the options
		}
		options, argv = append(options, o), argv[n+1:]
	}
	return nil, nil, fmt.Errorf("no program")
}

// No string of a user's becomes an option of bubblewrap: read as it reads them, the
// arguments are the options that were meant.
func TestHostileArgv(t *testing.T) {
	accepted, refused := 0, 0
	for _, s := range hostile.Strings {
		for name, change := range map[string]func(*policy.Input){
			"project": func(in *policy.Input) { in.Facts.Project = "/home/dev/" + s },
			"source": func(in *policy.Input) {
				in.Binds = []policy.Mount{{Kind: policy.KindBind, Source: s, Target: "/data", ReadOnly: true}}
			},
			"target": func(in *policy.Input) {
				in.Binds = []policy.Mount{{Kind: policy.KindBind, Source: "/data", Target: s}}
			},
			"link": func(in *policy.Input) {
				in.Facts.Local.System = []policy.Mount{{Kind: policy.KindSymlink, Source: s, Target: "/bin"}}
			},
			"runtime": func(in *policy.Input) { in.Facts.RuntimeDir = "/run/" + s },
			"homes":   func(in *policy.Input) { in.Facts.Local.Homes = "/home/" + s },
			"mode": func(in *policy.Input) {
				in.Binds = []policy.Mount{{Kind: policy.KindTmpfs, Target: "/data", Mode: s, SizeBytes: 1}}
			},
			"command": func(in *policy.Input) { in.Command = []string{s, s} },
			"env":     func(in *policy.Input) { in.Env = []string{"A=" + s} },
		} {
			b, err := trySandbox(change)
			if err != nil {
				refused++
				if err := hostile.Printed(err.Error()); err != nil {
					t.Errorf("%s = %.60q: the error: %v", name, s, err)
				}
				continue
			}
			accepted++
			j, err := jailOf(b)
			if err != nil {
				t.Fatalf("%s: %v", name, err)
			}
			c := build(j, testFacts)
			options, program, err := reparse(c.argv())
			if err != nil {
				t.Errorf("%s = %.60q: %v", name, s, err)
				continue
			}
			var want []option
			for _, o := range c.options {
				want = append(want, option{flag: o.flag, args: o.args})
			}
			for i := range max(len(want), len(options)) {
				if i >= len(want) || i >= len(options) || options[i].flag != want[i].flag || strings.Join(options[i].args, "\x01") != strings.Join(want[i].args, "\x01") {
					t.Errorf("%s = %.60q: option %d is read otherwise", name, s, i)
					break
				}
			}
			if !reflect.DeepEqual(program, c.program) || program[0] != policy.EntrypointPath {
				t.Errorf("%s = %.60q: the program is %q", name, s, program)
			}
			if err := hostile.Printed(c.String()); err != nil {
				t.Errorf("%s = %.60q: the printed command line: %v", name, s, err)
			}
		}
	}
	if accepted < 100 || refused < 10 {
		t.Errorf("%d were taken and %d refused", accepted, refused)
	}
}
