package fake_test

import (
	"testing"

	"ai-sandbox/cmd/ai-sandbox/internal/backend/backendtest"
	"ai-sandbox/cmd/ai-sandbox/internal/backend/fake"
	"ai-sandbox/policy"
)

// TestContract: what stands for a backend behaves like one.
func TestContract(t *testing.T) {
	backendtest.Contract(t, backendtest.Target{
		Backend: fake.New(nil), Dir: t.TempDir(),
		Input: policy.Input{Runtime: policy.RuntimePodman},
	})
}
