package annotation

// Origin is what asks for limits, or has a mistake: an annotation, a claim, a class or a field of the node policy. Origins are
// comparable with ==.
type Origin struct {
	Annotation  string // the full key
	Claim, Rule string // names
	Class       string // the name of a class; of the claim or the rule, if there is one
	Driver      string // the storage driver that wrote limits for the claim
	Field       string // of the policy, or another word for the whole of it
}

// String returns the name of the annotation, "claim NAME", "claim NAME, class NAME", "claim NAME, driver NAME", "class NAME", "rule NAME",
// "rule NAME, class NAME", or the field.
func (o Origin) String() string {
	text := o.Annotation + o.Field
	switch {
	case o.Claim != "":
		text = "claim " + o.Claim
	case o.Rule != "":
		text = "rule " + o.Rule
	case o.Class != "":
		return "class " + o.Class
	}
	if o.Class != "" {
		text += ", class " + o.Class
	}
	if o.Driver != "" {
		text += ", driver " + o.Driver
	}
	return text
}
