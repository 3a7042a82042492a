package manifest

import (
	"cmp"
	"fmt"
	"slices"
	"strconv"
	"strings"

	"go.yaml.in/yaml/v3"
	"k8s.io/apimachinery/pkg/api/resource"

	"github.com/nri-blkio/nri-blkio/policy"
	"github.com/nri-blkio/nri-blkio/policy/quote"
	"github.com/nri-blkio/nri-blkio/policy/spelling"
)

func (d *document) pod(object, template value, s *strays) {
	spec := template.field("spec")
	p := Pod{
		Object:       d.object,
		Position:     d.position(template.node.Line),
		RuntimeClass: spec.field("runtimeClassName").text(),
		MemoryLimit:  spec.field("resources", "limits", "memory").bytes(),
		Labels:       template.labels(),
		QOS:          spec.qos(),
		IsPartial:    s.isForeign,
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
			d.claimTemplate(&vol, v.field("ephemeral", "volumeClaimTemplate"), s)
		}
		p.Volumes = append(p.Volumes, vol)
	}
	if d.object.Kind == "StatefulSet" && !p.IsPartial {
		p.addClaims(object.field("spec"), s)
	}
	for _, list := range []struct {
		name string
		role Role
	}{{"initContainers", Init}, {"containers", Main}, {"ephemeralContainers", Ephemeral}} {
		for v := range spec.field(list.name).items() {
			p.addContainer(v, list.role)
		}
	}
	isMain := func(c Container) bool { return c.Role == Main }
	if !p.IsPartial && !slices.ContainsFunc(p.Containers, isMain) {
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
	start := spec.field("ordinals", "start").number()
	first, _ := strconv.ParseInt(start, 10, 32) // 0 without one; the API server rejects all that is no number
	for v := range spec.field("volumeClaimTemplates").items() {
		name := v.field("metadata", "name").text()
		vol := Volume{Name: name, Source: PersistentVolumeClaim}
		v.doc.claimTemplate(&vol, v, s)
		isSame := func(v Volume) bool { return v.Name == name }
		vol.Claims = fmt.Sprintf("%s-%s-", name, p.Name)
		vol.Claim = fmt.Sprint(vol.Claims, first)
		p.Volumes = append(slices.DeleteFunc(p.Volumes, isSame), vol)
	}
}

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

func (p *Pod) addContainer(v value, role Role) {
	c := v.container(role)
	if c.Name == "" {
		c.Name = fmt.Sprintf(NoName+", number %d)", len(p.Containers)+1)
		if !p.IsPartial && v.exists() && v.node.Kind == yaml.MappingNode {
			v.fail("the container has no name")
		}
	}
	p.checkVolumes(v, &c)
	p.Containers = append(p.Containers, c)
}

// checkVolumes reports the volumes of a container that the pod does not have. They are added to a partial pod.
func (p *Pod) checkVolumes(v value, c *Container) {
	for _, list := range [][2]string{{"volumeMounts", "volume"}, {"volumeDevices", "volume device"}} {
		for m := range v.field(list[0]).items() {
			name := m.field("name").text()
			switch {
			case name == "" || slices.ContainsFunc(p.Volumes, func(v Volume) bool { return v.Name == name }):
			case p.IsPartial:
				p.Volumes = append(p.Volumes, Volume{Name: name, Source: Undeclared})
			default:
				m.field("name").failVolume(c.Name, list[1], p.Volumes)
			}
		}
	}
}

func (v value) container(role Role) Container {
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
		out.Mounts = append(out.Mounts, mount)
	}
	for m := range v.field("volumeDevices").items() {
		out.Devices = append(out.Devices, Device{Volume: m.field("name").text(), Path: m.field("devicePath").text()})
	}
	return out
}

func (v value) failVolume(container, what string, volumes []Volume) {
	var names []string
	for i := range volumes {
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

// qos returns the QoS class that the kubelet gives a pod. The resources of the pod as a whole decide if it has
// the field, otherwise those of its containers.
//
// Source: ComputePodQOS in Kubernetes' pkg/apis/core/v1/helper/qos/qos.go.
func (v value) qos() policy.QOS {
	whole := v.field("resources")
	if !whole.exists() {
		return qosOf(slices.Concat(v.resourcesOf("initContainers"), v.resourcesOf("containers")))
	}
	r := whole.resources()
	if len(whole.field("limits").pairs()) > 0 {
		r.addRequests(v.resourcesOf("containers"), v.resourcesOf("initContainers"))
	}
	return qosOf([]resources{r})
}

// resources has the requests and limits of CPU and memory, in this order. One that is absent, or 0,
// is not set.
type resources struct {
	requests, limits [2]resource.Quantity
	hasRequest       [2]bool // true if it is written, or the limit of a container stands for it
	isSidecar        bool
}

func (v value) resources() (out resources) {
	for i, name := range []string{"cpu", "memory"} {
		limit, request := v.field("limits", name), v.field("requests", name)
		out.limits[i], out.requests[i], out.hasRequest[i] = limit.quantity(), request.quantity(), request.exists()
	}
	return out
}

// resourcesOf returns the resources of a list of containers. As in the API server, a request that is
// absent is the limit.
func (v value) resourcesOf(list string) (out []resources) {
	for c := range v.field(list).items() {
		r := c.field("resources").resources()
		for i, name := range []string{"cpu", "memory"} {
			if !r.hasRequest[i] {
				r.requests[i], r.hasRequest[i] = r.limits[i], c.field("resources", "limits", name).exists()
			}
		}
		r.isSidecar = c.field("restartPolicy").text() == "Always"
		out = append(out, r)
	}
	return out
}

// addRequests sets the requests of a pod that are absent: to that of all containers together, if one of
// them has it, otherwise to the pod's limit.
//
// Source: defaultPodRequests in Kubernetes' pkg/apis/core/v1/defaults.go, AggregateContainerRequests in
// component-helpers/resource/helpers.go.
func (r *resources) addRequests(containers, initContainers []resources) {
	for i := range r.requests {
		if r.hasRequest[i] {
			continue
		}
		r.requests[i] = r.limits[i]
		var sum, sidecars, most resource.Quantity // most is the largest sum during an init container
		has := false
		for k := range containers {
			sum.Add(containers[k].requests[i])
			has = has || containers[k].hasRequest[i]
		}
		for k := range initContainers {
			during := sidecars.DeepCopy()
			if during.Add(initContainers[k].requests[i]); initContainers[k].isSidecar {
				sum.Add(initContainers[k].requests[i])
				sidecars = during
			}
			if during.Cmp(most) > 0 {
				most = during
			}
			has = has || initContainers[k].hasRequest[i]
		}
		if most.Cmp(sum) > 0 {
			sum = most
		}
		if has {
			r.requests[i] = sum
		}
	}
}

func qosOf(all []resources) policy.QOS {
	guaranteed, none := len(all) > 0, true
	for i := range all {
		for k := range all[i].limits {
			limit, request := &all[i].limits[k], &all[i].requests[k]
			none = none && limit.IsZero() && request.IsZero()
			guaranteed = guaranteed && !limit.IsZero() && limit.Cmp(*request) == 0
		}
	}
	switch {
	case none:
		return policy.BestEffort
	case guaranteed:
		return policy.Guaranteed
	}
	return policy.Burstable
}
