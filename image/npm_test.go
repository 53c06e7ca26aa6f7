package image

import (
	"strings"
	"testing"
)

// The texts are npm's own, of 10.9 and 11.19.
func TestNPMFailure(t *testing.T) {
	files := map[string]File{"Containerfile": {Data: []byte("x")}, "harness/pi/package-lock.json": {
		Data: []byte(`{"packages": {"": {}, "node_modules/a/node_modules/@b/c": {"version": "1.0.0", "integrity": "sha512-Ab+/=="}}}`),
	}}
	const corrupted = "npm warn tarball tarball data for yaml@2.9.0 (sha512-2AvhNX3mb8zd6Zy7I==) seems to be corrupted. Trying again.\n"
	for name, c := range map[string]struct{ output, want string }{
		"nothing":                            {"STEP 1/2: FROM x\nadded 123 packages in 11s\n", ""},
		"mended":                             {corrupted + "\nadded 1 package in 2s\n", ""},
		"tampered":                           {strings.Repeat("npm warn tar TAR_ENTRY_INVALID invalid base256 encoding\n", 30000) + corrupted + "npm warn tar zlib: incorrect data check\nnpm error code EINTEGRITY\nnpm error sha512-2Avh integrity checksum failed\n", "what the npm registry has as yaml@2.9.0 is not the package that the lock file has the hash of"},
		"no archive":                         {corrupted + corrupted + "npm error code Z_DATA_ERROR\nnpm error errno -3\n", "what the npm registry has as yaml@2.9.0 is not the package that the lock file has the hash of"},
		"unnamed":                            {"npm error code EINTEGRITY\n", "what the npm registry has as one of the packages is not the one that the lock file has the hash of"},
		"listed as another":                  {"npm error code EINTEGRITY\nnpm error Integrity checksum failed when using sha512: wanted sha512-Ab+/== but got sha512-Cd==.\n", "what the npm registry has as @b/c@1.0.0 is not the package that the lock file has the hash of"},
		"listed as another, of no lock file": {"npm error code EINTEGRITY\nnpm error Integrity checksum failed when using sha512: wanted sha512-zz== but got sha512-Cd==.\n", "what the npm registry has as one of the packages is not the one that the lock file has the hash of"},
		"500":                                {"npm error code E500\nnpm error 500 Internal Server Error - GET http://user:word@127.0.0.1:4999/yaml/-/yaml-2.9.0.tgz\n", "the npm registry answers 500 Internal Server Error for http://127.0.0.1:4999/yaml/-/yaml-2.9.0.tgz"},
		"404":                                {"npm error code E404\nnpm error 404 Not Found - GET http://r.test/yaml - no such package\n", "the npm registry answers 404 Not Found for http://r.test/yaml"},
		"broken off":                         {"npm error code ECONNRESET\nnpm error network aborted\n", "a download from the npm registry broke off (ECONNRESET)"},
		"hung up":                            {"npm error code ECONNRESET\nnpm error errno ECONNRESET\nnpm error network request to http://r.test/a.tgz failed, reason: socket hang up\n", "a download from the npm registry broke off (ECONNRESET) for http://r.test/a.tgz"},
		"nobody there":                       {"npm error code ECONNREFUSED\nnpm error network request to http://r.test/a.tgz failed, reason: x\n", "npm ends with ECONNREFUSED for http://r.test/a.tgz"},
		"left out":                           {"added 1 package in 2s\nnode_modules/@openai/codex-linux-x64 was not installed\n", "the npm registry did not serve @openai/codex-linux-x64, which npm left out and which belongs to the program"},
		"left out, as it was tampered with":  {corrupted + "added 1 package in 2s\nnode_modules/yaml was not installed\n", "what the npm registry has as yaml@2.9.0 is not the package that the lock file has the hash of"},
		"escapes":                            {"npm warn tarball tarball data for \x1b[2Jx@1 (sha512-x) seems to be corrupted\nnpm error code EINTEGRITY\nnpm error 500 \x1b[2J - GET http://\x1b[2J/\n", "what the npm registry has as one of the packages is not the one that the lock file has the hash of"},
		"a long line":                        {"npm error code " + strings.Repeat("A", 1<<20) + "\n", ""},
	} {
		for _, n := range []int{1, 7, 1 << 30} { // bytes at once
			o := NPMOutput{Files: files}
			for rest := c.output; rest != ""; {
				part := rest[:min(n, len(rest))]
				if k, err := o.Write([]byte(part)); k != len(part) || err != nil {
					t.Fatal(k, err)
				}
				rest = rest[len(part):]
			}
			if got := o.Failure(); got != c.want {
				t.Errorf("%s: %q", name, got)
			}
		}
	}
}
