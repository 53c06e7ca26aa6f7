// Which variables enter, and where their values come from.

package policy

import (
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"unicode/utf8"
)

// Where the value of an Env comes from.
const (
	FromFixed    = "fixed"    // set by the policy
	FromProxy    = "proxy"    // leads clients to the gate
	FromCA       = "ca"       // names the extra CA
	FromHost     = "host"     // the caller's, of the fixed list or passed by name
	FromHarness  = "harness"  // the caller's, since the harness needs it
	FromFile     = "file"     // an env_file's
	FromConstant = "constant" // the user's public NAME=value
)

// Passed tells whether the variable has a value that is not part of the policy.
func (e Env) Passed() bool {
	return e.From == FromHost || e.From == FromHarness || e.From == FromFile
}

// passedIfSet is what enters from the caller's environment without being asked
// for. The locale variables are spelled out: whatever else begins with LC_ is
// the caller's own and may be a secret.
var passedIfSet = []string{
	"TERM", "COLORTERM", "NO_COLOR", "TZ", "LANG",
	"LC_ALL", "LC_ADDRESS", "LC_COLLATE", "LC_CTYPE", "LC_IDENTIFICATION",
	"LC_MEASUREMENT", "LC_MESSAGES", "LC_MONETARY", "LC_NAME", "LC_NUMERIC",
	"LC_PAPER", "LC_TELEPHONE", "LC_TIME",
}

func resolveEnv(in Input) ([]Env, error) {
	env := map[string]Env{}
	set := func(from, value string, names ...string) {
		for _, n := range names {
			env[n] = Env{Name: n, Value: value, From: from}
		}
	}
	set(FromFixed, strings.Join(append(slices.Clone(in.Facts.Local.ToolPath), searchPath), ":"), "PATH")
	set(FromFixed, HomeDir, "HOME")
	set(FromFixed, user(in.KeepRoot), "USER", "LOGNAME")
	set(FromFixed, "/bin/bash", "SHELL")
	if in.Net == NetGated || in.Net == NetUnix {
		addr, port := GateAddr, PortPlaceholder
		if in.Net == NetUnix {
			addr, port = RelayAddr, strconv.Itoa(RelayPort)
		}
		url := "http://" + addr + ":" + port
		const direct = "localhost,127.0.0.1,::1"
		// ALL_PROXY is what clients of websockets look at.
		set(FromProxy, url, "HTTP_PROXY", "http_proxy", "HTTPS_PROXY", "https_proxy", "ALL_PROXY", "all_proxy",
			"npm_config_proxy", "npm_config_https_proxy", "PIP_PROXY")
		set(FromProxy, direct, "NO_PROXY", "no_proxy", "npm_config_noproxy")
		set(FromProxy, "1", "NODE_USE_ENV_PROXY")
		set(FromProxy, "-Dhttp.proxyHost="+addr+" -Dhttp.proxyPort="+port+
			" -Dhttps.proxyHost="+addr+" -Dhttps.proxyPort="+port+
			" -Dhttp.nonProxyHosts=localhost|127.*|[::1]", "JAVA_TOOL_OPTIONS")
	}
	if in.ExtraCA {
		set(FromCA, ExtraCA, "NODE_EXTRA_CA_CERTS")
		bundle := CABundle
		if in.Runtime == RuntimeLocal {
			bundle = LocalCABundle
			const java = "JAVA_TOOL_OPTIONS"
			options := "-Djavax.net.ssl.trustStore=" + LocalTrustStore + " -Djavax.net.ssl.trustStoreType=PKCS12"
			if e, ok := env[java]; ok { // the gate's
				set(FromProxy, e.Value+" "+options, java)
			} else {
				set(FromCA, options, java)
			}
		}
		set(FromCA, bundle, "SSL_CERT_FILE", "GIT_SSL_CAINFO", "CURL_CA_BUNDLE", "REQUESTS_CA_BUNDLE", "PIP_CERT")
	}
	isSet := in.Facts.EnvSet
	if isSet == nil {
		isSet = func(string) bool { return false }
	}
	for _, n := range passedIfSet {
		if isSet(n) {
			set(FromHost, "", n)
		}
	}
	var errs []error
	switch {
	case in.Token == "PATH" || ours(env, in.Token):
		errs = append(errs, fmt.Errorf("the variable of the token, %s, is set by ai-sandbox itself; name another", Quote(in.Token)))
	case in.Token != "" && isSet(in.Token):
		env[in.Token] = Env{Name: in.Token, From: FromHarness, Secret: true}
	}
	named := map[string]bool{}
	for _, s := range in.Env {
		name, value, constant := strings.Cut(s, "=")
		named[name] = true
		bad := func(format string, a ...any) {
			errs = append(errs, About(fmt.Errorf("env %s "+format, append([]any{Quote(name)}, a...)...), "env="+name))
		}
		switch {
		case !ValidEnvName(name):
			bad("is not a variable's name; use NAME or NAME=value")
		case ours(env, name):
			bad("is set by ai-sandbox itself; drop it")
		case constant && value == "":
			bad("has an empty value; give it one or drop it")
		case constant && (!utf8.ValidString(value) || strings.ContainsRune(value, 0)):
			bad("has a value that is not valid UTF-8; pass it by name, or in an env_file")
		case constant:
			set(FromConstant, value, name)
		case !isSet(name):
			bad("is unset or empty here; give it a value, or don't pass it")
		default:
			// What enters anyway is no secret, and naming it makes it none.
			env[name] = Env{Name: name, From: FromHost, Secret: !slices.Contains(passedIfSet, name)}
		}
	}
	for _, s := range in.EnvFile {
		switch {
		case named[s.name]:
			errs = append(errs, About(fmt.Errorf("env %s is in an env_file and named by env too; drop one of them", s.name), "env="+s.name, "env_file"))
		case ours(env, s.name):
			errs = append(errs, About(fmt.Errorf("env %s is set by ai-sandbox itself; take it out of the env_file", s.name), "env_file"))
		default:
			env[s.name] = Env{Name: s.name, From: FromFile, Secret: true}
		}
	}
	if len(errs) > 0 {
		return nil, errors.Join(errs...)
	}
	out := make([]Env, 0, len(env))
	for _, e := range env {
		out = append(out, e)
	}
	slices.SortFunc(out, func(a, b Env) int {
		if c := fromOrder(a.From) - fromOrder(b.From); c != 0 {
			return c
		}
		return strings.Compare(a.Name, b.Name)
	})
	return out, nil
}

func fromOrder(from string) int {
	return slices.Index([]string{FromFixed, FromHost, FromHarness, FromFile, FromConstant, FromProxy, FromCA}, from)
}

// ours tells whether a variable is one that a user can't set. PATH can be: it
// decides what the command finds, and nothing runs before that by its name.
func ours(env map[string]Env, name string) bool {
	e, taken := env[name]
	return taken && name != "PATH" && (e.From == FromFixed || e.From == FromProxy || e.From == FromCA)
}

// ValidEnvName tells whether s is a name as POSIX has it for variables that any
// program understands: letters, digits and _, and no digit first.
func ValidEnvName(s string) bool {
	if s == "" || s[0] >= '0' && s[0] <= '9' {
		return false
	}
	for _, r := range s {
		if r != '_' && (r < '0' || r > '9') && (r < 'A' || r > 'Z') && (r < 'a' || r > 'z') {
			return false
		}
	}
	return true
}

// user is the name inside of what the command runs as.
func user(root bool) string {
	if root {
		return "root"
	}
	return "sandbox"
}
