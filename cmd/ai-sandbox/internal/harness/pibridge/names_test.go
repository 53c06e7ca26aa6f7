package pibridge

import (
	"encoding/base32"
	"encoding/base64"
	"encoding/hex"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

// keys are makers of random keys of the shapes that keys have.
var keys = map[string]func(*rand.Rand) string{
	"base64 of 24":    func(r *rand.Rand) string { return base64.StdEncoding.EncodeToString(random(r, 18)) },
	"base64 of 32":    func(r *rand.Rand) string { return base64.StdEncoding.EncodeToString(random(r, 24)) },
	"base64 of 40":    func(r *rand.Rand) string { return base64.StdEncoding.EncodeToString(random(r, 30)) },
	"base64url of 32": func(r *rand.Rand) string { return base64.URLEncoding.EncodeToString(random(r, 24)) },
	"base62 with sk-": func(r *rand.Rand) string { return "sk-" + letters(r, 24, base62) },
	"base62 of 20":    func(r *rand.Rand) string { return letters(r, 20, base62) },
	"base62, upper":   func(r *rand.Rand) string { return "AKIA" + letters(r, 16, base62[:10]+base62[36:]) },
	"hex of 32":       func(r *rand.Rand) string { return hex.EncodeToString(random(r, 16)) },
	"hex of 12":       func(r *rand.Rand) string { return hex.EncodeToString(random(r, 6)) },
	"a uuid": func(r *rand.Rand) string {
		h := hex.EncodeToString(random(r, 16))
		return dashed(h[:8]) + "-" + dashed(h[8:20]) + "-" + h[20:]
	},
	"base32 in groups": func(r *rand.Rand) string { return dashed(base32.StdEncoding.EncodeToString(random(r, 10))) },
	"base32, lower": func(r *rand.Rand) string {
		return strings.ToLower(dashed(base32.StdEncoding.EncodeToString(random(r, 15))))
	},
	"hex in groups": func(r *rand.Rand) string { return dashed(hex.EncodeToString(random(r, 10))) },
	// Groups that alone are a version, a size or a word.
	"digits in threes":       func(r *rand.Rand) string { return cut(letters(r, 18, base62[:10]), 3, "-") },
	"digits in pairs":        func(r *rand.Rand) string { return cut(letters(r, 24, base62[:10]), 2, " ") },
	"16 hex pairs":           func(r *rand.Rand) string { return cut(hex.EncodeToString(random(r, 16)), 2, ":") },
	"20 hex pairs, upper":    func(r *rand.Rand) string { return strings.ToUpper(cut(hex.EncodeToString(random(r, 20)), 2, ":")) },
	"capitals in fives":      func(r *rand.Rand) string { return cut(letters(r, 25, base62[36:]), 5, "-") },
	"letters in fives":       func(r *rand.Rand) string { return cut(letters(r, 25, base62[10:36]), 5, "-") },
	"base32 in fives":        func(r *rand.Rand) string { return cut(letters(r, 25, base62[36:]+"234567"), 5, "-") },
	"base32 in fives, lower": func(r *rand.Rand) string { return cut(letters(r, 25, base62[10:36]+"234567"), 5, "-") },
	"16 letters":             func(r *rand.Rand) string { return letters(r, 16, base62[10:36]) },
	"24 letters":             func(r *rand.Rand) string { return letters(r, 24, base62[10:36]) },
}

const base62 = "0123456789abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ"

func random(r *rand.Rand, n int) []byte {
	b := make([]byte, n)
	for i := range b {
		b[i] = byte(r.Uint32())
	}
	return b
}

func letters(r *rand.Rand, n int, of string) string {
	b := make([]byte, n)
	for i := range b {
		b[i] = of[r.IntN(len(of))]
	}
	return string(b)
}

func dashed(s string) string { return cut(s, 4, "-") }

// cut is a text in groups.
func cut(s string, size int, by string) string {
	var parts []string
	for ; len(s) > size; s = s[size:] {
		parts = append(parts, s[:size])
	}
	return strings.Join(append(parts, s), by)
}

// No key of any shape is a name: the seed is fixed, so that this holds or does not.
func TestKeysAreNoNames(t *testing.T) {
	for what, makes := range keys {
		r := rand.New(rand.NewPCG(7, 11))
		var passed []string
		for range 2000 {
			if key := makes(r); !mayBeKey(key) || !mayBeKey("acme/"+key) || !mayBeKey("My "+key+" (EU)") {
				passed = append(passed, key)
			}
		}
		if len(passed) > 0 {
			t.Errorf("%s: %d of 2000 pass for a name: %q", what, len(passed), passed[:min(5, len(passed))])
		}
	}
}

// Names are no keys: every hundredth or so of pi's own catalogue, and what users call
// their own.
func TestNamesAreNoKeys(t *testing.T) {
	text, err := os.ReadFile(filepath.Join("testdata", "names.txt"))
	if err != nil {
		t.Fatal(err)
	}
	names := strings.Split(strings.TrimSpace(string(text)), "\n")
	if len(names) < 100 {
		t.Fatalf("%d names", len(names))
	}
	for _, name := range names {
		if mayBeKey(name) {
			t.Errorf("%q: %d letters are of no word", name, leftOver(name))
		}
	}
	if !slices.IsSorted(words()) || len(slices.Compact(slices.Clone(words()))) != len(words()) {
		t.Error("the words are not sorted, or stand twice")
	}
}
