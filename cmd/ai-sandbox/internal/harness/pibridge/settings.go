// The settings that a sandbox gets.

package pibridge

import (
	"fmt"
)

// followed are the settings that are the same in a sandbox.
var followed = map[string]shape{
	"autocompleteMaxVisible": number, "cacheWarming": word("off", "streaming", "idle"), "collapseChangelog": truth,
	"branchSummary": fields(map[string]shape{"reserveTokens": number, "skipPrompt": truth}, unknown),
	"codemode":      fields(map[string]shape{"mode": word("on", "only"), "inlineBudget": number}, unknown),
	"compaction": fields(map[string]shape{
		"enabled": truth, "reserveTokens": number, "keepRecentTokens": number,
		"modelOverrides": named(fields(all(number, "reserveTokens", "keepRecentTokens"), unknown)),
	}, unknown),
	"defaultModel": setting, "defaultProvider": setting, "defaultThinkingLevel": level, "defaultTools": listOf(setting),
	"defaultProjectTrust": word("ask", "always", "never"), "doubleEscapeAction": word("fork", "tree", "none"), "editorPaddingX": number,
	"enableAnalytics": truth, "enableInstallTelemetry": truth, "enableSkillCommands": truth, "enabledModels": listOf(setting),
	"followUpMode": queue, "fullscreenCopyOnSelect": truth, "fullscreenExitOutput": word("transcript", "resume-hint"),
	"fullscreenScrollbar": word("auto", "always", "hidden"), "fullscreenWheelScrollLines": either(number, word("auto")),
	"hideThinkingBlock": truth, "httpIdleTimeoutMs": timeout, "images": fields(all(truth, "autoResize", "blockImages"), unknown),
	"lastChangelogVersion": pattern(`^[0-9]{1,4}(\.[0-9]{1,4}){1,3}$`),
	"markdown":             fields(map[string]shape{"codeBlockIndent": pattern(`^[ \t]{0,16}$`), "mermaid": word("off", "final", "streaming")}, unknown),
	"modelThinkingLevels":  named(level), "outputPad": number, "queueMode": queue, "quietStartup": either(truth, word("header")),
	"retry": fields(joined(retries, map[string]shape{
		"enabled": truth, "provider": fields(retries, unknown),
	}), unknown),
	"sessionShareDestination": word("auto", "gist", "radius"), "showCacheMissNotices": truth, "showHardwareCursor": truth,
	"steeringMode": queue,
	"terminal": fields(joined(all(truth, "showImages", "clearOnShrink", "showTerminalProgress"), map[string]shape{
		"imageWidthCells": number, "hyperlinks": autoOrTruth, "trueColor": autoOrTruth, "images": either(word("kitty", "iterm2", "auto"), truth),
	}), unknown),
	"theme": setting, "thinkingBudgets": fields(all(number, levels...), unknown),
	"transport":      word("auto", "sse", "websocket", "websocket-cached"),
	"treeFilterMode": word("default", "no-tools", "user-only", "labeled-only", "all"), "tuiMode": word("regular", "fullscreen"),
	"warnings": fields(all(truth, "anthropicExtraUsage"), unknown), "websocketConnectTimeoutMs": timeout, "websockets": truth,
}

var (
	queue       = word("all", "one-at-a-time")
	timeout     = either(number, word("disabled"))
	autoOrTruth = either(truth, word("auto"))
	retries     = all(number, "maxRetries", "baseDelayMs", "maxAgentDelayMs", "maxDelayMs", "timeoutMs", "maxRetryDelayMs")
)

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
		case followed[m.name] == nil:
			b.drop(b.below("", m.name), m.value, "pi has no such setting")
		default:
			b.put(out, m.name, m.name, m.value, followed[m.name])
		}
	}
	return out
}

var ours = pattern(`^[+!-]?builtin:[a-z_-]{1,20}$`)

// builtin keeps which of pi's own extensions are on.
func (b *bridge) builtin(out *object, v any) {
	list, ok := v.([]any)
	if !ok {
		b.drop("extensions", v, "it is no list")
		return
	}
	kept := []any{}
	for i, e := range list {
		if _, why := ours(b, "", e); why == "" {
			kept = append(kept, e)
		} else {
			b.drop(fmt.Sprintf("extensions.%d", i), e, left["extensions"])
		}
	}
	if len(kept) > 0 {
		out.set("extensions", kept)
	}
}
