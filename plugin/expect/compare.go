package expect

import (
	"context"
	"maps"
	"slices"
	"strconv"
	"strings"

	"github.com/nri-blkio/nri-blkio/blkio"
	"github.com/nri-blkio/nri-blkio/plugin/check"
	"github.com/nri-blkio/nri-blkio/plugin/manifest"
	"github.com/nri-blkio/nri-blkio/policy"
	"github.com/nri-blkio/nri-blkio/policy/annotation"
	"github.com/nri-blkio/nri-blkio/policy/spelling"
)

// Difference is a decision that is not the expected one.
type Difference struct {
	Container string `json:"container,omitempty"` // "" for the pod
	Field     string `json:"field"`               // and the target and the key
	Got       string `json:"got"`
	Want      string `json:"want"`
}

// String returns one line: "container NAME: FIELD: got X, want Y".
func (d Difference) String() string {
	text := d.Field + ": got " + d.Got + ", want " + d.Want
	if d.Container != "" {
		text = "container " + d.Container + ": " + text
	}
	return text
}

// Compare decides for a pod, and returns the differences from the expectations of the case. It also returns the
// errors of the pod that the differences do not show.
func (c *Case) Compare(ctx context.Context, checker *check.Checker, m *manifest.Pod) (_ []Difference, notes []string) {
	r := checker.Pod(ctx, m)
	cmp := comparison{checker: checker, pod: m}
	got, want := &r.Decided, &c.want
	cmp.text("rule", orNone(r.Rule), want.rule)
	if want.mode != nil {
		cmp.text("mode", string(got.Mode), (*string)(want.mode))
	}
	if want.ignored != nil && *want.ignored != got.IgnoresAnnotations {
		cmp.differ("annotationsIgnored", strconv.FormatBool(got.IgnoresAnnotations), strconv.FormatBool(*want.ignored))
	}
	var names []string
	for i := range got.Containers {
		d := &got.Containers[i]
		names = append(names, d.Container)
		cmp.container = d.Container
		cmp.created(want.each, want.named[d.Container], d.Refused)
		cmp.cgroup(ctx, want.each, d)
		cmp.cgroup(ctx, want.named[d.Container], d)
	}
	cmp.container = ""
	for _, text := range got.Unknown {
		cmp.differ("annotations", text, "containers of the pod")
	}
	cmp.absent(want, names)
	cmp.prefix = "podTotal "
	cmp.cgroup(ctx, want.total, &got.Total)
	return cmp.out, cmp.hidden(r.Errors)
}

// hidden returns the errors that no difference shows; none without a difference.
func (c *comparison) hidden(errs []string) []string {
	if len(c.out) == 0 {
		return nil
	}
	return slices.DeleteFunc(slices.Clone(errs), func(err string) bool {
		return slices.ContainsFunc(c.out, func(d Difference) bool {
			return (d.Field == "refused" || d.Field == "annotations") && strings.HasSuffix(err, d.Got) // before it can be FILE:LINE
		})
	})
}

// comparison gathers differences.
type comparison struct {
	checker   *check.Checker
	pod       *manifest.Pod
	container string // that is compared; "" for the pod
	prefix    string // of the fields
	out       []Difference
}

func (c *comparison) differ(field, got, want string) {
	c.out = append(c.out, Difference{c.container, c.prefix + field, got, want})
}

// text compares a field; nil is not compared.
func (c *comparison) text(field, got string, want *string) {
	if want != nil && *want != got {
		c.differ(field, got, *want)
	}
}

// absent reports containers that the pod does not have.
func (c *comparison) absent(want *pod, names []string) {
	for _, name := range slices.Sorted(maps.Keys(want.named)) {
		if slices.Contains(names, name) {
			continue
		}
		got := "no such container"
		if hint := spelling.Hint(name, names...); hint != "" {
			got += " (" + hint + ")"
		}
		c.differ("containers", got, name)
	}
}

// cgroup compares the decision about a container or about the pod as a whole; nil is not compared.
func (c *comparison) cgroup(ctx context.Context, want *cgroup, got *check.Decision) {
	if want == nil {
		return
	}
	c.text("class", orNone(got.Class), want.class)
	c.refused(want.refused, got.Refused)
	if want.limits != nil && len(want.limits) == 0 {
		for _, s := range got.Settings {
			if s.Key.IsRate() && s.Amount != blkio.Max {
				c.differ("limits", s.Key.String()+"="+annotation.FormatAmount(s.Key, s.Amount)+origin(s.Source, got, got.Disks[s.Dev]), None)
			}
		}
	}
	for i := range want.limits {
		c.limit(ctx, &want.limits[i], got)
	}
	for i := range want.weights {
		c.weight(ctx, &want.weights[i], got)
	}
}

// created reports a container that is rejected although the case expects values of it, and no rejection. It has
// no limits then, as it does not exist.
func (c *comparison) created(each, named *cgroup, refused string) {
	if refused == "" || each != nil && each.refused != nil || named != nil && named.refused != nil {
		return
	}
	if each.hasValues() || named.hasValues() {
		c.differ("refused", refused, "false")
	}
}

// hasValues reports whether limits or weights are expected. It returns false for nil.
func (c *cgroup) hasValues() bool { return c != nil && (c.limits != nil || len(c.weights) > 0) }

// refused compares whether a container is refused, and why.
func (c *comparison) refused(want *refusal, got string) {
	switch {
	case want == nil:
	case !want.expected && got != "":
		c.differ("refused", got, "false")
	case want.expected && got == "" && want.part == "":
		c.differ("refused", "false", "true")
	case want.expected && got == "":
		c.differ("refused", "false", strconv.Quote(want.part))
	case !strings.Contains(got, want.part):
		c.differ("refused", got, strconv.Quote(want.part))
	}
}

// limit compares the limits on the disks of a target.
func (c *comparison) limit(ctx context.Context, want *limit, got *check.Decision) {
	for k, amount := range want.limits {
		if amount == blkio.Unset {
			continue
		}
		key := blkio.Key(k)
		field, text := "limits "+want.target+" "+key.String(), annotation.FormatAmount(key, amount)
		for _, disk := range c.disks(ctx, "limits", limitEntry(want.target, key), field, text) {
			s := settingOf(got, key, disk)
			if s.Amount == blkio.Unset {
				s.Amount = blkio.Max
			}
			if s.Amount != amount {
				c.differ(field, annotation.FormatAmount(key, s.Amount)+origin(s.Source, got, disk), text)
				continue
			}
			c.from(field, want.from, s.Source, disk)
		}
	}
}

// weight compares the weight on the disks of a target, or that on all disks.
func (c *comparison) weight(ctx context.Context, want *limit, got *check.Decision) {
	field, text := "weight", weightText(want.weight)
	disks := []string{""}
	if want.target != "" {
		field += " " + want.target
		disks = c.disks(ctx, "weight", want.target+" 1", field, text)
	}
	for _, disk := range disks {
		s, _ := got.Settings.Weight()
		if own := settingOf(got, blkio.DiskWeight, disk); disk != "" && own.Amount != blkio.Unset {
			s = own
		}
		if s.Amount != want.weight {
			c.differ(field, weightText(s.Amount)+origin(s.Source, got, disk), text)
			continue
		}
		c.from(field, want.from, s.Source, disk)
	}
}

// disks returns the names of the disks that an entry selects. Without a disk it adds a difference.
func (c *comparison) disks(ctx context.Context, kind, entry, field, want string) []string {
	names, err := c.checker.Select(ctx, c.pod, c.container, kind, entry)
	switch {
	case err != nil:
		c.differ(field, "no disk: "+err.Error(), want)
		return nil
	case len(names) == 0:
		c.differ(field, "no disk: no container has it", want)
	}
	return names
}

// from compares the source of a value.
func (c *comparison) from(field, want string, got policy.Source, disk string) {
	if want == "" || isSource(want, got) || want == None && got == (policy.Source{}) {
		return
	}
	text := None
	if got != (policy.Source{}) {
		text = got.String()
	}
	if disk != "" {
		text += " on " + disk
	}
	c.differ(field+" from", text, want)
}

// isSource reports whether a text names a source as check prints it, or the first words of that:
// "rule batch" for "rule batch, class bronze #1".
func isSource(text string, s policy.Source) bool {
	rest, ok := strings.CutPrefix(s.String(), text)
	return ok && (rest == "" || strings.ContainsRune(" ,:", rune(rest[0])))
}

// origin returns the disk and the source of a value, or why there is none.
func origin(s policy.Source, d *check.Decision, disk string) (text string) {
	if disk != "" {
		text = " on " + disk
	}
	switch {
	case s != (policy.Source{}):
		text += " from " + s.String()
	case d.Refused != "":
		text += " (the container is refused)"
	}
	return text
}

// settingOf returns the setting for a key on a disk. Its amount is [blkio.Unset] if there is none.
func settingOf(d *check.Decision, k blkio.Key, disk string) policy.Setting {
	for _, s := range d.Settings {
		if s.Key == k && d.Disks[s.Dev] == disk {
			return s
		}
	}
	return policy.Setting{Value: blkio.Value{Address: blkio.Address{Key: k}}}
}

func weightText(w blkio.Amount) string {
	if w == blkio.Unset {
		return None
	}
	return w.String()
}

func orNone(s string) string {
	if s == "" {
		return None
	}
	return s
}
