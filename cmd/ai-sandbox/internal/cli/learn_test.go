package cli

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"ai-sandbox/cmd/ai-sandbox/internal/config"
)

// Net learn is for the one run that asks for it, and not beside a secret unless that is
// confirmed.
func TestLearnIsAskedFor(t *testing.T) {
	s := newStage(t)
	for _, tc := range []struct {
		file, project string
		env           string
		args          []string
		want          string // "" is that it is printed
	}{
		{args: []string{"--net", "learn"}},
		{args: []string{"--net=learn", "--env", "A=b"}},
		{args: []string{"--net", "learn", "--env", "TOKEN"}, want: "it is given TOKEN; pass none of them, or say --learn-with-secrets"},
		{args: []string{"--net", "learn", "--env", "TOKEN", "--learn-with-secrets"}},
		{file: "net = learn\n", want: "is no setting to keep; give --net learn to the run"},
		{file: "net = learn\n", args: []string{"--net", "gated"}},
		{file: "[profile x]\nnet = learn\n", args: []string{"--profile", "x"}, want: "is no setting to keep"},
		{env: "learn", want: "net = learn (from AISB_NET)"},
		{project: "net = learn\n", want: "is not trusted"},
		{project: "net = learn\n", args: []string{"--trusted"}, want: "is no setting to keep"},
	} {
		s.write(s.config, tc.file)
		s.env["AISB_NET"] = tc.env
		if tc.env == "" {
			delete(s.env, "AISB_NET")
		}
		args := append([]string{"--print-policy"}, tc.args...)
		file := filepath.Join(s.project, config.ProjectFile)
		if err := os.RemoveAll(filepath.Dir(file)); err != nil {
			t.Fatal(err)
		}
		if tc.project != "" {
			s.write(file, tc.project)
		}
		if len(tc.args) > 0 && tc.args[0] == "--trusted" {
			args = []string{"--print-policy"}
			if code := s.do("trust", "--yes"); code != 0 {
				t.Fatalf("trust: %d %s", code, s.err.String())
			}
		}
		code := s.do(append(args, "--", "true")...)
		said, learns := s.err.String(), strings.Contains(s.out.String(), "LEARN")
		if tc.want == "" && (code != 0 || learns != (tc.file == "")) || tc.want != "" && (code == 0 || !strings.Contains(said, tc.want)) {
			t.Errorf("%+v: exit %d\n%s%s", tc, code, s.out.String(), said)
		}
	}
}
