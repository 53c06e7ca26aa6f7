// Mount points below what the sandbox can write. bubblewrap makes a mount point
// by path and follows symlinks; one that an earlier run has planted in its home
// would lead out, to the host. So these are made here before, without following
// any, and Verify looks where everything landed.

package local

import (
	"fmt"
	"strings"

	"golang.org/x/sys/unix"

	"ai-sandbox/cmd/ai-sandbox/internal/tree"
	"ai-sandbox/policy"
)

// mountPoints makes the mount points that lie on the host's side of a writable
// bind.
func mountPoints(mounts []policy.Mount) error {
	for i, m := range mounts {
		above, ok := policy.Above(mounts[:i], m.Target)
		if ok && m.Why == policy.WhyMasked {
			if err := tree.SocketAt(above.Source, strings.TrimPrefix(m.Target, above.Target+"/")); err != nil {
				return fmt.Errorf("mask the unix socket %s: %w; try again", policy.Quote(m.Target), err)
			}
			continue
		}
		if !ok || above.Kind != policy.KindBind || above.ReadOnly {
			continue
		}
		rel := strings.TrimPrefix(m.Target, above.Target+"/")
		dir := true
		switch m.Kind {
		case policy.KindTmpfs:
		case policy.KindBind:
			var st unix.Stat_t
			if err := unix.Stat(m.Source, &st); err != nil {
				return fmt.Errorf("look at %s: %w", policy.Quote(m.Source), err)
			}
			dir = st.Mode&unix.S_IFMT == unix.S_IFDIR
		default:
			return fmt.Errorf("a %s at %s would be written into %s itself; it can't be below what the sandbox can write",
				m.Kind, policy.Quote(m.Target), policy.Quote(above.Source))
		}
		if err := tree.MakePoint(above.Source, rel, dir); err != nil {
			return fmt.Errorf("make the mount point %s in %s: %w", policy.Quote(rel), policy.Quote(above.Source), err)
		}
	}
	return nil
}
