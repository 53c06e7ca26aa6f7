package cli

import (
	"bytes"
	"encoding/json"
	"fmt"
	"strings"
	"testing"

	"ai-sandbox/entrypoint/spec"
	"ai-sandbox/policy"
)

// What pi has in one line may be too large with a line for each value, and is brought
// in without them.
func TestPack(t *testing.T) {
	file := func(models int) *policy.HomeManaged {
		var list []map[string]string
		for i := range models {
			list = append(list, map[string]string{"id": fmt.Sprintf("model-%09d", i), "name": "A model"})
		}
		text, err := json.MarshalIndent(map[string]any{"a": map[string]any{"b": map[string]any{"models": list}}}, "", "  ")
		if err != nil {
			t.Fatal(err)
		}
		return &policy.HomeManaged{Path: "x.json", Content: text}
	}
	for models, state := range map[int]string{10: "as it is", 15000: "packed", 30000: "too large"} {
		f := file(models)
		was := f.Content
		err := pack(f)
		got := "packed"
		switch {
		case err != nil && strings.Contains(err.Error(), "--no-pi-config"):
			got = "too large"
		case bytes.Equal(f.Content, was):
			got = "as it is"
		}
		if got != state || err == nil && len(f.Content) > spec.MaxManaged {
			t.Errorf("%d models, %d bytes: %s, want %s: %v", models, len(was), got, state, err)
		}
	}
}
