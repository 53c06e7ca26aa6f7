package cli

import (
	"bytes"
	"encoding/json"
	"errors"
	"slices"
	"strings"
	"testing"
	"time"

	"ai-sandbox/cmd/ai-sandbox/internal/config"
	"ai-sandbox/cmd/ai-sandbox/internal/host"
	"ai-sandbox/cmd/ai-sandbox/internal/imagebuild"
	"ai-sandbox/cmd/ai-sandbox/internal/session"
	"ai-sandbox/image"
	"ai-sandbox/tests/schema"
)

func TestUpdated(t *testing.T) {
	change := []image.Change{{Kind: "deb", Image: "gate", Name: "squid-openssl", From: "6.13-2", To: "6.13-2+deb13u1"}, {Kind: "npm", Name: "new\x1b[2J", To: "1"}}
	for _, c := range []struct {
		changes []image.Change
		fail    error
		check   bool
		code    int
		out     string
	}{
		{nil, nil, false, 0, "nothing is newer"},
		{change, nil, false, 0, "deb      squid-openssl (gate): 6.13-2 -> 6.13-2+deb13u1\nnpm      new\\x1b[2J: new, 1\n"},
		{nil, errors.New("no route"), false, exitFailed, ""}, // the verb makes it a 1
		{nil, nil, true, 0, "nothing is newer"},
		{change, nil, true, 1, "squid-openssl"},
		{change, errors.New("no route"), true, 2, ""},
	} {
		var b bytes.Buffer
		err := updated(&b, imagebuild.Outcome{Version: 1, Changes: c.changes, Notes: []string{}}, c.fail, c.check, false)
		if ExitCode(err) != c.code || !strings.Contains(b.String(), c.out) || c.out == "" && b.Len() > 0 {
			t.Errorf("%+v: %v: %s", c, err, b.String())
		}
	}
	var b bytes.Buffer
	if err := updated(&b, imagebuild.Outcome{Version: 1, Changes: change, Notes: []string{}}, nil, true, true); ExitCode(err) != 1 {
		t.Errorf("as JSON: %v", err)
	}
	var got imagebuild.Outcome
	if err := json.Unmarshal(b.Bytes(), &got); err != nil || !slices.Equal(got.Changes, change) {
		t.Errorf("%+v, %v", got, err)
	}
}

func TestFreshnessSettings(t *testing.T) {
	for _, c := range []struct {
		env  config.Environ
		want ImageRequest
		ok   bool
	}{
		{config.Environ{}, ImageRequest{BaseTTL: 7}, true},
		{config.Environ{"AISB_BASE_TTL_DAYS": "0", "AISB_BASE_AUTO_UPDATE": "0", "AISB_BASE_PULL_FALLBACK": "0"}, ImageRequest{KeepBase: true, NoPull: true}, true},
		{config.Environ{"AISB_BASE_TTL_DAYS": "-1", "AISB_BASE_AUTO_UPDATE": "1", "AISB_BASE_PULL_FALLBACK": "true"}, ImageRequest{BaseTTL: -1}, true},
		{config.Environ{"AISB_BASE_TTL_DAYS": "soon"}, ImageRequest{}, false},
		{config.Environ{"AISB_BASE_TTL_DAYS": "-2"}, ImageRequest{}, false},
		{config.Environ{"AISB_BASE_TTL_DAYS": "1.5"}, ImageRequest{}, false},
		{config.Environ{"AISB_BASE_AUTO_UPDATE": "no"}, ImageRequest{}, false},
	} {
		items, err := config.FromEnviron(c.env)
		if err != nil {
			t.Fatal(err)
		}
		s, err := config.Resolve(items)
		var got ImageRequest
		if err == nil {
			got, err = imageRequest(s, host.Facts{})
		}
		if (err == nil) != c.ok {
			t.Errorf("%v: %v", c.env, err)
		}
		if err != nil {
			if !strings.Contains(err.Error(), "from AISB_BASE_") {
				t.Errorf("%v: %v", c.env, err)
			}
			continue
		}
		if got.BaseTTL != c.want.BaseTTL || got.KeepBase != c.want.KeepBase || got.NoPull != c.want.NoPull {
			t.Errorf("%v: %+v", c.env, got)
		}
	}
}

func TestWriteInspection(t *testing.T) {
	now := time.Unix(1e9, 0).UTC()
	var b bytes.Buffer
	if err := writeInspection(&b, Inspection{Version: 1, Session: &session.Entry{Session: "0123456789ab", Runtime: "podman", Net: "gated", Started: now},
		EnforcedBy: "squid-openssl 6.13-2",
		Images: []InspectedImage{{Kind: "gate", Ref: "localhost/ai-sandbox-gate:x", ID: "abc", Created: now.Add(-50 * time.Hour), Labels: map[string]string{"aisb.kind": "gate\nx"},
			Base:     &InspectedBase{Ref: "docker.io/library/debian:x", Digest: "sha256:1", Today: "sha256:2", Moved: true},
			Packages: []image.Package{{Kind: "deb", Name: "squid-openssl", Version: "6.13-2"}}},
			{Base: &InspectedBase{Ref: "a.example/pinned", Digest: "sha256:3", Today: "sha256:3"}},
			{Base: &InspectedBase{Ref: "a.example/unpinned", Digest: image.Unpinned, Today: "sha256:4"}}}}, now); err != nil {
		t.Fatal(err)
	}
	for _, part := range []string{"enforced by  squid-openssl 6.13-2\n", "age          2 days", "sha256:2: it has moved", `label        aisb.kind=gate\nx`, "package      deb squid-openssl 6.13-2\n",
		"  digest     sha256:3\n  today      the same\n", "  digest     UNPINNED\n  today      sha256:4\n"} {
		if !strings.Contains(b.String(), part) {
			t.Errorf("no %q in\n%s", part, b.String())
		}
	}
}

// All that inspect writes as JSON is documented.
func TestInspectionIsDocumented(t *testing.T) {
	now := time.Unix(1e9, 0).UTC()
	for _, i := range []Inspection{
		{Version: 1, Images: []InspectedImage{}},
		{Version: 1, Session: &session.Entry{Session: "0123456789ab", Started: now, Runtime: "podman", Net: "gated", Engine: "squid", GateName: "team",
			EngineVersion: "6.13", SandboxImage: "s", GateImage: "g"}, EnforcedBy: "squid", Images: []InspectedImage{
			{Problem: "it is gone"},
			{Kind: "gate", Ref: "x", ID: "y", Problem: "z", Created: now, Size: 1, Labels: map[string]string{"aisb.kind": "gate"},
				Base:     &InspectedBase{Ref: "r", Digest: image.Unpinned, Pinned: now, Today: "t", Moved: true, Problem: "p"},
				Packages: []image.Package{{Kind: "deb", Name: "squid", Version: "6", Arch: "amd64"}, {Kind: "npm", Name: "x", Version: "1"}}},
		}},
	} {
		var b bytes.Buffer
		if err := writeJSON(&b, i); err != nil {
			t.Fatal(err)
		}
		if err := schema.Documented("../../../../docs/images.md", "inspect", b.Bytes()); err != nil {
			t.Error(err)
		}
	}
}
