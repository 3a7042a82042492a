package cluster

import (
	"bytes"
	"encoding/json"
	"fmt"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"text/template"

	"github.com/nri-blkio/nri-blkio/test/e2e/cri"
	"github.com/nri-blkio/nri-blkio/test/e2e/csi"
	"github.com/nri-blkio/nri-blkio/test/e2e/lab"
)

// volumeKind is a volume of a pod, by the way that Kubernetes has it.
type volumeKind struct {
	lab.Store
	Volume     string // YAML of its source, "emptyDir: {}"
	Mount      string // YAML of more fields of the mount
	Block      bool   // volumeDevices has it
	Privileged bool
	Claim      string // YAML of the source of the PersistentVolume that its claim takes
	Mode       string // of that, "Filesystem" by default
	// by is the target in the annotation, the path of the mount by default.
	by string
	// device is a pattern of the device that the volume is stored on, if it is known only once the pod runs.
	device string
	refuse string // part of the message to the tenant if the volume cannot be limited
	// orphan is the kubelet's plugin that leaves the volume mounted after its pod was removed.
	orphan string
}

// Name of the volume, and of the container that alone has it.
func (v *volumeKind) Name() string { return strings.TrimPrefix(v.Container(), "pod-s-") }

// Path returns the path in the container. It differs between volumes, so it identifies the writer.
func (v *volumeKind) Path() string { return "/" + v.Name() }

var volumesManifest = template.Must(template.New("volumes").Parse(`{{range .Volumes}}{{if .Claim -}}
apiVersion: v1
kind: PersistentVolume
metadata: {name: pv-{{.Name}}}
spec:
  capacity: {storage: 100Mi}
  accessModes: [ReadWriteOnce]
  persistentVolumeReclaimPolicy: Retain
  storageClassName: {{.Name}}
  volumeMode: {{.Mode}}
  {{.Claim}}
---
{{if not .Volume -}}
apiVersion: v1
kind: PersistentVolumeClaim
metadata: {name: {{.Name}}, namespace: default}
spec:
  accessModes: [ReadWriteOnce]
  resources: {requests: {storage: 100Mi}}
  storageClassName: {{.Name}}
  volumeMode: {{.Mode}}
---
{{end}}{{end}}{{end -}}
apiVersion: storage.k8s.io/v1
kind: CSIDriver
metadata: {name: {{.Driver}}}
spec: {attachRequired: false, podInfoOnMount: true, volumeLifecycleModes: [Persistent, Ephemeral]}
---
apiVersion: v1
kind: ConfigMap
metadata: {name: config, namespace: default}
data: {key: value}
---
apiVersion: v1
kind: Secret
metadata: {name: secret, namespace: default}
stringData: {key: value}
---
apiVersion: v1
kind: Pod
metadata:
  name: volumes
  namespace: default
  annotations:
{{- range $key, $value := .Annotations}}
    {{$key}}: {{printf "%q" $value}}
{{- end}}
spec:
  hostNetwork: true
  terminationGracePeriodSeconds: 1
  containers:
{{- range .Volumes}}
  - name: {{.Name}}
    image: {{$.Image}}
    imagePullPolicy: Never
    args: [sleep, --seconds, "100000"]
    env: [{name: POD, valueFrom: {fieldRef: {fieldPath: metadata.name}}}]
    resources: {limits: {memory: "{{$.Memory}}"}}
    securityContext: {privileged: {{.Privileged}}}
    {{if .Block}}volumeDevices: [{name: {{.Name}}, devicePath: {{.Path}}}]
    {{- else}}volumeMounts: [{name: {{.Name}}, mountPath: {{.Path}}{{with .Mount}}, {{.}}{{end}}}]{{end}}
{{- end}}
  volumes:
{{- range .Volumes}}
  - {name: {{.Name}}, {{if .Volume}}{{.Volume}}{{else}}persistentVolumeClaim: {claimName: {{.Name}}}{{end}}}
{{- end}}
`))

// TestStorageOfPods verifies limits on each kind of volume that a pod can have, created through the control
// plane, the kubelet and a CSI driver.
//
//e2e:proof
func TestStorageOfPods(t *testing.T) {
	k := lab.NewKit(t, 2)
	kinds := podVolumes(k, k.VolumeGroup())
	a := lab.Annotations{}
	for i := range kinds {
		v := &kinds[i]
		v.Target = v.Path()
		if v.by == "" {
			v.by = v.Path()
		}
		if v.Mode == "" {
			v.Mode = "Filesystem"
		}
		lab.Know(t, v.Disks...)
		a[lab.Limits+"container."+v.Name()] = v.by + " " + v.Key() + "=1Mi"
	}
	lab.StartPlugin(t)
	driver, err := csi.Start(csiDriver, "e2e")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(driver.Stop)
	c := startCluster(t)
	var manifest bytes.Buffer
	err = volumesManifest.Execute(&manifest, map[string]any{
		"Volumes": kinds, "Driver": csiDriver, "Annotations": a, "Image": cri.Image, "Memory": lab.MemoryLimit,
	})
	if err != nil {
		t.Fatal(err)
	}
	c.apply(manifest.String())
	running := awaitVolumes(t, kinds)
	for i := range kinds {
		if kinds[i].device != "" {
			kinds[i].Disks = []string{kinds[i].find(t)}
		}
	}
	t.Run("every mount, by lsblk and findmnt", func(t *testing.T) { lab.Agrees(t, 10) })
	t.Run("devices", func(t *testing.T) { areDrawn(t, kinds) })
	t.Run("of", func(t *testing.T) {
		for _, v := range kinds {
			t.Run(v.Name(), func(t *testing.T) {
				t.Parallel()
				v.obeys(t, running[v.Name()])
			})
		}
	})
	t.Run("orphans", func(t *testing.T) { cluster{T: t}.areOrphaned(kinds) })
}

// directory is the name that the kubelet's directories have of a volume, "" for none.
func (v *volumeKind) directory() string {
	switch {
	case v.Claim != "":
		return "pv-" + v.Name()
	case strings.HasPrefix(v.Volume, "hostPath:"), strings.HasPrefix(v.Volume, "image:"):
		return ""
	}
	return v.Name()
}

// drawn is a part of what `devices` shows.
type drawn struct {
	Kind, Name, Namespace, Pod string
	Children                   []drawn
}

// volumes finds the pods' volumes below, with what they are on.
func (d *drawn) volumes(below []string, found map[string][]string) {
	if d.Namespace+"/"+d.Pod == "default/volumes" {
		found[d.Name] = append(found[d.Name], below...)
	}
	for i := range d.Children {
		d.Children[i].volumes(append(slices.Clip(below), d.Name), found)
	}
}

// areDrawn verifies that `devices` shows each volume on its disk.
func areDrawn(t *testing.T, kinds []volumeKind) {
	t.Helper()
	out, err := lab.Command(t, "devices", "-o", "json")
	if err != nil {
		t.Fatal(err)
	}
	var answer struct{ Devices []drawn }
	if err := json.Unmarshal([]byte(out), &answer); err != nil {
		t.Fatal(err)
	}
	found := map[string][]string{}
	for i := range answer.Devices {
		answer.Devices[i].volumes(nil, found)
	}
	for _, v := range kinds {
		if name := v.directory(); name != "" && v.refuse == "" && !slices.Contains(found[name], v.Disks[0]) {
			t.Errorf("volume %s is on %q, want %s", name, found[name], v.Disks[0])
		}
	}
}

// obeys verifies that the volume obeys its limit, or that its container is rejected if the volume cannot be
// limited.
func (v *volumeKind) obeys(t *testing.T, k *cri.Container) {
	if v.refuse != "" {
		v.isRefused(t)
		return
	}
	v.Measure(t, k)
}

// awaitVolumes waits for the containers of all volumes that are not refused.
func awaitVolumes(t *testing.T, kinds []volumeKind) map[string]*cri.Container {
	t.Helper()
	var running map[string]*cri.Container
	lab.Within(t, clusterDeadline, "the containers run", func() error {
		var err error
		if running, err = lab.Node.CRI.Running(t.Context(), "io.kubernetes.pod.name", "volumes"); err != nil {
			return err
		}
		var missing []string
		for _, v := range kinds {
			if v.refuse == "" && running[v.Name()] == nil {
				missing = append(missing, v.Name())
			}
		}
		if len(missing) > 0 {
			return fmt.Errorf("these containers do not run: %s", strings.Join(missing, ", "))
		}
		return nil
	})
	return running
}

// find is the disk of a volume that its driver has made.
func (v *volumeKind) find(t *testing.T) string {
	t.Helper()
	found, err := filepath.Glob(v.device)
	if err != nil || len(found) != 1 {
		t.Fatalf("%s: %q (%v), want one device", v.device, found, err)
	}
	disk := lab.DiskBehind(t, found[0])
	lab.Know(t, disk)
	return disk
}

// isRefused waits until the kubelet's reason why the container waits has the message to the tenant.
func (v *volumeKind) isRefused(t *testing.T) {
	lab.Eventually(t, "the kubelet reports why the container waits", func() error {
		_, message, err := lab.Waiting(t.Context(), "volumes", v.Name())
		if err == nil && !strings.Contains(message, v.refuse) {
			err = fmt.Errorf("the kubelet reports %q, want %q", message, v.refuse)
		}
		return err
	})
	lab.PrintRow(v.Label, v.FS, "refused: "+v.refuse, "")
}
