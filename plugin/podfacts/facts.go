// Package podfacts is what is known of a pod, and what is requested for it by that.
//
// The runtime reports a pod as it was when its sandbox was made. The API server knows the annotations and labels of the pod as they are
// now, and it alone knows its claims, the names of some volumes, and the labels of its namespace. [Facts] has either, and what a manifest has. [Request] is the
// parsed form, and takes over parts of another one as they become known or are edited. An [Edit] is its form in the record of the pod.
package podfacts

import (
	"bytes"
	"encoding/json"
	"maps"
	"path"
	"strings"

	"github.com/nri-blkio/nri-blkio/policy"
	"github.com/nri-blkio/nri-blkio/policy/annotation"
)

// Facts is what is known of a pod. A part that is nil is unknown.
type Facts struct {
	Namespace string `json:"namespace"`
	Name      string `json:"name"`
	// Annotations are those with the plugin's domain, valid or not. Others do not count.
	Annotations map[string]string `json:"annotations,omitzero"`
	// Labels are all labels of the pod: rules select pods by them.
	Labels map[string]string `json:"labels,omitzero"`
	// NamespaceLabels are all labels of its namespace.
	NamespaceLabels map[string]string `json:"namespaceLabels,omitzero"`
	// Volumes are those whose name the runtime does not see, and only those: claims, hostPath, and others.
	Volumes []policy.Volume `json:"volumes,omitzero"`
	// Owner is the object of this namespace that controls the pod, such as a ReplicaSet or another pod; the zero value if none does.
	Owner Owner `json:"owner,omitzero"`
	// Omitted has the parts that are too large to be passed on, each with the cause.
	Omitted map[string]string `json:"omitted,omitempty"`
}

// Owner is an object that controls pods.
type Owner struct {
	Name  string `json:"name"`
	UID   string `json:"uid"`
	IsPod bool   `json:"isPod,omitempty"` // only pods can be lent limits
}

// The parts that can be omitted.
const (
	PartAnnotations     = "annotations"
	PartLabels          = "labels"
	PartNamespaceLabels = "namespaceLabels"
	PartVolumes         = "volumes"
)

// Bounds of the annotations that are passed on and kept.
const (
	MaxAnnotations     = 64       // the bound of package annotation
	MaxAnnotationBytes = 28 << 10 // as JSON
)

// Omit leaves a part out for a cause.
func (f *Facts) Omit(part, cause string) {
	switch part {
	case PartAnnotations:
		f.Annotations = nil
	case PartLabels:
		f.Labels = nil
	case PartNamespaceLabels:
		f.NamespaceLabels = nil
	case PartVolumes:
		f.Volumes = nil
	}
	omitted := map[string]string{}
	maps.Copy(omitted, f.Omitted) // which may be of other facts too
	omitted[part], f.Omitted = cause, omitted
}

// Own returns those annotations that are of this domain.
func Own(annotations map[string]string) map[string]string {
	out := map[string]string{}
	for key, value := range annotations {
		if annotation.IsKey(key) {
			out[key] = value
		}
	}
	return out
}

// volumes returns the volumes of the pod. They are nil if they are not known yet.
func (f *Facts) volumes() *policy.Volumes {
	switch cause := f.Omitted[PartVolumes]; {
	case cause != "":
		return policy.UnknownVolumes(cause)
	case f.Volumes == nil:
		return nil
	}
	return policy.NewVolumes(f.Volumes)
}

// fits reports whether annotations are within the bounds. Each new pod is asked about, so they are encoded only if their length leaves
// it open.
func fits(annotations map[string]string) bool {
	const most = len(`\u0001`) // that JSON needs for a byte
	n, text := len(annotations), 0
	for key, value := range annotations {
		text += len(key) + len(value)
	}
	switch marks := n * len(`"":"",`); {
	case n == 0, n <= MaxAnnotations && marks+most*text < MaxAnnotationBytes-len("{}\n"):
		return true
	case n > MaxAnnotations || marks+text > MaxAnnotationBytes:
		return false
	}
	return size(annotations) <= MaxAnnotationBytes
}

// size returns the length of a value as JSON, as documents and records have it.
func size(v any) int {
	var out bytes.Buffer
	enc := json.NewEncoder(&out)
	enc.SetEscapeHTML(false)
	if err := enc.Encode(v); err != nil {
		panic(err) // maps and strings only
	}
	return out.Len()
}

const (
	// LabelRoom is the memory in bytes that the labels of a pod take at most. Labels by which a policy selects
	// pods do not count. A tenant decides how many labels there are.
	LabelRoom = 32 << 10
	// LabelSize is the memory in bytes that a label takes without its text.
	LabelSize = 64
)

// WithinRoom returns facts without labels that are not kept. If all labels of the pod would take too much memory, isCut is true, and only
// those are kept by which a rule of the policy selects pods. A later policy then misses its new labels.
func (f Facts) WithinRoom(pol *policy.Policy) (kept Facts, isCut bool) {
	all, size := f.Labels, 0
	for name, value := range all {
		if size += LabelSize + len(name) + len(value); size > LabelRoom {
			f.Labels = map[string]string{}
			for _, key := range pol.PodKeys() {
				if value, found := all[key]; found {
					f.Labels[key] = value
				}
			}
			return f, true
		}
	}
	return f, false
}

// Parts are parts of a request.
type Parts uint8

// The parts of a request. The annotations and the labels of the pod are of the author of the pod, and the limits of a claim can be of
// another author. The labels of the namespace are of the administrator.
const (
	Annotations Parts = 1 << iota
	Labels
	Volumes
	Namespace
)

// Has reports whether one of some parts is there.
func (p Parts) Has(some Parts) bool { return p&some != 0 }

// String names the parts for messages.
func (p Parts) String() string { return p.Text("limits of a claim") }

// Text names the parts, with a text for the limits of claims.
func (p Parts) Text(claims string) string {
	var out []string
	for _, one := range []struct {
		part Parts
		text string
	}{{Annotations, "annotations"}, {Labels, "labels"}, {Volumes, claims}} { // of volumes only the limits of claims change
		if p.Has(one.part) {
			out = append(out, one.text)
		}
	}
	return strings.Join(out, " and ")
}

// QOSOf returns the QoS class of a pod by the parent of its containers' cgroups, which the kubelet
// names, or "":
//
//	/kubepods.slice/kubepods-burstable.slice/kubepods-burstable-podUID.slice    systemd
//	/kubepods/burstable/podUID                                                  cgroupfs
//
// Source: podContainerManagerImpl.GetPodContainerName in Kubernetes'
// pkg/kubelet/cm/pod_container_manager_linux.go.
func QOSOf(cgroup string) policy.QOS {
	parent, pod := path.Split(cgroup)
	name, isSlice := strings.CutSuffix(pod, ".slice")
	if isSlice {
		i := strings.LastIndex(name, "-pod")
		if i < 0 {
			return ""
		}
		parent = name[:i]
	} else if !strings.HasPrefix(pod, "pod") {
		return ""
	}
	parent = strings.TrimSuffix(parent, "/")
	switch {
	case strings.HasSuffix(parent, "besteffort"):
		return policy.BestEffort
	case strings.HasSuffix(parent, "burstable"):
		return policy.Burstable
	case strings.HasSuffix(parent, "kubepods"):
		return policy.Guaranteed
	}
	return ""
}
