package policy

import (
	"reflect"
	"testing"
)

// What a first build has pinned is not marked any more, and the policy is as if the
// digest had been known.
func TestOnImage(t *testing.T) {
	resolve := func(in Input) Policy {
		t.Helper()
		p, err := Resolve(in)
		if err != nil {
			t.Fatal(err)
		}
		return p
	}
	in := plain()
	pinned := in.Image
	was := resolve(in)
	in.Image.BaseDigest = ""
	before := resolve(in)
	marked := before.Unusual[0]
	if marked != unpinned || reflect.DeepEqual(before, was) {
		t.Fatalf("without a digest it is marked %q", before.Unusual)
	}
	if p := before.On(pinned); !reflect.DeepEqual(p, was) {
		t.Errorf("on a pinned base it is marked %q, and not %q", p.Unusual, was.Unusual)
	}
	if before.Unusual[0] != marked || before.Image.BaseDigest != "" {
		t.Error("the policy of before has changed")
	}
	if p := was.On(in.Image); !reflect.DeepEqual(p, before) {
		t.Errorf("on a base without a digest it is marked %q, and not %q", p.Unusual, before.Unusual)
	}
}
