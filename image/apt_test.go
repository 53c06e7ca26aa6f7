package image

import (
	"testing"
)

// The texts are apt-get's own.
func TestAptFailure(t *testing.T) {
	const fetch = "Err:1 http://deb.test/debian stable InRelease\n  Could not resolve 'deb.test'\nReading package lists...\n" +
		"E: Failed to fetch http://deb.test/debian/dists/stable/InRelease  Could not resolve 'deb.test'\n" +
		"E: Some index files failed to download. They have been ignored, or old ones used instead.\n"
	const offline = "apt says: Failed to fetch http://deb.test/debian/dists/stable/InRelease Could not resolve 'deb.test'; build again where its mirror can be reached"
	for name, c := range map[string]struct{ output, want string }{
		"nothing":           {"STEP 2/9: RUN : Debian packages\nReading package lists...\n", ""},
		"offline":           {"STEP 2/9: RUN : Debian packages\n" + fetch, offline},
		"no such package":   {"Reading package lists...\r\nE: Unable to locate package nosuch\r\n", "apt says: Unable to locate package nosuch"},
		"the last one":      {"E: Unable to locate package nosuch\nE: Version '99' for 'hello' was not found\n", "apt says: Version '99' for 'hello' was not found"},
		"in a step before":  {fetch + "STEP 3/9: RUN : more\nexit status 1\n", ""},
		"with a login":      {"E: Failed to fetch http://ann:pw@deb.test/x  404  Not Found [IP: 192.0.2.1 80]\n", "apt says: Failed to fetch http://deb.test/x 404 Not Found [IP: 192.0.2.1 80]; build again where its mirror can be reached"},
		"an escape":         {"E: \x1b[2J\n", ""},
		"of another's":      {"LE: x\nnpm error code E500\n", ""},
		"without an ending": {"E: Unable", ""},
	} {
		t.Run(name, func(t *testing.T) {
			for _, size := range []int{1, 7, len(c.output)} {
				var o AptOutput
				for rest := c.output; rest != ""; {
					n := min(size, len(rest))
					if wrote, err := o.Write([]byte(rest[:n])); wrote != n || err != nil {
						t.Fatal(wrote, err)
					}
					rest = rest[n:]
				}
				if got := o.Failure(); got != c.want {
					t.Errorf("in parts of %d bytes: %q", size, got)
				}
			}
		})
	}
}
