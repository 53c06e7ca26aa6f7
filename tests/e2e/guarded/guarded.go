// Package guarded has what the tests of protected paths share on both runtimes:
// projects that have them, and what a project looks like before and after.
package guarded

import (
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
)

// Names are the protected paths of any project.
var Names = []string{
	".ai-sandbox", ".envrc", ".vscode", ".idea", ".devcontainer", ".mcp.json", ".claude", ".cursor", ".npmrc", ".pre-commit-config.yaml",
}

// InGit are those of a git directory.
var InGit = []string{".git/hooks", ".git/config", ".git/config.worktree", ".git/commondir", ".git/info/attributes"}

// Nested are those of the submodule and the worktree that Repository has.
var Nested = []string{
	".git/modules/lib/foo/hooks", ".git/modules/lib/foo/config", ".git/modules/lib/foo/config.worktree", ".git/modules/lib/foo/commondir", ".git/modules/lib/foo/info/attributes",
	".git/worktrees/fix/config.worktree", ".git/worktrees/fix/commondir", ".git/worktrees/fix/gitdir",
}

// Git runs git on the host, as a user who has no configuration.
func Git(dir string, args ...string) (string, error) {
	cmd := exec.Command("git", append([]string{"-c", "user.name=Test", "-c", "user.email=test@example.com", "-c", "protocol.file.allow=always", "-c", "init.defaultBranch=main"}, args...)...)
	cmd.Dir = dir
	cmd.Env = []string{"PATH=" + os.Getenv("PATH"), "HOME=/nonexistent", "GIT_CONFIG_NOSYSTEM=1", "GIT_CONFIG_GLOBAL=/dev/null"}
	out, err := cmd.CombinedOutput()
	if err != nil {
		return string(out), fmt.Errorf("git %s: %w: %s", strings.Join(args, " "), err, out)
	}
	return string(out), nil
}

// Fresh makes a repository with one commit.
func Fresh(dir string) error {
	for _, args := range [][]string{{"init", "-q"}, {"add", "-A"}, {"commit", "-q", "--allow-empty", "-m", "first"}} {
		if _, err := Git(dir, args...); err != nil {
			return err
		}
	}
	return nil
}

// Repository makes a repository that has every protected path, a submodule with a
// slash in its name, and a worktree beside it, whose directory it returns.
func Repository(dir string) (worktree string, err error) {
	if err := Fresh(dir); err != nil {
		return "", err
	}
	if _, err := Git(dir, "submodule", "--quiet", "add", "--name", "lib/foo", dir, "lib/foo"); err != nil {
		return "", err
	}
	worktree = filepath.Join(filepath.Dir(dir), "fix") // git calls it by that
	if _, err := Git(dir, "worktree", "add", "-q", worktree); err != nil {
		return "", err
	}
	for _, p := range append(slices.Clone(Names), InGit...) {
		full := filepath.Join(dir, p)
		if _, err := os.Lstat(full); err == nil || p == ".git/commondir" {
			continue
		}
		if strings.HasSuffix(p, "rc") || filepath.Ext(p) == ".json" || filepath.Ext(p) == ".yaml" || strings.HasPrefix(p, ".git/") {
			err = os.WriteFile(full, []byte("# mine\n"), 0o644)
		} else if err = os.Mkdir(full, 0o755); err == nil {
			err = os.WriteFile(filepath.Join(full, "settings.json"), []byte("{}\n"), 0o644)
		}
		if err != nil {
			return "", err
		}
	}
	return worktree, nil
}

// Tree is what a directory holds: a line for each path, with its mode and content.
func Tree(dir string) (map[string]string, error) {
	out := map[string]string{}
	err := filepath.WalkDir(dir, func(path string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		info, err := d.Info()
		if err != nil {
			return err
		}
		line := info.Mode().String()
		switch {
		case info.Mode().IsRegular():
			text, err := os.ReadFile(path)
			if err != nil {
				return err
			}
			sum := sha256.Sum256(text)
			line += " " + hex.EncodeToString(sum[:])
		case info.Mode()&fs.ModeSymlink != 0:
			to, err := os.Readlink(path)
			if err != nil {
				return err
			}
			line += " -> " + to
		}
		rel, err := filepath.Rel(dir, path)
		out[rel] = line
		return err
	})
	return out, err
}

// Below are those lines of a tree that are about the paths, or what is in them.
func Below(tree map[string]string, paths []string) map[string]string {
	out := map[string]string{}
	for p, line := range tree {
		if slices.ContainsFunc(paths, func(at string) bool { return p == at || strings.HasPrefix(p, at+"/") }) {
			out[p] = line
		}
	}
	return out
}

// Differences between two trees, a line each.
func Differences(before, after map[string]string) []string {
	var out []string
	for _, p := range slices.Sorted(maps.Keys(before)) {
		if after[p] != before[p] {
			out = append(out, fmt.Sprintf("%s: %s, and was %s", p, after[p], before[p]))
		}
	}
	for _, p := range slices.Sorted(maps.Keys(after)) {
		if _, ok := before[p]; !ok {
			out = append(out, fmt.Sprintf("%s: %s, and was not there", p, after[p]))
		}
	}
	return out
}
