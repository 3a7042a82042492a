package cluster

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/nri-blkio/nri-blkio/plugin/poddoc"
	"github.com/nri-blkio/nri-blkio/plugin/podfacts"
	"github.com/nri-blkio/nri-blkio/policy"
	"github.com/nri-blkio/nri-blkio/policy/annotation"
)

// fullPod returns a pod with each kind of volume and of container.
func fullPod() *corev1.Pod {
	mounts := func(name, path string) []corev1.VolumeMount {
		return []corev1.VolumeMount{{Name: name, MountPath: path}, {Name: "empty", MountPath: "/empty"}}
	}
	pod := newTestPod("db-0", testUID)
	pod.Annotations["example.com/a"] = "x"
	pod.Labels = map[string]string{"tier": "db"}
	pod.Spec.Volumes = []corev1.Volume{
		{Name: "data", VolumeSource: corev1.VolumeSource{PersistentVolumeClaim: &corev1.PersistentVolumeClaimVolumeSource{ClaimName: "c", ReadOnly: true}}},
		{Name: "tmp", VolumeSource: corev1.VolumeSource{Ephemeral: &corev1.EphemeralVolumeSource{VolumeClaimTemplate: &corev1.PersistentVolumeClaimTemplate{}}}},
		{Name: "host", VolumeSource: corev1.VolumeSource{HostPath: &corev1.HostPathVolumeSource{Path: "/srv"}}},
		{Name: "empty", VolumeSource: corev1.VolumeSource{EmptyDir: &corev1.EmptyDirVolumeSource{}}},
	}
	pod.Spec.InitContainers = []corev1.Container{{Name: "init", VolumeMounts: mounts("data", "/init/")}}
	pod.Spec.Containers = []corev1.Container{{Name: "db", Env: make([]corev1.EnvVar, 9), VolumeMounts: append(mounts("tmp", "rel"), mounts("host", "/host")[0]), VolumeDevices: []corev1.VolumeDevice{{Name: "data", DevicePath: "/dev/x"}}}}
	pod.Spec.EphemeralContainers = []corev1.EphemeralContainer{{EphemeralContainerCommon: corev1.EphemeralContainerCommon{Name: "debug", VolumeMounts: mounts("data", "/d")}}}
	return pod
}

// TestNewPod verifies what is kept of a pod.
func TestNewPod(t *testing.T) {
	want := poddoc.Document{
		Version: 1,
		UID:     testUID,
		Facts: podfacts.Facts{
			Namespace:   "prod",
			Name:        "db-0",
			Annotations: map[string]string{"limits." + annotation.Domain + "/containers": "* wbps=20Mi"},
			Labels:      map[string]string{"tier": "db"},
			Volumes: []policy.Volume{
				{Name: "data", Claim: "c", Places: []policy.Place{{Container: "db", Path: "/dev/x"}, {Container: "debug", Path: "/d"}, {Container: "init", Path: "/init"}}},
				{Name: "host", Places: []policy.Place{{Container: "db", Path: "/host"}}},
				{Name: "tmp", Claim: "db-0-tmp", Places: []policy.Place{{Container: "db", Path: "/rel"}}},
			},
		},
	}
	equal(t, "document", want, reported(fullPod()).pod.doc)
}

// TestOwner verifies that the owner of a pod is the object that controls it.
func TestOwner(t *testing.T) {
	const uid = "22222222-2222-2222-2222-222222222222"
	owner := metav1.OwnerReference{APIVersion: "v1", Kind: "Pod", Name: "virt-launcher-db", UID: uid, Controller: new(true), BlockOwnerDeletion: new(true)}
	for name, change := range map[string]func(*metav1.OwnerReference){
		"":                func(*metav1.OwnerReference) {},
		"no controller":   func(o *metav1.OwnerReference) { o.Controller = nil },
		"not controlling": func(o *metav1.OwnerReference) { o.Controller = new(false) },
		"of another kind": func(o *metav1.OwnerReference) { o.APIVersion, o.Kind = "apps/v1", "ReplicaSet" },
		"no name":         func(o *metav1.OwnerReference) { o.Name = "../x" },
		"no UID":          func(o *metav1.OwnerReference) { o.UID = "../x" },
	} {
		o, want := newTestPod("hp-volume-x", testUID), podfacts.Owner{}
		if isPod := name == ""; isPod || name == "of another kind" {
			want = podfacts.Owner{Name: "virt-launcher-db", UID: uid, IsPod: isPod}
		}
		ref := owner
		change(&ref)
		o.OwnerReferences = []metav1.OwnerReference{{APIVersion: "v1", Kind: "Pod", Name: "other", UID: testUID}, ref, {APIVersion: "apps/v1", Kind: "ReplicaSet", Name: "rs", UID: testUID}}
		p := reported(o).pod
		equal(t, name, want, p.doc.Owner)
		none := func(Ref) (any, bool) { return nil, true }
		if data, err := poddoc.Format().Encode(p.document(none, testNode)); err != nil || strings.Contains(string(data), uid) != (want.UID != "") {
			t.Errorf("%s: %s, %v", name, data, err)
		}
	}
	if _, err := decodePod([]byte{0x0a, 0x05, 0x6a, 0x03, 0x30, 0x80, 0x80}); err == nil { // a controller that is cut off
		t.Error("a broken reference is accepted")
	}
}

// TestStaticPod verifies that the document of a static pod has the UID that the runtime knows, and no pod gets the
// UID of another kind of pod.
func TestStaticPod(t *testing.T) {
	const hash = "d41d8cd98f00b204e9800998ecf8427e"
	for value, want := range map[string]string{hash: hash, testUID: "", "../../x": "", "": "", strings.ToUpper(hash): ""} {
		pod := newTestPod("etcd", "11111111-1111-1111-1111-111111111111")
		pod.Annotations[mirror] = value
		got := ""
		if p := reported(pod).pod; p != nil {
			got = p.doc.UID
		}
		if got != want {
			t.Errorf("%q: %q, want %q", value, got, want)
		}
	}
	if p := reported(newTestPod("a", "../x")).pod; p != nil {
		t.Errorf("a pod with the UID %q", p.doc.UID)
	}
}

// TestHostilePod verifies that what an author can write gives a document that can be encoded.
func TestHostilePod(t *testing.T) {
	large := strings.Repeat("x", 60<<10)
	for name, change := range map[string]func(*corev1.Pod){
		"claim":          func(p *corev1.Pod) { p.Spec.Volumes[0].PersistentVolumeClaim.ClaimName = "../../etc" },
		"long claim":     func(p *corev1.Pod) { p.Spec.Volumes[0].PersistentVolumeClaim.ClaimName = large },
		"volume":         func(p *corev1.Pod) { p.Spec.Volumes[0].Name = "../x" },
		"path":           func(p *corev1.Pod) { p.Spec.Containers[0].VolumeDevices[0].DevicePath = "/../" + large },
		"container":      func(p *corev1.Pod) { p.Spec.Containers[0].Name = large },
		"annotation":     func(p *corev1.Pod) { p.Annotations["limits."+annotation.Domain+"/pod-total"] = large },
		"no UTF-8":       func(p *corev1.Pod) { p.Annotations["limits."+annotation.Domain+"/pod-total"] = "\xff\x00" },
		"annotations":    func(p *corev1.Pod) { maps.Copy(p.Annotations, manyAnnotations(100)) },
		"init container": func(p *corev1.Pod) { p.Spec.InitContainers[0].Name = "../" + large },
		"claims": func(p *corev1.Pod) {
			for i := range 1000 {
				p.Spec.Volumes = append(p.Spec.Volumes, newTestPod("", "", fmt.Sprint("c", i)).Spec.Volumes[0])
			}
		},
	} {
		t.Run(name, func(t *testing.T) {
			o := fullPod()
			change(o)
			p := reported(o).pod
			none := func(Ref) (any, bool) { return nil, true }
			data, err := poddoc.Format().Encode(p.document(none, testNode))
			if err != nil {
				t.Fatal(err)
			}
			if kept := len(p.refs(none, testNode)); kept > 1+poddoc.MaxVolumes || strings.Contains(string(data), "..") {
				t.Errorf("%d objects, document %.200s", kept, data)
			}
		})
	}
}

func manyAnnotations(n int) map[string]string {
	out := map[string]string{}
	for i := range n {
		out[fmt.Sprintf("limits.%s/container.c%d", annotation.Domain, i)] = "x"
	}
	return out
}

// TestPods verifies that what changes is notified, also a pod that was created again under its name.
func TestPods(t *testing.T) {
	var changed []string
	p := newPods(func(uid string) { changed = append(changed, uid) })
	notified := func(what string, want ...string) {
		t.Helper()
		slices.Sort(changed)
		equal(t, what, want, changed)
		changed = nil
	}
	state := func(pods ...*corev1.Pod) {
		values := map[string]any{}
		for _, pod := range pods {
			values["prod/"+pod.Name] = p.keep(reported(pod))
		}
		p.setAll(values)
	}
	if p.synced.Load() {
		t.Error("synced without a list")
	}
	state(newTestPod("a", uidOf(1)), newTestPod("b", uidOf(2)))
	notified("list", uidOf(1), uidOf(2))
	if !p.synced.Load() {
		t.Error("not synced")
	}
	p.put(newTestPod("a", uidOf(3)))
	notified("created again", uidOf(1), uidOf(3))
	same := newTestPod("a", uidOf(3))
	same.Spec.Containers[0].Env = make([]corev1.EnvVar, 9)
	p.put(same)
	notified("what is kept has not changed")
	p.change("prod/a", nil)
	notified("deleted", uidOf(3))
	state(newTestPod("b", uidOf(2)), newTestPod("c", uidOf(4)))
	notified("another list", uidOf(4))
	state(newTestPod("c", uidOf(4)), newTestPod("x", "../x"))
	notified("a third list", uidOf(2))
	equal(t, "keys", []string{"prod/c"}, p.keys())
	if len(p.byUID) != 1 {
		t.Errorf("%d UIDs are kept", len(p.byUID))
	}
	if p.keep(newNamespace(nil)) != nil {
		t.Error("a namespace is kept as a pod")
	}
}

// put has a pod change.
func (p *pods) put(pod *corev1.Pod) { p.change("prod/"+pod.Name, p.keep(reported(pod))) }

// TestPodPretends verifies that of two pods with the UID of one static pod, the older one is it.
func TestPodPretends(t *testing.T) {
	const hash = "d41d8cd98f00b204e9800998ecf8427e"
	p := newPods(func(string) {})
	static := func(name string, created int64) *corev1.Pod {
		pod := newTestPod(name, uidOf(int(created)))
		pod.Annotations[mirror], pod.CreationTimestamp = hash, metav1.NewTime(time.Unix(created, 0))
		return pod
	}
	for _, pod := range []*corev1.Pod{static("z-pretends", 2), static("etcd", 1), static("a-pretends", 3)} {
		p.put(pod)
	}
	if got := p.of(hash).key; got != "prod/etcd" {
		t.Errorf("it is %s", got)
	}
	p.change("prod/etcd", nil)
	if got := p.of(hash).key; got != "prod/z-pretends" {
		t.Errorf("then it is %s", got)
	}
	if p.of(testUID) != nil {
		t.Error("a pod that does not exist")
	}
	// The kubelet has created the mirror pod again, and deletes the others, which have finalizers.
	p.put(static("etcd", 4))
	for name, created := range map[string]int64{"z-pretends": 2, "a-pretends": 3} {
		pod := static(name, created)
		pod.DeletionTimestamp, pod.Finalizers = new(metav1.NewTime(time.Unix(5, 0))), []string{"example.com/stay"}
		p.put(pod)
	}
	if got := p.of(hash); got == nil || got.key != "prod/etcd" {
		t.Errorf("once the others are deleted, it is %+v", got)
	}
	if pod := newTestPod("db-0", testUID); reported(pod).pod == nil {
		t.Error("a pod is left out")
	} else if pod.DeletionTimestamp = new(metav1.Now()); reported(pod).pod == nil {
		t.Error("a pod that is being deleted is left out: it may run for long")
	}
}
