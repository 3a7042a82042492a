package migrate

import (
	"fmt"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"github.com/nri-blkio/nri-blkio/blkio"
	"github.com/nri-blkio/nri-blkio/policy"
	"github.com/nri-blkio/nri-blkio/policy/annotation"
	"github.com/nri-blkio/nri-blkio/policy/quote"
)

// Difference describes how a class of the node policy differs from the blockio class.
type Difference struct {
	Class string `json:"class"` // as the file has it
	Text  string `json:"text"`
}

// String returns "class NAME: TEXT" in printable ASCII.
func (d Difference) String() string {
	return quote.ASCII("class " + quote.Text(d.Class) + ": " + d.Text)
}

// Convert converts a file of blockio classes to the text of a node policy, which has the differences
// as comments.
//
// The weight stays the same number. It is relative to the default of 100 in both, if the disk has
// BFQ. Without BFQ runc and crun write 1+(w-10)*9999/990 to io.weight, whose default is 100 too.
func Convert(data []byte) (text string, _ []Difference, _ error) {
	classes, err := parse(data)
	if err != nil {
		return "", nil, err
	}
	c := conversion{floors: policy.Default().Floors, names: map[string]string{}, most: policy.Default().Bounds.MaxWeight}
	var body strings.Builder
	for i := range classes {
		from := len(c.differences)
		line, err := c.class(&classes[i])
		if err != nil {
			return "", nil, fmt.Errorf("convert blockio classes: %w", err)
		}
		for _, d := range c.differences[from:] {
			body.WriteString("  # " + d.String() + "\n")
		}
		body.WriteString("  " + line + "\n")
	}
	head := "apiVersion: " + annotation.Domain + "/v1alpha1\nkind: NodePolicy\n"
	if c.most > policy.Default().Bounds.MaxWeight {
		head += fmt.Sprintf("bounds: {weight: {max: %d}}  # so that annotations can choose each class; they can also request such a weight\n", c.most)
	}
	return head + "classes:\n" + body.String(), c.differences, nil
}

// conversion gathers the classes of a policy.
type conversion struct {
	floors      policy.Floors
	names       map[string]string // classes by their names in the policy
	most        int               // the largest weight
	differences []Difference
	current     string // name of the class that is converted
}

func (c *conversion) differ(format string, args ...any) {
	c.differences = append(c.differences, Difference{c.current, fmt.Sprintf(format, args...)})
}

// class converts a class to a line of the policy. The error is that the policy has no room for
// its devices, or another class has its name.
func (c *conversion) class(in *class) (string, error) {
	c.current = in.name
	name, err := c.name(in.name)
	if err != nil {
		return "", err
	}
	var fields []string
	switch limits := c.limits(in); {
	case len(limits) > annotation.MaxEntries:
		return "", fmt.Errorf("class %s has more than %d devices with limits (write patterns for them)", quote.Text(in.name), annotation.MaxEntries)
	case len(limits) > 0:
		fields = append(fields, "limits: ["+strings.Join(limits, ", ")+"]")
	}
	if weight := c.weight(in); weight != 0 {
		fields = append(fields, fmt.Sprintf("weight: %d", weight))
		c.most = max(c.most, int(weight))
	}
	if len(fields) == 0 { // a class has to have something: this is as good as nothing
		c.differ("it has neither limits nor a weight, so it has the default weight here")
		fields = []string{fmt.Sprintf("weight: %d", blkio.DefaultWeight)}
	}
	return `"` + name + `": {` + strings.Join(fields, ", ") + "}", nil // some names are not strings without quotes
}

// name returns the name of a class in the policy.
func (c *conversion) name(class string) (string, error) {
	name := policyName(class)
	if other, isUsed := c.names[name]; isUsed {
		return "", fmt.Errorf("classes %s and %s both become %s (rename one of them)", quote.Text(other), quote.Text(class), name)
	}
	c.names[name] = class
	if name != class {
		c.differ("its name is %s here", name)
	}
	return name, nil
}

// limits returns the limits of a class: quoted entries, of which the first one that matches a disk has precedence.
// In the file it is the last one.
func (c *conversion) limits(in *class) (out []string) {
	amounts, globs := make([]blkio.Limits, len(in.elements)), make([][]string, len(in.elements))
	for i := range in.elements {
		switch e := &in.elements[i]; {
		case e.devices != nil && len(e.devices) == 0:
			c.differ("an empty list of Devices is left out: the runtimes leave it out too")
		case !e.throttles():
		case len(e.devices) == 0:
			c.differ("throttling without Devices is left out: the runtimes leave it out too")
		default:
			amounts[i], globs[i] = c.amounts(e), c.globs(e)
		}
	}
	given := map[string]*blkio.Limits{} // by glob
	for i := range slices.Backward(in.elements) {
		for _, glob := range globs[i] {
			if given[glob] == nil {
				given[glob] = &blkio.Limits{}
			}
			if entry := entryOf(glob, amounts[i], given[glob]); entry != "" {
				out = append(out, strconv.QuoteToASCII(entry)) // YAML has the same escapes
			}
		}
	}
	return out
}

// globs returns the globs of the devices of an element, as far as the policy can have them.
func (c *conversion) globs(e *element) (out []string) {
	for _, device := range e.devices {
		glob, problem := globOf(device)
		if problem != "" {
			c.differ("the limits of the device %s are left out: %s", quote.Text(device), problem)
			continue
		}
		out = append(out, glob)
	}
	return out
}

// amounts returns the limits of an element as the policy can have them.
func (c *conversion) amounts(e *element) (out blkio.Limits) {
	for k := range blkio.NumLimits {
		p := &e.limits[k]
		switch least := c.floor(k); {
		case p.text == "":
		case p.amount == 0:
			c.differ("%s 0 of %s is left out", p.name, e.title())
		case p.amount < least:
			c.differ("%s %s of %s is under the floor of the policy: %s=%s", p.name, p.text, e.title(), k, annotation.FormatAmount(k, least))
			out[k] = least
		default:
			out[k] = p.amount
		}
	}
	return out
}

// globOf returns the glob of a target disk:GLOB for a device of the file, or why there is none.
func globOf(device string) (glob, problem string) {
	if !strings.HasPrefix(device, "/") {
		return "", "it is not an absolute path"
	}
	glob = device
	if name, found := strings.CutPrefix(glob, "/dev/"); found && !strings.Contains(name, "/") {
		glob = name
	}
	l, problems := annotation.ParseLimits("", []string{"disk:" + glob + " wbps=max"})
	switch {
	case problems[0] != nil:
		return "", problems[0].Cause
	case l.Entries[0].Target.Glob != glob:
		return "", "it has a blank"
	}
	return glob, ""
}

// entryOf returns an entry with those limits that an earlier entry for the glob does not have; "" without any.
func entryOf(glob string, limits blkio.Limits, given *blkio.Limits) string {
	words := []string{"disk:" + glob}
	for k, amount := range limits {
		if amount != blkio.Unset && given[k] == blkio.Unset {
			given[k] = amount
			words = append(words, blkio.Key(k).String()+"="+annotation.FormatAmount(blkio.Key(k), amount))
		}
	}
	if len(words) == 1 {
		return ""
	}
	return strings.Join(words, " ")
}

// throttles reports whether an element has a limit.
func (e *element) throttles() bool {
	return slices.ContainsFunc(e.limits[:], func(p parameter) bool { return p.text != "" })
}

func (c *conversion) floor(k blkio.Key) blkio.Amount {
	if k.IsBytes() {
		return c.floors.Bps
	}
	return c.floors.Iops
}

// weight returns the weight of a class on all disks: the last one without devices or, if there is none, the
// lowest one of devices; 0 for none.
func (c *conversion) weight(in *class) blkio.Amount {
	var all, lowest *parameter
	for i := range in.elements {
		switch e := &in.elements[i]; {
		case e.weight.text == "":
		case e.devices == nil:
			all = &e.weight
		case len(e.devices) > 0 && (lowest == nil || e.weight.amount < lowest.amount):
			lowest = &e.weight
		}
	}
	if all == nil && lowest == nil {
		return 0
	}
	if all == nil {
		all = lowest
		c.differ("the weight %s holds for each disk that the container uses", all.text)
	}
	for i := range in.elements {
		if e := &in.elements[i]; len(e.devices) > 0 && e.weight.text != "" && e.weight.amount != all.amount {
			c.differ("Weight %s of %s is %s here: a class has one weight", e.weight.text, e.title(), all.text)
		}
	}
	return all.amount
}

// maxLabel is the length of a DNS label.
const maxLabel = 63

var notInLabel = regexp.MustCompile(`[^a-z0-9-]+`) // constant

// policyName returns the name in the node policy of a blockio class. That is its own name
// if the policy can have it. Otherwise letters are small, and - replaces other characters: LowPrio is lowprio. Two
// classes can have one name.
func policyName(name string) string {
	label := strings.Trim(notInLabel.ReplaceAllString(strings.ToLower(name), "-"), "-")
	label = strings.TrimRight(label[:min(len(label), maxLabel)], "-")
	switch label {
	case "":
		return "class"
	case annotation.NoClass:
		return annotation.NoClass + "-2"
	}
	return label
}
