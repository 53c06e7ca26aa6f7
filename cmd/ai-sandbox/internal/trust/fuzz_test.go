package trust

import (
	"encoding/json"
	"testing"
)

// A record is believed for the one project that it names and with the settings that
// its sum is over, and what is believed is what Save writes.
func FuzzRecord(f *testing.F) {
	const project = "/home/dev/shop"
	text := func(r record) string {
		data, err := json.Marshal(r)
		if err != nil {
			f.Fatal(err)
		}
		return string(data)
	}
	for _, s := range []string{"allow = a.example.com\n", "", "[profile x]\nnet = none\n", "allow = \nallow = b", "nonsense", "net = none # x\r\n"} {
		f.Add(text(record{version, project, sum(project, s, nil), s, nil}), s)
	}
	f.Add(text(record{version, "/other", sum("/other", "", nil), "", nil}), "allow=x")
	f.Add("{}", "\x00")
	f.Fuzz(func(t *testing.T, data, settings string) {
		signed, err := json.Marshal(record{version, project, sum(project, settings, nil), settings, nil})
		if err != nil {
			t.Fatal(err)
		}
		for _, data := range [][]byte{[]byte(data), signed} {
			file, err := parse("record", project, data)
			if err != nil {
				continue
			}
			if _, err := parse("record", project+"/x", data); err == nil {
				t.Errorf("%q is believed for another project", data)
			}
			canonical := file.Canonical()
			again, err := json.Marshal(record{version, project, sum(project, canonical, nil), canonical, nil})
			if err != nil {
				t.Fatal(err)
			}
			if same, err := parse("record", project, again); err != nil || same.Canonical() != canonical {
				t.Errorf("%q is saved as %q: %v", data, again, err)
			}
		}
		// A setting more or less, and the sum does not hold.
		other, err := json.Marshal(record{version, project, sum(project, settings, nil), settings + "allow = evil.example.com\n", nil})
		if err != nil {
			t.Fatal(err)
		}
		if _, err := parse("record", project, other); err == nil {
			t.Errorf("%q is believed", other)
		}
	})
}
