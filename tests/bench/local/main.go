// Command local measures what a run on the local runtime costs, on the machine
// itself, and prints one line a figure: bench NAME VALUE GOAL ok|short. Each is
// the median of its runs, which are interleaved with what they are compared to:
// bare bubblewrap with the same binds, and other sandboxes that are in PATH.
// tests/bench/local/run starts it.
package main

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"
)

// runs of each figure; the first warmups of each are not counted.
const (
	runs    = 21
	warmups = 2
)

func main() {
	if err := bench(); err != nil {
		fmt.Fprintln(os.Stderr, "bench:", err)
		os.Exit(1)
	}
}

// A rival is something whose start is compared with ours.
type rival struct {
	name  string
	argv  []string
	times []float64 // milliseconds
	// failed counts the runs that are not in times.
	failed int
}

func bench() (err error) {
	if len(os.Args) != 2 {
		return errors.New("give the path of ai-sandbox")
	}
	program, err := filepath.Abs(os.Args[1])
	if err != nil {
		return err
	}
	bwrap, err := exec.LookPath("bwrap")
	if err != nil {
		return fmt.Errorf("bubblewrap is what all is compared to: %w", err)
	}
	own, err := os.MkdirTemp("", "aisb-bench")
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, os.RemoveAll(own)) }()
	for _, dir := range []string{"home", "run", "project"} {
		if err := os.Mkdir(filepath.Join(own, dir), 0o700); err != nil {
			return err
		}
	}
	env := []string{"HOME=" + filepath.Join(own, "home"), "XDG_RUNTIME_DIR=" + filepath.Join(own, "run"), "PATH=" + os.Getenv("PATH"), "TERM=dumb", "LANG=C.UTF-8"}
	run := func(argv []string) (time.Duration, string, error) {
		cmd := exec.Command(argv[0], argv[1:]...)
		cmd.Dir, cmd.Env = filepath.Join(own, "project"), env
		var out, errOut bytes.Buffer
		cmd.Stdout, cmd.Stderr = &out, &errOut
		start := time.Now()
		err := cmd.Run()
		took := time.Since(start)
		if err != nil {
			err = fmt.Errorf("%q: %w: %s", argv, err, errOut.String())
		}
		return took, out.String(), err
	}
	ours := func(flags ...string) []string {
		return append(append([]string{program, "--runtime", "local", "--allow", "bench.example.com"}, flags...), "--", "true")
	}
	if _, _, err := run(ours()); err != nil { // it makes the home
		return err
	}
	_, printed, err := run(ours("--dry-run"))
	if err != nil {
		return err
	}
	// What a session makes for itself stands in directories that stay.
	standIns := strings.NewReplacer("<entrypoint>", filepath.Join(filepath.Dir(program), "aisb-entrypoint"), "<session>", "standing")
	for _, dir := range []string{"control", "gate"} {
		if err := os.MkdirAll(filepath.Join(own, "run/ai-sandbox/standing", dir), 0o700); err != nil {
			return err
		}
	}
	same, err := bare(standIns.Replace(printed))
	if err != nil {
		return err
	}
	// So do the placeholders of protected paths, in a project like ours.
	for i, arg := range same {
		rest, ok := strings.CutPrefix(arg, filepath.Join(own, "project"))
		if !ok {
			continue
		}
		same[i] = filepath.Join(own, "same") + rest
		if err := os.MkdirAll(same[i], 0o700); err != nil {
			return err
		}
	}
	all := []*rival{{name: "ai-sandbox", argv: ours()}, {name: "bwrap", argv: append([]string{bwrap}, same...)}}
	for name, argv := range map[string][]string{"srt": {"srt", "true"}, "fence": {"fence", "-c", "true"}} {
		if _, err := exec.LookPath(name); err != nil {
			fmt.Fprintf(os.Stderr, "bench: %s is not installed, so nothing is compared with it\n", name)
			continue
		}
		all = append(all, &rival{name: name, argv: argv})
	}
	for i := range runs + warmups {
		for n, r := range all {
			took, _, err := run(r.argv)
			if err != nil && n > 1 && r.failed < runs/2 {
				r.failed++ // srt gives up now and then on a busy machine
				continue
			}
			if err != nil {
				return err
			}
			if i >= warmups {
				r.times = append(r.times, ms(took))
			}
		}
	}
	if err := phases(run, ours, filepath.Join(own, "report.json")); err != nil {
		return err
	}
	us := median(all[0].times)
	for _, r := range all {
		fmt.Printf("%s %.1f ms, ", r.name, median(r.times))
	}
	fmt.Printf("medians of %d runs\n", runs)
	figure("local-start-ratio", us/median(all[1].times), 4, false)
	for _, r := range all[2:] {
		figure("local-vs-"+r.name, median(r.times)/us, map[string]float64{"srt": 8, "fence": 5}[r.name], true)
	}
	return nil
}

// bare is the command line that --dry-run prints, but for what passes by a
// descriptor, and with true in the place of the entrypoint: the same namespaces
// and binds, and nothing else of ours, no gate, no proof and no reading back.
func bare(printed string) ([]string, error) {
	_, text, ok := strings.Cut(printed, "\nbwrap \\\n")
	text, _, end := strings.Cut(text, "\n  -- ")
	if !ok || !end {
		return nil, errors.New("--dry-run prints no command line of bubblewrap")
	}
	var args []string
	for line := range strings.Lines(text) {
		line = strings.TrimSuffix(strings.TrimSpace(line), " \\")
		words := strings.Fields(line)
		for i, w := range words {
			if plain, err := strconv.Unquote(w); err == nil {
				words[i] = plain
			}
		}
		switch {
		case !strings.Contains(line, "<fd of "):
			args = append(args, words...)
		case strings.HasPrefix(line, "--file "):
			args = args[:len(args)-2] // its --perms
		}
	}
	return append(args, "--", "true"), nil
}

// phases prints when a run has reached what, in milliseconds since its start.
func phases(run func([]string) (time.Duration, string, error), ours func(...string) []string, report string) error {
	times := map[string][]float64{}
	for range runs {
		if _, _, err := run(ours("--report", report)); err != nil {
			return err
		}
		text, err := os.ReadFile(report)
		if err != nil {
			return err
		}
		var rep struct {
			Timings map[string]float64 `json:"timings_ms"`
		}
		if err := json.Unmarshal(text, &rep); err != nil {
			return err
		}
		for name, v := range rep.Timings {
			times[name] = append(times[name], v)
		}
	}
	names := make([]string, 0, len(times))
	for name := range times {
		names = append(names, name)
	}
	slices.SortFunc(names, func(a, b string) int { return int(10 * (median(times[a]) - median(times[b]))) })
	fmt.Print("until")
	for _, name := range names {
		if name == "selftest" || name == "entrypoint" {
			continue // how long it took
		}
		fmt.Printf(" %s %.1f", name, median(times[name]))
	}
	fmt.Println(" ms")
	figure("local-selftest-ms", median(times["selftest"]), 15, false)
	return nil
}

// figure prints one; the goal itself counts.
func figure(name string, value, goal float64, atLeast bool) {
	verdict := "short"
	if value == goal || value > goal == atLeast {
		verdict = "ok"
	}
	fmt.Printf("bench %s %s %s %s\n", name, number(value), number(goal), verdict)
}

func number(v float64) string {
	return strings.TrimSuffix(strings.TrimRight(fmt.Sprintf("%.2f", v), "0"), ".")
}

func ms(d time.Duration) float64 { return float64(d.Microseconds()) / 1000 }

func median(v []float64) float64 {
	v = slices.Clone(v)
	slices.Sort(v)
	n := len(v)
	if n == 0 {
		return 0
	}
	return (v[(n-1)/2] + v[n/2]) / 2
}
