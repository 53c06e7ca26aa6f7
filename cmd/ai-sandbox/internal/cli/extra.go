// What a user shows an agent of his own: a mount whose place the agent decides.

package cli

import (
	"errors"
	"fmt"
	"path/filepath"
	"strings"

	"ai-sandbox/cmd/ai-sandbox/internal/config"
	"ai-sandbox/cmd/ai-sandbox/internal/harness"
	"ai-sandbox/cmd/ai-sandbox/internal/host"
	"ai-sandbox/policy"
)

// extra is one entry of harness_extra.
func (a *app) extra(it config.Item, name string, f host.Facts, written []string) (policy.BindRequest, host.Source, error) {
	none := policy.BindRequest{}
	path := it.Value
	if rest, ok := strings.CutPrefix(path, "~/"); ok {
		path = filepath.Join(f.Home, rest)
	} else if !filepath.IsAbs(path) {
		if !strings.HasPrefix(it.Origin, "--") {
			return none, host.Source{}, errors.New("begin it with / or ~/")
		}
		path = filepath.Join(a.cwd, path)
	}
	src, err := host.FindSource(path)
	if err != nil {
		return none, src, reason(err)
	}
	if err := unled("harness_extra", path, src.Path, written); err != nil {
		return none, src, err
	}
	if agent, ok := harness.LoginIn(f.Home, src.Path, host.Resolve); ok {
		return none, src, fmt.Errorf("%s's login is in it or below it, and an agent reads all of it; name the skill, prompt or extension alone", agent)
	}
	h, ok := harness.Lookup(name)
	if !ok {
		return none, src, errors.New("it is for an agent, and a command after -- is none; use --mount")
	}
	kind := kindOfExtra(src)
	if kind == "" {
		return none, src, errors.New("it is no skill (a directory with SKILL.md), prompt (.md) or extension (.ts, .js, package.json)")
	}
	place := h.Place(kind, filepath.Base(src.Path))
	if place == "" {
		return none, src, fmt.Errorf("%s has no place for a user's own %s that is known here; use --mount", h.Name, kind)
	}
	return policy.BindRequest{Source: src.Path, Dir: src.Dir, ID: src.ID, Target: policy.HomeDir + "/" + place, Why: policy.WhyExtra, Origin: it.Origin}, src, nil
}

// kindOfExtra tells by names what a file or directory is, or "".
func kindOfExtra(src host.Source) harness.Extra {
	if !src.Dir {
		switch filepath.Ext(src.Path) {
		case ".md":
			return harness.Prompt
		case ".ts", ".js":
			return harness.Extension
		}
		return ""
	}
	has := func(pattern string) bool {
		found, err := filepath.Glob(filepath.Join(escapeGlob(src.Path), pattern))
		return err == nil && len(found) > 0
	}
	switch {
	case has("SKILL.md"):
		return harness.Skill
	case has("package.json"), has("index.[tj]s"):
		return harness.Extension
	case has("*.md"):
		return harness.Prompts
	}
	return ""
}

// escapeGlob takes a path as it is (see filepath.Match).
func escapeGlob(path string) string {
	return strings.NewReplacer(`\`, `\\`, "*", `\*`, "?", `\?`, "[", `\[`).Replace(path)
}
