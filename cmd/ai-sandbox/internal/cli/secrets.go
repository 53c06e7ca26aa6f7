// The values that a run passes on to its command, and hiding them in everything
// that is said. The command's own output is the user's, and stays as it is.

package cli

import (
	"errors"
	"fmt"
	"io"
	"path/filepath"
	"slices"
	"strings"

	"ai-sandbox/cmd/ai-sandbox/internal/config"
	"ai-sandbox/cmd/ai-sandbox/internal/harness"
	"ai-sandbox/cmd/ai-sandbox/internal/host"
	"ai-sandbox/policy"
)

// passed is what is known of the values.
type passed struct {
	// redact hides them; settled: the settings have said which they are.
	redact  *policy.Redactor
	settled bool
	// said is what the settings are put together from, once it is read.
	said *config.Layers
	// values are those of the policy's variables that it does not hold.
	values map[string]policy.Secret
	// files are the files with secrets, each with its path as it was given.
	files []envFile
	// upstreamAuth are the credentials for the upstream proxy, and the password in them.
	upstreamAuth []policy.Secret
	// auth is those of this run.
	auth policy.Secret
}

type envFile struct {
	host.SecretFile
	path, origin, key string
}

// text hides secrets in what is about to be shown.
func (a *app) text(s string) string { return a.redactor().Text(s) }

// kept hides secrets in a stream that is written down.
func (a *app) kept(w io.Writer) io.WriteCloser { return a.redactor().Writer(w) }

// A printout is standard output for what we print. It holds back what may be the
// beginning of a secret.
type printout struct {
	a *app
	w *policy.Writer
}

func (p *printout) Write(b []byte) (int, error) {
	if p.w == nil {
		p.w = p.a.redactor().Writer(p.a.std.Out)
	}
	return p.w.Write(b) //nolint:wrapcheck // the file's own error, as of any writer
}

// flush writes what was held back.
func (p *printout) flush() error {
	if p.w == nil {
		return nil
	}
	err := p.w.Close()
	p.w = nil // what follows may have other secrets
	if err != nil {
		return fmt.Errorf("write to standard output: %w", err)
	}
	return nil
}

// notices is standard error for what we say, one Write by itself.
type notices struct{ a *app }

func (n notices) Write(b []byte) (int, error) {
	if _, err := io.WriteString(n.a.std.Err, n.a.text(string(b))); err != nil {
		return 0, err //nolint:wrapcheck // the file's own error, as of any writer
	}
	return len(b), nil
}

func (a *app) redactor() *policy.Redactor {
	if !a.settled {
		a.suspect()
	}
	return a.redact
}

// hide learns the secrets: the variables that --env names, those of env_files,
// and the harnesses' tokens.
func (a *app) hide(env []string, files []policy.Secret, tokens bool) {
	list := append(proxySecrets(a.env), a.upstreamAuth...)
	for _, name := range env {
		if !strings.Contains(name, "=") {
			list = append(list, policy.NewSecret(name, a.env[name]))
		}
	}
	for _, h := range harness.Table {
		if tokens && h.Token != "" {
			list = append(list, policy.NewSecret(h.Token, a.env[h.Token]))
		}
	}
	a.redact, a.settled = policy.NewRedactor(append(list, files...)), true
}

// suspect hides whatever any layer names, the profiles that were not chosen
// included: as long as it is not settled what counts, better one too many.
func (a *app) suspect() {
	said := a.said
	if said == nil {
		said = a.overheard()
	}
	var names []string
	var files []policy.Secret
	for _, it := range said.Items() {
		switch it.Key {
		case "env", "pi_token_env":
			names = append(names, it.Value)
		case "upstream_proxy":
			files = append(files, refusedProxy(it.Value)...)
		case "upstream_auth_file":
			_, _ = a.readUpstreamAuth(it, a.env.Dirs(host.UserHome()).Home) // likewise
		case "env_file":
			list, _ := a.readEnvFiles([]config.Item{it}, a.env.Dirs(host.UserHome()).Home) // policy reports it
			files = append(files, list...)
		}
	}
	a.hide(names, files, true)
}

// overheard are the layers before they are read properly, without a judgement: the
// command line may make no sense, and the project is not known.
func (a *app) overheard() *config.Layers {
	var l config.Layers
	l.User, _ = config.ReadFile(a.userFile())
	l.Env, _ = config.FromEnviron(a.env)
	for i, arg := range a.args {
		if arg == "--" {
			break
		}
		name, value, ok := strings.Cut(arg, "=")
		if !ok && i+1 < len(a.args) {
			value = a.args[i+1]
		}
		if name == "--env" || name == "--env-file" || name == "--pi-token-env" || name == "--upstream-proxy" || name == "--upstream-auth-file" {
			l.Flags = append(l.Flags, config.Item{Key: strings.ReplaceAll(name[2:], "-", "_"), Value: value, Origin: name})
		}
	}
	return &l
}

// heard takes the layers for what may name a secret, instead of what was overheard.
func (a *app) heard(l config.Layers) { a.said, a.settled = &l, false }

// readEnvFiles reads what the items of env_file name. Of the same name in two of
// them, the later counts.
func (a *app) readEnvFiles(items []config.Item, home string) ([]policy.Secret, error) {
	var out []policy.Secret
	var errs []error
	a.files = nil
	for _, it := range items {
		path := it.Value
		if rest, ok := strings.CutPrefix(path, "~/"); ok {
			path = filepath.Join(home, rest)
		}
		typed := strings.HasPrefix(it.Origin, "--") || strings.HasPrefix(it.Origin, config.EnvPrefix)
		if !filepath.IsAbs(path) {
			if !typed {
				errs = append(errs, fmt.Errorf("env_file %s is not an absolute path (from %s); begin it with / or ~/", quote(it.Value), it.Origin))
				continue
			}
			path = filepath.Join(a.cwd, path)
		}
		f, err := host.ReadSecretFile("env_file", path, policy.MaxEnvFile)
		if err != nil {
			errs = append(errs, fmt.Errorf("%w (from %s)", err, it.Origin))
			continue
		}
		a.files = append(a.files, envFile{f, path, it.Origin, "env_file"})
		list, err := policy.ParseEnvFile(quote(path), f.Data)
		if err != nil {
			errs = append(errs, err)
		}
		for _, secret := range list {
			out = slices.DeleteFunc(out, func(o policy.Secret) bool { return o.Name() == secret.Name() })
			out = append(out, secret)
		}
	}
	return out, errors.Join(errs...)
}

// settle looks up the values of the policy's variables, and refuses what can't be
// passed on or hidden, and an env_file that a sandbox can write.
func (a *app) settle(p policy.Policy, s setup, files []policy.Secret) error {
	a.values = map[string]policy.Secret{}
	for _, e := range p.Env {
		if e.Passed() && e.From != policy.FromFile {
			a.values[e.Name] = policy.NewSecret(e.Name, a.env[e.Name])
		}
	}
	for _, f := range files {
		a.values[f.Name()] = f
	}
	secrets := append(proxySecrets(a.env), a.upstreamAuth...)
	for _, e := range p.Env {
		if e.Secret {
			secrets = append(secrets, a.values[e.Name])
		}
	}
	a.redact = policy.NewRedactor(secrets)
	errs := []error{p.CheckSecrets(a.values)}
	// Where this sandbox or another one writes.
	dirs := []string{p.Project, s.Facts.Dirs.State, s.Facts.Dirs.Store}
	for _, m := range p.Mounts {
		if m.Kind == policy.KindBind && !m.ReadOnly {
			dirs = append(dirs, m.Source)
		}
	}
	for _, f := range a.files {
		if d := f.Within(dirs); d != "" {
			errs = append(errs, fmt.Errorf("%s %s lies in %s or leads through it, where a sandbox writes; keep it elsewhere (from %s)", f.key, quote(f.path), quote(d), f.origin))
		}
	}
	return errors.Join(errs...)
}
