// The proxy that this machine is behind, and the file with what it is shown.

package cli

import (
	"errors"
	"fmt"
	"path/filepath"
	"slices"
	"strings"

	"ai-sandbox/cmd/ai-sandbox/internal/config"
	"ai-sandbox/cmd/ai-sandbox/internal/host"
	"ai-sandbox/policy"
)

// upstream is the proxy of the settings, or nil, and what the gate shows it.
func (a *app) upstream(s config.Settings, home string) (*policy.Upstream, policy.Secret, error) {
	none := policy.Secret{}
	given := s.Text("upstream_proxy")
	items := s["upstream_auth_file"]
	auth := len(items) > 0 && items[0].Value != ""
	if given == "" {
		if auth {
			return nil, none, policy.About(errors.New("upstream_auth_file has no use without upstream_proxy; name that, or drop it"), "upstream_auth_file")
		}
		return nil, none, nil
	}
	u, err := policy.ParseUpstream(given)
	if err != nil {
		return nil, none, policy.About(err, "upstream_proxy")
	}
	if !auth {
		return &u, none, nil
	}
	secret, err := a.readUpstreamAuth(items[0], home)
	if err != nil {
		return nil, none, policy.About(err, "upstream_auth_file")
	}
	u.Credentials = true
	return &u, secret, nil
}

// authPath is the file that an item of upstream_auth_file names.
func (a *app) authPath(it config.Item, home string) string {
	path := it.Value
	if rest, ok := strings.CutPrefix(path, "~/"); ok {
		path = filepath.Join(home, rest)
	}
	if !filepath.IsAbs(path) {
		path = filepath.Join(a.cwd, path)
	}
	return path
}

// readUpstreamAuth reads what an item of upstream_auth_file names, and has it hidden.
func (a *app) readUpstreamAuth(it config.Item, home string) (policy.Secret, error) {
	path := a.authPath(it, home)
	f, err := host.ReadSecretFile("upstream_auth_file", path, policy.MaxUpstreamAuth)
	if err != nil {
		return policy.Secret{}, err
	}
	a.files = append(a.files, envFile{f, path, it.Origin, "upstream_auth_file"})
	secret, err := policy.ParseUpstreamAuth(f.Data)
	if err != nil {
		return secret, fmt.Errorf("upstream_auth_file %s %w", quote(path), err)
	}
	_, password, _ := strings.Cut(secret.Reveal(), ":")
	a.upstreamAuth = []policy.Secret{secret, policy.NewSecret(policy.UpstreamAuth, password)}
	return secret, nil
}

// throughUpstream sets the proxy of a run: that of the settings, or the one that a named
// gate was made with.
func (a *app) throughUpstream(in *policy.Input, s setup) error {
	if in.GateName == "" {
		u, auth, err := a.upstream(s.settings, s.Facts.Home)
		in.Upstream, a.auth = u, auth
		return err
	}
	if err := fixedProxy(s.settings, in.GateName); err != nil {
		return err
	}
	if n, err := a.engine.GateNet(s.Machine, in.GateName); err == nil { // else its lists' error says it
		in.Upstream = n.Upstream
	}
	return nil
}

// fixedProxy refuses a flag that would have no effect on a gate that is there.
func fixedProxy(s config.Settings, gate string) error {
	for _, key := range []string{"upstream_proxy", "upstream_auth_file"} {
		for _, it := range s[key] {
			if strings.HasPrefix(it.Origin, "--") {
				return fmt.Errorf("the proxy of gate %s was fixed when it was made; give %s to \"gate up\" instead", quote(gate), it.Origin)
			}
		}
	}
	return nil
}

// checkUpstream asks the proxy of the settings, if there is one. A run is not refused for
// its answer: what need not be reached through it works all the same.
func (a *app) checkUpstream(s config.Settings, facts host.Facts) []host.Verdict {
	v := host.Verdict{Name: "upstream proxy"}
	u, auth, err := a.upstream(s, facts.Home)
	switch {
	case err != nil:
		v.Problem, v.Fix = placed(s, err).Error(), "ai-sandbox config"
		var about *policy.AboutError
		if items := s["upstream_auth_file"]; s.Text("upstream_proxy") != "" && errors.As(err, &about) && slices.Contains(about.Settings, "upstream_auth_file") {
			v.Fix = "ls -l " + quote(a.authPath(items[0], facts.Home))
		}
		return []host.Verdict{v}
	case u == nil:
		return nil
	}
	v.Detail = u.URL() + " answers"
	answer, err := a.engine.AskUpstream(a.ctx, Machine{Facts: facts, UpstreamAuth: auth}, *u)
	if v.Info = err == nil && answer != nil; v.Info {
		err = answer
	}
	if err != nil {
		v.Problem, v.Fix = u.URL()+": "+err.Error(), "ai-sandbox doctor --upstream-proxy http://HOST:PORT --upstream-auth-file FILE"
	}
	return []host.Verdict{v}
}
