package policy

import (
	"bytes"
	"encoding/base64"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"net/url"
	"strconv"
	"strings"
	"testing"
	"testing/iotest"
	"unicode"
)

// shapes are what a secret looks like in text, and what is left when it is
// hidden there.
func shapes(v string) map[string]string {
	uni, pct, lowPct := "", "", ""
	for _, c := range []byte(v) {
		pct += fmt.Sprintf("%%%02X", c)
		lowPct += fmt.Sprintf("%%%02x", c)
	}
	for _, r := range v {
		if r > 0xffff {
			r -= 0x10000
			uni += fmt.Sprintf(`\u%04x\u%04X`, 0xd800+r>>10, 0xdc00+r&0x3ff)
			continue
		}
		uni += fmt.Sprintf(`\u%04x`, r)
	}
	js, _ := json.Marshal(v)
	ascii := []byte(v)
	if strings.IndexFunc(v, func(r rune) bool { return r > unicode.MaxASCII }) >= 0 {
		ascii = nil // other letters count as they are
	}
	std, raw := base64.StdEncoding, base64.RawURLEncoding
	out := map[string]string{
		"raw": v, "upper": string(bytes.Map(unicode.ToUpper, ascii)), "lower": string(bytes.Map(unicode.ToLower, ascii)),
		"hex": hex.EncodeToString([]byte(v)), "HEX": strings.ToUpper(hex.EncodeToString([]byte(v))),
		"json": string(js[1 : len(js)-1]), "unicode": uni, "go": strconv.Quote(v)[1 : len(strconv.Quote(v))-1],
		"percent": pct, "low percent": lowPct, "query": url.QueryEscape(v), "path": url.PathEscape(v),
		"userinfo": "https://me:" + url.UserPassword("", v).String()[1:] + "@example.com/",
		"shell":    "'" + strings.ReplaceAll(v, "'", `'\''`) + "'",
		"quoted":   Quote(v), "printable": Printable(v),
		"base64": std.EncodeToString([]byte(v)), "basic": std.EncodeToString([]byte("user:" + v)), "basic url": raw.EncodeToString([]byte("me:" + v)),
		"base64 of a line": std.EncodeToString([]byte(v + "\n")), "base64 in a query": url.QueryEscape(std.EncodeToString([]byte("a:" + v))),
		"base64 in json": strings.ReplaceAll(std.EncodeToString([]byte(v)), "/", `\/`),
		"coloured":       "\x1b[01;31m\x1b[K" + v[:3] + "\x1b[m" + v[3:],
		"wrapped":        v[:5] + "\r\n" + v[5:],
	}
	return out
}

// holds tells whether the secret's own part of a shape is in text.
func holds(text, shape, v string) bool {
	if strings.Contains(text, shape) {
		return true
	}
	return strings.Contains(strings.ToLower(text), strings.ToLower(v))
}

var values = map[string]string{
	"token":     "sk-Live_0123456789abcdefXYZ",
	"short":     "aB3$x9Q!",
	"url":       "https://me:p%40ss@db.example.com/x?y=1&z=2",
	"quotes":    `it's "so" \called\ $HOME` + "`x`",
	"blanks":    "correct horse battery staple",
	"utf-8":     "pässwörd-😀-ключ",
	"binary":    "\x01\xff\xfe\x80binary\x7f\x1b",
	"escape":    "a\\b\tc\x01d\\n",
	"regexp":    `.*(a|b)+[^x]{2}\d$`,
	"long":      strings.Repeat("0123456789abcdefghijklmnopqrstuvwxyz", 30),
	"a key":     "-----BEGIN KEY-----\n" + strings.Repeat("MIIEvQIBADANBgkqhkiG9w0BAQEFAASCBKcwggSj\n", 8) + "-----END KEY-----\n",
	"periodic":  strings.Repeat("abcd", 40),
	"backslash": `C:\new\table\x41`,
}

// Each secret is hidden in each shape, whole and in pieces of any size, and
// nothing else of the text changes.
func TestRedactor(t *testing.T) {
	for name, v := range values {
		r := NewRedactor([]Secret{NewSecret("NAME", v), NewSecret("OTHER", "another secret of 1 run")})
		for shape, s := range shapes(v) {
			if s == "" {
				continue
			}
			text := "before: " + s + " :after\n"
			got := r.Text(text)
			if !strings.HasPrefix(got, "before: ") || !strings.HasSuffix(got, " :after\n") || !strings.Contains(got, "[NAME]") || holds(got, s, v) {
				t.Errorf("%s, %s: %q became %q", name, shape, text, got)
			}
			for _, size := range []int{1, 2, 3, 7, 64, 1000} {
				if len(text) > 5000 && size < 7 {
					continue // for the time it takes
				}
				var out bytes.Buffer
				w := r.Writer(&out)
				for b := []byte(text); len(b) > 0; b = b[min(size, len(b)):] {
					if _, err := w.Write(b[:min(size, len(b))]); err != nil {
						t.Fatal(err)
					}
				}
				if err := w.Close(); err != nil {
					t.Fatal(err)
				}
				if shape == "wrapped" {
					continue // a line's end lets a few bytes go; see Writer
				}
				if out.String() != got {
					t.Errorf("%s, %s, pieces of %d: %q, whole %q", name, shape, size, out.String(), got)
				}
			}
		}
	}
}

// One that is the beginning, the end or the middle of another does not keep that
// from being hidden, in whatever order they are named.
func TestRedactorNested(t *testing.T) {
	a, b, c := NewSecret("A", "secret-one"), NewSecret("B", "secret-one-and-more"), NewSecret("C", "one-and-more-still")
	for _, list := range [][]Secret{{a, b, c}, {c, b, a}, {b, a, c}} {
		r := NewRedactor(list)
		for text, want := range map[string]string{
			"x secret-one y":                  "x [A] y",
			"x secret-one-and-more y":         "x [B] y",
			"x secret-one-and-less y":         "x [A]-and-less y",
			"x secret-one-and-more-still y":   "x [B][C] y",
			"secret-onesecret-one-and-more":   "[A][B]",
			"secret-on secret-onE SECRET-ONE": "secret-on [A] [A]",
			"":                                "",
			"nothing 100% \\ here\n":          "nothing 100% \\ here\n",
		} {
			if got := r.Text(text); got != want {
				t.Errorf("%v: %q became %q, not %q", list, text, got, want)
			}
			var out bytes.Buffer
			w := r.Writer(&out)
			for i := range len(text) {
				if _, err := w.Write([]byte(text[i : i+1])); err != nil {
					t.Fatal(err)
				}
			}
			if err := w.Close(); err != nil || out.String() != want {
				t.Errorf("%v, byte by byte: %q became %q, not %q (%v)", list, text, out.String(), want, err)
			}
		}
	}
}

// A line is passed on when it has ended, and a prompt when it can be no secret.
func TestRedactorLive(t *testing.T) {
	r := NewRedactor([]Secret{NewSecret("NAME", "sesame-open-1")})
	var out bytes.Buffer
	w := r.Writer(&out)
	for _, step := range [][2]string{
		{"ready for s\n", "ready for s\n"}, // the last letter could begin it
		{"prompt> ", "prompt> "},
		{"ses", ""}, {"ame", ""}, {"-street", "sesame-street"},
		{" sesame-", " "}, {"open-1", "[NAME]"}, {"!\n", "!\n"},
		{"it is sesame-open\n", "it is "}, {"-1\n", "[NAME]\n"},
		{"sesame", ""},
	} {
		out.Reset()
		if _, err := w.Write([]byte(step[0])); err != nil || out.String() != step[1] {
			t.Errorf("%q: %q, not %q (%v)", step[0], out.String(), step[1], err)
		}
	}
	out.Reset()
	if err := w.Close(); err != nil || out.String() != "sesame" {
		t.Errorf("at the end: %q (%v)", out.String(), err)
	}
	if _, err := r.Writer(iotest.TruncateWriter(&out, 0)).Write([]byte("x")); err != nil {
		t.Error(err)
	}
}

// What is held back is bounded, whatever comes.
func TestRedactorBounded(t *testing.T) {
	r := NewRedactor([]Secret{NewSecret("P", strings.Repeat("abcd", 40)), NewSecret("L", values["long"])})
	for name, piece := range map[string]string{
		"periodic": "abcd", "line ends": "\n\r", "colours": "\x1b[0m", "half a colour": "\x1b[0;0;0;0", "backslashes": `\`, "percent": "%", "half": `\u00`,
		"nearly": values["long"][:255], "spread": strings.Join(strings.Split(values["long"][:250], ""), "\n\n"),
	} {
		var out bytes.Buffer
		w := r.Writer(&out)
		for range (1 << 17) / len(piece) {
			if _, err := w.Write([]byte(piece)); err != nil {
				t.Fatal(err)
			}
			if len(w.st.buf) > 128<<10 {
				t.Fatalf("%s: %d bytes are held back", name, len(w.st.buf))
			}
		}
		if len(w.st.buf) > 70<<10 {
			t.Errorf("%s: %d bytes are held back", name, len(w.st.buf))
		}
	}
}

// Nobody can print a Secret by accident.
func TestSecretPrints(t *testing.T) {
	s := NewSecret("NAME", "sesame-open-1")
	js, err := json.Marshal(map[string]any{"a": s, "b": []*Secret{&s}})
	if err != nil {
		t.Fatal(err)
	}
	text, err := s.MarshalText()
	if err != nil {
		t.Fatal(err)
	}
	type deep struct {
		S Secret
		M map[string]Secret
		P *Secret
	}
	d := deep{s, map[string]Secret{"x": s}, &s}
	all := string(js) + string(text) + fmt.Sprint(s, &s, []Secret{s}) + fmt.Sprintf("%v %+v %#v %s %q %x %X %d %v", s, s, s, s, s, s, s, s, &d) +
		fmt.Sprintf("%+v %#v", d, d) + fmt.Errorf("x: %v", s).Error()
	if strings.Contains(all, "sesame") || strings.Contains(all, hex.EncodeToString([]byte("sesame"))) || !strings.Contains(all, "[NAME]") {
		t.Error(all)
	}
	if s.Reveal() != "sesame-open-1" || s.Name() != "NAME" {
		t.Error("it is not told")
	}
}

// Ten thousand secrets are no burden, and none is none at all.
func TestRedactorMany(t *testing.T) {
	var list []Secret
	rnd := rand.New(rand.NewPCG(1, 2))
	for n := range 10000 {
		list = append(list, NewSecret(fmt.Sprintf("S%d", n), fmt.Sprintf("ghp_%016x%016x", rnd.Uint64(), rnd.Uint64())))
	}
	r := NewRedactor(list)
	text := strings.Repeat("nothing to see here, ghp_00 and so on\n", 1000) + list[1234].Reveal()
	if got := r.Text(text); !strings.HasSuffix(got, "on\n[S1234]") {
		t.Error(got[len(got)-50:])
	}
	if NewRedactor(nil) != nil || NewRedactor([]Secret{NewSecret("A", "x")}) != nil || (*Redactor)(nil).Text("x") != "x" {
		t.Error("no secret is something")
	}
	if n := testing.AllocsPerRun(10, func() { (*Redactor)(nil).Text(text) }); n != 0 {
		t.Errorf("%v allocations", n)
	}
}

// Whatever the text and wherever it is cut, no shape of a secret comes through,
// and text without one does not change.
func FuzzRedactor(f *testing.F) {
	f.Add("sk-Live_0123", "hello ", " world\n", uint16(3))
	f.Add("it's \\ \"x\"", `\u00`, "%4", uint16(1))
	f.Add("a\nb\ncdefgh", "\x1b[", "\\", uint16(7))
	f.Fuzz(func(t *testing.T, secret, before, after string, cut uint16) {
		s := NewSecret("NAME", secret)
		if checkHidden(s.name, s.value) != nil || len(secret) > 2000 || len(before)+len(after) > 4000 {
			return
		}
		r := NewRedactor([]Secret{s})
		stream := func(text string) string {
			var out bytes.Buffer
			w := r.Writer(&out)
			at := int(cut) % (len(text) + 1)
			for _, part := range []string{text[:at], text[at:]} {
				if _, err := w.Write([]byte(part)); err != nil {
					t.Fatal(err)
				}
			}
			if err := w.Close(); err != nil {
				t.Fatal(err)
			}
			return out.String()
		}
		for shape, text := range shapes(secret) {
			if shape == "wrapped" || shape == "coloured" || strings.ContainsAny(text, "\n\r") {
				continue // cut by what a line's end lets go
			}
			before := before
			if strings.ContainsAny(text, `\%`) {
				// Behind half an encoded character it would not say the same.
				before = strings.NewReplacer(`\`, "", "%", "").Replace(before)
			}
			for _, got := range []string{r.Text(before + text + after), stream(before + text + after)} {
				if len(text) >= 12 && strings.Contains(got, text) {
					t.Errorf("%s of %q: %q", shape, secret, got)
				}
			}
		}
		// The text is without a secret when it says nothing that has eight bytes of it.
		text := before + after
		if r.Text(text) == text {
			if got := stream(text); got != text {
				t.Errorf("%q became %q", text, got)
			}
		}
		if dots := strings.Map(func(c rune) rune {
			if strings.ContainsRune("\\%\x1b\n[", c) {
				return c
			}
			return '.'
		}, text); !strings.ContainsAny(secret, "\r\n") && strings.Trim(secret, ".\\%[+\x1b\x00") == secret && r.Text(dots) != dots {
			t.Errorf("%q: %q became %q", secret, dots, r.Text(dots))
		}
	})
}

func BenchmarkRedactor(b *testing.B) {
	r := NewRedactor([]Secret{NewSecret("A", values["token"]), NewSecret("B", values["a key"]), NewSecret("C", values["url"])})
	text := strings.Repeat("2026-01-02 12:00:00 a line of a log as it may be, with 100% of it\n", 1000)
	b.SetBytes(int64(len(text)))
	for b.Loop() {
		r.Text(text)
	}
}

func BenchmarkNewRedactor(b *testing.B) {
	for b.Loop() {
		NewRedactor([]Secret{NewSecret("A", values["token"]), NewSecret("C", values["url"])})
	}
}
