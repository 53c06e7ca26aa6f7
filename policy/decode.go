// Reading a printout back.

package policy

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/netip"
	"path"
	"slices"
	"strings"
	"unicode/utf8"
)

// MaxJSON is the most that Decode reads, in bytes. A list of a hundred thousand
// hosts is 3 MB.
const MaxJSON = 8 << 20

// Decode reads what JSON renders. It takes nothing else: no unknown field, no
// other version, nothing behind the value, nothing that no Policy of ours has.
// What it returns is not what a run may do: nothing but printouts is made of it.
func Decode(r io.Reader) (Policy, error) {
	const hint = "give what --print-policy=json prints"
	data, err := io.ReadAll(io.LimitReader(r, MaxJSON+1))
	switch {
	case err != nil:
		return Policy{}, fmt.Errorf("read the policy: %w", err)
	case len(data) > MaxJSON:
		return Policy{}, fmt.Errorf("the policy is longer than %d MiB; %s", MaxJSON>>20, hint)
	case !utf8.Valid(data):
		return Policy{}, errors.New("the policy is not UTF-8 text; " + hint)
	}
	// Its version first: another one may have any fields.
	var v struct {
		Version *int `json:"version"`
	}
	if err := json.Unmarshal(data, &v); err != nil || v.Version == nil {
		return Policy{}, errors.New("it is no policy in JSON; " + hint)
	}
	if *v.Version != SchemaVersion {
		return Policy{}, fmt.Errorf("the policy has version %d, and this ai-sandbox knows %d; print it anew with this one", *v.Version, SchemaVersion)
	}
	var p Policy
	d := json.NewDecoder(bytes.NewReader(data))
	d.DisallowUnknownFields()
	if err := d.Decode(&p); err != nil {
		return Policy{}, fmt.Errorf("the policy can't be read (%s); %s of this ai-sandbox", Printable(err.Error()), hint)
	}
	if _, err := d.Token(); !errors.Is(err, io.EOF) {
		return Policy{}, errors.New("something follows the policy; " + hint + " alone")
	}
	if err := plainKeys(data); err != nil {
		return Policy{}, fmt.Errorf("the policy can't be read (%w); %s of this ai-sandbox", err, hint)
	}
	if err := p.check(); err != nil {
		return Policy{}, fmt.Errorf("the policy makes no sense: %w; %s", err, hint)
	}
	return p, nil
}

// plainKeys refuses a key that stands twice in an object, or in other letters than
// a printout's: encoding/json takes both, and the last one counts or adds to the
// first (RFC 8259, section 4: what software makes of it is unpredictable). data is
// what has been decoded, so its keys are a Policy's but for upper and lower case.
func plainKeys(data []byte) error {
	type level struct {
		object, value bool // value: the key of an object has been read
		seen          map[string]bool
	}
	stack := []level{{}}
	for d := json.NewDecoder(bytes.NewReader(data)); ; {
		t, err := d.Token()
		if errors.Is(err, io.EOF) {
			return nil
		}
		if err != nil {
			return fmt.Errorf("read JSON: %w", err)
		}
		if t == json.Delim('}') || t == json.Delim(']') {
			stack = stack[:len(stack)-1]
			continue
		}
		in := &stack[len(stack)-1]
		if key, ok := t.(string); ok && in.object && !in.value {
			switch {
			case strings.Trim(key, keyLetters) != "":
				return fmt.Errorf("%s is not written as in a printout", Quote(cut(key)))
			case in.seen[key]:
				return fmt.Errorf("%s stands there twice", Quote(key))
			}
			in.seen[key], in.value = true, true
			continue
		}
		in.value = false
		switch t {
		case json.Delim('{'):
			stack = append(stack, level{object: true, seen: map[string]bool{}})
		case json.Delim('['):
			stack = append(stack, level{})
		}
	}
}

// keyLetters are those of the keys in a printout.
const keyLetters = "abcdefghijklmnopqrstuvwxyz0123456789_"

// check refuses what no printout of ours says, as far as what reads a Policy
// relies on it.
func (p Policy) check() error {
	known := func(what, value string, values ...string) error {
		if !slices.Contains(values, value) {
			return fmt.Errorf("%s %s is not known", what, Quote(value))
		}
		return nil
	}
	errs := []error{
		known("runtime", p.Runtime, RuntimePodman, RuntimeLocal),
		known("isolation", p.Isolation, IsolationContainer, IsolationProcess),
		known("net", p.Net.Mode, NetGated, NetUnix, NetNone, NetHost),
		known("gate engine", p.Net.Engine, "", EngineSquid, EngineBuiltin),
	}
	if (p.Image == nil) != (p.Runtime == RuntimeLocal) {
		errs = append(errs, errors.New("an image goes with podman's runtime, and with no other"))
	}
	for _, m := range p.Mounts {
		errs = append(errs, known("kind of mount", m.Kind, kinds...))
		if !path.IsAbs(m.Target) || path.Clean(m.Target) != m.Target {
			errs = append(errs, fmt.Errorf("mount point %s is not a plain absolute path", Quote(m.Target)))
		}
		if m.Kind == KindBind && (!path.IsAbs(m.Source) || path.Clean(m.Source) != m.Source) {
			errs = append(errs, fmt.Errorf("mount source %s is not a plain absolute path", Quote(m.Source)))
		}
		if m.SizeBytes < 0 {
			errs = append(errs, fmt.Errorf("the size at %s is negative", Quote(m.Target)))
		}
		if !hexOrEmpty(m.ContentSHA256) {
			errs = append(errs, fmt.Errorf("the hash at %s is none", Quote(m.Target)))
		}
	}
	if u := p.Net.Upstream; u != nil {
		if again, err := ParseUpstream(u.URL()); err != nil || again.Host != u.Host || again.Port != u.Port {
			errs = append(errs, errors.New("the upstream proxy is no host with a port"))
		}
	}
	for _, x := range p.Publish {
		if a, err := netip.ParseAddr(x.Addr); err != nil || a.Zone() != "" {
			errs = append(errs, fmt.Errorf("%s, where a port is published, is no address", Quote(x.Addr)))
		}
	}
	for _, f := range p.Home.Seeds {
		if !hexOrEmpty(f.ContentSHA256) {
			errs = append(errs, fmt.Errorf("the hash of %s is none", Quote(f.Path)))
		}
	}
	for _, f := range p.Home.Managed {
		if !hexOrEmpty(f.ContentSHA256) {
			errs = append(errs, fmt.Errorf("the hash of %s is none", Quote(f.Path)))
		}
	}
	for _, e := range p.Env {
		errs = append(errs, known("origin of a variable", e.From, FromFixed, FromProxy, FromCA, FromHost, FromHarness, FromFile, FromConstant))
		if !ValidEnvName(e.Name) {
			errs = append(errs, fmt.Errorf("%s is not a variable's name", Quote(e.Name)))
		}
	}
	return errors.Join(errs...)
}

// kinds are all of Mount.Kind.
var kinds = []string{KindBind, KindVolume, KindTmpfs, KindProc, KindDev, KindSys, KindSymlink, KindFile, KindProgram}

func hexOrEmpty(s string) bool { return strings.Trim(s, "0123456789abcdef") == "" }

// covered tells whether every address of a prefix is in one of list.
func covered(list []netip.Prefix, p netip.Prefix) bool {
	inside := false
	for _, o := range list {
		if o.Bits() <= p.Bits() && o.Contains(p.Addr()) {
			return true
		}
		inside = inside || p.Contains(o.Addr()) && o.Bits() > p.Bits()
	}
	if !inside {
		return false
	}
	// Some of it is; both halves have to be.
	low := netip.PrefixFrom(p.Addr(), p.Bits()+1)
	return covered(list, low) && covered(list, upper(low))
}

// upper is the other half of a prefix's parent.
func upper(low netip.Prefix) netip.Prefix {
	b := low.Addr().AsSlice()
	bit := low.Bits() - 1
	b[bit/8] |= 0x80 >> (bit % 8)
	a, _ := netip.AddrFromSlice(b)
	return netip.PrefixFrom(a, low.Bits())
}
