// Whether a project's file may be obeyed, and what the user has to see before he
// says so. Pure.

package trust

import (
	"slices"

	"ai-sandbox/cmd/ai-sandbox/internal/config"
)

// A Decision is about the file of one project as it is now.
type Decision struct {
	// Obey: a run may go on with the file.
	Obey bool
	// Trusted: it is what the user has trusted. Known: he has trusted something
	// in this project, this or another.
	Trusted, Known bool
	// Diff is every setting of the file, and every line of its scripts, against those
	// that were trusted.
	Diff []Line
}

// A Line is one of a diff.
type Line struct {
	Op   byte // '+', '-' or ' '
	Text string
	// Widens: it lets a run do more than it could without the file; of a line
	// that is gone, more than with it.
	Widens bool

	// Script: it is of a script that the file has run, and no setting.
	Script bool

	item config.Item // zero where the line begins a profile, or is a script's
}

// Changed tells whether a line of the diff is new or gone.
func (l Line) Changed() bool { return l.Op != ' ' }

// Decide judges the project's file of the layers. trusted is the file that the
// user has trusted in this project, if known.
//
// A file that is gone, or has lost a line, is judged against that one: what the
// user relies on does not go away in silence.
func Decide(l config.Layers, trusted config.File, known bool) Decision {
	d := Decision{Known: known, Trusted: known && l.Project.Same(trusted)}
	wider := l.Wider(config.File{})
	var lost []config.Item
	if known {
		lost = l.Wider(trusted)
	}
	d.Obey = d.Trusted || len(wider) == 0 && len(lost) == 0

	// The settings of a profile that is not chosen now are shown with what they
	// would do if it were.
	for _, p := range slices.Concat(l.Project.Profiles, trusted.Profiles) {
		as := l
		as.Flags = append(slices.Clone(l.Flags), config.Item{Key: "profile", Value: p.Name})
		wider = append(wider, as.Wider(config.File{})...)
		if known {
			lost = append(lost, as.Wider(trusted)...)
		}
	}
	d.Diff = diff(trusted.Reviewed(), l.Project.Reviewed())
	for i, line := range d.Diff {
		by := append(slices.Clone(wider), lost...)
		if line.Op == '-' {
			by = slices.DeleteFunc(slices.Clone(lost), config.Item.FromProject)
		}
		d.Diff[i].Widens = slices.ContainsFunc(by, func(it config.Item) bool {
			// What stands in no file's place is due to the line that took it away.
			took := line.Op == '-' || line.item.Value == "" && !it.FromProject()
			return it.Key == line.item.Key && (it.Origin == line.item.Origin || took)
		})
	}
	return d
}

// maxTable bounds the work of a diff. Beyond it all is shown as new, which is
// less to read through than it seems: nobody has such a file.
const maxTable = 1 << 22

// diff is the shortest way from one file to another.
func diff(old, now []config.Line) []Line {
	var out []Line
	add := func(op byte, lines ...config.Line) {
		for _, l := range lines {
			out = append(out, Line{Op: op, Text: l.Text, Script: l.Script, item: l.Item})
		}
	}
	same := func(a, b config.Line) bool { return a.Profile == b.Profile && a.Text == b.Text }
	head := 0
	for head < len(old) && head < len(now) && same(old[head], now[head]) {
		head++
	}
	add(' ', now[:head]...)
	old, now = old[head:], now[head:]
	tail := 0
	for tail < len(old) && tail < len(now) && same(old[len(old)-1-tail], now[len(now)-1-tail]) {
		tail++
	}
	end := now[len(now)-tail:]
	old, now = old[:len(old)-tail], now[:len(now)-tail]
	if len(old)*len(now) > maxTable {
		add('-', old...)
		add('+', now...)
		add(' ', end...)
		return out
	}
	// common[i][j] is how many lines old[i:] and now[j:] have in common.
	common := make([][]int, len(old)+1)
	for i := len(old); i >= 0; i-- {
		common[i] = make([]int, len(now)+1)
		for j := len(now) - 1; j >= 0 && i < len(old); j-- {
			if same(old[i], now[j]) {
				common[i][j] = common[i+1][j+1] + 1
			} else {
				common[i][j] = max(common[i+1][j], common[i][j+1])
			}
		}
	}
	for i, j := 0, 0; i < len(old) || j < len(now); {
		switch {
		case i < len(old) && j < len(now) && same(old[i], now[j]):
			add(' ', now[j])
			i, j = i+1, j+1
		case i < len(old) && (j == len(now) || common[i+1][j] >= common[i][j+1]):
			add('-', old[i])
			i++
		default:
			add('+', now[j])
			j++
		}
	}
	add(' ', end...)
	return out
}
