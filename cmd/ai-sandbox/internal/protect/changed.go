// What has changed in the project when a run has ended, and is run or obeyed by
// tools on this machine: one walk, by the time of each file's status, which nobody
// can set (inode(7): only the kernel writes ctime).

package protect

import (
	"errors"
	"io"
	"maps"
	"os"
	"path"
	"slices"
	"strings"
	"sync"
	"time"
	"unicode/utf8"

	"golang.org/x/sys/unix"

	"ai-sandbox/cmd/ai-sandbox/internal/harness"
	"ai-sandbox/policy"
)

// A Change is a file that appeared or changed while a command ran. Path is relative
// to the project, or absolute in a worktree's git directory; what is not valid
// UTF-8 in it is escaped.
type Change struct {
	Path string `json:"path"`
	What string `json:"what"`
}

// What a Change can be, beside what the lists below name.
const (
	WhatReplaced  = "protected, and replaced or removed on this machine: from then on it was not held"
	WhatProtected = "protected, and changed on this machine or through another name"
	WhatUnheld    = "could not be held"
	WhatSocket    = "unix socket"
	WhatFIFO      = "FIFO"
	WhatDevice    = "device"
	WhatSetID     = "setuid or setgid program"

	whatGit      = "git obeys it"
	whatAgents   = "agents obey it"
	whatBuild    = "build tools run it"
	whatPackages = "package managers obey it"
	whatCI       = "continuous integration runs it"
	whatEditor   = "editors obey it"
	whatShell    = "shells and debuggers obey it"
	whatProgram  = "tools run what is in it, which was not looked at"
)

// names are files by their name, whatever they lie in.
var names = sync.OnceValue(func() map[string]string {
	out := map[string]string{}
	for what, list := range obeyed {
		for _, n := range strings.Fields(list) {
			out[n] = what
		}
	}
	_, files := harness.Obeyed()
	for _, n := range files {
		out[n] = whatAgents
	}
	return out
})

// dirs are directories with nothing in them but what is obeyed.
var dirs = sync.OnceValue(func() map[string]string {
	out := maps.Clone(obeyedDirs)
	list, _ := harness.Obeyed()
	for _, n := range list {
		out[n] = whatAgents
	}
	return out
})

// obeyedDirs are those that are not an adapter's to say.
var obeyedDirs = map[string]string{
	".github": whatCI, ".gitlab": whatCI, ".circleci": whatCI, ".buildkite": whatCI, ".woodpecker": whatCI, ".forgejo": whatCI, ".gitea": whatCI,
	".husky": whatGit, ".githooks": whatGit,
	".vscode": whatEditor, ".idea": whatEditor, ".devcontainer": whatEditor, ".zed": whatEditor, ".fleet": whatEditor,
	".cursor": whatAgents, ".agents": whatAgents, ".ai-sandbox": whatAgents,
	".yarn": whatPackages, ".cargo": whatPackages, ".mvn": whatBuild,
}

// closed are directories of programs that are too many to look at.
var closed = map[string]bool{"node_modules": true, ".venv": true, "venv": true}

// obeyed are the names, by who obeys them; those of the agents that there are adapters
// for are said there.
var obeyed = map[string]string{
	whatAgents: "AGENTS.md AGENT.md .cursorrules .windsurfrules .clinerules .mcp.json .aider.conf.yml",
	whatBuild: "Makefile makefile GNUmakefile justfile Justfile .justfile Taskfile.yml Taskfile.yaml Rakefile CMakeLists.txt CMakePresets.json meson.build configure configure.ac build.rs " +
		"build.gradle build.gradle.kts settings.gradle settings.gradle.kts gradlew gradle.properties gradle-wrapper.properties gradle-wrapper.jar pom.xml mvnw build.xml build.sbt BUILD BUILD.bazel WORKSPACE WORKSPACE.bazel MODULE.bazel .bazelrc " +
		"Dockerfile Containerfile docker-compose.yml docker-compose.yaml compose.yml compose.yaml Vagrantfile Tiltfile Procfile flake.nix shell.nix default.nix build.zig setup.py setup.cfg conftest.py noxfile.py tox.ini pytest.ini sitecustomize.py manage.py gulpfile.js Gruntfile.js",
	whatPackages: "package.json package-lock.json npm-shrinkwrap.json yarn.lock pnpm-lock.yaml pnpm-workspace.yaml bun.lock bun.lockb bunfig.toml deno.json deno.jsonc deno.lock .npmrc .yarnrc .yarnrc.yml .pnpmfile.cjs " +
		"Cargo.toml Cargo.lock go.mod go.sum go.work go.work.sum pyproject.toml poetry.lock uv.lock pdm.lock Pipfile Pipfile.lock requirements.txt constraints.txt Gemfile Gemfile.lock composer.json composer.lock flake.lock mix.exs mix.lock pubspec.yaml pubspec.lock Package.swift Package.resolved Podfile Podfile.lock",
	whatCI:     ".gitlab-ci.yml .travis.yml Jenkinsfile azure-pipelines.yml bitbucket-pipelines.yml appveyor.yml .appveyor.yml .drone.yml cloudbuild.yaml .cirrus.yml renovate.json",
	whatGit:    ".gitattributes .gitmodules .pre-commit-config.yaml .pre-commit-hooks.yaml lefthook.yml .lefthook.yml",
	whatEditor: ".editorconfig .exrc .vimrc .nvimrc .nvim.lua .lvimrc .dir-locals.el .projectile",
	whatShell:  ".envrc .env .tool-versions mise.toml .mise.toml .gdbinit .lldbinit .bashrc .profile .zshrc .inputrc .curlrc .wgetrc .npmignore .irbrc .pryrc .pythonrc .pdbrc",
}

// whatOf says what obeys a file of that name, or "".
func whatOf(name string) string {
	if what := names()[name]; what != "" {
		return what
	}
	ext := path.Ext(name)
	switch base := strings.TrimSuffix(name, ext); {
	case ext == ".mk", strings.HasPrefix(name, "Dockerfile."), strings.HasPrefix(name, "Containerfile."), ext == ".gradle", ext == ".cmake":
		return whatBuild
	case ext == ".code-workspace", ext == ".sublime-project":
		return whatEditor
	case ext == ".pth":
		return whatShell
	case (ext == ".txt" || ext == ".in") && strings.HasPrefix(base, "requirements"):
		return whatPackages
	case slices.Contains([]string{".js", ".cjs", ".mjs", ".ts", ".cts", ".mts"}, ext) && (strings.HasSuffix(base, ".config") || strings.HasPrefix(base, ".eslintrc") || strings.HasPrefix(base, ".prettierrc")):
		return whatBuild
	}
	return ""
}

// The bounds of the walk.
const (
	maxChanges  = 100
	maxEntries  = 100_000
	freeEntries = 2000 // which are looked at however long that takes
	walkTime    = 200 * time.Millisecond
	chunk       = 1024
)

// Findings are what a walk has found.
type Findings struct {
	Changes []Change
	// More counts what was found beyond Changes.
	More int
	// Partly: not everything was looked at.
	Partly bool
}

// Look walks the project, and the git directory of a worktree, when the run has
// ended: with the protected paths first. Where no command ran it does not.
func (h *Hold) Look() Findings {
	if !h.began {
		return Findings{}
	}
	w := walk{since: begin(h.since, time.Now()).Add(-slack).UnixNano(), until: time.Now().Add(walkTime), seen: map[string]bool{}, nests: map[string]bool{}, items: map[place]*item{}, obeyed: map[place]bool{}}
	for _, it := range h.items {
		w.items[place{root: it.root, path: it.path}] = it
	}
	w.configured(h.roots, h.home)
	for _, c := range h.Differences() {
		w.found(c.Path, c.What)
	}
	// What is obeyed as a whole comes first, then directories nearer to the top: when
	// time is up, it's the deepest that nobody has looked at.
	for _, r := range h.roots {
		w.add(place{root: r, path: ".", git: r.git})
	}
	for !w.over() {
		q := &w.queue
		if len(w.first) > 0 {
			q = &w.first
		}
		if len(*q) == 0 {
			break
		}
		next := (*q)[0]
		*q = (*q)[1:]
		w.dir(next)
	}
	if len(w.first)+len(w.queue) > 0 {
		w.Partly = true
	}
	// A directory goes without saying where something in it is named.
	named := slices.Clone(w.Changes)
	w.Changes = slices.DeleteFunc(w.Changes, func(c Change) bool {
		return w.nests[c.Path] && slices.ContainsFunc(named, func(in Change) bool { return strings.HasPrefix(in.Path, c.Path+"/") })
	})
	slices.SortStableFunc(w.Changes, func(a, b Change) int { return strings.Compare(a.Path, b.Path) })
	return w.Findings
}

// begin is when a run began, by the clock as it is now: where that was set back since,
// what the run has written may have a time before its start.
func begin(began, now time.Time) time.Time {
	back := now.Sub(began) - now.Round(0).Sub(began.Round(0)) // monotonic, and by the clock
	return began.Add(-max(back, 0))
}

// A place is a directory to look into. what is what obeys all that lies in it.
type place struct {
	root *root
	path string
	what string
	git  bool // it is what git calls a directory of its own
	// nest: it lies where git looks for those of submodules and worktrees.
	nest bool
}

type walk struct {
	Findings
	since   int64
	until   time.Time
	entries int
	first   []place
	queue   []place
	seen    map[string]bool
	nests   map[string]bool // directories among Changes, by their path
	items   map[place]*item // by root and path alone
	obeyed  map[place]bool  // by root and path alone: git's configuration leads there
}

// configured asks git's configuration as it is now where it leads.
func (w *walk) configured(roots []*root, home string) {
	var p Project
	for _, r := range roots {
		if !r.git {
			p, _ = Look(r.dir, home, nil) // what can't be looked at leads nowhere
		}
	}
	for _, r := range roots {
		paths := p.Tree.Obeyed
		if r.git {
			if paths = nil; p.Git != nil && p.Git.Root == r.dir {
				paths = p.Git.Obeyed
			}
		}
		for _, name := range paths {
			w.obeyed[place{root: r, path: name}] = true
		}
	}
}

func (w *walk) add(p place) {
	if p.git || p.nest || p.what != "" {
		w.first = append(w.first, p)
	} else {
		w.queue = append(w.queue, p)
	}
}

// over tells whether that was enough. Small trees are gone through whole, however little
// this process is let run.
func (w *walk) over() bool {
	return w.entries > maxEntries || w.entries > freeEntries && time.Now().After(w.until)
}

func (w *walk) found(p, what string) {
	if w.seen[p] {
		return
	}
	if len(w.Changes) == maxChanges {
		w.More++
		return
	}
	w.seen[p] = true
	if !utf8.ValidString(p) {
		p = policy.Printable(p)
	}
	w.Changes = append(w.Changes, Change{Path: p, What: what})
}

// dir looks at what is in one directory.
func (w *walk) dir(at place) {
	// No other file system: a project may have one that hangs. EXDEV says so.
	how := unix.OpenHow{
		Flags:   unix.O_RDONLY | unix.O_DIRECTORY | unix.O_NOFOLLOW | unix.O_CLOEXEC | unix.O_NONBLOCK,
		Resolve: unix.RESOLVE_BENEATH | unix.RESOLVE_NO_SYMLINKS | unix.RESOLVE_NO_MAGICLINKS | unix.RESOLVE_NO_XDEV,
	}
	fd, err := unix.Openat2(at.root.fd, at.path, &how)
	if errors.Is(err, unix.ENOENT) || errors.Is(err, unix.ENOTDIR) || errors.Is(err, unix.ELOOP) {
		return // gone
	}
	if err != nil {
		w.Partly = true
		return
	}
	f := os.NewFile(uintptr(fd), at.path)
	defer f.Close()
	var all []os.DirEntry
	for {
		entries, err := f.ReadDir(chunk)
		all = append(all, entries...)
		w.entries += len(entries)
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil || w.over() {
			w.Partly = true
			break
		}
	}
	if !at.git && gitDir(all) {
		at.git = true
	}
	for _, e := range all {
		w.entry(fd, at, e)
	}
}

// gitDir tells whether a directory is one of git's: git run in it, or led to it,
// obeys its configuration. With a commondir it has the rest elsewhere.
func gitDir(entries []os.DirEntry) bool {
	has := map[string]bool{}
	for _, e := range entries {
		has[e.Name()] = true
	}
	return has["HEAD"] && (has["commondir"] || has["objects"] && has["refs"])
}

// inert are directories of a git directory in which nothing is run or obeyed.
var inert = map[string]bool{"objects": true, "refs": true, "logs": true, "branches": true, "reftable": true, "rr-cache": true, "lfs": true, "annex": true}

// nested looks at a directory where git looks for those of submodules and
// worktrees: one that was not held there may have been moved as it is.
func (w *walk) nested(dir int, at place, name string) {
	p := path.Join(at.path, name)
	if s, err := look(dir, name); err == nil && s.changed >= w.since && !w.held(at.root, p) {
		w.nests[at.root.shown(p)] = true
		w.found(at.root.shown(p), whatGit)
	}
	w.add(place{root: at.root, path: p, nest: true})
}

// held tells whether a directory was mounted, or lies in what was read-only.
func (w *walk) held(r *root, p string) bool {
	if w.items[place{root: r, path: p}] != nil {
		return true
	}
	for p != "." {
		p = path.Dir(p)
		if it := w.items[place{root: r, path: p}]; it != nil {
			return it.target != "" && it.readOnly
		}
	}
	return false
}

// asBefore tells whether a read-only file is as it was when the command began: a
// placeholder has just been made then.
func (w *walk) asBefore(r *root, p string, s seen) bool {
	it := w.items[place{root: r, path: p}]
	return it != nil && it.readOnly && s.dev == it.before.dev && s.ino == it.before.ino && s.changed == it.before.changed
}

func (w *walk) entry(dir int, at place, e os.DirEntry) {
	name := e.Name()
	p := path.Join(at.path, name)
	what := at.what
	if w.obeyed[place{root: at.root, path: p}] {
		what = whatGit
	}
	if at.git && what == "" {
		switch name {
		case "config", "config.worktree", "hooks":
			what = whatGit
		case "info":
			if e.IsDir() {
				w.add(place{root: at.root, path: p, git: true})
				return
			}
		case "modules", "worktrees":
			if e.IsDir() {
				w.nested(dir, at, name)
				return
			}
			what = whatGit // a link leads there too
		case "attributes", "commondir", "gitdir", "alternates":
			what = whatGit
		case "rebase-merge", "rebase-apply", "sequencer":
			what = whatGit // commands for "git rebase --continue"
		case "objects":
			w.add(place{root: at.root, path: path.Join(p, "info"), git: true})
			return
		default:
			if e.IsDir() {
				if at.nest && !inert[name] {
					w.nested(dir, at, name)
				}
				return
			}
		}
	}
	if at.nest && !at.git {
		if e.IsDir() {
			w.nested(dir, at, name)
			return
		}
		what = whatGit
	}
	if what == "" && !at.git {
		if what = dirs()[name]; what == "" && !e.IsDir() {
			what = whatOf(name)
		}
	}
	if e.IsDir() {
		switch {
		case closed[name]:
			if w.changed(dir, name) {
				w.found(at.root.shown(p), whatProgram)
			}
		case name == ".git":
			w.add(place{root: at.root, path: p, git: true})
		default:
			w.add(place{root: at.root, path: p, what: what})
		}
		return
	}
	switch {
	case name == ".git":
		what = whatGit // it leads to a git directory
	case what == whatGit && path.Ext(name) == ".sample":
		return // githooks(5): it is not run
	}
	s, err := look(dir, name)
	if err != nil || s.changed < w.since || w.asBefore(at.root, p, s) {
		return // gone, or as it was
	}
	switch s.mode & unix.S_IFMT {
	case unix.S_IFSOCK:
		what = WhatSocket
	case unix.S_IFIFO:
		what = WhatFIFO
	case unix.S_IFCHR, unix.S_IFBLK:
		what = WhatDevice
	case unix.S_IFREG:
		if s.mode&(unix.S_ISUID|unix.S_ISGID) != 0 && s.mode&0o111 != 0 {
			what = WhatSetID
		}
	}
	if what != "" {
		w.found(at.root.shown(p), what)
	}
}

// changed tells whether a directory's own entries have changed.
func (w *walk) changed(dir int, name string) bool {
	s, err := look(dir, name)
	return err == nil && s.changed >= w.since
}
