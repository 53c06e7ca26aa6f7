// Published ports, from the settings.

package cli

import (
	"errors"
	"fmt"

	"ai-sandbox/policy"
)

// publish are the entries, and the address of those that name none, or "".
func (s setup) publish() (list []policy.Publish, addr string, err error) {
	var errs []error
	for _, it := range s.settings["publish"] {
		p, err := policy.ParsePublish(it.Value)
		if err != nil {
			errs = append(errs, fmt.Errorf("%w (from %s)", err, it.Origin))
			continue
		}
		list = append(list, p)
	}
	for _, it := range s.settings["publish_addr"] {
		if addr, err = policy.ParsePublishAddr(it.Value); err != nil {
			errs = append(errs, fmt.Errorf("%w (from %s)", err, it.Origin))
		}
	}
	return list, addr, errors.Join(errs...)
}
