// The settings that a sandbox gets.

package pibridge

import (
	"fmt"
	"slices"
	"strings"
)

// followed are the settings that are the same in a sandbox, but for what in them
// leads to this machine's home.
var followed = []string{
	"autocompleteMaxVisible", "branchSummary", "cacheWarming", "codemode", "collapseChangelog", "compaction", "defaultModel",
	"defaultProjectTrust", "defaultProvider", "defaultThinkingLevel", "defaultTools", "doubleEscapeAction", "editorPaddingX",
	"enableAnalytics", "enableInstallTelemetry", "enableSkillCommands", "enabledModels", "followUpMode", "fullscreenCopyOnSelect",
	"fullscreenExitOutput", "fullscreenScrollbar", "fullscreenWheelScrollLines", "hideThinkingBlock", "httpIdleTimeoutMs", "images",
	"lastChangelogVersion", "markdown", "modelThinkingLevels", "outputPad", "queueMode", "quietStartup", "retry",
	"sessionShareDestination", "showCacheMissNotices", "showHardwareCursor", "steeringMode", "terminal", "theme", "thinkingBudgets",
	"transport", "treeFilterMode", "tuiMode", "warnings", "websocketConnectTimeoutMs", "websockets",
}

// left are the settings that stay on this machine, with the reason.
var left = map[string]string{
	"httpProxy":                  "a sandbox has a proxy of its own, and this may hold a login",
	"sessionDir":                 "it is a directory of this machine",
	"shellPath":                  "it is a program of this machine",
	"externalEditor":             "it is a program of this machine",
	"npmCommand":                 "it is a program of this machine",
	"selfUpdateCommand":          "it is a program of this machine",
	"shellCommandPrefix":         "it is shell text of this machine, and may hold a key",
	"deviceId":                   "it tells this machine from others",
	"trackingId":                 "it tells this machine from others",
	"packages":                   "they are code of this machine; --harness-extra brings what is wanted",
	"skills":                     "they are files of this machine",
	"prompts":                    "they are files of this machine",
	"themes":                     "they are files of this machine",
	"extensions":                 "they are code of this machine",
	"extensionChangelogVersions": "no extension comes along",
}

func (b *bridge) settings(top *object) *object {
	out := &object{}
	for _, m := range top.members {
		switch why := left[m.name]; {
		case m.name == "$schema":
		case m.name == "extensions":
			b.builtin(out, m.value)
		case why != "":
			b.drop(m.name, m.value, why)
		case !slices.Contains(followed, m.name):
			b.drop(m.name, m.value, "pi has no such setting")
		default:
			b.copyTo(out, m.name, m.name, m.value, false)
		}
	}
	if v, ok := out.get("defaultProvider").(string); ok {
		b.out.Default = v
	}
	return out
}

// builtin keeps which of pi's own extensions are on.
func (b *bridge) builtin(out *object, v any) {
	list, ok := v.([]any)
	if !ok {
		b.drop("extensions", v, "it is no list")
		return
	}
	kept := []any{}
	for i, e := range list {
		if text, ok := e.(string); ok && strings.HasPrefix(strings.TrimLeft(text, "+-!"), "builtin:") {
			kept = append(kept, e)
		} else {
			b.drop(fmt.Sprintf("extensions.%d", i), e, left["extensions"])
		}
	}
	if len(kept) > 0 {
		out.set("extensions", kept)
	}
}
