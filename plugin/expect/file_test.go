package expect

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/nri-blkio/nri-blkio/blkio"
	"github.com/nri-blkio/nri-blkio/plugin/manifest"
	"github.com/nri-blkio/nri-blkio/policy"
)

const fileHead = "apiVersion: blkio.noderesource.dev/v1alpha1\nkind: NodePolicyTest\ncases:\n"

// full is a file with each field.
const full = fileHead + `- name: all
  pod:
    namespace: batch-1
    labels: {tier: batch}
    qosClass: Burstable
    annotations: {limits.blkio.noderesource.dev/containers: "* wbps=1Mi"}
    containers: [a, b]
  expect:
    rule: batch
    mode: observe
    annotationsIgnored: true
    eachContainer: {class: none, refused: false, limits: []}
    containers:
      a:
        refused: above the bound
        limits: [{target: /data, rbps: 1Mi, wbps: max, riops: 5, wiops: 1k, from: class silver}]
        weight: 50
        weights: [{target: rootfs, weight: none, from: x}]
      b: {refused: true}
    podTotal: {limits: [{target: "*", wbps: 2Mi}], weight: none, weights: []}
- name: in a manifest
  pod: {manifest: db.yaml, kind: StatefulSet, name: db, namespace: prod}
  expect: {mode: enforce}
`

func TestParse(t *testing.T) {
	got, err := Parse([]byte(full))
	if err != nil {
		t.Fatal(err)
	}
	want := []Case{
		{
			Name: "all", Line: 4,
			Pod: Pod{
				Namespace: "batch-1", Traits: manifest.Traits{Labels: map[string]string{"tier": "batch"}, QOS: manifest.Burstable},
				Annotations: map[string]string{"limits.blkio.noderesource.dev/containers": "* wbps=1Mi"}, Containers: []string{"a", "b"},
			},
			want: pod{
				rule: new("batch"), mode: new(policy.ModeObserve), ignored: new(true),
				each: &cgroup{class: new(None), refused: &refusal{}, limits: []limit{}},
				named: map[string]*cgroup{
					"a": {
						refused: &refusal{true, "above the bound"},
						limits: []limit{{
							target: "/data", from: "class silver",
							limits: blkio.Limits{blkio.Rbps: 1 << 20, blkio.Wbps: blkio.Max, blkio.Riops: 5, blkio.Wiops: 1000},
						}},
						weights: []limit{
							{weight: 50},
							{target: "rootfs", from: "x"},
						},
					},
					"b": {refused: &refusal{expected: true}},
				},
				total: &cgroup{
					limits:  []limit{{target: "*", limits: blkio.Limits{blkio.Wbps: 2 << 20}}},
					weights: []limit{{}},
				},
			},
		},
		{
			Name: "in a manifest", Line: 24, Pod: Pod{Manifest: "db.yaml", Kind: "StatefulSet", Name: "db", Namespace: "prod"},
			want: pod{mode: new(policy.ModeEnforce), named: map[string]*cgroup{}},
		},
	}
	if d := cmp.Diff(want, got, cmp.AllowUnexported(Case{}, pod{}, cgroup{}, refusal{}, limit{})); d != "" {
		t.Errorf("-want +got:\n%s", d)
	}
}

// fileErrors are files that are refused, with a part of the error.
var fileErrors = []struct{ text, want string }{
	{"", `apiVersion: Required value: write "blkio.noderesource.dev/v1alpha1"`},
	{"kind: NodePolicy", `kind: Unsupported value: "NodePolicy": supported values: "NodePolicyTest"`},
	{strings.TrimSuffix(fileHead, "cases:\n"), `cases: Required value: a file has at least one case`},
	{fileHead + "- {expect: {rule: a}}", `line 4: cases[0].name: Required value`},
	{fileHead + "- {name: a, expect: {rule: a}}\n- {name: a, expect: {rule: a}}", `line 5: cases[1].name: Duplicate value: "a"`},
	{fileHead + "- {name: a}", `cases[0].expect: Required value: a case expects something`},
	{fileHead + "- {name: a, expect: {eachContainer: {}, containers: {a: {}}, podTotal: {}}}", `cases[0].expect: Required value: a case expects something`},
	{fileHead + "- {name: a, excpect: {rule: a}}", `cases[0].excpect: Forbidden: unknown field (did you mean "cases[0].expect"?)`},
	{fileHead + "- {name: a, expect: {rules: a}}", `cases[0].expect.rules: Forbidden: unknown field (did you mean "cases[0].expect.rule"?)`},
	{fileHead + "- {name: a, expect: {mode: watch}}", `cases[0].expect.mode: Unsupported value: "watch"`},
	{fileHead + "- {name: a, expect: {podTotal: {class: a}}}", `cases[0].expect.podTotal.class: Forbidden: unknown field`},
	{fileHead + "- name: a\n  expect:\n    containers:\n      db: {clas: x}", `line 7: cases[0].expect.containers.db.clas: Forbidden: unknown field (did you mean "cases[0].expect.containers.db.class"?)`},
	{fileHead + "- {name: a, expect: {eachContainer: {limits: {}}}}", `cases[0].expect.eachContainer.limits: Invalid value: expected a list, found object`},
	{fileHead + "- {name: a, expect: {eachContainer: {limits: [a]}}}", `cases[0].expect.eachContainer.limits[0]: Invalid value: expected an object with fields, found string`},
	{fileHead + "- {name: a, expect: {eachContainer: {limits: [{target: rootfs, wpbs: 1Mi}]}}}", `limits[0].wpbs: Forbidden: unknown field (did you mean "cases[0].expect.eachContainer.limits[0].wbps"?)`},
	{fileHead + "- {name: a, expect: {eachContainer: {refused: ''}}}", `eachContainer.refused: Invalid value: "": write a part of the error, true or false`},
	{fileHead + "- {name: a, expect: {eachContainer: {weight: 0}}}", `eachContainer.weight: Invalid value: "0": write a whole number from 1 to 10000, or none`},
	{fileHead + "- {name: a, expect: {eachContainer: {weight: 10001}}}", `eachContainer.weight: Invalid value: "10001"`},
	{fileHead + "- {name: a, expect: {eachContainer: {weight: max}}}", `eachContainer.weight: Invalid value: "max"`},
	{fileHead + "- {name: a, expect: {eachContainer: {weights: [{weight: 5}]}}}", `weights[0].target: Required value: write a path, @VOLUME, pvc:CLAIM, rootfs or *`},
	{fileHead + "- {name: a, expect: {eachContainer: {limits: [{target: rootfs}]}}}", `limits[0]: Required value: write rbps, wbps, riops or wiops`},
	{fileHead + "- {name: a, expect: {eachContainer: {limits: [{target: rootfs, wbps: 50MB}]}}}", `limits[0].wbps: Invalid value: "50MB": invalid quantity "50MB" (write 50M or 50Mi)`},
	{fileHead + "- {name: a, expect: {eachContainer: {limits: [{target: rootfs, wbps: 0}]}}}", `limits[0].wbps: Invalid value: "0": no limit is 0 (write max for no limit)`},
	{fileHead + "- {name: a, expect: {podTotal: {limits: [{target: rootfs, rbps: max, riops: 0.000Ki}]}}}", `podTotal.limits[0].riops: Invalid value: "0.000Ki": no limit is 0`},
	{fileHead + "- {name: a, expect: {eachContainer: {limits: [{target: rootfs, wiops: .inf}]}}}", `limits[0].wiops: Invalid value: expected a finite number, found .inf`},
	{fileHead + "- {name: a, expect: {eachContainer: {limits: [{target: data, wbps: 5}]}}}", `limits[0].target: Invalid value: "data": unknown target "data"`},
	{fileHead + "- {name: a, expect: {eachContainer: {limits: [{target: '/a;/b', wbps: 5}]}}}", `limits[0].target: Invalid value: "/a;/b"`},
	{fileHead + "- {name: a, expect: {eachContainer: {limits: [{target: '/a rbps=5', wbps: 5}]}}}", `write the target alone, and each key as a field`},
	{fileHead + "- {name: a, expect: {eachContainer: {limits: [{target: '# a', wbps: 5}]}}}", `limits[0].target: Invalid value: "# a": the value is empty`},
	{fileHead + "- {name: a, expect: {eachContainer: {limits: [{target: rootfs, wbps: 0}]}}}", `limits[0].wbps: Invalid value: "0": no limit is 0 (write max for no limit)`},
	{fileHead + "- {name: a, expect: {rule: ''}}", `cases[0].expect.rule: Invalid value: "": write a name, or none`},
	{fileHead + "- {name: a, expect: {containers: {b: {class: ''}}}}", `cases[0].expect.containers.b.class: Invalid value: "": write a name, or none`},
	{fileHead + "- {name: a, expect: {rule: a}, pod: {qosClass: burstable}}", `pod.qosClass: Unsupported value: "burstable"`},
	{fileHead + "- {name: a, expect: {rule: a}, pod: {labels: {a: 1}}}", `pod.labels.a: Invalid value: expected a string, found number`},
	{fileHead + "- {name: a, expect: {rule: a}, pod: {containers: [A]}}", `pod.containers[0]: Invalid value: "A"`},
	{fileHead + "- {name: a, expect: {rule: a}, pod: {containers: [a, a]}}", `pod.containers[1]: Duplicate value: "a"`},
	{fileHead + "- {name: a, expect: {rule: a}, pod: {name: a, containers: [a]}}", `pod.containers: Forbidden: the manifest has the containers`},
	{fileHead + "- {name: a, expect: {rule: a}, pod: {kind: Pod}}", `pod.kind: Forbidden: needs the name of a pod in a manifest`},
	{fileHead + "- {name: a, expect: {rule: a}, pod: {annotations: {limits.blkio.nodresource.dev/containers: a}}}", `(did you mean "limits.blkio.noderesource.dev/containers"?)`},
}

func TestParseErrors(t *testing.T) {
	for _, tt := range fileErrors {
		cases, err := Parse([]byte(tt.text))
		if err == nil || !strings.HasPrefix(err.Error(), "parse tests: ") || !strings.Contains(err.Error(), tt.want) || cases != nil {
			t.Errorf("%q:\n got %v\nwant %s", tt.text, err, tt.want)
		}
	}
}

// FuzzParse verifies that a file is refused with the same error each time, or all of its cases can be compared.
func FuzzParse(f *testing.F) {
	f.Add([]byte(full))
	for _, tt := range fileErrors {
		f.Add([]byte(tt.text))
	}
	checker := testChecker(f)
	f.Fuzz(func(t *testing.T, data []byte) {
		cases, err := Parse(data)
		if _, again := Parse(data); (err == nil) != (again == nil) || err != nil && err.Error() != again.Error() {
			t.Fatalf("%v, then %v", err, again)
		}
		if err != nil && cases != nil {
			t.Errorf("cases beside %v", err)
		}
		for i := range cases {
			m, err := cases[i].Pod.Find(&manifest.Set{})
			if cases[i].Pod.InManifest() == (err == nil) {
				t.Errorf("%+v: %v", cases[i].Pod, err)
			}
			if m == nil {
				continue
			}
			found, _ := cases[i].Compare(t.Context(), checker, m)
			again, _ := cases[i].Compare(t.Context(), checker, m)
			if d := cmp.Diff(found, again); d != "" {
				t.Errorf("two comparisons differ: %s", d)
			}
		}
	})
}
