// What podman's service takes from configuration files and puts into every
// container. A specification can say most of it otherwise (spec.go). The rest is
// said here, in a file that a service of ours reads last. With a service that
// somebody else started, verify.go finds it and refuses.

package podman

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
)

// neutralConf takes back what can only be added to in a specification. A list
// says append = false, or it would be added to an earlier file's that says
// append = true (containers.conf(5), "Appending to string arrays").
//
// What bounds a container stays the user's: default_ulimits, oom_score_adj and
// cgroup_conf can only make it narrower. The number of processes is the policy's.
const neutralConf = `# Written by ai-sandbox for the podman service that it starts: settings that would
# change a sandbox behind its policy are as podman has them by itself.
[containers]
annotations = [{append = false}]
base_hosts_file = ""
default_sysctls = [{append = false}]
devices = [{append = false}]
dns_options = [{append = false}]
dns_searches = [{append = false}]
dns_servers = [{append = false}]
env = [{append = false}]
host_containers_internal_ip = ""
keyring = true
label = true
log_tag = ""
mounts = [{append = false}]
seccomp_profile = ""
tz = ""
volumes = [{append = false}]

[engine]
hooks_dir = [{append = false}]
no_pivot_root = false

[network]
pasta_options = [{append = false}]
`

// overrideVar names a file that podman reads after all others.
const overrideVar = "CONTAINERS_CONF_OVERRIDE"

// serviceCommand is how a service of ours is started: the arguments before its
// verb, and its environment. The caller's own last file, an absolute path, is read
// as a module: after all others and before ours, which is at conf.
func serviceCommand(environ []string, conf string) (global, env []string) {
	for _, e := range environ {
		if own, ok := strings.CutPrefix(e, overrideVar+"="); !ok {
			env = append(env, e)
		} else if own != "" {
			global = append(global, "--module", own)
		}
	}
	// mounts.conf has no setting that leaves it out, and /dev/null no mounts.
	global = append(global, "--default-mounts-file", os.DevNull)
	return global, append(env, overrideVar+"="+conf)
}

// writeConf writes neutralConf to a file of that name. It stays: what podman runs
// when a container ends reads it again.
func writeConf(path string) error {
	// Another start, or the end of a container, may be reading it.
	f, err := os.CreateTemp(filepath.Dir(path), ".containers.conf-")
	if err != nil {
		return fmt.Errorf("write podman's configuration: %w", err)
	}
	_, err = f.WriteString(neutralConf)
	err = errors.Join(err, f.Close())
	if err == nil {
		err = os.Rename(f.Name(), path)
	}
	if err != nil {
		return fmt.Errorf("write podman's configuration: %w", errors.Join(err, os.Remove(f.Name())))
	}
	return nil
}
