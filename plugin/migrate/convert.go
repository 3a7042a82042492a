package migrate

import (
	"fmt"
	"regexp"
	"slices"
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
	c := conversion{floors: policy.Default().Floors, names: map[string]bool{annotation.NoClass: true}, most: policy.Default().Bounds.MaxWeight}
	var body strings.Builder
	for i := range classes {
		from := len(c.differences)
		line := c.class(&classes[i])
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
	names       map[string]bool // that are in use
	most        int             // the largest weight
	differences []Difference
	current     string // name of the class that is converted
}

func (c *conversion) differ(format string, args ...any) {
	c.differences = append(c.differences, Difference{c.current, fmt.Sprintf(format, args...)})
}

// class converts a class to a line of the policy.
func (c *conversion) class(in *class) string {
	c.current = in.name
	name := c.rename(in.name)
	c.leaveOut(in)
	var fields []string
	if limits := c.limits(in); len(limits) > 0 {
		fields = append(fields, `limits: ["* `+strings.Join(limits, " ")+`"]`)
	}
	if weight := c.weight(in); weight != 0 {
		fields = append(fields, fmt.Sprintf("weight: %d", weight))
		c.most = max(c.most, int(weight))
	}
	if len(fields) == 0 { // a class has to have something: this is as good as nothing
		c.differ("it has neither limits nor a weight, so it has the default weight here")
		fields = []string{fmt.Sprintf("weight: %d", blkio.DefaultWeight)}
	}
	return key(name) + ": {" + strings.Join(fields, ", ") + "}"
}

// leaveOut removes the elements that match no device. Those without Devices stay, because their weight applies
// to all devices.
func (c *conversion) leaveOut(in *class) {
	in.elements = slices.DeleteFunc(in.elements, func(e element) bool {
		if e.devices == nil || len(e.devices) > 0 {
			return false
		}
		if e.throttles() || e.weight.text != "" {
			c.differ("an empty list of Devices is left out: the runtimes leave it out too")
		}
		return true
	})
}

// maxName is the length of a name, with room for a number.
const maxName = 60

var other = regexp.MustCompile(`[^a-z0-9]+`)

// rename returns the name of a class in the policy, which is a DNS label.
func (c *conversion) rename(name string) string {
	label := strings.ToLower(name)
	if !annotation.IsLabel(label) {
		label = strings.Trim(other.ReplaceAllString(label, "-"), "-")
		label = strings.Trim(label[:min(len(label), maxName)], "-")
	}
	if label == "" {
		label = "class"
	}
	unique := label
	for n := 2; c.names[unique]; n++ {
		unique = fmt.Sprintf("%s-%d", label[:min(len(label), maxName-5)], n)
	}
	c.names[unique] = true
	if unique != name {
		c.differ("its name is %s here", unique)
	}
	return unique
}

// plain are names that YAML takes for strings without quotes. Those that it takes for a boolean have
// at most five letters.
var plain = regexp.MustCompile(`^[a-z][a-z0-9-]*$`)

// key returns a name as a key of YAML.
func key(name string) string {
	if booleans := []string{"y", "n", "yes", "no", "on", "off", "true", "false", "null"}; plain.MatchString(name) && !slices.Contains(booleans, name) {
		return name
	}
	return `"` + name + `"`
}

// limits returns the limits of a class on all disks. A class of the policy has no devices, so the
// lowest value of a parameter holds.
func (c *conversion) limits(in *class) (out []string) {
	for i := range in.elements {
		if e := &in.elements[i]; e.throttles() {
			if len(e.devices) == 0 {
				c.differ("throttling without Devices is left out: the runtimes leave it out too")
				continue
			}
			c.differ("the limits of %s hold for each disk that the container uses", e.title())
		}
	}
	for k := range blkio.NumLimits {
		lowest := c.lowest(in, k.String(), func(e *element) *parameter { return &e.limits[k] })
		if lowest == nil {
			continue
		}
		amount := lowest.amount
		if least := c.floor(k); amount < least {
			c.differ("%s %s is under the floor of the policy: %s=%s", lowest.name, lowest.text, k, annotation.FormatAmount(k, least))
			amount = least
		}
		out = append(out, k.String()+"="+annotation.FormatAmount(k, amount))
	}
	return out
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

// lowest returns the lowest value of a parameter among the elements with devices, or nil.
func (c *conversion) lowest(in *class, name string, of func(*element) *parameter) *parameter {
	var out *parameter
	for i := range in.elements {
		e := &in.elements[i]
		switch p := of(e); {
		case p.text == "" || len(e.devices) == 0:
		case p.amount == 0:
			c.differ("%s 0 of %s is left out", p.name, e.title())
		case out == nil || p.amount < out.amount:
			out = p
		}
	}
	for i := range in.elements {
		e := &in.elements[i]
		if p := of(e); out != nil && p.text != "" && len(e.devices) > 0 && p.amount > out.amount {
			c.differ("%s %s of %s is %s here, the lowest value for %s", p.name, p.text, e.title(), out.text, name)
		}
	}
	return out
}

// weight returns the weight of a class on all disks: the one without devices or, if there is none, the
// lowest one of devices; 0 for none.
func (c *conversion) weight(in *class) blkio.Amount {
	var all *parameter
	for i := range in.elements {
		if e := &in.elements[i]; e.devices == nil && e.weight.text != "" {
			all = &e.weight // the last one counts
		}
	}
	if all == nil {
		lowest := c.lowest(in, "the weight", func(e *element) *parameter { return &e.weight })
		if lowest == nil {
			return 0
		}
		c.differ("the weight %s holds for each disk that the container uses", lowest.text)
		return lowest.amount
	}
	for i := range in.elements {
		if e := &in.elements[i]; len(e.devices) > 0 && e.weight.text != "" && e.weight.amount != all.amount {
			c.differ("Weight %s of %s is %s here: a class has one weight", e.weight.text, e.title(), all.text)
		}
	}
	return all.amount
}
