// The program lock writes the lock file of an agent, at the version that its adapter has:
// `make lock AGENT=name`. It asks the registry that npm of this machine is set up for, by npm, and
// leaves out what would name one.
package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"

	"ai-sandbox/cmd/ai-sandbox/internal/harness"
)

func main() {
	if err := lock(context.Background(), os.Args[1:], os.Stderr); err != nil {
		fmt.Fprintf(os.Stderr, "lock: %v\n", err)
		os.Exit(1)
	}
}

// strip is JavaScript that takes out of a lock file what holds addresses and the packages
// that are named, and keeps npm's own order, so that a difference is one of packages.
const strip = `const fs = require("fs"), file = "package-lock.json", lock = JSON.parse(fs.readFileSync(file));
for (const [at, p] of Object.entries(lock.packages)) {
	delete p.funding; delete p.resolved; delete p.deprecated;
	if (p.optional && process.argv.slice(1).some(name => at == "node_modules/" + name)) delete lock.packages[at];
}
fs.writeFileSync(file, JSON.stringify(lock, null, 2) + "\n");`

// lock takes the directory of the package harness, and an agent's name.
func lock(ctx context.Context, args []string, out io.Writer) error {
	if len(args) != 2 {
		return errors.New("name one agent: make lock AGENT=name")
	}
	h, ok := harness.Lookup(args[1])
	if !ok || h.Package == "" {
		return fmt.Errorf("npm has no package of %+.40q; those that it has are %s", args[1], strings.Join(harness.Packaged(), ", "))
	}
	dir, err := os.MkdirTemp("", "aisb-lock-")
	if err != nil {
		return err
	}
	defer func() { _ = os.RemoveAll(dir) }() // in the machine's temporary directory
	p := h.Installed()
	pkg := p.PackageJSON(p.Version)
	if err := os.WriteFile(filepath.Join(dir, "package.json"), pkg, 0o600); err != nil {
		return err
	}
	for _, words := range [][]string{
		{"npm", "install", "--package-lock-only", "--omit-lockfile-registry-resolved", "--ignore-scripts", "--no-audit", "--no-fund", "--no-update-notifier"},
		append([]string{"node", "-e", strip}, p.Unwanted...),
	} {
		cmd := exec.CommandContext(ctx, words[0], words[1:]...) //nolint:gosec // the two above
		cmd.Dir, cmd.Stdout, cmd.Stderr = dir, out, out
		if err := cmd.Run(); err != nil {
			return fmt.Errorf("run %s: %w", words[0], err)
		}
	}
	text, err := os.ReadFile(filepath.Join(dir, "package-lock.json"))
	if err != nil {
		return err
	}
	if _, err := p.ParseLock(pkg, text); err != nil {
		return err
	}
	if bytes.Contains(text, []byte("://")) {
		return fmt.Errorf("the lock file of %s has an address where none is known: take that out, too", h.Name)
	}
	return os.WriteFile(filepath.Join(args[0], harness.LockFile(h.Name)), text, 0o644) //nolint:gosec // a source file
}
