// The limits as the settings have them.

package cli

import (
	"ai-sandbox/cmd/ai-sandbox/internal/config"
	"ai-sandbox/policy"
)

func limits(s config.Settings) policy.LimitInputs {
	of := func(key string) policy.LimitInput {
		if len(s[key]) == 0 {
			return policy.LimitInput{}
		}
		in := policy.LimitInput{Text: s[key][0].Value, Origin: s[key][0].Origin}
		if in.Origin == config.BuiltIn {
			in.Origin = ""
		}
		return in
	}
	return policy.LimitInputs{Memory: of("memory"), CPUs: of("cpus"), Pids: of("pids"), Time: of("time"), Disk: of("disk")}
}
