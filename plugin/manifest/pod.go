package manifest

import (
	"cmp"
	"fmt"
	"slices"
	"strconv"
	"strings"

	"k8s.io/apimachinery/pkg/api/resource"

	"github.com/nri-blkio/nri-blkio/policy/quote"
	"github.com/nri-blkio/nri-blkio/policy/spelling"
)

// pod reads a pod template of an object.
func (d *document) pod(object, template value, s *strays) {
	spec := template.field("spec")
	p := Pod{
		Object:       d.object,
		Position:     d.position(template.node.Line),
		RuntimeClass: spec.field("runtimeClassName").text(),
		MemoryLimit:  spec.field("resources", "limits", "memory").bytes(),
		Labels:       template.labels(),
		QOS:          spec.qos(),
	}
	p.Namespace = cmp.Or(p.Namespace, "default")
	if template.path != nil {
		p.Template = template.path.String()
	}
	p.Annotations, p.Lines = s.annotations(template.field("metadata", "annotations"))
	for v := range spec.field("volumes").items() {
		vol := v.volume()
		if vol.Source == "ephemeral" {
			vol.Claim = p.Name + "-" + vol.Name
			vol.Limits = d.claimLimits(v.field("ephemeral", "volumeClaimTemplate"), s)
		}
		p.Volumes = append(p.Volumes, vol)
	}
	if d.object.Kind == "StatefulSet" {
		p.addClaims(object.field("spec"), s)
	}
	for _, list := range []struct {
		name string
		role Role
	}{{"initContainers", Init}, {"containers", Main}, {"ephemeralContainers", Ephemeral}} {
		for v := range spec.field(list.name).items() {
			p.Containers = append(p.Containers, v.container(list.role, p.Volumes))
		}
	}
	isMain := func(c Container) bool { return c.Role == Main }
	if !slices.ContainsFunc(p.Containers, isMain) {
		template.fail("no containers")
	}
	d.set.Pods = append(d.set.Pods, p)
}

// addClaims adds the volumes of a StatefulSet's claim templates, which replace volumes of
// the same name. The claims are those of its first pod.
//
// Source: updateStorage and getPersistentVolumeClaimName in Kubernetes'
// pkg/controller/statefulset/stateful_set_utils.go.
func (p *Pod) addClaims(spec value, s *strays) {
	first := cmp.Or(spec.field("ordinals", "start").number(), "0")
	for v := range spec.field("volumeClaimTemplates").items() {
		name := v.field("metadata", "name").text()
		p.Volumes = slices.DeleteFunc(p.Volumes, func(v Volume) bool { return v.Name == name })
		p.Volumes = append(p.Volumes, Volume{
			Name: name, Source: PersistentVolumeClaim, Claim: name + "-" + p.Name + "-" + first,
			Limits: v.doc.claimLimits(v, s),
		})
	}
}

// volume reads a volume, which has a field for its name and one for its source.
func (v value) volume() Volume {
	out := Volume{Name: v.field("name").text()}
	for _, p := range v.pairs() {
		source := v.at(p.value, child(v.path, p.key.Value))
		if p.key.Value == "name" || !source.exists() {
			continue
		}
		if out.Source != "" && out.Source != p.key.Value {
			source.fail("a second source of volume " + quoted(out.Name) + ", which has " + quoted(out.Source))
			continue
		}
		out.Source = p.key.Value
		out.ReadOnly = source.field("readOnly").isTrue()
		switch out.Source {
		case HostPath:
			out.Path = source.field("path").text()
		case EmptyDir:
			out.Medium = source.field("medium").text()
		case PersistentVolumeClaim:
			out.Claim = source.field("claimName").text()
		case CSI:
			out.Driver = source.field("driver").text()
		}
	}
	// The API server sets this default (SetDefaults_Volume in pkg/apis/core/v1/defaults.go).
	out.Source = cmp.Or(out.Source, EmptyDir)
	return out
}

func (v value) container(role Role, volumes []Volume) Container {
	out := Container{
		Name:        v.field("name").text(),
		Role:        role,
		Privileged:  v.field("securityContext", "privileged").isTrue(),
		MemoryLimit: v.field("resources", "limits", "memory").bytes(),
	}
	if role == Init && v.field("restartPolicy").text() == "Always" {
		out.Role = Sidecar
	}
	for m := range v.field("volumeMounts").items() {
		mount := Mount{
			Volume:   m.field("name").text(),
			Path:     m.field("mountPath").text(),
			SubPath:  cmp.Or(m.field("subPath").text(), m.field("subPathExpr").text()),
			ReadOnly: m.field("readOnly").isTrue(),
		}
		m.field("name").checkVolume(out.Name, "volume", volumes)
		out.Mounts = append(out.Mounts, mount)
	}
	for m := range v.field("volumeDevices").items() {
		out.Devices = append(out.Devices, Device{Volume: m.field("name").text(), Path: m.field("devicePath").text()})
		m.field("name").checkVolume(out.Name, "volume device", volumes)
	}
	return out
}

// checkVolume reports the name of a volume that the pod does not have.
func (v value) checkVolume(container, what string, volumes []Volume) {
	if !v.exists() || !isText(v.node) {
		return // text has reported it, or the API server does
	}
	var names []string
	for i := range volumes {
		if volumes[i].Name == v.node.Value {
			return
		}
		names = append(names, volumes[i].Name)
	}
	text := fmt.Sprintf("container %s: unknown %s %s", quoted(container), what, quoted(v.node.Value))
	if meant, ok := spelling.Nearest(v.node.Value, names...); ok {
		text += " (did you mean " + quoted(meant) + "?)"
	}
	v.fail(text)
}

// maxExponent and maxNumber are more than any size needs. ParseQuantity computes with any
// exponent, for hours.
const (
	maxExponent = 36
	maxNumber   = 40
)

// bytes returns a quantity of bytes, 0 if it is absent.
func (v value) bytes() uint64 {
	q := v.quantity()
	return uint64(q.Value())
}

// quantity returns a quantity that is not negative, 0 if it is absent.
func (v value) quantity() resource.Quantity {
	text := v.number()
	if text == "" {
		return resource.Quantity{}
	}
	tooLarge := len(text) > maxNumber
	if i := strings.IndexAny(text, "eE"); i >= 0 {
		n, err := strconv.Atoi(text[i+1:])
		tooLarge = tooLarge || err == nil && (n > maxExponent || n < -maxExponent)
	}
	if !tooLarge {
		if q, err := resource.ParseQuantity(text); err == nil && q.Sign() >= 0 {
			return q
		}
	}
	v.fail("not a quantity: " + quoted(text))
	return resource.Quantity{}
}

// maxQuoted is the largest length of a quoted text of a manifest.
const maxQuoted = 128

// quoted returns text in quotes, in printable ASCII.
func quoted(s string) string { return quote.Within(s, maxQuoted) }
