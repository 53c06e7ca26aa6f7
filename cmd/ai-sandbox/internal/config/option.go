// Package config turns what the user set into one value for each option, each
// with where it came from: built-in, the user's file, the project's, the environment,
// a flag, in rising order. It is the only reader of the environment and of both files.
package config

import (
	"slices"
	"strings"

	"ai-sandbox/cmd/ai-sandbox/internal/harness"
	"ai-sandbox/policy"
)

// A Kind says how an option's value is read.
type Kind int

const (
	// Text is any value.
	Text Kind = iota
	// Bool is true or false.
	Bool
	// List adds up over the layers.
	List
	// Path is a file or directory; a leading ~/ is the user's home.
	Path
	// Script is a file that is run when the image is built: as Path, and in the
	// project's file one below the project, whose content is trusted with it.
	Script
)

// A Use says which verbs an option is for.
type Use uint

const (
	UseRun Use = 1 << iota
	UseUp
	UseBuild
	UseGate // gate up
	UseDoctor
	UseConfig
	UseInspect

	// UseStart is for whatever starts a sandbox or tells what one would be, and
	// UseImages for whatever stands on the images.
	UseStart  = UseRun | UseUp | UseConfig
	UseImages = UseStart | UseBuild | UseGate
)

// A Source says where an option may be set.
type Source uint

const (
	InFile    Source = 1 << iota // the user's file
	InProject                    // the project's, which the sandboxed command may have written
	InEnv
	InFlag

	anywhere = InFile | InProject | InEnv | InFlag
)

// An Option is one setting. Its key in a file, its variable and its flag have
// the same name in three spellings.
type Option struct {
	Key string
	Kind
	// Default is the built-in value. Defaults live here and nowhere else, or
	// the environment would beat a file by accident.
	Default string
	// Values are the only ones that are accepted.
	Values []string
	// Bare is the value of a flag that may stand without one.
	Bare string
	// Source says where it may be set; 0 is anywhere. What is about the user
	// and not the project (a path of his, a way around a check) leaves InProject
	// out: no trust lets a project's file say it.
	Source Source
	// Widens tells which values in a project's file let a run do more than the
	// layers below; a file with such a value has to be trusted. Without it any
	// change does, so a new row is safe as it is. The kinds are in widen.go:
	// tightTo for words from the tightest on, adding for a list that only
	// grants, atMost for a limit.
	Widens Widening
	Use    Use
	// Topic groups options in the help, Arg names the value there, and Usage
	// is the sentence.
	Topic, Arg, Usage string
}

// Options is the table of all settings, in the order of the help.
var Options = []Option{
	{Key: "allow", Kind: List, Widens: hosts, Use: UseStart | UseGate, Topic: "network", Arg: "HOST",
		Usage: "let HOST through: a host, .DOMAIN (and all below it), an address or range; :PORT where it is neither 80 nor 443; repeat for more"},
	{Key: "allow_private", Kind: List, Source: InFile | InProject | InFlag, Widens: hosts, Use: UseStart | UseGate, Topic: "network", Arg: "HOST",
		Usage: "as --allow, and HOST may lead to a private or loopback address"},
	{Key: "net", Values: []string{"gated", "unix", "none", "host", policy.NetLearn}, Widens: networks, Use: UseStart, Topic: "network", Arg: "MODE",
		Usage: "gated (hosts on the list only), unix (the same without a network device; the local runtime's), none, host (local runtime only: nothing is shut), or learn (on the command line only: every public host is let through, and told at the end as a list to look at)"},
	{Key: "learn_with_secrets", Kind: Bool, Default: "false", Source: InFlag, Use: UseRun | UseUp, Topic: "network",
		Usage: "let --net learn run although the command gets secrets, which it can then send anywhere"},
	{Key: "gate_engine", Values: []string{"squid", "builtin"}, Use: UseStart, Topic: "network", Arg: "NAME",
		Usage: "what the gate is: squid (podman's runtime) or builtin (the local one), unless named"},
	{Key: "gate", Use: UseStart, Topic: "network", Arg: "NAME",
		Usage: "use the gate that \"gate up NAME\" made, with its list"},
	{Key: "upstream_proxy", Source: InFile | InEnv | InFlag, Use: UseStart | UseGate | UseDoctor, Topic: "network", Arg: "URL",
		Usage: "let the gate go through the proxy http://HOST:PORT, which alone resolves public names; what allow_private names is connected to directly"},
	{Key: "upstream_auth_file", Kind: Path, Source: InFile | InEnv | InFlag, Use: UseStart | UseGate | UseDoctor, Topic: "network", Arg: "FILE",
		Usage: "show it the user:password in FILE, which you alone can read; neither is seen inside"},
	{Key: "publish", Kind: List, Widens: adding, Use: UseStart, Topic: "network", Arg: "PORT",
		Usage: "let this machine reach TCP port PORT inside: PORT, HOST_PORT:PORT, ADDRESS:HOST_PORT:PORT, or :PORT for a free host port; repeat for more"},
	{Key: "publish_addr", Source: InFile | InEnv | InFlag, Use: UseStart, Topic: "network", Arg: "ADDRESS",
		Usage: "publish at ADDRESS where an entry names none, instead of 127.0.0.1"},
	{Key: "env", Kind: List, Widens: variables, Use: UseStart | UseInspect, Topic: "environment", Arg: "NAME",
		Usage: "pass the variable NAME; NAME=VALUE sets a public constant that printouts show, so not for secrets; repeat for more"},
	{Key: "env_file", Kind: List, Source: InFile | InEnv | InFlag, Use: UseStart | UseInspect, Topic: "environment", Arg: "FILE",
		Usage: "pass the variables of FILE, which hold secrets: lines NAME=value in a file that you alone can read; repeat for more"},
	{Key: "ephemeral_home", Kind: Bool, Default: "false", Widens: tightTo("true", "false"), Use: UseStart, Topic: "environment",
		Usage: "a home that ends with the run, not the project's own"},
	{Key: "fs", Default: "rw", Values: []string{"rw", "ro"}, Widens: tightTo("ro", "rw"), Use: UseStart, Topic: "files", Arg: "MODE",
		Usage: "mount the project rw (read-write) or ro (read-only)"},
	{Key: "unprotect", Kind: List, Widens: adding, Use: UseStart, Topic: "files", Arg: "PATH",
		Usage: "let the command change PATH, which is read-only in a writable project since tools on this machine run or obey it (.git/hooks, .envrc, ...); repeat for more"},
	{Key: "workdir", Default: "auto", Use: UseStart, Topic: "files", Arg: "PATH",
		Usage: "where the project is inside: auto (its own path, or /project where that would hide something of the sandbox), or PATH"},
	{Key: "no_cwd", Kind: Bool, Default: "false", Use: UseStart, Topic: "files",
		Usage: "mount no project; work in /project, which is empty and ends with the run"},
	{Key: "mount", Kind: List, Use: UseStart, Topic: "files", Arg: "MOUNT",
		Usage: "SRC[:DST][:ro|rw]: show the directory or file SRC inside, at DST (unless named, the same path), read-only unless rw; repeat for more"},
	{Key: "agents", Kind: Bool, Default: "true", Widens: tightTo("false", "true"), Use: UseStart, Topic: "files",
		Usage: "show ~/.agents inside, read-only, if it is there; --no-agents does not"},
	{Key: "agents_dir", Kind: Path, Source: InFile | InEnv | InFlag, Use: UseStart, Topic: "files", Arg: "DIR",
		Usage: "show DIR instead"},
	{Key: "agents_dest", Default: policy.DefaultAgentsDest, Use: UseStart, Topic: "files", Arg: "PATH",
		Usage: "where that is inside"},
	{Key: "bind_harness_home", Kind: Bool, Default: "false", Source: InFile | InFlag, Use: UseStart, Topic: "files",
		Usage: "let the agent write its whole directory in your home: what it plants there, your own agent obeys later"},
	{Key: "thinking", Default: "xhigh", Values: append(slices.Clone(harness.Levels), policy.ThinkingHost), Use: UseStart | UseInspect, Topic: "agent", Arg: "LEVEL",
		Usage: "how much an agent reasons (" + strings.Join(harness.Reasoning(), ", ") + "); host leaves it to your own configuration of it"},
	{Key: "credentials", Values: []string{"env", "host"}, Source: InFile | InEnv | InFlag, Use: UseStart, Topic: "agent", Arg: "FROM",
		Usage: "how an agent is logged in: env (by a variable that --env passes), or host (by the file with its login in your home, that alone and read-only); unless named, host with the local runtime (not for pi) and env with podman's"},
	{Key: "harness_extra", Kind: List, Source: InFile | InEnv | InFlag, Use: UseStart, Topic: "agent", Arg: "PATH",
		Usage: "show a skill, a prompt or an extension of yours, a file or directory, read-only where the agent looks for it; repeat for more"},
	{Key: "pi_config", Kind: Bool, Default: "true", Use: UseStart | UseInspect, Topic: "agent",
		Usage: "give pi the providers, models and preferences of this machine's ~/.pi/agent, without their keys; --no-pi-config does not"},
	{Key: "pi_token_env", Default: "AI_API_TOKEN", Use: UseStart | UseInspect, Topic: "agent", Arg: "NAME",
		Usage: "pi's providers take their key from the variable NAME"},
	{Key: "memory", Widens: atMost(policy.LimitAmount(policy.ParseMemory)), Use: UseStart, Topic: "limits", Arg: "SIZE",
		Usage: "at most SIZE of memory, and no swap beyond it: 2g, 512m or bytes (units of 1024)"},
	{Key: "cpus", Widens: atMost(policy.LimitAmount(policy.ParseCPUs)), Use: UseStart, Topic: "limits", Arg: "N",
		Usage: "at most the time of N processors: 2, or 1.5"},
	{Key: "pids", Default: "4096", Widens: atMost(policy.LimitAmount(policy.ParsePids)), Use: UseStart, Topic: "limits", Arg: "N",
		Usage: "at most N processes and threads at a time; none lifts it"},
	{Key: "time", Widens: atMost(policy.LimitAmount(policy.ParseTime)), Use: UseStart, Topic: "limits", Arg: "DURATION",
		Usage: "end the command after DURATION (90s, 2h30m), with exit code 124"},
	{Key: "disk", Default: "3g", Widens: atMost(policy.LimitAmount(policy.ParseDisk)), Use: UseStart, Topic: "limits", Arg: "SIZE",
		Usage: "at most SIZE in /tmp and /var/tmp together, which are in memory"},
	{Key: "ca_file", Kind: Path, Use: UseImages, Topic: "image", Arg: "FILE",
		Usage: "trust the CA certificates in FILE (PEM) inside, and while the image is built"},
	{Key: "runtime", Default: "podman", Values: []string{"podman", "local"}, Use: UseImages | UseDoctor, Topic: "runtime", Arg: "NAME",
		Usage: "what isolates the run: podman (a container), or local (bubblewrap, no image)"},
	{Key: "insecure_keep_root", Kind: Bool, Default: "false", Source: InFile | InEnv | InFlag, Widens: tightTo("false", "true"), Use: UseStart, Topic: "runtime",
		Usage: "leave the command at uid 0 of the container (podman's runtime only), with no capability and the same filter and ruleset; for tools that insist on root"},
	{Key: "profile", Use: UseStart | UseDoctor, Topic: "runtime", Arg: "NAME",
		Usage: "the settings of profile NAME, which lie over the file's own (see Configuration)"},
	{Key: "ignore_project_config", Kind: Bool, Default: "false", Source: InFlag, Use: UseStart | UseBuild, Topic: "files",
		Usage: "run without what the project's .ai-sandbox/config says"},
	{Key: "base", Default: "docker.io/library/debian:trixie-slim", Use: UseImages, Topic: "image", Arg: "REF",
		Usage: "the image that ours is built on"},
	{Key: "base_ttl_days", Default: "7", Use: UseImages, Topic: "image", Arg: "DAYS",
		Usage: "ask what the base's tag leads to when the answer on record is DAYS old: 0 is at every build, -1 never"},
	{Key: "base_auto_update", Kind: Bool, Default: "true", Use: UseImages, Topic: "image",
		Usage: "whether builds replace a pinned base that is past base_ttl_days; the verb update does in any case"},
	{Key: "base_pull_fallback", Kind: Bool, Default: "true", Use: UseImages, Topic: "image",
		Usage: "let podman pull the base where its registry does not tell what its tag leads to"},
	{Key: "node_version", Default: "", Use: UseImages, Topic: "image", Arg: "VERSION",
		Usage: "the version of Node in the image"},
	{Key: "node_mirror", Default: "https://nodejs.org/dist", Use: UseImages, Topic: "image", Arg: "URL",
		Usage: "where Node is fetched from"},
	{Key: "harness_packages", Default: harness.Default, Use: UseStart | UseBuild, Topic: "image", Arg: "NAME,...",
		Usage: "the agents in the image: " + strings.Join(harness.Packaged(), ", ") + ", or several of them"},
	{Key: "apt", Kind: List, Use: UseStart | UseBuild, Topic: "image", Arg: "PKG",
		Usage: "Debian package PKG in the image, or PKG=VERSION; repeat for more"},
	{Key: "setup", Kind: Script, Use: UseStart | UseBuild, Topic: "image", Arg: "SCRIPT",
		Usage: "run the file SCRIPT as root at the end of the image's build; in a project's file it is a path in the project"},
	{Key: "node_keyring", Kind: Path, Source: InFile | InEnv | InFlag, Use: UseImages, Topic: "image", Arg: "FILE",
		Usage: "take a Node that ai-sandbox has no checksum of only with a list of checksums that a key in FILE has signed (a keyring, as gpg --export writes it)"},
	{Key: "cache_dir", Kind: Path, Source: InFile | InEnv | InFlag, Use: UseImages, Topic: "image", Arg: "DIR",
		Usage: "where downloads and pins are kept"},
	{Key: "print_policy", Values: []string{"text", "json"}, Bare: "text", Source: InFlag, Use: UseRun, Topic: "look first", Arg: "[=json]",
		Usage: "print what would be allowed; start nothing"},
	{Key: "dry_run", Kind: Bool, Default: "false", Source: InFlag, Use: UseRun, Topic: "look first",
		Usage: "print that and every configuration that would be used; start nothing"},
	{Key: "print_entrypoint", Kind: Bool, Default: "false", Source: InFlag, Use: UseRun, Topic: "look first",
		Usage: "print the ruleset inside, in nft syntax"},
	{Key: "print_containerfile", Kind: Bool, Default: "false", Source: InFlag, Use: UseRun, Topic: "look first",
		Usage: "print what the image is built from"},
	{Key: "report", Kind: Path, Source: InFlag, Use: UseRun, Topic: "output", Arg: "FILE",
		Usage: "write to FILE, as JSON, how the run ended and why"},
	{Key: "keep", Kind: Bool, Default: "false", Source: InFlag, Use: UseRun, Topic: "output",
		Usage: "leave the container, and a home of the run's own, when the run has ended, for looking into; ai-sandbox rm removes them"},
	{Key: "sessions_days", Default: "30", Source: InFile | InEnv | InFlag, Use: UseStart | UseDoctor, Topic: "output", Arg: "DAYS",
		Usage: "keep what is known of an ended session (ai-sandbox ls) for DAYS; none is for ever"},
	{Key: "sessions_size", Default: "256m", Source: InFile | InEnv | InFlag, Use: UseStart | UseDoctor, Topic: "output", Arg: "SIZE",
		Usage: "keep at most SIZE of that, the oldest goes first; none is any"},
}

// Lookup finds an option by its key.
func Lookup(key string) (Option, bool) {
	i := slices.IndexFunc(Options, func(o Option) bool { return o.Key == key })
	if i < 0 {
		return Option{}, false
	}
	return Options[i], true
}

// Env is the option's variable.
func (o Option) Env() string { return EnvPrefix + strings.ToUpper(o.Key) }

// Flag is the option's flag, without dashes.
func (o Option) Flag() string { return strings.ReplaceAll(o.Key, "_", "-") }

// In tells whether the option may be set in a source.
func (o Option) In(s Source) bool {
	return o.Source == 0 && anywhere&s != 0 || o.Source&s != 0
}

// Near returns the candidate that s is most likely a misspelling of, or "": at
// an edit distance of one, or two where the words are long enough for that to
// say something (pi has --export, which is two from --report). Swapped
// neighbours count as one edit.
func Near(s string, candidates []string) string {
	best, bestDist := "", 3
	for _, c := range candidates {
		limit := 1
		if min(len(s), len(c)) >= 7 {
			limit = 2
		}
		if len(s) < 3 || s == c {
			continue
		}
		if d := distance(s, c); d <= limit && d < bestDist {
			best, bestDist = c, d
		}
	}
	return best
}

// distance is the optimal string alignment distance, in bytes.
func distance(a, b string) int {
	if len(a) > len(b)+2 || len(b) > len(a)+2 {
		return 3 // more than anyone asks about
	}
	var before, prev []int
	cur := make([]int, len(b)+1)
	for j := range cur {
		cur[j] = j
	}
	for i := 1; i <= len(a); i++ {
		before, prev, cur = prev, cur, make([]int, len(b)+1)
		cur[0] = i
		for j := 1; j <= len(b); j++ {
			cost := 1
			if a[i-1] == b[j-1] {
				cost = 0
			}
			cur[j] = min(prev[j]+1, cur[j-1]+1, prev[j-1]+cost)
			if i > 1 && j > 1 && a[i-1] == b[j-2] && a[i-2] == b[j-1] {
				cur[j] = min(cur[j], before[j-2]+1)
			}
		}
	}
	return cur[len(b)]
}
