// The passwords of network proxies, which a build and its programs are told.

package cli

import (
	"net/url"
	"strings"

	"ai-sandbox/cmd/ai-sandbox/internal/config"
	"ai-sandbox/policy"
)

var proxyVariables = []string{"http_proxy", "HTTP_PROXY", "https_proxy", "HTTPS_PROXY", "ftp_proxy", "FTP_PROXY", "all_proxy", "ALL_PROXY"}

// proxySecrets are the passwords in the variables that name proxies, as they stand there
// and as they are meant.
func proxySecrets(env config.Environ) []policy.Secret {
	var out []policy.Secret
	for _, name := range proxyVariables {
		// Without a scheme, as curl takes it, it is no URL.
		_, rest, ok := strings.Cut(env[name], "://")
		if !ok {
			rest = env[name]
		}
		rest, _, _ = strings.Cut(rest, "/")
		out = append(out, userinfo(name, rest)...)
	}
	return out
}

// refusedProxy is the password in an upstream_proxy, which may have none: before that is
// said, settings are shown.
func refusedProxy(value string) []policy.Secret {
	_, rest, ok := strings.Cut(value, "://")
	if !ok {
		rest = value
	}
	return userinfo("upstream_proxy", rest)
}

// userinfo is the password before the last @.
func userinfo(name, s string) []policy.Secret {
	i := strings.LastIndexByte(s, '@')
	if i < 0 {
		return nil
	}
	_, password, ok := strings.Cut(s[:i], ":")
	if !ok || password == "" {
		return nil
	}
	out := []policy.Secret{policy.NewSecret(name, password)}
	if plain, err := url.PathUnescape(password); err == nil && plain != password {
		out = append(out, policy.NewSecret(name, plain))
	}
	return out
}
