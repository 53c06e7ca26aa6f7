// Whether podman's own configuration leads into the project.

package host

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
)

// containersFiles are what podman, and ai-sandbox with it, obeys of the user's
// directory for it: which images are accepted, and where they, their signatures, the
// certificates and logins for them are (containers-policy.json(5),
// containers-registries.conf.d(5), containers-certs.d(5), containers-auth.json(5),
// containers.conf(5), containers-mounts.conf(5)).
var containersFiles = []string{
	"policy.json", "registries.conf", "registries.conf.d", "registries.d", "certs.d", "auth.json", "containers.conf", "containers.conf.d",
	"storage.conf", "storage.conf.d", "mounts.conf", "podman-connections.json",
}

// maxContainersFiles bounds what is looked at in the directories among them.
const maxContainersFiles = 1000

// containersSteered are the files and directories of podman's configuration that lead
// into the project or through it.
func containersSteered(in Input, project string) []string {
	if project == "" {
		return nil
	}
	dirs := []string{filepath.Join(in.Home, ".config/containers")}
	if d := in.Env["XDG_CONFIG_HOME"]; filepath.IsAbs(d) && !slices.Contains(dirs, filepath.Join(d, "containers")) {
		dirs = append(dirs, filepath.Join(d, "containers"))
	}
	var paths []string
	for _, d := range dirs {
		for _, name := range containersFiles {
			paths = append(paths, filepath.Join(d, name))
		}
	}
	paths = append(paths, filepath.Join(in.Home, ".docker/config.json"), filepath.Join(in.Home, ".dockercfg"))
	if filepath.IsAbs(in.Runtime) {
		paths = append(paths, filepath.Join(in.Runtime, "containers/auth.json"))
	}
	look := look{project: project, left: maxContainersFiles}
	for _, p := range paths {
		look.at(p, 2) // certs.d has a directory for each registry
	}
	return look.steered
}

// A look goes through directories of configuration.
type look struct {
	project string
	left    int // entries that may still be looked at
	steered []string
}

func (l *look) at(path string, depth int) {
	if Through(path, l.project) {
		l.steered = append(l.steered, path)
		return
	}
	info, err := os.Stat(path)
	if err != nil || !info.IsDir() || depth == 0 {
		return
	}
	d, err := os.Open(path)
	if err != nil {
		return // then podman can't read it either
	}
	defer d.Close()
	entries, err := d.ReadDir(l.left + 1)
	if err != nil && !errors.Is(err, io.EOF) {
		return
	}
	if len(entries) > l.left {
		l.steered = append(l.steered, fmt.Sprintf("%s (which has too many files to look at)", path))
		return
	}
	l.left -= len(entries)
	slices.SortFunc(entries, func(a, b fs.DirEntry) int {
		if a.Name() < b.Name() {
			return -1
		}
		return 1
	})
	for _, e := range entries {
		if e.Type()&fs.ModeSymlink != 0 || e.IsDir() { // a file is where its directory is
			l.at(filepath.Join(path, e.Name()), depth-1)
		}
	}
}
