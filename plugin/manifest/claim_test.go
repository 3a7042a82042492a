package manifest

import (
	"math"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// TestClaimLimits verifies that limits are read of claims, of the templates of a StatefulSet and of ephemeral volumes, that they
// are in the right place there, and that each pod of a namespace has those of its claims.
func TestClaimLimits(t *testing.T) {
	const key = "limits.blkio.noderesource.dev"
	set, err := Read(strings.NewReader(`kind: PersistentVolumeClaim
apiVersion: v1
metadata: {name: data, annotations: {`+key+`: wbps=1Mi}}
---
kind: PersistentVolumeClaim
metadata: {name: data, namespace: other, annotations: {`+key+`: wbps=2Mi}}
---
kind: PersistentVolumeClaim
metadata: {name: wrong, annotations: {`+key+`/containers: wbps=3Mi}}
---
kind: PersistentVolumeClaim
apiVersion: example.com/v1
metadata: {name: another, annotations: {`+key+`: wbps=4Mi}}
---
kind: Pod
metadata: {name: p}
spec:
  containers: [{name: c}]
  volumes:
  - {name: v, persistentVolumeClaim: {claimName: data}}
  - {name: w, persistentVolumeClaim: {claimName: none}}
  - {name: e, ephemeral: {volumeClaimTemplate: {metadata: {annotations: {`+key+`: wbps=5Mi}}}}}
---
kind: StatefulSet
apiVersion: apps/v1
metadata: {name: db}
spec:
  volumeClaimTemplates: [{metadata: {name: wal, annotations: {`+key+`: wbps=6Mi}}}]
  template: {spec: {containers: [{name: c}]}}
`), "in")
	if err != nil {
		t.Fatal(err)
	}
	set.Link()
	var findings []string
	for i := range set.Findings {
		findings = append(findings, set.Findings[i].String())
	}
	want := []string{
		`in:9: PersistentVolumeClaim wrong: metadata.annotations: annotation "` + key + `/containers" has no effect on a PersistentVolumeClaim, only on pods`,
		`in:13: PersistentVolumeClaim another: metadata.annotations: annotation "` + key + `" has no effect on a PersistentVolumeClaim, only on pods`,
	}
	if d := cmp.Diff(want, findings); d != "" {
		t.Errorf("-want +got:\n%s", d)
	}
	got := map[string]string{}
	for _, p := range set.Pods {
		for _, v := range p.Volumes {
			if got[v.Claim] = "none"; v.Limits != nil {
				got[v.Claim] = *v.Limits
			}
		}
	}
	if d := cmp.Diff(map[string]string{"data": "wbps=1Mi", "none": "none", "p-e": "wbps=5Mi", "wal-db-0": "wbps=6Mi"}, got); d != "" {
		t.Errorf("-want +got:\n%s", d)
	}
}

// TestClaimRequests verifies that the volumes of pods have the sizes of their claims and the classes of these: what a claim has beats what it
// asks for.
func TestClaimRequests(t *testing.T) {
	set, err := Read(strings.NewReader(`kind: PersistentVolumeClaim
apiVersion: v1
metadata: {name: data}
spec: {volumeAttributesClassName: fast, resources: {requests: {storage: 5Gi}}}
status: {capacity: {storage: 7Gi}}
---
kind: PersistentVolumeClaim
apiVersion: v1
metadata: {name: odd}
spec: {volumeAttributesClassName: none, resources: {requests: {storage: -5Gi}}}
---
kind: PersistentVolumeClaim
apiVersion: v1
metadata: {name: text}
spec: {resources: {requests: {storage: large}}}
---
kind: VolumeAttributesClass
apiVersion: storage.k8s.io/v1
metadata: {name: fast}
parameters: {riops: 3/Gi}
---
kind: StatefulSet
apiVersion: apps/v1
metadata: {name: db}
spec:
  replicas: 1
  volumeClaimTemplates: [{metadata: {name: wal}, spec: {resources: {requests: {storage: 1Ti}}}}]
  template:
    spec:
      containers: [{name: c}]
      volumes:
      - {name: v, persistentVolumeClaim: {claimName: data}}
      - {name: w, persistentVolumeClaim: {claimName: odd}}
      - {name: x, persistentVolumeClaim: {claimName: text}}
      - {name: y, persistentVolumeClaim: {claimName: gone}}
      - {name: z, emptyDir: {}}
`), "in")
	if err != nil {
		t.Fatal(err)
	}
	set.Link()
	got := map[string]Request{}
	for _, v := range set.Pods[0].Volumes {
		got[v.Claim] = v.Request
	}
	want := map[string]Request{
		"data": {7 << 30, "fast", map[string]string{"riops": "3/Gi"}}, "odd": {Class: "none"}, "text": {}, "gone": {}, "": {}, "wal-db-0": {Size: 1 << 40},
	}
	if d := cmp.Diff(want, got); d != "" {
		t.Errorf("-want +got:\n%s", d)
	}
}

// TestReplicasWithClaims verifies that a StatefulSet has a pod for each ordinal of which the manifests have a claim, and for no other claim.
func TestReplicasWithClaims(t *testing.T) {
	claim := func(name, namespace string) string {
		return "---\n{kind: PersistentVolumeClaim, apiVersion: v1, metadata: {name: " + name + ", namespace: " + namespace + ", annotations: {" + claimKey + ": wbps=7Mi}}}\n"
	}
	set, err := Read(strings.NewReader(`kind: StatefulSet
apiVersion: apps/v1
metadata: {name: db, namespace: prod}
spec:
  replicas: 3
  volumeClaimTemplates: [{metadata: {name: data, annotations: {`+claimKey+`: wbps=1Mi}}}, {metadata: {name: wal}}]
  template: {spec: {containers: [{name: c}], volumes: [{name: tmp, emptyDir: {}}]}}
`+claim("data-db-0", "prod")+claim("data-db-2", "prod")+claim("wal-db-2", "prod")+claim("wal-db-11", "prod")+claim("data-db-1", "other")+
		claim("data-db-x", "prod")+claim("db-1", "prod")), "in")
	if err != nil {
		t.Fatal(err)
	}
	set.Link()
	got := map[string]string{}
	for _, p := range set.Pods {
		for _, v := range p.Volumes {
			if v.Claim != "" && v.Limits != nil {
				got[p.Object.String()] += v.Claim + " " + *v.Limits + ";"
			}
		}
	}
	want := map[string]string{
		"StatefulSet prod/db": "data-db-0 wbps=7Mi;", "Pod prod/db-2": "data-db-2 wbps=7Mi;wal-db-2 wbps=7Mi;",
		"Pod prod/db-11": "data-db-11 wbps=1Mi;wal-db-11 wbps=7Mi;",
	}
	if d := cmp.Diff(want, got); d != "" {
		t.Errorf("-want +got:\n%s", d)
	}
}

// TestClaimSizes verifies that a size is read as Kubernetes reads it: a number without quotes too. One that would take hours to compute, and
// one that is none, are reported.
func TestClaimSizes(t *testing.T) {
	for text, want := range map[string]int64{
		"5000000000": 5e9, `"1Gi"`: 1 << 30, "10E": math.MaxInt64, "99999999999999999999e2147483647": 0, "-5Gi": 0, "large": 0, "[1Gi]": 0,
	} {
		set, err := Read(strings.NewReader("{kind: PersistentVolumeClaim, apiVersion: v1, metadata: {name: c}, spec: {resources: {requests: {storage: "+text+"}}}}"), "in")
		if err != nil || len(set.Claims) != 1 || set.Claims[0].Request.Size != want || (want == 0) != (len(set.Findings) == 1) {
			t.Errorf("%s: %v, %+v", text, err, set)
		}
	}
}
