package cluster

import (
	"bytes"
	"context"
	"encoding/binary"
	"fmt"
	"net/http"
	"net/http/httptest"
	"runtime"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/sirupsen/logrus/hooks/test"
	"google.golang.org/protobuf/encoding/protowire"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	kruntime "k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/serializer/protobuf"
	"k8s.io/apimachinery/pkg/types"

	"github.com/nri-blkio/nri-blkio/plugin/poddoc"
	"github.com/nri-blkio/nri-blkio/plugin/podfacts"
	"github.com/nri-blkio/nri-blkio/policy"
	"github.com/nri-blkio/nri-blkio/policy/annotation"
)

const largeSize = 1_400_000 // bytes of a pod; the API server takes 1.5 MB

// largePods returns pods with as many parts of one kind as the API server takes.
func largePods() map[string]*corev1.Pod {
	out := map[string]*corev1.Pod{}
	for kind, add := range map[string]func(o *corev1.Pod, i int){
		"mounts": func(o *corev1.Pod, i int) {
			c := &o.Spec.Containers[0]
			c.VolumeMounts = append(c.VolumeMounts, corev1.VolumeMount{Name: "v-a", MountPath: fmt.Sprintf("/%x", i)})
		},
		"containers": func(o *corev1.Pod, i int) {
			o.Spec.InitContainers = append(o.Spec.InitContainers, corev1.Container{
				Name: fmt.Sprintf("c%x", i), Image: "i", VolumeMounts: []corev1.VolumeMount{{Name: "v-a", MountPath: "/a"}},
			})
		},
		"environment": func(o *corev1.Pod, i int) {
			c := &o.Spec.Containers[0]
			c.Env = append(c.Env, corev1.EnvVar{Name: fmt.Sprintf("E%x", i), Value: "x"})
		},
		"owners": func(o *corev1.Pod, i int) {
			o.OwnerReferences = append(o.OwnerReferences, metav1.OwnerReference{APIVersion: "v1", Kind: "Pod", Name: fmt.Sprintf("o%x", i), UID: testUID})
		},
		"labels": func(o *corev1.Pod, i int) { o.Labels[fmt.Sprintf("l%x", i)] = "x" },
		"claims": func(o *corev1.Pod, i int) {
			o.Spec.Volumes = append(o.Spec.Volumes, newTestPod("", "", fmt.Sprintf("c%x", i)).Spec.Volumes[0])
		},
		"volumes": func(o *corev1.Pod, i int) {
			o.Spec.Volumes = append(o.Spec.Volumes, corev1.Volume{Name: fmt.Sprintf("v%x", i), VolumeSource: corev1.VolumeSource{EmptyDir: &corev1.EmptyDirVolumeSource{}}})
		},
		"paths": func(o *corev1.Pod, i int) {
			o.Spec.Volumes = append(o.Spec.Volumes, corev1.Volume{
				Name: fmt.Sprintf("v%x", i), VolumeSource: corev1.VolumeSource{HostPath: &corev1.HostPathVolumeSource{Path: "/"}},
			})
		},
		"annotations": func(o *corev1.Pod, i int) {
			o.Annotations[fmt.Sprintf("limits.%s/container.c%x", annotation.Domain, i)] = "* wbps=1Mi"
		},
	} {
		o := newTestPod("p-000", uidOf(0), "a")
		o.Labels, o.Spec.NodeName = map[string]string{}, "worker-1"
		one := o.Size()
		add(o, 0)
		for i := range (largeSize - one) / (o.Size() - one + 5) {
			add(o, i)
		}
		out[kind] = o
	}
	return out
}

// TestLargePodNotBuilt verifies that what a document cannot have of a pod is counted, and not built.
func TestLargePodNotBuilt(t *testing.T) {
	for kind, o := range largePods() {
		data, err := o.Marshal()
		if err != nil {
			t.Fatal(err)
		}
		var before, after runtime.MemStats
		runtime.ReadMemStats(&before)
		got, err := decodePod(data)
		runtime.ReadMemStats(&after)
		if err != nil {
			t.Fatal(err)
		}
		if built := after.TotalAlloc - before.TotalAlloc; built > 4<<20 {
			t.Errorf("%s: %d bytes are built of %d", kind, built, len(data))
		}
		d := &got.pod.doc
		if size := poddoc.Format().Size(d); size > 160<<10 {
			t.Errorf("%s: %d bytes are kept", kind, size)
		}
		part := map[string]string{
			"mounts": podfacts.PartVolumes, "containers": podfacts.PartVolumes, "claims": podfacts.PartVolumes, "paths": podfacts.PartVolumes,
			"labels": podfacts.PartLabels, "annotations": podfacts.PartAnnotations,
		}[kind]
		if len(data) < largeSize*3/4 || len(d.Omitted) > 1 || part != "" && d.Omitted[part] == "" || part == "" && len(d.Omitted) > 0 {
			t.Errorf("%s: %d bytes, omitted %v", kind, len(data), d.Omitted)
		}
		t.Logf("%s: %d bytes, %d built, %d kept, omitted %v", kind, len(data), after.TotalAlloc-before.TotalAlloc, poddoc.Format().Size(d), d.Omitted)
	}
}

// podServer answers as an API server does with pods, the same number of each kind.
type podServer struct {
	t    *testing.T
	pods [][]byte // messages without envelopes
	old  bool     // it cannot send the initial state with a watch
}

// newPodServer has n large pods of each kind, and one of another namespace.
func newPodServer(t *testing.T, n int) *podServer {
	s := &podServer{t: t}
	count := 0
	for _, o := range largePods() {
		for range n {
			count++
			o.Name, o.UID = fmt.Sprintf("p-%03d", count), types.UID(uidOf(count))
			s.pods = append(s.pods, s.marshal(o))
		}
	}
	victim := newTestPod("victim", testUID)
	victim.Namespace = "victim"
	s.pods = append(s.pods, s.marshal(victim))
	return s
}

func (s *podServer) marshal(o interface{ Marshal() ([]byte, error) }) []byte {
	data, err := o.Marshal()
	if err != nil {
		s.t.Error(err)
	}
	return data
}

// wrapped returns a message with its envelope.
func (s *podServer) wrapped(kind string, data []byte) []byte {
	u := &kruntime.Unknown{TypeMeta: kruntime.TypeMeta{APIVersion: "v1", Kind: kind}, Raw: data}
	return append(bytes.Clone(envelope), s.marshal(u)...)
}

// ServeHTTP implements http.Handler.
func (s *podServer) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	w.Header().Set("Content-Type", kruntime.ContentTypeProtobuf)
	isInitial := r.URL.Query().Get("sendInitialEvents") != ""
	kind := map[string]string{"pods": "Pod", "namespaces": "Namespace", "persistentvolumeclaims": "PersistentVolumeClaim"}[r.URL.Path[strings.LastIndex(r.URL.Path, "/")+1:]]
	switch {
	case r.URL.Query().Get("watch") == "":
		s.list(w, kind)
	case isInitial && s.old:
		w.WriteHeader(http.StatusUnprocessableEntity)
		status := &metav1.Status{Status: metav1.StatusFailure, Reason: metav1.StatusReasonInvalid, Code: http.StatusUnprocessableEntity}
		_, _ = w.Write(s.wrapped("Status", s.marshal(status)))
	default:
		if isInitial {
			if kind == "Pod" {
				for _, pod := range s.pods {
					s.frame(w, "ADDED", s.wrapped(kind, pod))
				}
			}
			end := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{ResourceVersion: "7", Annotations: map[string]string{metav1.InitialEventsAnnotationKey: "true"}}}
			s.frame(w, "BOOKMARK", s.wrapped(kind, s.marshal(end))) // all kinds have the same metadata
		}
		w.(http.Flusher).Flush()
		<-r.Context().Done()
	}
}

func (s *podServer) frame(w http.ResponseWriter, typ string, object []byte) {
	event := s.marshal(&metav1.WatchEvent{Type: typ, Object: kruntime.RawExtension{Raw: object}})
	_, _ = w.Write(binary.BigEndian.AppendUint32(nil, uint32(len(event))))
	_, _ = w.Write(event)
}

// list sends a list as the API server does, which knows its size before.
func (s *podServer) list(w http.ResponseWriter, kind string) {
	list := protowire.AppendBytes(protowire.AppendTag(nil, listMetadata, protowire.BytesType), s.marshal(&metav1.ListMeta{ResourceVersion: "7"}))
	size := len(list)
	pods := s.pods
	if kind != "Pod" {
		pods = nil
	}
	for _, pod := range pods {
		size += protowire.SizeTag(listItems) + protowire.SizeBytes(len(pod))
	}
	head := protowire.AppendTag(s.wrapped(kind+"List", nil)[:len(s.wrapped(kind+"List", nil))-len(s.tail())], unknownRaw, protowire.BytesType)
	_, _ = w.Write(append(protowire.AppendVarint(head, uint64(size)), list...))
	for _, pod := range pods {
		_, _ = w.Write(protowire.AppendBytes(protowire.AppendTag(nil, listItems, protowire.BytesType), pod))
	}
	_, _ = w.Write(s.tail())
}

// tail returns what follows the message in an envelope: its encoding and its type, which are empty.
func (s *podServer) tail() []byte {
	return protowire.AppendString(protowire.AppendTag(protowire.AppendString(protowire.AppendTag(nil, 3, protowire.BytesType), ""), 4, protowire.BytesType), "")
}

// TestLargePods verifies that beside many pods of a tenant that are as large as the API server takes, the part knows all pods, and
// keeps of each no more than a document, with both ways of listing.
func TestLargePods(t *testing.T) {
	const each = 2
	server := newPodServer(t, each)
	for _, server.old = range []bool{false, true} {
		t.Run(fmt.Sprint("lists first: ", server.old), func(t *testing.T) {
			log, _ := test.NewNullLogger()
			p := New(Config{Dir: t.TempDir(), API: newTestClient(t, server.ServeHTTP), Log: log})
			done := make(chan error)
			ctx, cancel := context.WithCancel(t.Context())
			go func() { done <- p.Run(ctx) }()
			for !p.pods.synced.Load() || p.status.documents.Load() < int64(len(server.pods)) {
				select {
				case <-t.Context().Done():
					t.Fatal("no documents")
				case <-time.After(10 * time.Millisecond):
				}
			}
			cancel()
			if err := <-done; err != nil {
				t.Error(err)
			}
			if d, err := poddoc.Format().Read(p.Dir, testUID); err != nil || d.Namespace != "victim" || len(d.Annotations) != 1 {
				t.Errorf("the document of another tenant: %+v, %v", d, err)
			}
			kept := 0
			for _, pod := range p.pods.byKey {
				kept += poddoc.Format().Size(&pod.doc)
			}
			if len(p.pods.byKey) != len(server.pods) || kept > len(server.pods)*80<<10 {
				t.Errorf("%d bytes are kept of %d pods", kept, len(p.pods.byKey))
			}
			t.Logf("%d bytes are kept of %d pods", kept, len(p.pods.byKey))
		})
	}
}

// TestPodList verifies that a list is read as Kubernetes encodes it.
func TestPodList(t *testing.T) {
	list := &corev1.PodList{
		TypeMeta: metav1.TypeMeta{APIVersion: "v1", Kind: "PodList"}, ListMeta: metav1.ListMeta{ResourceVersion: "7"},
		Items: []corev1.Pod{*fullPod(), *newTestPod("db-1", uidOf(1), "a")},
	}
	for range 2 {
		var data bytes.Buffer
		if err := protobuf.NewSerializer(nil, nil).Encode(list, &data); err != nil {
			t.Fatal(err)
		}
		var got []*pod
		version, err := readPodList(&data, func(o kruntime.Object) { got = append(got, o.(*podObject).pod) })
		if err != nil || version != "7" || len(got) != len(list.Items) {
			t.Fatalf("%d pods, version %q, %v", len(got), version, err)
		}
		for i := range got {
			equal(t, "pod", reported(&list.Items[i]).pod.doc, got[i].doc)
		}
		list.Items = nil // an empty list
	}
}

// TestPodListBroken verifies that a list that is cut off, or is none, is an error.
func TestPodListBroken(t *testing.T) {
	w := httptest.NewRecorder()
	(&podServer{t: t, pods: [][]byte{(&podServer{t: t}).marshal(fullPod())}}).list(w, "Pod")
	whole := w.Body.Bytes()
	none := func(kruntime.Object) {}
	if version, err := readPodList(bytes.NewReader(whole), none); err != nil || version != "7" {
		t.Fatalf("version %q, %v", version, err)
	}
	for n := range len(whole) - len((&podServer{t: t}).tail()) {
		if _, err := readPodList(bytes.NewReader(whole[:n]), none); err == nil {
			t.Errorf("no error with %d bytes of %d", n, len(whole))
		}
	}
	for name, data := range map[string]string{"JSON": `{"kind":"PodList"}`, "number": "k8s\x00\x08\x01", "long": "k8s\x00\x12\xff\xff\xff\xff\xff\xff\xff\xff\xff\x01"} {
		if _, err := readPodList(strings.NewReader(data), none); err == nil {
			t.Errorf("%s: no error", name)
		}
	}
}

// FuzzPod verifies that no message makes the part crash, and that of any pod the same is kept as of the type of Kubernetes.
func FuzzPod(f *testing.F) {
	data, err := fullPod().Marshal()
	if err != nil {
		f.Fatal(err)
	}
	f.Add(data)
	f.Fuzz(func(t *testing.T, data []byte) {
		if _, err := decodePod(data); err != nil {
			return
		}
		var o corev1.Pod
		if o.Unmarshal(data) != nil {
			return
		}
		got := reported(&o)
		if got.Name != o.Name || got.Namespace != o.Namespace || got.UID != o.UID || got.ResourceVersion != o.ResourceVersion ||
			!got.CreationTimestamp.Equal(&o.CreationTimestamp) || !got.DeletionTimestamp.Equal(o.DeletionTimestamp) {
			t.Fatalf("metadata %+v of %+v", got, o.ObjectMeta)
		}
		if p := got.pod; p != nil && len(p.doc.Omitted) == 0 {
			want := poddoc.Document{UID: p.doc.UID, Facts: podfacts.Facts{
				Namespace: o.Namespace, Name: o.Name, Annotations: podfacts.Own(o.Annotations), Labels: o.Labels, Volumes: namedVolumes(&o),
			}}
			if want.Labels == nil {
				want.Labels = map[string]string{}
			}
			want.Bound()
			equal(t, "document", want, p.doc)
		}
	})
}

// namedVolumes returns the volumes of a pod whose name the runtime does not see, with their places in the containers.
func namedVolumes(o *corev1.Pod) []policy.Volume {
	index, out := map[string]int{}, []policy.Volume{}
	for _, v := range o.Spec.Volumes {
		name := ""
		if v.PersistentVolumeClaim != nil {
			name = v.PersistentVolumeClaim.ClaimName
		}
		if v.Ephemeral != nil {
			name = o.Name + "-" + v.Name
		}
		if !poddoc.IsName(name) {
			name = ""
		}
		isSeen := v.EmptyDir != nil || v.GitRepo != nil || v.Secret != nil || v.DownwardAPI != nil || v.ConfigMap != nil || v.Projected != nil
		if !isSeen && annotation.IsLabel(v.Name) {
			index[v.Name] = len(out)
			out = append(out, policy.Volume{Name: v.Name, Claim: name})
		}
	}
	all := slices.Concat(o.Spec.InitContainers, o.Spec.Containers)
	for _, c := range o.Spec.EphemeralContainers {
		all = append(all, corev1.Container(c.EphemeralContainerCommon))
	}
	for _, c := range all {
		for _, m := range c.VolumeMounts {
			if i, ok := index[m.Name]; ok {
				out[i].Places = append(out[i].Places, policy.Place{Container: c.Name, Path: m.MountPath})
			}
		}
		for _, d := range c.VolumeDevices {
			if i, ok := index[d.Name]; ok {
				out[i].Places = append(out[i].Places, policy.Place{Container: c.Name, Path: d.DevicePath})
			}
		}
	}
	return out
}
