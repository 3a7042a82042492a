package chart

import (
	"maps"
	"slices"
	"strings"
	"testing"

	monitoringv1 "github.com/prometheus-operator/prometheus-operator/pkg/apis/monitoring/v1"
	appsv1 "k8s.io/api/apps/v1"
	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/runtime/serializer"
	utilruntime "k8s.io/apimachinery/pkg/util/runtime"
	"k8s.io/client-go/kubernetes/scheme"
)

// constraints has the fields of OpenShift's SecurityContextConstraints that the chart sets. Its module has no version.
type constraints struct {
	metav1.TypeMeta   `json:",inline"`
	metav1.ObjectMeta `json:"metadata"`

	Users  []string `json:"users"`
	Groups []string `json:"groups"`

	AllowHostDirVolumePlugin bool `json:"allowHostDirVolumePlugin"`
	AllowHostNetwork         bool `json:"allowHostNetwork"`
	AllowHostPID             bool `json:"allowHostPID"`
	AllowHostIPC             bool `json:"allowHostIPC"`
	AllowHostPorts           bool `json:"allowHostPorts"`
	AllowPrivilegedContainer bool `json:"allowPrivilegedContainer"`
	AllowPrivilegeEscalation bool `json:"allowPrivilegeEscalation"`
	ReadOnlyRootFilesystem   bool `json:"readOnlyRootFilesystem"`

	AllowedCapabilities      []corev1.Capability `json:"allowedCapabilities"`
	DefaultAddCapabilities   []corev1.Capability `json:"defaultAddCapabilities"`
	RequiredDropCapabilities []corev1.Capability `json:"requiredDropCapabilities"`

	RunAsUser          strategy `json:"runAsUser"`
	FSGroup            strategy `json:"fsGroup"`
	SupplementalGroups strategy `json:"supplementalGroups"`
	SELinuxContext     strategy `json:"seLinuxContext"`
	SeccompProfiles    []string `json:"seccompProfiles"`
	Volumes            []string `json:"volumes"`
}

type strategy struct {
	Type string `json:"type"`
}

// DeepCopyObject implements [runtime.Object].
func (c *constraints) DeepCopyObject() runtime.Object { return new(*c) }

// decoder knows the kinds that the chart has, and rejects unknown and duplicate fields.
func decoder() runtime.Decoder {
	known := runtime.NewScheme()
	utilruntime.Must(scheme.AddToScheme(known))
	utilruntime.Must(monitoringv1.AddToScheme(known))
	known.AddKnownTypeWithName(schema.GroupVersionKind{Group: "security.openshift.io", Version: "v1", Kind: "SecurityContextConstraints"}, &constraints{})
	return serializer.NewCodecFactory(known, serializer.EnableStrict).UniversalDeserializer()
}

// object is a rendered object.
type object struct {
	metav1.Object
	decoded runtime.Object
	text    string
}

// name returns "KIND NAME".
func (o *object) name() string { return o.kind() + " " + o.GetName() }

func (o *object) kind() string { return o.decoded.GetObjectKind().GroupVersionKind().Kind }

// objects decodes all that was rendered.
func objects(t *testing.T, files map[string]string) (out []object) {
	t.Helper()
	d := decoder()
	for _, file := range slices.Sorted(maps.Keys(files)) {
		for text := range strings.SplitSeq(files[file], "\n---\n") {
			decoded, _, err := d.Decode([]byte(text), nil, nil)
			if err != nil {
				t.Errorf("%s: %v\n%s", file, err, text)
				continue
			}
			accessor, ok := decoded.(metav1.Object)
			if !ok {
				t.Fatalf("%s: %T has no metadata", file, decoded)
			}
			out = append(out, object{accessor, decoded, text})
		}
	}
	return out
}

// names returns the names of objects, sorted.
func names(all []object) []string {
	var out []string
	for _, o := range all {
		out = append(out, o.name())
	}
	slices.Sort(out)
	return out
}

// podOf returns the pod that an object is or creates, and what its selector selects; nil if it is none.
func podOf(o runtime.Object) (*corev1.PodTemplateSpec, *metav1.LabelSelector) {
	switch o := o.(type) {
	case *appsv1.DaemonSet:
		return &o.Spec.Template, o.Spec.Selector
	case *batchv1.Job:
		return &o.Spec.Template, nil
	case *corev1.Pod:
		return &corev1.PodTemplateSpec{ObjectMeta: o.ObjectMeta, Spec: o.Spec}, nil
	}
	return nil, nil
}

// isOfCluster reports whether a kind has no namespace.
func isOfCluster(kind string) bool {
	return strings.HasPrefix(kind, "Cluster") || strings.Contains(kind, "AdmissionPolicy") ||
		slices.Contains([]string{"Namespace", "SecurityContextConstraints"}, kind)
}
