//go:build e2e

package e2e

import (
	"testing"

	"ai-sandbox/tests/e2e/drive"
)

// TestSuspended is the same on each runtime: see drive.TestSuspended.
func TestSuspended(t *testing.T) {
	t.Parallel()
	drive.TestSuspended(t, newBox(t), "squid")
}

// TestManyAtOnce is the same on each runtime: see drive.TestManyAtOnce.
func TestManyAtOnce(t *testing.T) {
	b := newBox(t)
	b.OK("--net", "none", "--ephemeral-home", "--", "true") // makes what all have in common
	before := snapshot(t)
	drive.TestManyAtOnce(t, b, 30)
	nothingLeft(t, before)
}

// A session that runs out of files says so, and leaves nothing that the next does not
// remove: it takes files to remove files.
func TestFewFiles(t *testing.T) {
	b := newBox(t)
	b.OK("--net", "none", "--ephemeral-home", "--", "true") // makes what all have in common
	before := snapshot(t)
	drive.TestFewFiles(t, b)
	b.OK("clean")
	nothingLeft(t, before)
}
