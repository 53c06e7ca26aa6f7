// Secrets in what a session writes down and tells.

package session

import (
	"reflect"

	"ai-sandbox/policy"
)

// redacted is the report without the secrets that got into it: a reason may quote
// the command line, a refused host is what the command asked for, and a changed
// file has the name that it gave. All text is looked at, so that a new field is
// no gap.
func (rep Report) redacted(r *policy.Redactor) Report {
	if r == nil {
		return rep
	}
	hide(reflect.ValueOf(&rep).Elem(), r)
	return rep
}

// hide takes secrets out of the strings below v, and copies the slices that it
// changes. Keys of maps are words of ours.
func hide(v reflect.Value, r *policy.Redactor) {
	switch v.Kind() {
	case reflect.String:
		v.SetString(r.Text(v.String()))
	case reflect.Struct:
		for i := range v.NumField() {
			hide(v.Field(i), r)
		}
	case reflect.Slice:
		if v.IsNil() {
			return
		}
		own := reflect.MakeSlice(v.Type(), v.Len(), v.Len())
		reflect.Copy(own, v)
		for i := range own.Len() {
			hide(own.Index(i), r)
		}
		v.Set(own)
	}
}
