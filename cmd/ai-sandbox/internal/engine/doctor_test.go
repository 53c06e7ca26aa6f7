package engine

import (
	"testing"
)

// Without an image nothing of a sandbox was looked at, and each of it is told so.
func TestUntriedIsNotWell(t *testing.T) {
	list := untried()
	for _, v := range list {
		if v.OK() || !v.Untried() || v.Fix != "ai-sandbox build" {
			t.Errorf("%+v", v)
		}
	}
	if len(list) != 4 {
		t.Errorf("%+v", list)
	}
}
