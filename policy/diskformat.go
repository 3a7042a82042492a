package policy

import (
	"fmt"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/nri-blkio/nri-blkio/blkio"
)

// FormatRule formats a rule with a model and latency targets for a disk as the field disks of a policy file. It matches all drives of
// the disk's model, or the disk's name if its model is not known, as for virtual disks.
func FormatRule(d Disk, model blkio.CostModel, qos blkio.CostQOS) string {
	list, name := "models", d.Model
	if name == "" {
		list, name = "names", d.Name
	}
	percent := func(p blkio.Percent) string { return strings.TrimSuffix(p.String(), ".00") }
	latency := func(d time.Duration) string { return strings.Replace(d.String(), "µs", "us", 1) } // ASCII
	// All of Go's escapes in a quoted text are YAML's.
	return fmt.Sprintf("disks:\n- match: {%s: [%q]}\n  model: {%s}\n  qos: {rpct: %s, rlat: %s, wpct: %s, wlat: %s, min: %s, max: %s}\n",
		list, literal(name), strings.NewReplacer("=", ": ", " ", ", ").Replace(model.String()),
		percent(qos.RPct), latency(qos.RLat), percent(qos.WPct), latency(qos.WLat), percent(qos.Min), percent(qos.Max))
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
