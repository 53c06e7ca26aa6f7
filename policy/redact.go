// Hiding secrets in text: what we say, write down or pass on to a log.
//
// A secret is looked for in what the text says in four ways: as it stands, without
// a terminal's colours, with percent encoding undone, and with backslashes undone
// (JSON, C and shell). In each of them line ends are left out, since encoders wrap
// lines, and upper and lower case are the same. So one list of patterns finds all
// mixtures: the secret itself, its base64 at each of the three places that it can
// begin in a group, its hex digits.

package policy

import (
	"bytes"
	"encoding/base64"
	"encoding/hex"
	"io"
	"slices"
	"strings"
	"sync"
	"unicode/utf16"
	"unicode/utf8"
)

// keyLen is how many bytes of a pattern are looked up, and the least that one has.
const keyLen = 8

// maxPattern bounds a pattern, and with it how much text a Writer holds back. A
// longer secret is several patterns side by side.
const maxPattern = 256

// A Redactor replaces secrets by their names. A nil one replaces nothing.
type Redactor struct {
	names []string
	// patterns are sorted; keys are their first bytes, as numbers.
	patterns []pattern
	keys     []uint64
	// filter has a bit for each hash of a key.
	filter []uint64
	shift  uint
}

type pattern struct {
	text string // in lower case, without line ends
	name int
}

// NewRedactor makes one for secrets, or nil when there is none to hide. What is
// shorter than MinSecret is not hidden: Policy.CheckSecrets refuses it.
func NewRedactor(secrets []Secret) *Redactor {
	r := &Redactor{}
	seen := map[string]bool{}
	for _, s := range secrets {
		if checkHidden(s.name, s.value) != nil {
			continue
		}
		r.names = append(r.names, s.String())
		for _, form := range forms(s.value) {
			for _, text := range pieces(form) {
				// A piece may be all spaces.
				if len(text) < keyLen || distinct(text) < 2 || seen[text] {
					continue
				}
				seen[text] = true
				r.patterns = append(r.patterns, pattern{text, len(r.names) - 1})
			}
		}
	}
	if len(r.patterns) == 0 {
		return nil
	}
	slices.SortFunc(r.patterns, func(a, b pattern) int { return strings.Compare(a.text, b.text) })
	bits := uint(10)
	for 1<<bits < 16*len(r.patterns) {
		bits++
	}
	r.shift, r.filter = 64-bits, make([]uint64, 1<<bits/64)
	r.keys = make([]uint64, len(r.patterns))
	for i, p := range r.patterns {
		r.keys[i] = key([]byte(p.text[:keyLen]))
		h := r.hash(r.keys[i])
		r.filter[h/64] |= 1 << (h % 64)
	}
	return r
}

// forms are the texts that stand for a value.
func forms(value string) []string {
	out := encodings(value)
	if strings.ContainsAny(value, "\r\n") {
		for _, line := range strings.FieldsFunc(value, func(c rune) bool { return c == '\n' || c == '\r' }) {
			// Not what is in everybody's text, as "}," is.
			if line = strings.TrimSpace(line); checkHidden("", line) == nil {
				out = append(out, encodings(line)...)
			}
		}
	}
	return out
}

func encodings(v string) []string {
	out := []string{
		v,
		strings.ReplaceAll(v, "'", `'\''`), strings.ReplaceAll(v, "'", `'"'"'`), // shell
		strings.ReplaceAll(v, " ", "+"), // in a query (the rest is percent encoding)
		Printable(v),                    // ours, which is not undone where v has a backslash
		string([]rune(v)),               // JSON, of what is not UTF-8
		hex.EncodeToString([]byte(v)),
	}
	for lead := range 3 {
		// Whole characters of the value's own: the first and the last may have
		// bits of what stands beside it.
		enc := base64.RawStdEncoding.EncodeToString(append(make([]byte, lead), v...))
		enc = enc[(lead*8+5)/6 : (lead+len(v))*8/6]
		out = append(out, enc, strings.NewReplacer("+", "-", "/", "_").Replace(enc))
	}
	return out
}

// pieces are what is looked for of a form: side by side, and the last as long as
// the others.
func pieces(form string) []string {
	form = joinLines(form)
	lower := make([]byte, len(form))
	for i := range len(form) {
		lower[i] = fold(form[i])
	}
	form = string(lower)
	var out []string
	for len(form) > 2*maxPattern {
		out = append(out, form[:maxPattern])
		form = form[maxPattern:]
	}
	if len(form) > maxPattern {
		return append(out, form[:maxPattern], form[len(form)-maxPattern:])
	}
	return append(out, form)
}

// joinLines leaves line ends out.
func joinLines(s string) string {
	if !strings.ContainsAny(s, "\r\n") {
		return s
	}
	return strings.NewReplacer("\r", "", "\n", "").Replace(s)
}

func fold(c byte) byte {
	if 'A' <= c && c <= 'Z' {
		return c + 'a' - 'A'
	}
	return c
}

// key is up to keyLen bytes as a number that sorts as they do.
func key(b []byte) (k uint64) {
	for i := range keyLen {
		k <<= 8
		if i < len(b) {
			k |= uint64(b[i])
		}
	}
	return k
}

// hash is Fibonacci hashing.
func (r *Redactor) hash(k uint64) uint64 { return k * 0x9e3779b97f4a7c15 >> r.shift }

// Text returns s with every secret replaced.
func (r *Redactor) Text(s string) string {
	if r == nil || s == "" {
		return s
	}
	var out bytes.Buffer
	st := stream{r: r, buf: []byte(s)}
	st.emit(&out, true)
	if out.Len() == len(s) && out.String() == s {
		return s
	}
	return out.String()
}

// Writer passes on what is written to it, secrets replaced. What may be the
// beginning of one is held back until more comes, or Close. A line's end is not:
// a few bytes before it that may begin a secret are passed on with it, and only
// what follows is then hidden. A Writer may be used from any goroutine.
type Writer struct {
	mu sync.Mutex
	w  io.Writer
	st stream
}

// Writer makes a writer that replaces secrets in one stream.
func (r *Redactor) Writer(w io.Writer) *Writer { return &Writer{w: w, st: stream{r: r}} }

// Write takes all of p, or returns the error of the writer below.
func (w *Writer) Write(p []byte) (int, error) { return len(p), w.put(p, false) }

// Close passes on what was held back. The writer below stays open.
func (w *Writer) Close() error { return w.put(nil, true) }

func (w *Writer) put(p []byte, final bool) error {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.st.r == nil {
		if len(p) == 0 {
			return nil
		}
		_, err := w.w.Write(p)
		return err
	}
	w.st.buf = append(w.st.buf, p...)
	var out bytes.Buffer
	w.st.emit(&out, final)
	if out.Len() == 0 {
		return nil
	}
	_, err := w.w.Write(out.Bytes())
	return err
}

// A stream is text on its way.
type stream struct {
	r *Redactor
	// buf[:out] was passed on, and is kept for what may still begin in it.
	buf []byte
	out int
	// last is the name that was written last; named: no text came after it.
	last  int
	named bool
}

// A span is a secret in stream.buf.
type span struct{ from, to, name int }

// emit passes on all that is decided.
func (st *stream) emit(out *bytes.Buffer, final bool) {
	spans, hard, soft := st.r.find(st.buf, final)
	text := func(to int) {
		if to > st.out {
			out.Write(st.buf[st.out:to])
			st.out, st.named = to, false
		}
	}
	for _, s := range spans {
		if s.from >= hard {
			break
		}
		if s.to <= st.out {
			continue
		}
		text(s.from)
		// The pieces of a long one are one.
		if !st.named || st.last != s.name {
			out.WriteString(st.r.names[s.name])
		}
		st.out, st.last, st.named = s.to, s.name, true
	}
	text(hard)
	drop := min(soft, st.out)
	st.buf = append(st.buf[:0], st.buf[drop:]...)
	st.out -= drop
}

// find returns the secrets in b, sorted, and from where on b may be the beginning
// of one: hard is what to hold back, soft what to keep.
func (r *Redactor) find(b []byte, final bool) (spans []span, hard, soft int) {
	hard, soft = len(b), len(b)
	lineEnd := bytes.LastIndexByte(b, '\n')
	for _, v := range []view{viewPlain, viewColour, viewPercent, viewEscape} {
		if v != viewPlain && bytes.IndexByte(b, byte(v)) < 0 {
			continue // it says the same as the plain one
		}
		t := v.read(b, final)
		r.match(t, func(s span) { spans = append(spans, s) }, func(from, n int) {
			soft = min(soft, from)
			if n >= keyLen || from > lineEnd {
				hard = min(hard, from)
			}
		})
		hard, soft = min(hard, t.stop), min(soft, t.stop)
	}
	if final {
		hard, soft = len(b), len(b)
	}
	// The longest of those that begin at the same place comes first.
	slices.SortFunc(spans, func(a, b span) int {
		if a.from != b.from {
			return a.from - b.from
		}
		return b.to - a.to
	})
	return spans, hard, soft
}

// match calls whole for every pattern in t, and part for every place from which
// on t may be the first n bytes of one.
func (r *Redactor) match(t reading, whole func(span), part func(from, n int)) {
	var k uint64
	for i := range t.text {
		k = k<<8 | uint64(t.text[i])
		at := i - keyLen + 1
		if at < 0 {
			continue
		}
		if h := r.hash(k); r.filter[h/64]&(1<<(h%64)) == 0 {
			continue
		}
		first, _ := slices.BinarySearch(r.keys, k)
		rest := t.text[at:]
		for n := first; n < len(r.keys) && r.keys[n] == k; n++ {
			switch p := r.patterns[n]; {
			case len(rest) >= len(p.text):
				if string(rest[:len(p.text)]) == p.text {
					whole(span{t.at[at].from, t.at[at+len(p.text)-1].to, p.name})
				}
			case p.text[:len(rest)] == string(rest):
				part(t.at[at].from, len(rest))
			}
		}
	}
	for at := max(0, len(t.text)-keyLen+1); at < len(t.text); at++ {
		rest := t.text[at:]
		k := key(rest)
		if n, _ := slices.BinarySearch(r.keys, k); n < len(r.keys) && r.keys[n]>>(8*(keyLen-len(rest))) == k>>(8*(keyLen-len(rest))) {
			part(t.at[at].from, len(rest))
		}
	}
}

// A view is a way to read text; its value is the byte that has a meaning in it.
type view byte

const (
	viewPlain   view = 0
	viewColour  view = 0x1b
	viewPercent view = '%'
	viewEscape  view = '\\'
)

// A reading is what a text says, in lower case; at has for each byte of it where
// that stands in the text. From stop on it can't be told yet.
type reading struct {
	text []byte
	at   []place
	stop int
}

type place struct{ from, to int }

// maxLeftOut bounds how many line ends and colours may stand between two bytes of
// a secret, and maxColour how long one of these is.
const (
	maxLeftOut = 8
	maxColour  = 32
)

func (v view) read(b []byte, final bool) reading {
	t := reading{text: make([]byte, 0, len(b)), at: make([]place, 0, len(b)), stop: len(b)}
	leftOut := 0
	for i := 0; i < len(b); {
		said, n := v.unit(b[i:])
		if n == 0 { // it ends in the middle
			if !final {
				t.stop = i
				break
			}
			said, n = b[i:i+1], 1
		}
		if len(said) == 0 {
			if leftOut++; leftOut > maxLeftOut {
				said = []byte{0} // which no secret has
			}
		} else {
			leftOut = 0
		}
		for _, c := range said {
			if c != '\n' && c != '\r' {
				t.text, t.at = append(t.text, fold(c)), append(t.at, place{i, i + n})
			}
		}
		i += n
	}
	return t
}

// unit reads what stands at the beginning of b: what it says, and how many bytes
// it is, which is 0 where b is too short to tell.
func (v view) unit(b []byte) (said []byte, n int) {
	switch c := b[0]; {
	case c == '\n' || c == '\r':
		return nil, 1
	case v == viewPlain || c != byte(v):
		return b[:1], 1
	case v == viewColour:
		return colour(b)
	case v == viewPercent:
		code, ok := hexDigits(b[1:], 2)
		switch {
		case ok && len(b) < 3:
			return nil, 0
		case ok:
			return []byte{byte(code)}, 3
		}
		return b[:1], 1
	}
	return escape(b)
}

// colour reads an ECMA-48 control sequence, which says nothing.
func colour(b []byte) (said []byte, n int) {
	if len(b) == 1 {
		return nil, 0
	}
	if b[1] != '[' {
		return b[:1], 1
	}
	for i := 2; i < min(len(b), maxColour); i++ {
		if b[i] >= 0x40 && b[i] <= 0x7e {
			return nil, i + 1
		}
		if b[i] < 0x20 || b[i] > 0x7e {
			return b[:1], 1
		}
	}
	if len(b) < maxColour {
		return nil, 0
	}
	return b[:1], 1
}

// escape reads a backslash and what belongs to it, as in JSON, C, Go and bash.
func escape(b []byte) (said []byte, n int) {
	if len(b) == 1 {
		return nil, 0
	}
	size := map[byte]int{'x': 2, 'u': 4, 'U': 8}[b[1]]
	if size == 0 {
		if i := strings.IndexByte("abefnrtv", b[1]); i >= 0 {
			return []byte("\a\b\x1b\f\n\r\t\v"[i : i+1]), 2
		}
		if b[1] >= '0' && b[1] <= '3' {
			return octal(b)
		}
		return b[1:2], 2
	}
	code, ok := hexDigits(b[2:], size)
	switch {
	case !ok:
		return b[1:2], 2
	case len(b) < 2+size:
		return nil, 0
	case b[1] == 'x':
		return []byte{byte(code)}, 4
	case size == 4 && utf16.IsSurrogate(rune(code)):
		return surrogates(b, rune(code))
	}
	return utf8.AppendRune(nil, rune(code)), 2 + size
}

// surrogates reads the second half of a character too.
func surrogates(b []byte, first rune) (said []byte, n int) {
	const whole = len(`\ud800\udc00`)
	if len(b) < whole && strings.HasPrefix(`\u`, string(b[6:min(len(b), 8)])) {
		if len(b) <= 8 {
			return nil, 0
		}
		if _, ok := hexDigits(b[8:], 4); ok {
			return nil, 0
		}
	}
	if len(b) >= whole && b[6] == '\\' && b[7] == 'u' {
		if second, ok := hexDigits(b[8:], 4); ok {
			if c := utf16.DecodeRune(first, rune(second)); c != utf8.RuneError {
				return utf8.AppendRune(nil, c), whole
			}
		}
	}
	return utf8.AppendRune(nil, utf8.RuneError), 6
}

func octal(b []byte) (said []byte, n int) {
	code := 0
	for i := 1; i <= 3; i++ {
		if i == len(b) {
			return nil, 0
		}
		if b[i] < '0' || b[i] > '7' {
			return b[1:2], 2
		}
		code = code*8 + int(b[i]-'0')
	}
	return []byte{byte(code)}, 4
}

// hexDigits reads n of them. Where b is shorter, ok says that it may become some.
func hexDigits(b []byte, n int) (code uint32, ok bool) {
	for i := range min(n, len(b)) {
		c := fold(b[i])
		switch {
		case '0' <= c && c <= '9':
			code = code<<4 | uint32(c-'0')
		case 'a' <= c && c <= 'f':
			code = code<<4 | uint32(c-'a'+10)
		default:
			return 0, false
		}
	}
	return code, true
}
