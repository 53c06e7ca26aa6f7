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
		i := strings.LastIndexByte(rest, '@')
		if i < 0 {
			continue
		}
		_, password, ok := strings.Cut(rest[:i], ":")
		if !ok || password == "" {
			continue
		}
		out = append(out, policy.NewSecret(name, password))
		if plain, err := url.PathUnescape(password); err == nil && plain != password {
			out = append(out, policy.NewSecret(name, plain))
		}
	}
	return out
}
