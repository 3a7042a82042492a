package policy

import (
	"fmt"
	"strconv"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/nri-blkio/nri-blkio/blkio"
)

// RuleFor returns a rule with a model and latency targets for a disk. It matches all drives of the disk's
// model, or the disk's name if its model is not known, as for virtual disks.
func RuleFor(d Disk, model blkio.CostModel, qos blkio.CostQOS) DiskRule {
	r := DiskRule{Weights: WeightsAuto, Model: &model, QOS: &qos}
	if d.Model == "" {
		r.Match.Names = []string{literal(d.Name)}
	} else {
		r.Match.Models = []string{literal(d.Model)}
	}
	return r
}

// literal returns the pattern of [path.Match] that matches a text only. A file cannot have bytes
// that are not UTF-8, so any character matches these.
func literal(text string) string {
	var out strings.Builder
	for _, r := range text {
		switch {
		case r == utf8.RuneError:
			r = '?'
		case strings.ContainsRune(`\*?[`, r):
			out.WriteByte('\\')
		}
		out.WriteRune(r)
	}
	return out.String()
}

// FormatDisks formats rules as the field disks of a policy file. ParseFile is its inverse.
func FormatDisks(rules []DiskRule) string {
	var out strings.Builder
	out.WriteString("disks:\n")
	for _, r := range rules {
		fmt.Fprintf(&out, "- match: {%s}\n", strings.Join(r.Match.pairs(), ", "))
		if r.Weights != WeightsAuto {
			fmt.Fprintf(&out, "  weights: %q\n", r.Weights)
		}
		if r.Follow == FollowOff {
			out.WriteString("  follow: \"off\"\n")
		}
		if r.Model != nil {
			fmt.Fprintf(&out, "  model: {%s}\n", strings.Join(yamlPairs(r.Model.String()), ", "))
		}
		if r.QOS != nil {
			fmt.Fprintf(&out, "  qos: {%s}\n", strings.Join(qosPairs(r.QOS), ", "))
		}
	}
	return out.String()
}

func (m *DiskMatch) pairs() (out []string) {
	for _, list := range []struct {
		name     string
		patterns []string
	}{{"names", m.Names}, {"models", m.Models}} {
		if len(list.patterns) == 0 {
			continue
		}
		quoted := make([]string, len(list.patterns))
		for i, p := range list.patterns {
			quoted[i] = strconv.Quote(p) // all of Go's escapes are YAML's
		}
		out = append(out, list.name+": ["+strings.Join(quoted, ", ")+"]")
	}
	if m.Rotational != nil {
		out = append(out, fmt.Sprintf("rotational: %t", *m.Rotational))
	}
	return out
}

// yamlPairs makes "NAME: VALUE" of each "NAME=VALUE".
func yamlPairs(line string) []string {
	pairs := strings.Fields(line)
	for i, pair := range pairs {
		pairs[i] = strings.Replace(pair, "=", ": ", 1)
	}
	return pairs
}

func qosPairs(q *blkio.CostQOS) (out []string) {
	percent := func(name string, p blkio.Percent) {
		out = append(out, name+": "+strings.TrimSuffix(p.String(), ".00"))
	}
	target := func(name string, p blkio.Percent, latency time.Duration) {
		percent(name+"pct", p)
		out = append(out, name+"lat: "+strings.Replace(latency.String(), "µs", "us", 1)) // ASCII
	}
	target("r", q.RPct, q.RLat)
	target("w", q.WPct, q.WLat)
	percent("min", q.Min)
	percent("max", q.Max)
	return out
}
