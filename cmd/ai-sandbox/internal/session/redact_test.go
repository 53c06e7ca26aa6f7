package session

import (
	"encoding/json"
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"testing"

	"ai-sandbox/policy"
)

// fill puts text into every string of v, and one element into every slice.
func fill(t *testing.T, v reflect.Value, text string) {
	t.Helper()
	switch v.Kind() {
	case reflect.String:
		v.SetString(text)
	case reflect.Struct:
		for i := range v.NumField() {
			fill(t, v.Field(i), text)
		}
	case reflect.Slice:
		v.Set(reflect.MakeSlice(v.Type(), 1, 1))
		fill(t, v.Index(0), text)
	case reflect.Map: // the timings, by words of ours
		if v.Type() != reflect.TypeFor[map[string]float64]() {
			t.Errorf("a map of %s in the report: may it hold text?", v.Type())
		}
	case reflect.Pointer, reflect.Interface:
		t.Errorf("%s in the report is not looked at for secrets", v.Type())
	}
}

// Whatever a report says, and will say, is without secrets.
func TestReportHidesSecrets(t *testing.T) {
	var rep Report
	fill(t, reflect.ValueOf(&rep).Elem(), "at https://u:sesame-open-1@h/")
	before, err := json.Marshal(rep)
	if err != nil {
		t.Fatal(err)
	}
	after, err := json.Marshal(rep.redacted(policy.NewRedactor([]policy.Secret{policy.NewSecret("NAME", "sesame-open-1")})))
	if err != nil {
		t.Fatal(err)
	}
	n := strings.Count(string(before), "sesame")
	if strings.Contains(string(after), "sesame") || n < 8 || strings.Count(string(after), "[NAME]") != n {
		t.Errorf("%d: %s", n, after)
	}
	if again, _ := json.Marshal(rep); string(again) != string(before) {
		t.Error("the report itself was changed")
	}
}

// The log of a sandbox has no secret, however it was written, and all of the rest.
func TestLogHidesSecrets(t *testing.T) {
	l, err := openLog(filepath.Join(t.TempDir(), "log"))
	if err != nil {
		t.Fatal(err)
	}
	r := policy.NewRedactor([]policy.Secret{policy.NewSecret("NAME", "sesame-open-1")})
	stdout, stderr := r.Writer(l), r.Writer(l)
	for _, step := range []struct {
		w    *policy.Writer
		text string
	}{
		{stdout, "one ses"}, {stdout, "ame-open-1 two\n"}, // within a stream
		{stdout, "sesame-"}, {stderr, "open-1\n"}, // over both: the first part waits
		{stdout, "sesa"}, {stderr, "between\n"}, {stdout, "me-open-1"}, {stdout, " and sesame"},
	} {
		if _, err := step.w.Write([]byte(step.text)); err != nil {
			t.Fatal(err)
		}
	}
	for _, f := range []func() error{stdout.Close, stderr.Close} {
		if err := f(); err != nil {
			t.Fatal(err)
		}
	}
	l.Close()
	text, err := os.ReadFile(l.Name())
	if err != nil {
		t.Fatal(err)
	}
	if s := string(text); strings.Contains(s, "sesame-open") || !strings.HasPrefix(s, "one [NAME] two\n") || !strings.HasSuffix(s, "[NAME] and sesame") || !strings.Contains(s, "between\n") {
		t.Errorf("%q", s)
	}
}
