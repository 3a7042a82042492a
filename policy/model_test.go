package policy

import (
	"cmp"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"

	"github.com/nri-blkio/nri-blkio/blkio"
	"github.com/nri-blkio/nri-blkio/policy/annotation"
)

// modelEntry is an entry of a class or an annotation: a rate for some keys, or a weight.
type modelEntry struct {
	target string
	values byKey[blkio.Amount]
}

// modelScope has the requests of the annotations of one scope.
type modelScope struct {
	limits, weights []modelEntry
	class           string // "" for no choice
}

type modelClass struct {
	limits []modelEntry
	weight blkio.Amount // 0 for none
}

type modelRule struct {
	class, annotations string
	bounds             modelBounds
}

// modelBounds has the largest and smallest values, [blkio.Unset] for none. The key of weights is
// [blkio.DiskWeight].
type modelBounds struct{ max, min byKey[blkio.Amount] }

// model is a policy, a pod, and its annotations, from which the test computes the decision in the simplest
// way. text is the policy's file.
type model struct {
	text        string
	classes     map[string]*modelClass
	rule        *modelRule  // that matches the pod; nil for none
	bounds      modelBounds // of the policy
	scopes      map[string]*modelScope
	annotations map[string]string
}

// modelDisks are the disks of each target in the container that [db] returns.
var modelDisks = map[string][]blkio.Disk{
	"disk:sd*": {sda, sdb, sdc}, "disk:sd[bc]": {sdb, sdc}, "disk:/dev/sdb": {sdb},
	"*": {sda, sdb, sdc}, "rootfs": {sda}, "/data": {sdb}, "/data/more": {sdb}, "@pgdata": {sdb}, "/logs": {sdb}, `"/data/wal/"`: {sdc}, "@wal": {sdc},
}

// rankOfDisk is the rank of targets by the name of a disk, of which the first one wins.
const rankOfDisk = 1

// modelRank returns the precedence of a target among those of one scope.
func modelRank(target string) int {
	switch {
	case target == "*":
		return 0
	case strings.HasPrefix(target, "disk:"):
		return rankOfDisk
	case target == "rootfs":
		return 2
	}
	return 3
}

// generator makes random models.
type generator struct{ *rand.Rand }

func (g generator) oneIn(n int) bool { return g.IntN(n) == 0 }

// rate returns a random rate that is not less than low of 4 times the floor.
func (g generator) rate(k blkio.Key, low int) blkio.Amount {
	if g.oneIn(10) {
		return blkio.Max
	}
	return Default().Floors.of(k) / 4 * blkio.Amount(low+g.IntN(20))
}

// entries returns up to n random entries for distinct targets. more are targets beside those of annotations.
func (g generator) entries(n, low int, weights bool, more ...string) (out []modelEntry) {
	targets := append([]string{"*", "rootfs", "/data", "/data/more", "@pgdata", "/logs", `"/data/wal/"`, "@wal"}, more...)
	g.Shuffle(len(targets), func(i, j int) { targets[i], targets[j] = targets[j], targets[i] })
	for _, target := range targets[:g.IntN(n+1)] {
		en := modelEntry{target: target}
		if en.values[blkio.DiskWeight] = blkio.Amount(1 + g.IntN(300)); !weights {
			en.values = byKey[blkio.Amount]{}
			for range 1 + g.IntN(3) {
				k := blkio.Key(g.IntN(int(blkio.NumLimits)))
				en.values[k] = g.rate(k, low)
			}
			if g.oneIn(3) {
				en.values[blkio.Wbps], en.values[blkio.Riops] = en.values[blkio.Rbps], en.values[blkio.Wiops]
			}
			if en.values == (byKey[blkio.Amount]{}) {
				en.values[blkio.Wbps] = g.rate(blkio.Wbps, low)
			}
		}
		out = append(out, en)
	}
	return out
}

// String returns an entry in the grammar of annotations.
func (en *modelEntry) String() string {
	text := en.target
	bytes, operations := en.values[blkio.Rbps], en.values[blkio.Riops]
	isBytes, isOperations := bytes == en.values[blkio.Wbps], operations == en.values[blkio.Wiops]
	if isBytes && bytes != blkio.Unset {
		text += " bps=" + annotation.FormatAmount(blkio.Rbps, bytes)
	}
	if isOperations && operations != blkio.Unset {
		text += " iops=" + annotation.FormatAmount(blkio.Riops, operations)
	}
	for k, v := range en.values {
		switch k := blkio.Key(k); {
		case v == blkio.Unset, isBytes && (k == blkio.Rbps || k == blkio.Wbps), isOperations && (k == blkio.Riops || k == blkio.Wiops):
		case k == blkio.DiskWeight:
			text += fmt.Sprintf(" %d", v)
		default:
			text += " " + k.String() + "=" + annotation.FormatAmount(k, v)
		}
	}
	return text
}

func texts(entries []modelEntry) (out []string) {
	for i := range entries {
		out = append(out, entries[i].String())
	}
	return out
}

// quoted returns a list in YAML.
func quoted(list []string) string {
	out := make([]string, len(list))
	for i, text := range list {
		out[i] = "'" + text + "'"
	}
	return "[" + strings.Join(out, ", ") + "]"
}

// bounds returns random bounds, and their text in YAML.
func (g generator) bounds() (b modelBounds, text string) {
	list := func(name string, of *byKey[blkio.Amount], rate map[bool]blkio.Amount) {
		for k := range blkio.NumLimits {
			if g.oneIn(3) {
				of[k] = rate[k.IsBytes()] * blkio.Amount(1+g.IntN(3))
			}
		}
		if *of != (byKey[blkio.Amount]{}) {
			text += name + ": " + quoted([]string{(&modelEntry{"*", *of}).String()}) + ", "
		}
	}
	list("max", &b.max, map[bool]blkio.Amount{true: 150 << 10, false: 20})
	list("min", &b.min, map[bool]blkio.Amount{true: 40 << 10, false: 4})
	weight := ""
	if g.oneIn(2) {
		b.max[blkio.DiskWeight] = blkio.Amount(50 + g.IntN(300))
		weight = fmt.Sprintf("max: %d", b.max[blkio.DiskWeight])
	}
	return b, "{" + text + "weight: {" + weight + "}}"
}

// policy adds a random policy.
func (g generator) policy(m *model) {
	var text string
	m.bounds, text = g.bounds()
	m.text = "bounds: " + text + "\nclasses:\n"
	if m.bounds.max[blkio.DiskWeight] == blkio.Unset {
		m.bounds.max[blkio.DiskWeight] = blkio.DefaultWeight
	}
	m.classes = map[string]*modelClass{}
	for _, name := range []string{"a", "b", "c"} {
		c := &modelClass{limits: g.entries(4, 4, false, "disk:sd*", "disk:sd[bc]", "disk:/dev/sdb")}
		fields := "limits: " + quoted(texts(c.limits))
		if len(c.limits) == 0 || g.oneIn(2) {
			c.weight = blkio.Amount(1 + g.IntN(300))
			fields += fmt.Sprintf(", weight: %d", c.weight)
		}
		m.classes[name] = c
		m.text += "  " + name + ": {" + fields + "}\n"
	}
	m.text += "rules:\n- {name: other, match: {namespaces: [other]}, class: a, annotations: reject}\n"
	if g.oneIn(6) {
		return
	}
	r := &modelRule{class: []string{"none", "a", "b", "c"}[g.IntN(4)], annotations: "allow"}
	if g.oneIn(6) {
		r.annotations = []string{"ignore", "reject"}[g.IntN(2)]
	}
	m.rule = r
	r.bounds, text = g.bounds()
	m.text += fmt.Sprintf("- {name: r, match: {namespaces: ['te*']}, class: %s, annotations: %s, bounds: %s}\n", r.class, r.annotations, text)
	m.text += "- {name: later, class: c, bounds: {weight: {max: 10000}}}\n"
}

// pod adds random annotations.
func (g generator) pod(m *model) {
	m.annotations, m.scopes = map[string]string{}, map[string]*modelScope{}
	for _, scope := range []string{"container.db", "containers", "pod-total"} {
		s := &modelScope{}
		if m.scopes[scope] = s; g.oneIn(2) {
			s.limits = g.entries(4, 3, false)
		}
		if g.oneIn(2) {
			s.weights = g.entries(3, 0, true)
		}
		if scope != "pod-total" && g.oneIn(3) {
			s.class = []string{"a", "b", "c", "absent"}[g.IntN(4)]
			g.annotate(m, keyClass+scope, s.class)
		}
		if len(s.limits) > 0 {
			g.annotate(m, "limits.blkio.noderesource.dev/"+scope, strings.Join(texts(s.limits), "; "))
		}
		if len(s.weights) > 0 {
			g.annotate(m, keyWeight+scope, strings.Join(texts(s.weights), "; "))
		}
	}
}

// annotate adds an annotation, for the scope containers also with the key without a scope. Beside limits with a scope there can be the
// annotation of a claim.
func (g generator) annotate(m *model, key, value string) {
	bare, hasBare := strings.CutSuffix(key, "/containers")
	if !hasBare || g.oneIn(2) {
		m.annotations[key] = value
	}
	switch {
	case hasBare && (m.annotations[key] == "" || g.oneIn(3)):
		m.annotations[bare] = value
	case hasBare && strings.HasPrefix(key, "limits.") && g.oneIn(2):
		m.annotations[bare] = "wbps=1Mi riops=100+3/Gi"
	}
}

// most returns the largest value of a key, and least the smallest one, for the annotations of the pod.
func (m *model) most(k blkio.Key) blkio.Amount {
	if m.rule != nil && m.rule.bounds.max[k] != blkio.Unset {
		return m.rule.bounds.max[k]
	}
	return cmp.Or(m.bounds.max[k], blkio.Max)
}

func (m *model) least(k blkio.Key) blkio.Amount {
	if m.rule != nil && m.rule.bounds.min[k] != blkio.Unset {
		return m.rule.bounds.min[k]
	}
	return m.bounds.min[k]
}

// within reports whether each value of an entry is within the bounds.
func (m *model) within(values *byKey[blkio.Amount]) bool {
	for k, v := range values {
		if k := blkio.Key(k); v != blkio.Unset && (v > m.most(k) || v < m.least(k)) {
			return false
		}
	}
	return true
}

// choice returns the class that an annotation chooses, nil if it cannot.
func (m *model) choice(name string) *modelClass {
	c := m.classes[name]
	if c == nil {
		return nil
	}
	var star byKey[blkio.Amount]
	star[blkio.DiskWeight] = blkio.DefaultWeight
	if c.weight != 0 {
		star[blkio.DiskWeight] = c.weight
	}
	for i := range c.limits {
		if !m.within(&c.limits[i].values) {
			return nil
		}
		if c.limits[i].target == "*" {
			copy(star[:blkio.NumLimits], c.limits[i].values[:])
		}
	}
	for k := range blkio.NumLimits {
		if m.most(k) != blkio.Max && star[k] == blkio.Unset {
			return nil
		}
	}
	if !m.within(&star) {
		return nil
	}
	return c
}

// asked returns the entries of a scope that count, by annotations.
func (m *model) asked(scope string) (out []modelEntry) {
	if m.rule != nil && m.rule.annotations != "allow" {
		return nil
	}
	for _, en := range slices.Concat(m.scopes[scope].weights, m.scopes[scope].limits) {
		low := false
		for k, v := range en.values[:blkio.NumLimits] {
			low = low || v != blkio.Unset && v < Default().Floors.of(blkio.Key(k))
		}
		if !low && m.within(&en.values) {
			out = append(out, en)
		}
	}
	return out
}

// class returns the entries of the class that counts.
func (m *model) class() []modelEntry {
	var c *modelClass
	if m.rule == nil || m.rule.annotations == "allow" {
		if c = m.choice(m.scopes["container.db"].class); c == nil {
			c = m.choice(m.scopes["containers"].class)
		}
	}
	if c == nil && m.rule != nil {
		c = m.classes[m.rule.class]
	}
	if c == nil {
		return nil
	}
	out := slices.Clone(c.limits)
	if c.weight != 0 {
		en := modelEntry{target: "*"}
		en.values[blkio.DiskWeight] = c.weight
		out = append(out, en)
	}
	return out
}

// decide returns the value of a key on a disk. The first scope with an entry for it decides. In that scope it
// is the target with the highest rank, and there the lowest value, or the first one of targets by name.
func decide(disk blkio.Disk, k blkio.Key, scopes ...[]modelEntry) blkio.Amount {
	for _, entries := range scopes {
		rank, value := -1, blkio.Unset
		for i := range entries {
			en := &entries[i]
			v := en.values[k]
			if v == blkio.Unset || !slices.Contains(modelDisks[en.target], disk) {
				continue
			}
			if r := modelRank(en.target); r > rank || r == rank && r != rankOfDisk && v < value {
				rank, value = r, v
			}
		}
		if rank >= 0 {
			return value
		}
	}
	return blkio.Unset
}
