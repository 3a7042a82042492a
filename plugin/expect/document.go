package expect

import (
	"github.com/nri-blkio/nri-blkio/policy"
	"github.com/nri-blkio/nri-blkio/policy/strict"
)

// fileDocument is the form of a file of cases. The doc comments of the fields of this type and of those in it are the
// tables of docs/reference/policy-tests.md, as in package policy.
type fileDocument struct {
	// The version of the format. Values: `blkio.noderesource.dev/v1alpha1`.
	APIVersion string `json:"apiVersion"`
	// The kind of the file. Values: `NodePolicyTest`.
	Kind string `json:"kind"`
	// The cases, each with one pod.
	Cases []caseDocument `json:"cases"`
}

type caseDocument struct {
	// The output names the case. Values: text, once in a file.
	Name string `json:"name"`
	// [The pod]. Default: one with the defaults there.
	Pod podDocument `json:"pod"`
	// [What is expected].
	Expect expectDocument `json:"expect"`
}

type podDocument struct {
	// The namespace of the pod. Values: text. Default: `default`.
	Namespace string `json:"namespace"`
	// The labels of the pod. Default: none.
	Labels map[string]string `json:"labels"`
	// The labels of the namespace, for rules with [namespaceSelector]. While they are unknown, no such rule matches; `{}` is a
	// namespace without labels, apart from `kubernetes.io/metadata.name`, which each one has. For a pod of a manifest, the
	// labels of the Namespace in the same manifests count, and those here are added to them. Default: unknown.
	NamespaceLabels map[string]string `json:"namespaceLabels"`
	// The QoS class of the pod. Default: `BestEffort`.
	QOSClass policy.QOS `json:"qosClass"`
	// The annotations of the pod. A key that is nearly one of the plugin is an error. One for a container that the pod does
	// not have is a difference. Default: none.
	Annotations map[string]string `json:"annotations"`
	// The main containers of a pod without a manifest. They have no volumes: a path needs a manifest, and so does another kind of
	// container. With one, the field is an error.
	// Values: a list of names. Default: `[main]`.
	Containers []string `json:"containers"`
	// A manifest, or a directory of them. A relative path begins at the directory of the file of cases.
	// Values: a path. Default: with `name`, those of `-f`.
	Manifest string `json:"manifest"`
	// The kind of the object in the manifest, if it has more than one pod. Values: text. Default: any.
	Kind string `json:"kind"`
	// The name of the object in the manifest, if it has more than one pod. Values: text. Default: any.
	Name string `json:"name"`
}

type expectDocument struct {
	// The rule that matches the pod. Values: a name, `none`.
	Rule *string `json:"rule"`
	// The mode for the pod. In `observe`, all other fields are about what the pod would get.
	Mode *policy.Mode `json:"mode"`
	// Whether the rule ignores annotations that the pod has.
	AnnotationsIgnored *bool `json:"annotationsIgnored"`
	// What is expected for each container, including init containers and sidecars.
	EachContainer *containerDocument `json:"eachContainer"`
	// What is expected for the container NAME. A container that the pod does not have is a difference.
	Containers map[string]containerDocument `json:"containers"`
	// What is expected for the pod's own cgroup, by `pod-total` or the backstop.
	PodTotal *valuesDocument `json:"podTotal"`
}

type containerDocument struct {
	// The class that applies: the choice of an annotation, or that of the rule. Values: a name, `none`.
	Class *string `json:"class"`
	// Whether the creation of the container fails in mode `enforce`, and why. A [budget] counts only the containers of this pod.
	// Values: a part of the error, `true`, `false`.
	Refused *strict.Scalar `json:"refused"`
	valuesDocument
}

// valuesDocument has the expected values of a container, or of the pod as a whole.
type valuesDocument struct {
	// The limits that hold on the disks of targets, from any source: [Limits and weights]. `[]` expects no limit at all.
	Limits []limitDocument `json:"limits"`
	// The weight on all disks that have none of their own. Values: 1 to 10000, `none`.
	Weight *strict.Scalar `json:"weight"`
	// The weights that hold on the disks of targets: [Limits and weights].
	Weights []weightDocument `json:"weights"`
}

type limitDocument struct {
	// It selects disks, as in [annotations]. Values: a path, `@VOLUME`, `pvc:CLAIM`, `rootfs`, `*`.
	Target string `json:"target"`
	// The limit of bytes read per second, on each disk of the target. `max`: no limit.
	// Values: a quantity above 0, `max`. Default: not compared.
	Rbps strict.Scalar `json:"rbps"`
	// The limit of bytes written per second, on each disk of the target. `max`: no limit.
	// Values: a quantity above 0, `max`. Default: not compared.
	Wbps strict.Scalar `json:"wbps"`
	// The limit of reads per second, on each disk of the target. `max`: no limit.
	// Values: a quantity above 0, `max`. Default: not compared.
	Riops strict.Scalar `json:"riops"`
	// The limit of writes per second, on each disk of the target. `max`: no limit.
	// Values: a quantity above 0, `max`. Default: not compared.
	Wiops strict.Scalar `json:"wiops"`
	// The source of these values, as the column FROM of `check` shows it, or the first words of that: `rule batch`,
	// `class silver`, `limits/containers`, `backstop`. `none`: nothing requests them. Values: text. Default: not compared.
	From string `json:"from"`
}

type weightDocument struct {
	// It selects disks, as in [annotations]. Values: a path, `@VOLUME`, `pvc:CLAIM`, `rootfs`, `*`.
	Target string `json:"target"`
	// The weight on each disk of the target: its own or, without one, that on all disks.
	// Values: 1 to 10000, `none`. Default: required.
	Weight strict.Scalar `json:"weight"`
	// The source of the weight, as that of a limit. Values: text. Default: not compared.
	From string `json:"from"`
}

// exampleDocument returns a document with each field.
func exampleDocument() any {
	values := valuesDocument{Limits: []limitDocument{{}}, Weights: []weightDocument{{}}}
	container := containerDocument{valuesDocument: values}
	return &fileDocument{Cases: []caseDocument{{Expect: expectDocument{
		EachContainer: &container, Containers: map[string]containerDocument{strict.Name: container}, PodTotal: &values,
	}}}}
}
