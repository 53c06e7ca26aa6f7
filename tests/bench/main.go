// Command bench measures what people feel, in the test host, and prints one line
// a figure: bench NAME VALUE GOAL ok|short. Each is the median of its runs,
// which are interleaved with what they are compared to. tests/bench/run starts
// it.
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
	"strings"
	"time"

	"ai-sandbox/tests/e2e/stage"
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

func bench() (err error) {
	self, err := os.Executable()
	if err != nil {
		return err
	}
	s, err := stage.Set(filepath.Dir(self))
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, s.Close()) }()
	if err := s.Build(); err != nil {
		return err
	}
	project := filepath.Join(s.Own, "projects", "bench")
	if err := os.MkdirAll(project, 0o700); err != nil {
		return err
	}
	report := filepath.Join(s.Own, "bench-report.json")
	run := func(name string, args ...string) (time.Duration, string, error) {
		cmd := exec.Command(name, args...)
		cmd.Dir, cmd.Env = project, s.Env
		var out, errOut bytes.Buffer
		cmd.Stdout, cmd.Stderr = &out, &errOut
		start := time.Now()
		err := cmd.Run()
		took := time.Since(start)
		if err != nil {
			err = fmt.Errorf("%s %q: %w: %s", name, args, err, errOut.String())
		}
		return took, out.String(), err
	}
	ours := filepath.Join(s.Bin, "ai-sandbox")
	_, printed, err := run(ours, "--print-policy=json", "--", "true")
	if err != nil {
		return err
	}
	var policy struct {
		Image struct {
			Ref string `json:"ref"`
		} `json:"image"`
	}
	if err := json.Unmarshal([]byte(printed), &policy); err != nil {
		return err
	}

	var session, bare, entrypoint, print []float64
	phases := map[string][]float64{}
	for i := range runs + warmups {
		a, _, err1 := run(ours, "--report", report, "--allow", "bench.ok.test", "--", "true")
		b, _, err2 := run("podman", "run", "--rm", "--network=pasta", policy.Image.Ref, "true")
		c, _, err3 := run(ours, "--print-policy", "--allow", "bench.ok.test", "pi")
		text, err4 := os.ReadFile(report)
		if err := errors.Join(err1, err2, err3, err4); err != nil {
			return err
		}
		var rep struct {
			Timings map[string]float64 `json:"timings_ms"`
		}
		if err := json.Unmarshal(text, &rep); err != nil {
			return err
		}
		if i < warmups {
			continue
		}
		session, bare, print = append(session, ms(a)), append(bare, ms(b)), append(print, ms(c))
		entrypoint = append(entrypoint, rep.Timings["entrypoint"])
		for name, v := range rep.Timings {
			phases[name] = append(phases[name], v)
		}
	}
	fmt.Printf("session %.0f ms, bare podman run %.0f ms, medians of %d runs; until", median(session), median(bare), runs)
	names := make([]string, 0, len(phases))
	for name := range phases {
		names = append(names, name)
	}
	slices.SortFunc(names, func(a, b string) int { return int(median(phases[a]) - median(phases[b])) })
	for _, name := range names {
		if name != "entrypoint" && name != "images" && name != "selftest" {
			fmt.Printf(" %s %.0f", name, median(phases[name]))
		}
	}
	fmt.Println()
	figure("session-start-ratio", median(session)/median(bare), 1.5, true)
	figure("entrypoint-ms", median(entrypoint), 10, false)
	figure("selftest-ms", median(phases["selftest"]), 15, false)
	figure("images-ms", median(phases["images"]), 30, false)
	figure("print-policy-ms", median(print), 60, false)
	return os.Remove(report)
}

// figure prints one. The goal itself counts where the goal says "at most".
func figure(name string, value, goal float64, inclusive bool) {
	verdict := "short"
	if value < goal || inclusive && value == goal {
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
