package node_test

import (
	"fmt"
	"slices"
	"strconv"
	"strings"
	"testing/synctest"
	"time"

	"github.com/nri-blkio/nri-blkio/plugin/podfacts"
	"github.com/nri-blkio/nri-blkio/policy"
)

// claim is a claim of a pod's volume. limits is "" for none.
type claim struct {
	name, limits, class, driver string
	size                        int64 // GiB
	places                      []policy.Place
}

// live returns the document of a pod, which has the annotations of the pod at first, and nothing else.
func (p *pod) live() *podfacts.Facts {
	if p.document == nil {
		p.document = &podfacts.Facts{Namespace: p.namespace, Name: p.name, Annotations: cloneMap(p.annotations)}
	}
	next := *p.document
	p.document = &next
	return p.document
}

// label changes labels of a document of the pod.
func (p *pod) label(live *podfacts.Facts, args ...string) {
	if live.Labels == nil {
		live.Labels = p.labels
	}
	live.Labels = pairs(live.Labels, args, itself)
}

// tell passes the document of a pod to the plugin.
func (p *pod) tell() {
	if p.w.node != nil && p.document != nil {
		p.w.node.SetLive(p.uid, p.document)
	}
}

// pairs adds KEY=VALUE to a map, and removes "KEY=-". A value "TEXT~COUNT" is padded with so many spaces.
func pairs(to map[string]string, args []string, keyOf func(string) string) map[string]string {
	out := cloneMap(to)
	for _, arg := range args {
		key, value, _ := strings.Cut(arg, "=")
		if text, count, isPadded := strings.Cut(value, "~"); isPadded {
			n, _ := strconv.Atoi(count)
			value = text + strings.Repeat(" ", n)
		}
		if out[keyOf(key)] = value; value == "-" {
			delete(out, keyOf(key))
		}
	}
	return out
}

// omit has the document omit a part for a cause, or for none any more.
func omit(live *podfacts.Facts, part, cause string) {
	live.Omitted = cloneMap(live.Omitted)
	if live.Omitted[part] = cause; cause == "" {
		delete(live.Omitted, part)
	}
}

func itself(key string) string { return key }

// change is a command that changes the document of a pod, and passes it to the plugin.
func change(fn func(p *pod, live *podfacts.Facts, args []string)) command {
	return func(w *world, _ bool, args []string) {
		w.reachable()
		p := w.mustPod(args[0])
		fn(p, p.live(), args[1:])
		p.tell()
	}
}

// edits are the commands of the API server that edit annotations.
func edits() map[string]command {
	return map[string]command{
		"edit POD KEY=VALUE...": change(func(p *pod, live *podfacts.Facts, args []string) { // label.KEY is a label
			isLabel := func(arg string) bool { return strings.HasPrefix(arg, "label.") }
			for _, arg := range args {
				if isLabel(arg) {
					p.label(live, strings.TrimPrefix(arg, "label."))
				}
			}
			omit(live, podfacts.PartAnnotations, "")
			live.Annotations = pairs(live.Annotations, slices.DeleteFunc(slices.Clone(args), isLabel), annotationKey)
		}),
		"edit-often POD COUNT KEY TARGET [PAUSE]": func(w *world, _ bool, args []string) { // to 1Mi, 2Mi, ... COUNTMi, in quick succession
			p := w.mustPod(args[0])
			count, _ := strconv.Atoi(args[1])
			pause, _ := time.ParseDuration(strings.Join(args[4:], ""))
			for i := range count {
				live := p.live()
				live.Annotations = pairs(live.Annotations, []string{fmt.Sprintf("%s=%s wbps=%dMi", args[2], args[3], i+1)}, annotationKey)
				p.tell()
				synctest.Wait()
				time.Sleep(pause)
			}
		},
		"too-large POD": change(func(_ *pod, live *podfacts.Facts, _ []string) {
			live.Annotations = nil
			omit(live, podfacts.PartAnnotations, "99999 bytes")
		}),
		"tell-as POD NAMESPACE/NAME KEY=VALUE...": func(w *world, _ bool, args []string) { // a document with the UID of a pod and other names
			namespace, name, _ := strings.Cut(args[1], "/")
			w.node.SetLive(w.mustPod(args[0]).uid, &podfacts.Facts{Namespace: namespace, Name: name, Annotations: pairs(nil, args[2:], annotationKey)})
		},
		"tell POD": change(func(*pod, *podfacts.Facts, []string) {}),
		"forget POD": func(w *world, _ bool, args []string) {
			w.node.SetLive(w.mustPod(args[0]).uid, nil)
		},
	}
}

// facts are the commands of the API server that make other facts about a pod known. A document has none of them before.
func facts() map[string]command {
	return map[string]command{
		"label POD [KEY=VALUE]...": change(func(p *pod, live *podfacts.Facts, args []string) {
			p.label(live, args...)
		}),
		"only-namespace POD [KEY=VALUE]...": func(w *world, _ bool, args []string) { // a document that has nothing else yet
			p := w.mustPod(args[0])
			w.node.SetLive(p.uid, &podfacts.Facts{Namespace: p.namespace, Name: p.name, NamespaceLabels: pairs(nil, args[1:], itself)})
		},
		"claim POD CLAIM LIMITS|- [CONTAINER:PATH]... [class=RATES] [driver=RATES] [size=GIB]": change(func(p *pod, live *podfacts.Facts, args []string) {
			c := claim{name: args[0], limits: strings.TrimPrefix(args[1], "-")}
			for _, arg := range args[2:] {
				c.set(arg)
			}
			if len(c.places) == 0 {
				c.places = []policy.Place{{Container: "a", Path: "/data"}, {Container: "b", Path: "/data"}}
			}
			p.claims = append(slices.DeleteFunc(slices.Clone(p.claims), func(o claim) bool { return o.name == c.name }), c)
			live.Volumes = volumes(p.claims)
			omit(live, podfacts.PartVolumes, "")
		}),
		"owner POD OWNER [NAME]": change(func(p *pod, live *podfacts.Facts, args []string) { // the pod that controls it; NAME is a wrong name of that
			owner := p.w.mustPod(args[0])
			live.Owner = podfacts.Owner{Name: owner.name, UID: owner.uid, IsPod: true}
			if len(args) > 1 {
				live.Owner.Name = args[1]
			}
		}),
		"controller POD NAME": change(func(_ *pod, live *podfacts.Facts, args []string) { // an object that controls it and is no pod
			live.Owner = podfacts.Owner{Name: args[0], UID: "uid-" + args[0]}
		}),
		"no-volumes POD": change(func(p *pod, live *podfacts.Facts, _ []string) {
			p.claims, live.Volumes = nil, []policy.Volume{}
			omit(live, podfacts.PartVolumes, "")
		}),
		"unknown-volumes POD CAUSE": change(func(_ *pod, live *podfacts.Facts, args []string) {
			live.Volumes = nil
			omit(live, podfacts.PartVolumes, args[0])
		}),
		"namespace-label NAMESPACE [KEY=VALUE]...": func(w *world, _ bool, args []string) { // of all its pods
			w.reachable()
			for _, name := range w.order {
				if p := w.pods[name]; p.namespace == args[0] {
					live := p.live()
					live.NamespaceLabels = pairs(live.NamespaceLabels, append([]string{"kubernetes.io/metadata.name=" + args[0]}, args[1:]...), itself)
					p.tell()
				}
			}
		},
	}
}

// set sets a part of a claim.
func (c *claim) set(arg string) {
	name, value, _ := strings.Cut(arg, "=")
	switch name {
	case "class":
		c.class = value
	case "driver":
		c.driver = value
	case "size":
		c.size, _ = strconv.ParseInt(value, 10, 64)
	default:
		container, path, _ := strings.Cut(arg, ":")
		c.places = append(c.places, policy.Place{Container: container, Path: path})
	}
}

func volumes(of []claim) (out []policy.Volume) {
	for _, c := range of {
		v := policy.Volume{Name: c.name, Claim: c.name, Places: c.places, Size: c.size << 30}
		if c.limits != "" {
			v.Limits = &c.limits
		}
		if c.class != "" {
			v.Class = &policy.ClaimClass{Name: "gold", Rates: pairs(nil, strings.Fields(c.class), itself)}
		}
		if c.driver != "" {
			v.Attachment = &policy.ClaimAttachment{Driver: "csi.example.com", Rates: pairs(nil, strings.Fields(c.driver), itself)}
		}
		out = append(out, v)
	}
	return out
}
